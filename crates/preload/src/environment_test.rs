//! Environment of the programs that this one starts: it shows them the pool as this one sees it.

use crate::environment::{DEVICES, DIRECTORY, POOL, PREFIX, child_variables, variable};
use crate::launch::{self, ExecEnvironment, complete_environment_in};
use crate::pool_test::{Place, TestDir, exclusive_test};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

/// Environment of a program, as a list for execve(2).
fn completed(given: &[&str], start_directory: Option<&[u8]>) -> (bool, Vec<String>) {
    let texts: Vec<CString> = given.iter().map(|text| CString::new(*text).unwrap()).collect();
    let list: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).chain([null()]).collect();
    // SAFETY: a null-terminated list of strings, which outlive the result.
    let environment = unsafe { complete_environment_in(list.as_ptr(), start_directory) };
    let (mut at, mut entries) = (environment.as_ptr(), Vec::new());
    // SAFETY: the list ends with a null.
    unsafe {
        while !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_str().unwrap().to_owned());
            at = at.add(1);
        }
    }
    (matches!(environment, ExecEnvironment::Given(_)), entries)
}

/// Value of a variable in a list.
fn value<'a>(entries: &'a [String], name: &CStr) -> Option<&'a str> {
    let name = name.to_str().unwrap();
    let mut values = entries.iter().filter_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    let first = values.next();
    assert_eq!(values.next(), None, "{name} is given twice");
    first
}

/// Path of this program, which has the functions of the library in itself.
fn library() -> String {
    let (_, entries) = completed(&[], None);
    value(&entries, c"LD_PRELOAD").unwrap().to_owned()
}

#[test]
fn a_program_with_an_empty_environment_gets_what_it_needs_to_see_the_pool() {
    let _exclusive = exclusive_test();
    let (given, entries) = completed(&[], None);
    assert!(!given);
    assert!(library().ends_with(std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap()));
    assert_eq!(value(&entries, POOL), variable(POOL).map(|pool| std::str::from_utf8(pool).unwrap()));
    assert_eq!(value(&entries, PREFIX), Some("/tidemill"));
    assert_eq!(value(&entries, DIRECTORY), None, "this program's directory is outside the pool");
}

#[test]
fn a_null_environment_is_an_empty_one() {
    let _exclusive = exclusive_test();
    // SAFETY: null is permitted.
    let environment = unsafe { launch::complete_environment(null()) };
    assert!(matches!(environment, ExecEnvironment::Changed { .. }));
}

#[test]
fn an_environment_that_has_all_is_passed_on_unchanged() {
    let _exclusive = exclusive_test();
    let (_, once) = completed(&["A=1", "PATH=/bin"], None);
    let again: Vec<&str> = once.iter().map(String::as_str).collect();
    assert_eq!(completed(&again, None), (true, once.clone()));
}

#[test]
fn other_variables_keep_their_order_and_their_text() {
    let _exclusive = exclusive_test();
    let given = ["B=2", "A=1", "TIDEMILL_POOLS=no", "without an equals sign", "EMPTY=", "LD_PRELOADS=x"];
    let (_, entries) = completed(&given, None);
    assert_eq!(entries[..given.len()], given);
}

#[test]
fn this_library_is_added_before_others_unless_it_is_among_them() {
    let _exclusive = exclusive_test();
    let own = library();
    for (given, wanted) in [
        (String::new(), own.clone()),
        ("/lib/other.so".to_owned(), format!("{own}:/lib/other.so")),
        (format!("/lib/other.so:{own}"), format!("/lib/other.so:{own}")),
        (format!("/lib/a.so {own} /lib/b.so"), format!("/lib/a.so {own} /lib/b.so")),
        (format!("{own}.old"), format!("{own}:{own}.old")),
    ] {
        let (_, entries) = completed(&[&format!("LD_PRELOAD={given}")], None);
        assert_eq!(value(&entries, c"LD_PRELOAD"), Some(wanted.as_str()), "{given}");
    }
}

#[test]
fn another_pool_that_a_program_is_given_is_kept() {
    let _exclusive = exclusive_test();
    let (_, entries) = completed(&["TIDEMILL_POOL=/other/pool", "TIDEMILL_PREFIX=/sea"], None);
    assert_eq!((value(&entries, POOL), value(&entries, PREFIX)), (Some("/other/pool"), Some("/sea")));
}

