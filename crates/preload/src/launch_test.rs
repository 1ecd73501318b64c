//! Programs that lie in the pool, and scripts whose interpreters do.

use super::*;
use crate::pool_test::{Place, TestDir, exclusive_test, with_children};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// List of arguments, with its null.
fn list(texts: &[&'static CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

/// Arguments of a list, up to its null.
fn shown(argv: StringList) -> Vec<String> {
    // SAFETY: a null-terminated list of strings.
    unsafe { texts(argv).map(|text| String::from_utf8(bytes(text).to_vec()).unwrap()).collect() }
}

/// Writes a file that may be executed.
fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_first_line_names_an_interpreter_and_at_most_one_argument() {
    for (head, found) in [
        ("#!/bin/sh\n", Some(("/bin/sh", None))),
        ("#!/bin/sh", Some(("/bin/sh", None))),
        ("#! /bin/sh \nnext", Some(("/bin/sh", None))),
        ("#!/usr/bin/env python3\n", Some(("/usr/bin/env", Some("python3")))),
        ("#!/usr/bin/env -S a  b \t\n", Some(("/usr/bin/env", Some("-S a  b")))),
        ("#!\t/bin/awk\t-f\n", Some(("/bin/awk", Some("-f")))),
        ("#!\n/bin/sh", None),
        ("#!   \n", None),
        ("#!", None),
        ("# !/bin/sh\n", None),
        (" #!/bin/sh\n", None),
        ("\u{7f}ELF", None),
        ("", None),
    ] {
        let found =
            found.map(|(interpreter, word): (&str, Option<&str>)| (interpreter.as_bytes(), word.map(str::as_bytes)));
        assert_eq!(interpreter_line(head.as_bytes()), found, "{head:?}");
    }
}

#[test]
fn a_copy_of_a_program_has_the_programs_name_as_far_as_it_fits() {
    for (path, name) in [("/tidemill/a/tool", "tool"), ("tool", "tool"), ("/tidemill/a/", ""), ("", "")] {
        assert_eq!(memory_name(path.as_bytes()).to_str().unwrap(), name, "{path}");
    }
    let long = format!("/tidemill/{}", "x".repeat(255));
    assert_eq!(memory_name(long.as_bytes()).count_bytes(), MEMORY_NAME_MAX);
    assert!(rustix::fs::memfd_create(memory_name(long.as_bytes()).as_c_str(), rustix::fs::MemfdFlags::CLOEXEC).is_ok());
}

#[test]
fn a_shell_runs_a_script_with_all_but_the_first_argument() {
    for (argv, wanted) in [
        (&[c"name", c"-a", c"b"][..], &["/bin/sh", "/tidemill/s", "-a", "b"][..]),
        (&[c"name"], &["/bin/sh", "/tidemill/s"]),
        (&[], &["/bin/sh", "/tidemill/s"]),
    ] {
        // SAFETY: a null-terminated list of strings, which outlive the result.
        let arguments = unsafe { shell_arguments(c"/tidemill/s", list(argv).as_ptr()) };
        assert_eq!(shown(arguments.as_ptr()), wanted);
    }
}

#[test]
fn a_variable_is_found_by_its_whole_name() {
    let list = list(&[c"AB=1", c"A=2", c"A=3", c"B", c"C="]);
    for (name, found) in [("A", Some("2")), ("AB", Some("1")), ("B", None), ("C", Some("")), ("", None)] {
        // SAFETY: a null-terminated list of strings.
        let found_here = unsafe { value(list.as_ptr(), name.as_bytes()) };
        assert_eq!(found_here, found.map(str::as_bytes), "{name}");
    }
}

/// Searches a program, where each directory answers with the error that `errors` has for it.
fn search(path: &str, program: &str, errors: &[(&str, Errno)]) -> (c_int, Option<Errno>, Vec<String>) {
    let before = std::env::var_os("PATH").unwrap();
    // SAFETY: the caller has its turn.
    unsafe { std::env::set_var("PATH", path) };
    let mut tried = Vec::new();
    let outcome = try_path_search(program.as_bytes(), |path| {
        tried.push(path.to_str().unwrap().to_owned());
        let known = errors.iter().find(|(known, _)| path.to_str() == Ok(known));
        if let Some((_, errno)) = known {
            set_errno(*errno);
        }
    });
    let why = errno();
    // SAFETY: as above.
    unsafe { std::env::set_var("PATH", before) };
    (outcome, why, tried)
}

#[test]
fn a_search_tries_each_directory_until_a_program_starts_or_cannot() {
    let _exclusive = exclusive_test();
    let (none, denied, bad) = (Errno::NOENT, Errno::ACCESS, Errno::NOEXEC);
    for (path, program, errors, outcome, tried) in [
        ("/a:/b", "p", &[("/a/p", none)][..], Ok(()), &["/a/p", "/b/p"][..]),
        ("/a:/b", "p", &[], Ok(()), &["/a/p"]),
        ("/a:/b", "p", &[("/a/p", none), ("/b/p", Errno::NOTDIR)], Err(Errno::NOTDIR), &["/a/p", "/b/p"]),
        ("/a:/b", "p", &[("/a/p", denied), ("/b/p", none)], Err(denied), &["/a/p", "/b/p"]),
        ("/a:/b", "p", &[("/a/p", denied)], Ok(()), &["/a/p", "/b/p"]),
        ("/a:/b", "p", &[("/a/p", denied), ("/b/p", bad)], Err(bad), &["/a/p", "/b/p"]),
        ("/a:/b", "p", &[("/a/p", bad)], Err(bad), &["/a/p"]),
        ("/a:/b", "p", &[("/a/p", Errno::STALE), ("/b/p", Errno::NOTCONN)], Err(Errno::NOTCONN), &["/a/p", "/b/p"]),
        (":/b", "p", &[("p", none)], Ok(()), &["p", "/b/p"]),
        ("/a", "./p", &[("./p", none)], Err(none), &["./p"]),
        ("", "p", &[("/bin/p", none), ("/usr/bin/p", none)], Err(none), &["/bin/p", "/usr/bin/p"]),
    ] {
        let (ended, why, all) = search(path, program, errors);
        let ended = if ended == 0 { Ok(()) } else { Err(why.unwrap()) };
        assert_eq!(
            (ended, all.as_slice()),
            (outcome, &tried.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()[..]),
            "{path} {program} {errors:?}"
        );
    }
}

#[test]
fn a_program_is_searched_here_only_if_a_directory_of_the_search_is_in_the_pool() {
    let _exclusive = exclusive_test();
    let before = std::env::var_os("PATH").unwrap();
    for (path, program, found) in [
        ("/bin:/usr/bin", c"p", false),
        ("/bin:/tidemill/bin", c"p", true),
        ("/bin", c"/tidemill/p", true),
        ("/bin:/tidemill/bin", c"/bin/p", false),
        ("/bin:/tidemill/bin", c"./p", false),
        ("bin:", c"p", false),
    ] {
        // SAFETY: this test has its turn.
        unsafe { std::env::set_var("PATH", path) };
        // SAFETY: a nul-terminated string.
        assert_eq!(unsafe { may_be_in_pool(program.as_ptr()) }, found, "{path} {program:?}");
    }
    // SAFETY: as above.
    unsafe { std::env::set_var("PATH", before) };
}

/// Prepares a program of the pool.
fn prepared(test_dir: &TestDir, name: &str, argv: &[&'static CStr]) -> Result<(String, Vec<String>, bool), Errno> {
    let (path, argv) = (test_dir.c(name), list(argv));
    // SAFETY: nul-terminated strings, and a list of them; the result is used before they go.
    unsafe {
        let arg = classify::path(path.as_ptr()).unwrap();
        let image = prepare(arg, path.to_bytes(), argv.as_ptr())?;
        let of_memory =
            image.path_for_child().to_bytes().starts_with(format!("/proc/{}/fd/", std::process::id()).as_bytes());
        let path = String::from_utf8(bytes(image.path()).to_vec()).unwrap();
        let argv = shown(image.argv()).iter().map(|text| test_dir.without_root(text)).collect();
        assert_eq!(path.starts_with("/proc/self/fd/"), of_memory);
        Ok((test_dir.without_root(&path), argv, of_memory))
    }
}

#[test]
fn a_script_of_the_pool_is_started_by_its_interpreter_under_its_own_path() {
    let test_dir = TestDir::new(Place::Local);
    executable(&test_dir.path("plain"), "#!/bin/sh -e\n");
    executable(&test_dir.path("nested"), &format!("#!{} -x\n", test_dir.path("plain").display()));
    executable(&test_dir.path("binary"), "\u{7f}ELF");
    fs::write(test_dir.path("no permission"), "#!/bin/sh\n").unwrap();
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let argv = [c"name", c"a", c"b"];
    assert_eq!(
        prepared(&test_dir, "plain", &argv),
        Ok(("/bin/sh".to_owned(), owned(&["/bin/sh", "-e", "./plain", "a", "b"]), false))
    );
    assert_eq!(
        prepared(&test_dir, "nested", &argv),
        Ok(("/bin/sh".to_owned(), owned(&["/bin/sh", "-e", "./plain", "-x", "./nested", "a", "b"]), false))
    );
    let (_, binary, of_memory) = prepared(&test_dir, "binary", &argv).unwrap();
    assert!(of_memory && binary == ["name", "a", "b"]);
    assert_eq!(prepared(&test_dir, "no permission", &argv), Err(Errno::ACCESS));
    assert_eq!(prepared(&test_dir, "missing", &argv), Err(Errno::NOENT));
    assert_eq!(prepared(&test_dir, ".", &argv), Err(Errno::ACCESS));
}

#[test]
fn scripts_may_be_nested_as_deep_as_in_the_kernel_and_not_in_a_circle() {
    let test_dir = TestDir::new(Place::Local);
    executable(&test_dir.path("0"), "#!/bin/sh\n");
    for depth in 1..=INTERPRETERS_MAX + 1 {
        executable(
            &test_dir.path(&depth.to_string()),
            &format!("#!{}\n", test_dir.path(&(depth - 1).to_string()).display()),
        );
    }
    let deepest = prepared(&test_dir, &INTERPRETERS_MAX.to_string(), &[c"name"]).unwrap();
    assert_eq!((deepest.0.as_str(), deepest.1.len()), ("/bin/sh", INTERPRETERS_MAX + 2));
    assert_eq!(prepared(&test_dir, &(INTERPRETERS_MAX + 1).to_string(), &[c"name"]), Err(Errno::LOOP));
    executable(&test_dir.path("circle"), &format!("#!{}\n", test_dir.path("circle").display()));
    assert_eq!(prepared(&test_dir, "circle", &[c"name"]), Err(Errno::LOOP));
}

#[test]
fn a_script_of_the_host_is_prepared_here_only_if_its_interpreter_is_in_the_pool() {
    let (host, test_dir) = (TestDir::new(Place::Host), TestDir::new(Place::Local));
    executable(&test_dir.path("interpreter"), "#!/bin/sh\n");
    executable(&host.path("ours"), &format!("#!{}\n", test_dir.path("interpreter").display()));
    executable(&host.path("theirs"), "#!/bin/sh\n");
    executable(&host.path("empty"), "");
    let argv = list(&[c"name", c"a"]);
    // SAFETY: a nul-terminated string, and a list of them.
    let prepared = |name: &str| unsafe { prepare_host_script(host.c(name).as_ptr(), argv.as_ptr()) };
    let ours = prepared("ours").unwrap();
    let wanted = [
        "/bin/sh".to_owned(),
        test_dir.path("interpreter").display().to_string(),
        host.path("ours").display().to_string(),
        "a".to_owned(),
    ];
    assert_eq!(shown(ours.argv()), wanted);
    for name in ["theirs", "empty", "missing"] {
        assert!(prepared(name).is_none(), "{name}");
    }
}

#[test]
fn a_script_gets_a_path_by_which_it_can_open_itself() {
    let test_dir = TestDir::new(Place::Local);
    fs::write(test_dir.path("s"), "").unwrap();
    let directory = fs::File::open(test_dir.root()).unwrap();
    let descriptor = directory.as_raw_fd();
    let whole = test_dir.path("s").into_os_string().into_encoded_bytes();
    assert_eq!(script_name(PoolPath::Root(b"/s"), b"/tidemill/s"), Ok(b"/tidemill/s".to_vec()));
    assert_eq!(script_name(PoolPath::Cwd(b"s"), b"s"), Ok(b"s".to_vec()));
    assert_eq!(script_name(PoolPath::At(descriptor, b"s"), b"s"), Ok(whole));
    assert_eq!(script_name(PoolPath::At(descriptor, b"missing"), b"missing"), Err(Errno::NOENT));
    assert_eq!(script_name(PoolPath::At(7, b""), b""), Ok(b"/dev/fd/7".to_vec()));
}

#[test]
fn programs_and_scripts_of_the_pool_run_with_their_arguments() {
    let (_exclusive, _children) = (exclusive_test(), with_children());
    for place in [Place::Local, Place::Striped] {
        let test_dir = TestDir::new(place);
        fs::copy("/bin/echo", test_dir.path("echo")).unwrap();
        executable(&test_dir.path("script"), &format!("#!{} one two\n", test_dir.path("echo").display()));
        executable(&test_dir.path("no line"), "echo by a shell\n");
        for (name, said) in
            [("echo", "a b\n".to_owned()), ("script", format!("one two {} a b\n", test_dir.path("script").display()))]
        {
            // The loader cannot preload this test, so the program itself sees no pool.
            let output = Command::new(test_dir.path(name)).args(["a", "b"]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), said, "{name} in {place:?}");
        }
        let missing = Command::new(test_dir.path("missing")).output().unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }
}
