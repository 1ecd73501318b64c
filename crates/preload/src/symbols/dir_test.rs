//! Directory streams of the pool: all entries once, in positions that stay.

use crate::call::{clear_errno, errno};
use crate::classify::is_recorded;
use crate::pool_test::{Place, TestDir, answer, in_child, number, same_everywhere, why};
use crate::symbols::dir::*;
use libc::{DIR, c_char, c_int, c_void, dirent};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::symlink;
use std::ptr::{null_mut, without_provenance_mut};

/// Opens a stream of a name in a directory.
fn opened(test_dir: &TestDir, name: &str) -> *mut DIR {
    // SAFETY: a nul-terminated string.
    let dir = unsafe { libc::opendir(test_dir.c(name).as_ptr()) };
    assert!(!dir.is_null());
    dir
}

/// Next name and type of a stream.
fn next(dir: *mut DIR) -> Option<(String, u8)> {
    clear_errno();
    // SAFETY: an open stream, whose entry is valid until the next call.
    unsafe {
        let entry = libc::readdir(dir);
        if entry.is_null() {
            assert_eq!(errno(), None, "the end is not an error");
            return None;
        }
        Some((CStr::from_ptr((*entry).d_name.as_ptr()).to_str().unwrap().to_owned(), (*entry).d_type))
    }
}

/// Rest of the names of a stream.
fn rest(dir: *mut DIR) -> BTreeSet<(String, u8)> {
    let mut names = BTreeSet::new();
    while let Some(found) = next(dir) {
        assert!(names.insert(found), "no name comes twice");
    }
    names
}

fn close(dir: *mut DIR) {
    // SAFETY: an open stream.
    assert_eq!(unsafe { libc::closedir(dir) }, 0);
}

/// Number of entries that takes more than one request to the pool.
const MANY: u32 = 520;

/// Makes symlinks, which take the least time, with numbers for names.
fn fill(test_dir: &TestDir, count: u32) {
    for name in 0..count {
        symlink("missing", test_dir.path(&name.to_string())).unwrap();
    }
}

#[test]
fn a_stream_has_every_entry_once_with_its_type() {
    same_everywhere(|test_dir| {
        fs::create_dir(test_dir.path("d")).unwrap();
        fs::write(test_dir.path("f"), "").unwrap();
        symlink("f", test_dir.path("s")).unwrap();
        // SAFETY: a nul-terminated string.
        assert_eq!(unsafe { libc::mkfifo(test_dir.c("p").as_ptr(), 0o600) }, 0);
        let dir = opened(test_dir, ".");
        let names = rest(dir);
        let end = next(dir);
        close(dir);
        (names, end)
    });
}

#[test]
fn a_directory_that_takes_several_requests_is_listed_whole() {
    same_everywhere(|test_dir| {
        fill(test_dir, MANY);
        let dir = opened(test_dir, ".");
        let names = rest(dir);
        close(dir);
        names
    });
}

#[test]
fn a_position_leads_back_to_the_entries_that_followed_it() {
    same_everywhere(|test_dir| {
        fill(test_dir, 40);
        let dir = opened(test_dir, ".");
        let first: Vec<_> = std::iter::from_fn(|| next(dir)).take(17).collect();
        // SAFETY: an open stream.
        let place = unsafe { libc::telldir(dir) };
        let after = rest(dir);
        // SAFETY: an open stream and its own position.
        unsafe { libc::seekdir(dir, place) };
        let again = rest(dir);
        // SAFETY: an open stream.
        unsafe { libc::rewinddir(dir) };
        let all = rest(dir);
        close(dir);
        (again == after, first.len() + after.len() == all.len(), all)
    });
}

#[test]
fn a_rewound_stream_shows_what_was_made_and_removed_since() {
    same_everywhere(|test_dir| {
        fill(test_dir, 3);
        let dir = opened(test_dir, ".");
        let before = rest(dir);
        fs::remove_file(test_dir.path("1")).unwrap();
        fs::write(test_dir.path("new"), "").unwrap();
        let at_end = next(dir).is_none();
        // SAFETY: an open stream.
        unsafe { libc::rewinddir(dir) };
        let after = rest(dir);
        close(dir);
        (before, at_end, after)
    });
}

