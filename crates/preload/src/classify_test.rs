//! Tests of the decision whether a path or descriptor is of the pool.

use crate::classify::{
    self, DESCRIPTORS_MAX, FdKind, PoolPath, for_each_recorded, is_recorded, is_remote, is_unidentified, kind, path,
    path_at, record, record_inherited, record_unidentified_dup,
};
use crate::pool_test::{Place, TestDir, c_path, exclusive_test, has_extents, in_child, number};
use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Kind of a path of the pool, its descriptor, and the rest of its text.
type Classified = Option<(&'static str, c_int, String)>;

/// Classifies a text, and describes the result.
fn classified(dirfd: c_int, text: &[u8]) -> Classified {
    let text = CString::new(text).unwrap();
    let shown = |rest: &[u8]| String::from_utf8(rest.to_vec()).unwrap();
    // SAFETY: the text outlives the result.
    unsafe { path_at(dirfd, text.as_ptr()) }.map(|found| match found {
        PoolPath::Root(rest) => ("root", 0, shown(rest)),
        PoolPath::Cwd(rest) => ("cwd", 0, shown(rest)),
        PoolPath::Magic(descriptor, rest) => ("magic", descriptor, shown(rest)),
        PoolPath::At(descriptor, rest) => ("at", descriptor, shown(rest)),
    })
}

/// Path of the pool by its prefix.
#[expect(clippy::unnecessary_wraps, reason = "compared with what may be none")]
fn root(rest: &str) -> Classified {
    Some(("root", 0, rest.to_owned()))
}

/// Descriptors that no open file has, for tests of the table alone.
const FREE: c_int = 900_000;

#[test]
fn an_absolute_path_is_of_the_pool_if_its_text_leads_below_the_prefix() {
    for (text, found) in [
        ("/tidemill", root("")),
        ("/tidemill/", root("/")),
        ("/tidemill/a/b", root("/a/b")),
        ("//tidemill//a", root("//a")),
        ("/usr/../tidemill/a", root("/a")),
        ("/tidemill/../a", root("/a")),
        ("/tidemills/a", None),
        ("/tmp/tidemill", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(classified(libc::AT_FDCWD, text.as_bytes()), found, "{text}");
    }
}

#[test]
fn an_absolute_path_ignores_the_directory_it_is_given_with() {
    let host = File::open("/").unwrap();
    for dirfd in [-1, number(&host), FREE, c_int::MAX] {
        assert_eq!(classified(dirfd, b"/tidemill/a"), root("/a"), "{dirfd}");
        assert_eq!(classified(dirfd, b"/usr"), None, "{dirfd}");
    }
}

#[test]
fn a_pointer_that_cannot_be_read_is_left_to_the_kernel() {
    for at in [0, 8, usize::MAX] {
        // SAFETY: an address where nothing is.
        assert_eq!(unsafe { path(std::ptr::without_provenance(at)) }, None, "{at}");
    }
    let long = CString::new([&b"/tidemill/"[..], &[b'x'; 5000]].concat()).unwrap();
    // SAFETY: the text outlives the result.
    assert_eq!(unsafe { path(long.as_ptr()) }, None, "longer than any path");
}

#[test]
fn a_relative_path_is_of_the_pool_if_its_directory_is() {
    let test_dir = TestDir::new(Place::Local);
    let directory = File::open(test_dir.root()).unwrap();
    let at = number(&directory);
    assert_eq!(classified(at, b"a/b"), Some(("at", at, "a/b".to_owned())));
    assert_eq!(classified(at, b""), Some(("at", at, String::new())));
    // In the child no other thread takes the number.
    let closed = in_child(|| {
        drop(directory);
        format!("{:?}", classified(at, b"a/b"))
    });
    assert_eq!(closed, "None");
}

#[test]
fn a_relative_path_from_a_directory_above_the_pool_can_lead_into_it() {
    let (above, beside) = (File::open("/").unwrap(), File::open("/usr").unwrap());
    for (directory, text, found) in [
        (&above, "tidemill/a", root("/a")),
        (&above, "./tidemill", root("")),
        (&above, "usr/../tidemill/a", root("/a")),
        (&above, "usr/tidemill", None),
        (&above, "a", None),
        (&beside, "tidemill/a", None),
        (&beside, "../tidemill/a", root("/a")),
    ] {
        assert_eq!(classified(number(directory), text.as_bytes()), found, "{text}");
    }
    assert_eq!(classified(FREE, b"tidemill/a"), None, "no such directory");
}

#[test]
fn a_relative_path_is_of_the_pool_while_the_working_directory_is() {
    let _exclusive = exclusive_test();
    let (host, test_dir) = (std::env::current_dir().unwrap(), TestDir::new(Place::Local));
    std::env::set_current_dir(test_dir.root()).unwrap();
    let inside = classified(libc::AT_FDCWD, b"a");
    std::env::set_current_dir("/").unwrap();
    let (above, up) = (classified(libc::AT_FDCWD, b"tidemill/a"), classified(libc::AT_FDCWD, b"a"));
    std::env::set_current_dir(host).unwrap();
    assert_eq!(inside, Some(("cwd", 0, "a".to_owned())));
    assert_eq!((above, up), (root("/a"), None));
}

#[test]
fn the_systems_names_of_a_descriptor_are_of_the_pool_if_it_is() {
    let test_dir = TestDir::new(Place::Striped);
    let (file, host) = (test_dir.file("f", b""), File::open("/").unwrap());
    let (own, other) = (number(&file), number(&host));
    let magic = |rest: &str| Some(("magic", own, rest.to_owned()));
    for (text, found) in [
        (format!("/proc/self/fd/{own}"), magic("")),
        (format!("/dev/fd/{own}"), magic("")),
        (format!("/proc/self/fd/{own}/a"), magic("/a")),
        (format!("/proc/self/fd/{own}a"), None),
        (format!("/proc/self/fd/{other}"), None),
        ("/proc/self/fd/".to_owned(), None),
        ("/proc/self/fd/x".to_owned(), None),
        ("/proc/self/fd/-1".to_owned(), None),
        (format!("/proc/self/fd/{}", u64::MAX), None),
        ("/dev/stdin".to_owned(), None),
        ("/dev/stdout".to_owned(), None),
        ("/dev/stderr".to_owned(), None),
    ] {
        assert_eq!(classified(libc::AT_FDCWD, text.as_bytes()), found, "{text}");
    }
}

#[test]
fn a_descriptor_that_another_file_has_taken_is_no_longer_of_the_pool() {
    let test_dir = TestDir::new(Place::Striped);
    let mut file = OwnedFd::from(test_dir.file("f", b"bytes"));
    let descriptor = file.as_raw_fd();
    assert!(is_remote(descriptor));
    // This crate's system calls do not pass the functions that it exports.
    rustix::io::dup2(File::open("/dev/null").unwrap(), &mut file).unwrap();
    assert!(is_recorded(descriptor), "the library did not see it");
    assert_eq!(kind(descriptor), None);
    assert!(!is_recorded(descriptor) && !is_remote(descriptor), "it is forgotten");
}

#[test]
fn numbers_outside_the_table_are_never_of_the_pool() {
    for descriptor in [-1, c_int::MIN, c_int::try_from(DESCRIPTORS_MAX).unwrap(), c_int::MAX] {
        record(descriptor, Some(FdKind::Remote));
        record_inherited(descriptor, true);
        assert!(!is_recorded(descriptor) && !is_unidentified(descriptor) && !is_remote(descriptor), "{descriptor}");
        assert_eq!(kind(descriptor), None, "{descriptor}");
        assert!(!record_unidentified_dup(descriptor, FREE), "{descriptor}");
    }
}

#[test]
fn a_record_without_an_open_file_behind_it_is_dropped_when_it_is_asked_for() {
    let descriptor = FREE + 1;
    for recorded in [FdKind::Local, FdKind::Remote, FdKind::Directory, FdKind::Path] {
        record(descriptor, Some(recorded));
        assert!(is_recorded(descriptor) && !is_unidentified(descriptor), "{recorded:?}");
        assert_eq!(kind(descriptor), None, "{recorded:?}");
        assert!(!is_recorded(descriptor), "{recorded:?}");
    }
}

#[test]
fn a_duplicate_of_an_unidentified_descriptor_is_as_unidentified() {
    let (from, to) = (FREE + 2, FREE + 3);
    for remote in [false, true] {
        record_inherited(from, remote);
        assert!(is_unidentified(from) && record_unidentified_dup(from, to) && is_unidentified(to));
        record(from, None);
        assert!(!is_recorded(from) && is_recorded(to));
        record(to, Some(FdKind::Local));
        assert!(!is_unidentified(to) && !record_unidentified_dup(to, from) && !is_recorded(from));
        record(to, None);
    }
}

#[test]
fn recorded_descriptors_are_listed_in_order_within_both_ends() {
    const NONE: [c_int; 0] = [];
    let first = FREE + 10;
    let recorded = [first, first + 2, first + 3, first + 9];
    for descriptor in recorded {
        record(descriptor, Some(FdKind::Local));
    }
    let listed = |from: c_int, to: u32| {
        let mut listed = Vec::new();
        for_each_recorded(from.cast_unsigned(), to, |descriptor| listed.push(descriptor - first));
        listed
    };
    let last = first.cast_unsigned() + 9;
    assert_eq!(listed(first, last), [0, 2, 3, 9]);
    assert_eq!(listed(first, u32::MAX), [0, 2, 3, 9]);
    assert_eq!(listed(first + 1, last - 1), [2, 3]);
    assert_eq!(listed(first + 4, last - 1), NONE);
    assert_eq!(listed(first + 9, last - 9), NONE, "the ends are the wrong way round");
    for descriptor in recorded {
        record(descriptor, None);
    }
    assert_eq!(listed(first, last), NONE);
}

#[test]
fn each_way_to_open_a_file_gives_a_descriptor_of_its_kind() {
    let test_dir = TestDir::new(Place::Local);
    fs::write(test_dir.path("f"), b"bytes").unwrap();
    let local = if has_extents() { FdKind::Local } else { FdKind::Remote };
    for (name, flags, found) in [
        ("f", libc::O_RDONLY, local),
        ("f", libc::O_RDWR | libc::O_APPEND, local),
        ("f", libc::O_PATH, FdKind::Path),
        (".", libc::O_RDONLY, FdKind::Directory),
        (".", libc::O_PATH | libc::O_DIRECTORY, FdKind::Path),
        (".", libc::O_TMPFILE | libc::O_RDWR, FdKind::Remote),
    ] {
        // SAFETY: a nul-terminated string.
        let descriptor = unsafe { libc::open(test_dir.c(name).as_ptr(), flags, 0o600) };
        assert_eq!(kind(descriptor), Some(found), "{name} {flags:o}");
        assert_eq!(is_remote(descriptor), [FdKind::Remote, FdKind::Path].contains(&found), "{name} {flags:o}");
        // SAFETY: opened above.
        assert_eq!(unsafe { libc::close(descriptor) }, 0);
    }
}

#[test]
fn a_host_directory_of_the_prefixs_name_is_hidden() {
    assert_eq!(classify::prefix(), b"/tidemill");
    let test_dir = TestDir::new(Place::Local);
    let through = c_path(&Path::new("/tmp/../").join(test_dir.root().strip_prefix("/").unwrap()));
    // SAFETY: the text outlives the result.
    assert!(unsafe { path(through.as_ptr()) }.is_some());
    let directory = File::open(Path::new(through.to_str().unwrap())).unwrap();
    assert_eq!(kind(directory.as_raw_fd()), Some(FdKind::Directory));
}
