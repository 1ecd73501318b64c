//! Tree walks of the pool: they visit what they visit on the host.

use super::*;
use crate::call::errno;
use crate::pool_test::{Place, TestDir, exclusive_test, same_everywhere};
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::ptr::null_mut;
use std::sync::Mutex;

/// Visited paths: their type, depth and name.
static VISITED: Mutex<Vec<(String, c_int, c_int)>> = Mutex::new(Vec::new());
/// Name at which a callback ends or skips, and with what result.
static STOP: Mutex<(&str, c_int)> = Mutex::new(("", 0));

unsafe extern "C" fn visit(path: *const c_char, _: *const libc::stat, kind: c_int, info: *mut FtwInfo) -> c_int {
    // SAFETY: the arguments of a callback of nftw(3): two numbers behind the pointer.
    let (path, [base, level]) = unsafe { (CStr::from_ptr(path).to_str().unwrap(), *info.cast::<[c_int; 2]>()) };
    let name = &path[usize::try_from(base).unwrap()..];
    VISITED.lock().unwrap().push((name.to_owned(), kind, level));
    let (stop, result) = *STOP.lock().unwrap();
    if name == stop && kind != 5 || stop == "a file" && kind == 0 { result } else { 0 }
}

unsafe extern "C" fn visit_plain(path: *const c_char, _: *const libc::stat, kind: c_int) -> c_int {
    // SAFETY: the path of a callback of ftw(3).
    let path = unsafe { CStr::from_ptr(path) }.to_str().unwrap();
    VISITED.lock().unwrap().push((path.rsplit('/').next().unwrap().to_owned(), kind, 0));
    0
}

/// Tree with one name in each directory, so that its order is the same everywhere.
fn tree(test_dir: &TestDir) {
    fs::create_dir_all(test_dir.path("tree/a/b")).unwrap();
    fs::write(test_dir.path("tree/a/b/f"), "").unwrap();
}

/// Walks a tree. Returns the result, and what was visited.
fn walked(test_dir: &TestDir, name: &str, flags: c_int) -> (c_int, Vec<(String, c_int, c_int)>) {
    VISITED.lock().unwrap().clear();
    // SAFETY: a nul-terminated string, and a callback of the right type.
    let outcome = unsafe { nftw(test_dir.c(name).as_ptr(), visit, 8, flags) };
    let mut visited = std::mem::take(&mut *VISITED.lock().unwrap());
    for entry in &mut visited {
        if entry.2 == 0 {
            "root".clone_into(&mut entry.0);
        }
    }
    (outcome, visited)
}

#[test]
fn a_tree_is_visited_from_the_top_or_from_the_bottom() {
    let _exclusive = exclusive_test();
    same_everywhere(|test_dir| {
        tree(test_dir);
        [0, 1, 8, 9, 2].map(|flags| {
            [walked(test_dir, "tree", flags), walked(test_dir, "tree/", flags), walked(test_dir, "tree/a/b/f", flags)]
        })
    });
}

#[test]
fn symlinks_are_followed_reported_or_found_dangling() {
    let _exclusive = exclusive_test();
    same_everywhere(|test_dir| {
        tree(test_dir);
        let mut output = Vec::new();
        for (target, name) in [("f", "tree/a/b/link"), ("missing", "tree/a/link"), ("..", "tree/a/link")] {
            symlink(target, test_dir.path(name)).unwrap();
            for flags in [0, 1] {
                let (outcome, mut visited) = walked(test_dir, "tree", flags);
                visited.sort();
                output.push((outcome, visited));
            }
            fs::remove_file(test_dir.path(name)).unwrap();
        }
        output
    });
}

#[test]
fn a_callback_ends_the_walk_or_skips_what_follows() {
    let _exclusive = exclusive_test();
    same_everywhere(|test_dir| {
        tree(test_dir);
        let ends = [(0, 7), (0, -1), (16, 0), (16, 1), (16, 2), (16, 3), (24, 2)].map(|(flags, result)| {
            *STOP.lock().unwrap() = ("a", result);
            walked(test_dir, "tree", flags)
        });
        *STOP.lock().unwrap() = ("", 0);
        ends
    });
}