#[test]
fn a_directory_that_is_emptied_while_it_is_listed_ends_empty() {
    same_everywhere(|test_dir| {
        fill(test_dir, MANY);
        let dir = opened(test_dir, ".");
        while let Some((name, _)) = next(dir) {
            if !name.starts_with('.') {
                fs::remove_file(test_dir.path(&name)).unwrap();
            }
        }
        close(dir);
        why(fs::remove_dir(test_dir.root()))
    });
}

#[test]
fn what_is_no_readable_directory_is_not_opened() {
    same_everywhere(|test_dir| {
        test_dir.file("f", b"");
        symlink("f", test_dir.path("s")).unwrap();
        // SAFETY: nul-terminated strings.
        ["f", "s", "missing", "f/x"].map(|name| unsafe { (libc::opendir(test_dir.c(name).as_ptr()), errno()) })
    });
}

#[test]
fn a_stream_owns_the_descriptor_it_was_made_of() {
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("f"), "").unwrap();
        // SAFETY: nul-terminated strings; descriptors of this test.
        unsafe {
            let descriptor = libc::open(test_dir.c(".").as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
            let dir = libc::fdopendir(descriptor);
            let is_its_own = libc::dirfd(dir) == descriptor;
            let names = rest(dir);
            close(dir);
            let file = test_dir.file("f", b"");
            let refused = [number(&file), -1].map(|descriptor| (libc::fdopendir(descriptor), errno()));
            (is_its_own, names, refused)
        }
    });
}

#[test]
fn an_entry_is_copied_for_a_thread_of_its_own() {
    same_everywhere(|test_dir| {
        fill(test_dir, 3);
        let dir = opened(test_dir, ".");
        let mut names = BTreeSet::new();
        // SAFETY: an open stream, and an entry with space for any name.
        unsafe {
            let (mut entry, mut result): (dirent, *mut dirent) = (std::mem::zeroed(), null_mut());
            while readdir_r(dir, &raw mut entry, &raw mut result) == 0 && !result.is_null() {
                assert_eq!(result, &raw mut entry);
                names.insert(CStr::from_ptr(entry.d_name.as_ptr()).to_owned());
            }
        }
        close(dir);
        names
    });
}

/// Names in a buffer that getdents64(2) has filled.
fn parsed(mut bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let length = u16::from_ne_bytes(*bytes[offset_of!(dirent, d_reclen)..].first_chunk().unwrap());
        let (entry, more) = bytes.split_at(length.into());
        names.push(
            CStr::from_bytes_until_nul(&entry[offset_of!(dirent, d_name)..]).unwrap().to_str().unwrap().to_owned(),
        );
        bytes = more;
    }
    names
}

#[test]
fn getdents_fills_buffers_of_any_size_with_whole_entries_from_the_offset_on() {
    same_everywhere(|test_dir| {
        fill(test_dir, 20);
        let directory = File::open(test_dir.root()).unwrap();
        let mut ends = Vec::new();
        for room in [24, 32, 100, 4096] {
            let (mut buffer, mut names) = (vec![0_u8; room], BTreeSet::new());
            // SAFETY: a buffer of `room` bytes; numbers.
            unsafe {
                assert_eq!(libc::lseek(number(&directory), 0, libc::SEEK_SET), 0);
                loop {
                    let length = getdents64(number(&directory), buffer.as_mut_ptr().cast(), room);
                    let Ok(length) = usize::try_from(length) else { panic!("{:?}", errno()) };
                    if length == 0 {
                        break;
                    }
                    for name in parsed(&buffer[..length]) {
                        assert!(names.insert(name), "no name comes twice");
                    }
                }
            }
            ends.push(names);
        }
        // SAFETY: a buffer that is too small, and an address where nothing is; numbers.
        let refused = unsafe {
            libc::lseek(number(&directory), 0, libc::SEEK_SET);
            let mut small = [0_u8; 23];
            [
                answer(getdents64(number(&directory), small.as_mut_ptr().cast(), 23)),
                answer(getdents64(number(&directory), without_provenance_mut::<c_void>(64), 4096)),
                answer(getdents64(number(&test_dir.file("f", b"")), small.as_mut_ptr().cast(), 23)),
            ]
        };
        (ends, refused)
    });
}

