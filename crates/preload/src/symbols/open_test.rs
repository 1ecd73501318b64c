//! Opening files by name: flags, temporary files, and the functions of fortified programs.

use super::*;
use crate::pool_test::{Place, TestDir, answer, same_everywhere, why};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

/// Opens a name and closes it again.
fn tried(test_dir: &TestDir, name: &str, flags: c_int) -> Result<(), Errno> {
    // SAFETY: a nul-terminated string; a descriptor of this function.
    answer(unsafe { libc::open(test_dir.c(name).as_ptr(), flags, 0o640) }).map(|descriptor| unsafe {
        libc::close(c_int::try_from(descriptor).unwrap());
    })
}

#[test]
fn flags_of_open_create_truncate_and_refuse() {
    use libc::{O_APPEND, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE};
    same_everywhere(|test_dir| {
        fs::create_dir(test_dir.path("d")).unwrap();
        symlink("new", test_dir.path("dangling")).unwrap();
        symlink("f", test_dir.path("s")).unwrap();
        [
            ("f", O_RDONLY),
            ("f", O_WRONLY | O_CREAT),
            ("f", O_WRONLY | O_CREAT | O_EXCL),
            ("f", O_RDONLY | O_DIRECTORY),
            ("f/", O_RDONLY),
            ("f/x", O_RDONLY),
            ("g/", O_WRONLY | O_CREAT),
            ("d", O_RDONLY),
            ("d", O_WRONLY),
            ("d", O_RDWR | O_CREAT),
            ("d", O_RDONLY | O_DIRECTORY),
            ("d/../f", O_RDWR | O_APPEND),
            ("s", O_RDONLY | O_NOFOLLOW),
            ("s", O_PATH | O_NOFOLLOW),
            ("s", O_WRONLY | O_CREAT | O_EXCL),
            ("dangling", O_RDONLY),
            ("dangling", O_WRONLY | O_CREAT | O_EXCL),
            ("dangling", O_WRONLY | O_CREAT),
            ("new", O_RDONLY),
            ("d", O_TMPFILE | O_RDWR),
            ("d", O_TMPFILE | O_RDONLY),
            ("", O_RDONLY),
        ]
        .map(|(name, flags)| (name, tried(test_dir, name, flags)))
    });
}

#[test]
fn a_file_that_is_opened_to_be_truncated_is_empty() {
    same_everywhere(|test_dir| {
        let ends =
            [(O_WRONLY | O_TRUNC, "bytes"), (libc::O_RDONLY, "bytes"), (O_CREAT | libc::O_EXCL | O_TRUNC, "bytes")]
                .map(|(flags, text)| {
                    fs::write(test_dir.path("f"), text).unwrap();
                    (tried(test_dir, "f", flags), test_dir.bytes("f"))
                });
        // SAFETY: a nul-terminated string.
        let created = answer(unsafe { libc::close(libc::creat(test_dir.c("f").as_ptr(), 0o600)) });
        (ends, created, test_dir.bytes("f"))
    });
}

#[test]
fn fortified_programs_open_files_without_a_mode() {
    let test_dir = TestDir::new(Place::Local);
    fs::write(test_dir.path("f"), "bytes").unwrap();
    let directory = fs::File::open(test_dir.root()).unwrap();
    let at = crate::pool_test::number(&directory);
    // SAFETY: nul-terminated strings.
    unsafe {
        for descriptor in [__open_2(test_dir.c("f").as_ptr(), 0), __openat_2(at, c"f".as_ptr(), 0)] {
            assert!(classify::kind(descriptor).is_some());
            assert_eq!(libc::close(descriptor), 0);
        }
        assert_eq!(answer(__open64_2(test_dir.c("missing").as_ptr(), 0)), Err(Errno::NOENT));
        assert_eq!(answer(__openat64_2(at, c"missing".as_ptr(), 0)), Err(Errno::NOENT));
    }
}

/// Makes temporary files of a template. Returns their names, or the error.
fn temporary(test_dir: &TestDir, template: &str, suffix: c_int, count: usize) -> Result<BTreeSet<String>, Errno> {
    (0..count)
        .map(|_| {
            let text = test_dir.c(template).into_raw();
            // SAFETY: a writable, nul-terminated string, which is taken back.
            unsafe {
                let descriptor = mkstemps(text, suffix);
                let made = answer(descriptor).map(|_| libc::close(descriptor));
                let path = CString::from_raw(text).into_string().unwrap();
                made.map(|_| path.strip_prefix(test_dir.root().to_str().unwrap()).unwrap()[1..].to_owned())
            }
        })
        .collect()
}

#[test]
fn the_six_letters_before_the_suffix_make_each_temporary_file_unique() {
    for place in [Place::Host, Place::Local, Place::Striped] {
        let test_dir = TestDir::new(place);
        let names = temporary(&test_dir, "tide-XXXXXX.log", 4, 20).unwrap();
        assert_eq!(names.len(), 20, "{place:?}");
        for name in &names {
            let letters = name.strip_prefix("tide-").and_then(|name| name.strip_suffix(".log")).unwrap();
            assert!(letters.len() == 6 && letters.bytes().all(|letter| letter.is_ascii_alphanumeric()), "{name}");
            let found = fs::metadata(test_dir.path(name)).unwrap();
            assert_eq!((found.mode() & 0o7777, found.len()), (0o600, 0));
        }
    }
}

#[test]
fn a_template_without_its_six_letters_is_refused() {
    same_everywhere(|test_dir| {
        [
            ("XXXXXX", 0),
            ("aXXXXX", 0),
            ("tideXXXXXX", 1),
            ("XXXXXXx", 0),
            ("XXXXX", 0),
            ("XXXXXX.c", -1),
            ("XXXXXX", 1000),
            ("missing/XXXXXX", 0),
            ("XXXXXXXX", 1),
        ]
        .map(|(template, suffix)| temporary(test_dir, template, suffix, 1).map(|names| names.len()))
    });
}

#[test]
fn a_temporary_directory_is_private() {
    same_everywhere(|test_dir| {
        let text = test_dir.c("dir-XXXXXX").into_raw();
        // SAFETY: writable, nul-terminated strings, which are taken back.
        unsafe {
            let same = libc::mkdtemp(text) == text;
            let path = CString::from_raw(text).into_string().unwrap();
            let bad = test_dir.c("dir-XXXXX").into_raw();
            let refused = (libc::mkdtemp(bad).is_null(), crate::call::errno());
            drop(CString::from_raw(bad));
            (
                same,
                why(fs::metadata(&path)).map(|found| (found.mode(), found.is_dir())),
                path.ends_with("XXXXXX"),
                refused,
            )
        }
    });
}

#[test]
fn names_that_exist_are_tried_no_further_than_the_limit_and_other_errors_at_once() {
    let mut tried = 0_u32;
    let text = c"/tidemill/XXXXXX".to_owned().into_raw();
    // SAFETY: a writable, nul-terminated string, which is taken back.
    unsafe {
        let made: Result<(), _> = crate::mkstemp::create_unique(text, 0, |_| {
            tried += 1;
            if tried < 50 { Err(Errno::EXIST) } else { Err(Errno::NOSPC) }
        });
        assert_eq!((made, tried), (Err(Errno::NOSPC), 50));
        drop(CString::from_raw(text));
    }
}