#[test]
fn a_working_directory_or_devices_that_were_inherited_by_mistake_are_removed_or_replaced() {
    let _exclusive = exclusive_test();
    let (_, entries) = completed(&["TIDEMILL_CWD=/tidemill/gone", "TIDEMILL_DEVICES=none"], None);
    assert_eq!(value(&entries, DIRECTORY), None);
    assert_ne!(value(&entries, DEVICES), Some("none"));
}

#[test]
fn the_directory_in_which_a_program_is_to_start_is_passed_if_it_is_in_the_pool() {
    let _exclusive = exclusive_test();
    for (start, wanted) in [
        (&b"/tidemill/a"[..], Some("/tidemill/a")),
        (b"/tmp/../tidemill/a", Some("/tmp/../tidemill/a")),
        (b"/tmp", None),
    ] {
        let (_, entries) = completed(&["TIDEMILL_CWD=/tidemill/b"], Some(start));
        assert_eq!(value(&entries, DIRECTORY), wanted);
    }
}

#[test]
fn the_working_directory_is_passed_while_it_is_in_the_pool() {
    let _exclusive = exclusive_test();
    let (host, test_dir) = (std::env::current_dir().unwrap(), TestDir::new(Place::Local));
    std::env::set_current_dir(test_dir.root()).unwrap();
    let (_, inside) = completed(&[], None);
    let exported = variable(DIRECTORY).map(|text| String::from_utf8(text.to_vec()).unwrap());
    std::env::set_current_dir(host).unwrap();
    let (_, outside) = completed(&[], None);
    let path = value(&inside, DIRECTORY).unwrap();
    assert!(path.ends_with(&format!(":{}", test_dir.root().display())), "{path}");
    assert_eq!(exported.as_deref(), Some(path), "programs that the C library starts find it too");
    assert_eq!((value(&outside, DIRECTORY), variable(DIRECTORY)), (None, None));
}

#[test]
fn the_devices_of_open_files_are_passed_so_that_descriptors_can_be_inherited() {
    let _exclusive = exclusive_test();
    let test_dir = TestDir::new(Place::Local);
    let _file = test_dir.file("f", b"");
    let (_, entries) = completed(&[], None);
    let devices = value(&entries, DEVICES).unwrap();
    assert!(devices.split(',').all(|device| device.parse::<u64>().is_ok()), "{devices}");
}

#[test]
fn each_required_value_says_what_fits_it() {
    let _exclusive = exclusive_test();
    let (path, own) = (b"/tidemill/a", library());
    let variables = child_variables(Some(path));
    let find = |name: &CStr| variables.iter().find(|variable| variable.name == name.to_bytes()).unwrap();
    assert!(find(DIRECTORY).fits(Some(path)) && !find(DIRECTORY).fits(Some(b"/tidemill")));
    assert!(!find(DIRECTORY).fits(None));
    assert!(find(POOL).fits(Some(b"any")) && !find(POOL).fits(None));
    assert!(find(c"LD_PRELOAD").fits(Some(own.as_bytes())) && !find(c"LD_PRELOAD").fits(Some(b"")));
    let outside = child_variables(Some(b"/tmp"));
    let directory = outside.iter().find(|variable| variable.name == DIRECTORY.to_bytes()).unwrap();
    assert!(directory.fits(None) && !directory.fits(Some(path)) && directory.entry(Some(path)).is_none());
    assert_eq!(find(DIRECTORY).entry(None).as_deref(), Some(c"TIDEMILL_CWD=/tidemill/a"));
}

#[test]
fn an_empty_variable_counts_as_none() {
    let _exclusive = exclusive_test();
    // SAFETY: this test has its turn.
    unsafe { std::env::set_var("TIDEMILL_TEST", "") };
    assert_eq!(variable(c"TIDEMILL_TEST"), None);
    // SAFETY: as above.
    unsafe { std::env::set_var("TIDEMILL_TEST", "x") };
    assert_eq!(variable(c"TIDEMILL_TEST"), Some(&b"x"[..]));
    // SAFETY: as above.
    unsafe { std::env::remove_var("TIDEMILL_TEST") };
    assert_eq!(variable(c"TIDEMILL_TEST"), None);
}