#[test]
fn getdirentries_tells_the_position_before_it() {
    let test_dir = TestDir::new(Place::Local);
    fill(&test_dir, 5);
    let directory = File::open(test_dir.root()).unwrap();
    let (mut buffer, mut began) = ([0 as c_char; 64], -1);
    // SAFETY: a buffer of 64 bytes, and a local offset; numbers.
    unsafe {
        assert!(getdirentries(number(&directory), buffer.as_mut_ptr(), 64, &raw mut began) > 0);
        assert_eq!(began, 0);
        let at = libc::lseek(number(&directory), 0, libc::SEEK_CUR);
        assert!(getdirentries(number(&directory), buffer.as_mut_ptr(), 64, &raw mut began) > 0);
        assert_eq!(began, at);
    }
}

unsafe extern "C" fn is_even(entry: *const dirent) -> c_int {
    // SAFETY: an entry of scandir(3).
    let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
    c_int::from(name.to_str().unwrap().parse::<u32>().is_ok_and(|name| name % 2 == 0))
}

unsafe extern "C" fn reversed(left: *mut *const dirent, right: *mut *const dirent) -> c_int {
    // SAFETY: entries of scandir(3).
    unsafe { libc::strcmp((**right).d_name.as_ptr(), (**left).d_name.as_ptr()) }
}

#[test]
fn chosen_entries_are_sorted_in_memory_of_their_own() {
    same_everywhere(|test_dir| {
        fill(test_dir, 9);
        let mut list = null_mut();
        // SAFETY: nul-terminated strings; functions that take entries; blocks that are freed once.
        unsafe {
            let count = scandir(test_dir.c(".").as_ptr(), &raw mut list, Some(is_even), Some(reversed));
            let names: Vec<_> = (0..usize::try_from(count).unwrap())
                .map(|at| {
                    let entry = *list.add(at);
                    let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_owned();
                    libc::free(entry.cast());
                    name
                })
                .collect();
            libc::free(list.cast());
            let directory = File::open(test_dir.root()).unwrap();
            let all = scandirat(number(&directory), c".".as_ptr(), &raw mut list, None, None);
            let refused =
                ["missing", "0"].map(|name| answer(scandir(test_dir.c(name).as_ptr(), &raw mut list, None, None)));
            (names, all, refused)
        }
    });
}

#[test]
fn a_symlink_out_of_the_pool_is_listed_by_the_c_librarys_own_stream() {
    let (pool, host) = (TestDir::new(Place::Local), TestDir::new(Place::Host));
    fill(&host, 3);
    symlink(host.root(), pool.path("out")).unwrap();
    let dir = opened(&pool, "out");
    // SAFETY: an open stream.
    assert!(!is_recorded(unsafe { libc::dirfd(dir) }));
    assert_eq!(rest(dir).len(), 5);
    close(dir);
    let mut list = null_mut();
    // SAFETY: a nul-terminated string, and no functions.
    assert_eq!(unsafe { scandir(pool.c("out").as_ptr(), &raw mut list, None, None) }, 5);
}

#[test]
fn streams_of_the_host_and_of_the_pool_are_told_apart_when_both_are_open() {
    let (pool, host) = (TestDir::new(Place::Local), TestDir::new(Place::Host));
    pool.file("pool", b"");
    host.file("host", b"");
    let (first, second, third) = (opened(&pool, "."), opened(&host, "."), opened(&pool, "."));
    close(first);
    let has = |dir, name: &str| rest(dir).iter().any(|(found, _)| found == name);
    assert!(has(second, "host") && has(third, "pool"));
    close(second);
    close(third);
    assert_eq!(dirstream::all().iter().filter(|known| **known == third.addr()).count(), 0);
}

#[test]
fn a_child_continues_a_stream_of_its_parent() {
    let test_dir = TestDir::new(Place::Local);
    fill(&test_dir, MANY);
    let dir = opened(&test_dir, ".");
    let first = (0..300).filter(|_| next(dir).is_some()).count();
    let of_child = in_child(|| rest(dir).len().to_string());
    assert_eq!((first, of_child.as_str(), rest(dir).len()), (300, "222", 222));
    close(dir);
}