#[test]
fn a_callback_skips_the_siblings_of_a_name() {
    let _exclusive = exclusive_test();
    same_everywhere(|test_dir| {
        fs::create_dir_all(test_dir.path("tree")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(test_dir.path("tree").join(name), "").unwrap();
        }
        *STOP.lock().unwrap() = ("a file", 3);
        let (outcome, visited) = walked(test_dir, "tree", 16);
        *STOP.lock().unwrap() = ("", 0);
        (outcome, visited.len())
    });
}

#[test]
fn a_walk_that_changes_the_directory_comes_back() {
    let _exclusive = exclusive_test();
    let before = std::env::current_dir().unwrap();
    same_everywhere(|test_dir| {
        tree(test_dir);
        std::env::set_current_dir(test_dir.root()).unwrap();
        VISITED.lock().unwrap().clear();
        // SAFETY: a nul-terminated string, and a callback of the right type.
        let outcome = unsafe { nftw(c"tree".as_ptr(), visit, 8, 4) };
        let back = std::env::current_dir().unwrap() == test_dir.root();
        std::env::set_current_dir(&before).unwrap();
        (outcome, back, std::mem::take(&mut *VISITED.lock().unwrap()))
    });
}

#[test]
fn a_tree_that_is_not_there_is_an_error() {
    let _exclusive = exclusive_test();
    same_everywhere(|test_dir| {
        let missing = (walked(test_dir, "missing", 0), errno());
        tree(test_dir);
        VISITED.lock().unwrap().clear();
        // SAFETY: a nul-terminated string, and a callback of the right type.
        let outcome = unsafe { ftw(test_dir.c("tree").as_ptr(), visit_plain, 8) };
        (missing, outcome, std::mem::take(&mut *VISITED.lock().unwrap()))
    });
}

#[test]
fn patterns_find_the_names_that_they_match_in_order() {
    same_everywhere(|test_dir| {
        for name in ["a1", "a2", "b1", ".hidden"] {
            fs::write(test_dir.path(name), "").unwrap();
        }
        fs::create_dir_all(test_dir.path("d/a3")).unwrap();
        [
            ("*", 0),
            ("a?", 0),
            ("*/*", 0),
            ("[!a]*", libc::GLOB_MARK),
            ("{a,b}1", 1 << 10),
            (".h*", 0),
            ("none*", 0),
            ("none*", libc::GLOB_NOCHECK),
            ("a1", 0),
        ]
        .map(|(pattern, flags)| {
            // SAFETY: a structure for which zero is valid; a nul-terminated string.
            unsafe {
                let mut found: Glob = std::mem::zeroed();
                let outcome = glob(test_dir.c(pattern).as_ptr(), flags, None, &raw mut found);
                let paths = if outcome == 0 { std::slice::from_raw_parts(found.paths, found.count) } else { &[] };
                let names: Vec<_> =
                    paths.iter().map(|path| test_dir.without_root(CStr::from_ptr(*path).to_str().unwrap())).collect();
                let own = found.flags & BY_FUNCTIONS;
                if outcome == 0 {
                    libc::globfree((&raw mut found).cast());
                }
                (outcome, names, own)
            }
        })
    });
}

#[test]
fn a_walk_that_would_find_nothing_is_refused() {
    let test_dir = TestDir::new(Place::Local);
    let (host, pool) = (c"/usr".as_ptr().cast_mut(), test_dir.c("."));
    let paths = [host, pool.as_ptr().cast_mut(), null_mut()];
    // SAFETY: null-terminated lists of strings.
    unsafe {
        assert_eq!((fts_open(paths.as_ptr(), 0x10, null_mut()), errno()), (null_mut(), Some(Errno::OPNOTSUPP)));
        assert!(!fts_open([host, null_mut()].as_ptr(), 0x10, null_mut()).is_null());
    }
}
