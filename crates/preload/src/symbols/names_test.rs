//! Names, links and the working directory end in the pool as on the host.

use crate::call::errno;
use crate::cstr::bytes;
use crate::pool_test::{Place, TestDir, answer, c_path, exclusive_test, in_child, number, same_everywhere, why};
use crate::symbols::names::*;
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::env::{current_dir, set_current_dir};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::ptr::{null_mut, without_provenance, without_provenance_mut};

/// Names in a directory, in order.
fn list(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn directories_are_made_renamed_and_removed_when_they_are_empty() {
    same_everywhere(|test_dir| {
        let path = |name: &str| test_dir.path(name);
        let ends = [
            why(fs::create_dir(path("a"))),
            why(fs::create_dir(path("a"))),
            why(fs::create_dir(path("a/b"))),
            why(fs::create_dir(path("missing/b"))),
            why(fs::write(path("f"), "")),
            why(fs::create_dir(path("f/b"))),
            why(fs::remove_dir(path("a"))),
            why(fs::remove_dir(path("f"))),
            why(fs::remove_dir(path("a/."))),
            why(fs::remove_file(path("a"))),
            why(fs::rename(path("a"), path("a/b/c"))),
            why(fs::rename(path("a"), path("f"))),
            why(fs::rename(path("f"), path("a"))),
            why(fs::rename(path("a/b"), path("c"))),
            why(fs::remove_dir(path("a"))),
            why(fs::remove_dir(path("a"))),
        ];
        (ends, list(test_dir.root()))
    });
}

#[test]
fn names_as_long_as_permitted_are_kept_and_longer_ones_refused() {
    same_everywhere(|test_dir| {
        let ends = [1, 255, 256, 5000].map(|length| why(fs::write(test_dir.path(&"n".repeat(length)), "")));
        let deep = test_dir.path(&"./".repeat(2100));
        (ends, list(test_dir.root()), why(fs::metadata(deep)).map(drop), why(fs::metadata(test_dir.path(""))).map(drop))
    });
}

#[test]
fn a_rename_replaces_exchanges_or_keeps_as_its_flags_say() {
    same_everywhere(|test_dir| {
        for name in ["a", "b", "c"] {
            fs::write(test_dir.path(name), name).unwrap();
        }
        let rename = |old: &str, new: &str, flags| {
            // SAFETY: nul-terminated strings.
            answer(unsafe {
                libc::renameat2(AT_FDCWD, test_dir.c(old).as_ptr(), AT_FDCWD, test_dir.c(new).as_ptr(), flags)
            })
        };
        let ends = [
            rename("a", "b", libc::RENAME_NOREPLACE),
            rename("a", "b", libc::RENAME_EXCHANGE),
            rename("a", "missing", libc::RENAME_EXCHANGE),
            rename("a", "b", libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE),
            rename("a", "d", libc::RENAME_NOREPLACE),
            rename("d", "c", 0),
            rename("missing", "c", 0),
            rename("c", "c", 0),
            rename("c", "b", 1 << 20),
        ];
        (ends, ["b", "c"].map(|name| test_dir.bytes(name)), list(test_dir.root()))
    });
}

#[test]
fn a_name_does_not_cross_the_border_of_the_pool() {
    let (pool, host) = (TestDir::new(Place::Local), TestDir::new(Place::Host));
    for (from, to) in [(&pool, &host), (&host, &pool)] {
        from.file("f", b"bytes");
        let (old, new) = (from.path("f"), to.path("g"));
        assert_eq!(why(fs::rename(&old, &new)), Err(Errno::XDEV));
        assert_eq!(why(fs::hard_link(&old, &new)), Err(Errno::XDEV));
        assert!(old.exists() && !new.exists());
    }
    let path = pool.c("f");
    // SAFETY: a nul-terminated string, and an address where nothing is.
    unsafe {
        assert_eq!(answer(libc::rename(path.as_ptr(), without_provenance(64))), Err(Errno::FAULT));
        assert_eq!(answer(libc::rename(without_provenance(64), path.as_ptr())), Err(Errno::FAULT));
    }
}

#[test]
fn links_are_further_names_of_one_file() {
    same_everywhere(|test_dir| {
        let path = |name: &str| test_dir.path(name);
        fs::write(path("f"), "bytes").unwrap();
        symlink("f", path("s")).unwrap();
        let link = |old: &str, new: &str, flags| {
            // SAFETY: nul-terminated strings.
            answer(unsafe {
                libc::linkat(AT_FDCWD, test_dir.c(old).as_ptr(), AT_FDCWD, test_dir.c(new).as_ptr(), flags)
            })
        };
        let ends = [
            link("f", "g", 0),
            link("f", "g", 0),
            link("missing", "h", 0),
            link(".", "h", 0),
            link("s", "t", 0),
            link("s", "u", libc::AT_SYMLINK_FOLLOW),
            link("f", "v", 1 << 20),
        ];
        let inodes =
            ["g", "u"].map(|name| fs::metadata(path(name)).unwrap().ino() == fs::metadata(path("f")).unwrap().ino());
        let is_symlink = fs::symlink_metadata(path("t")).unwrap().is_symlink();
        fs::remove_file(path("f")).unwrap();
        (
            ends,
            inodes,
            is_symlink,
            fs::metadata(path("g")).unwrap().nlink(),
            test_dir.bytes("g"),
            why(fs::read(path("s"))),
        )
    });
}

#[test]
fn the_target_of_a_symlink_is_kept_as_it_is_and_read_as_far_as_it_fits() {
    same_everywhere(|test_dir| {
        let path = |name: &str| test_dir.path(name);
        let made = ["target", "", "a//b/../c", &"t".repeat(4095), &"t".repeat(4096)].map(|target| {
            let made = why(symlink(target, path("s")));
            let read = why(fs::read_link(path("s")));
            let _ = fs::remove_file(path("s"));
            (made, read)
        });
        symlink("target", path("s")).unwrap();
        let link = test_dir.c("s");
        let rooms = [0, 1, 6, 7, 100].map(|room| {
            let mut into = [b'-'.cast_signed() as c_char; 100];
            // SAFETY: a buffer of 100 bytes.
            (answer(unsafe { libc::readlink(link.as_ptr(), into.as_mut_ptr(), room) }), into[..8].to_vec())
        });
        // SAFETY: an address where nothing is.
        let unusable = answer(unsafe { libc::readlink(link.as_ptr(), without_provenance_mut(64), 9) });
        (made, rooms, unusable, why(fs::read_link(test_dir.root())), why(fs::read_link(path("missing"))))
    });
}

#[test]
fn symlinks_are_followed_across_the_border_of_the_pool_and_not_in_circles() {
    let (pool, host) = (TestDir::new(Place::Local), TestDir::new(Place::Host));
    host.file("f", b"of the host");
    symlink(host.root(), pool.path("out")).unwrap();
    symlink("circle", pool.path("circle")).unwrap();
    assert_eq!(pool.bytes("out/f"), b"of the host");
    assert_eq!(list(&pool.path("out")), ["f"]);
    assert_eq!(fs::canonicalize(pool.path("out/f")).unwrap(), fs::canonicalize(host.path("f")).unwrap());
    assert_eq!(why(fs::read(pool.path("circle"))), Err(Errno::LOOP));
    assert_eq!(why(fs::canonicalize(pool.path("circle"))), Err(Errno::LOOP));
}

#[test]
fn fifos_sockets_and_other_kinds_are_made_with_their_mode() {
    same_everywhere(|test_dir| {
        let at = |name: &str| test_dir.c(name);
        // SAFETY: nul-terminated strings.
        let ends = unsafe {
            [
                answer(libc::mkfifo(at("fifo").as_ptr(), 0o640)),
                answer(libc::mkfifo(at("fifo").as_ptr(), 0o640)),
                answer(libc::mknod(at("file").as_ptr(), libc::S_IFREG | 0o600, 0)),
                answer(libc::mknod(at("plain").as_ptr(), 0o600, 0)),
                answer(libc::mknod(at("socket").as_ptr(), libc::S_IFSOCK | 0o600, 0)),
                answer(libc::mknod(at("directory").as_ptr(), libc::S_IFDIR | 0o600, 0)),
                answer(libc::mknod(at("missing/file").as_ptr(), libc::S_IFREG, 0)),
                answer(libc::mkfifoat(AT_FDCWD, at("second").as_ptr(), 0o600)),
            ]
        };
        let kinds = ["fifo", "file", "plain", "socket", "second"].map(|name| {
            let found = fs::metadata(test_dir.path(name)).unwrap();
            (found.mode(), found.file_type().is_fifo(), found.file_type().is_socket(), found.is_file())
        });
        (ends, kinds)
    });
}

#[test]
fn names_are_removed_by_their_kind() {
    same_everywhere(|test_dir| {
        let make = || {
            fs::create_dir(test_dir.path("d")).unwrap();
            fs::write(test_dir.path("f"), "").unwrap();
        };
        let by = |remove: unsafe extern "C" fn(*const c_char) -> c_int| {
            make();
            // SAFETY: nul-terminated strings.
            let ends = ["d", "f", "missing"].map(|name| answer(unsafe { remove(test_dir.c(name).as_ptr()) }));
            let _ = (fs::remove_dir(test_dir.path("d")), fs::remove_file(test_dir.path("f")));
            ends
        };
        let ends = [by(unlink), by(rmdir), by(remove)];
        make();
        let directory = File::open(test_dir.root()).unwrap();
        // SAFETY: nul-terminated strings.
        let at = [(c"d", 0), (c"d", libc::AT_REMOVEDIR), (c"f", libc::AT_REMOVEDIR), (c"f", 1), (c"f", 0)]
            .map(|(name, flags)| answer(unsafe { libc::unlinkat(number(&directory), name.as_ptr(), flags) }));
        (ends, at, list(test_dir.root()))
    });
}

#[test]
fn a_file_lives_after_its_name_was_removed_until_it_is_closed() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"bytes");
        fs::remove_file(test_dir.path("f")).unwrap();
        let found = file.metadata().unwrap();
        (found.nlink(), found.len(), test_dir.path("f").exists(), why(std::io::read_to_string(file)))
    });
}

#[test]
fn the_working_directory_can_be_in_the_pool_and_relative_paths_start_from_it() {
    let _exclusive = exclusive_test();
    let before = current_dir().unwrap();
    same_everywhere(|test_dir| {
        fs::create_dir_all(test_dir.path("a/b")).unwrap();
        set_current_dir(test_dir.path("a")).unwrap();
        let directory = |path: std::path::PathBuf| test_dir.without_root(path.to_str().unwrap());
        let here = directory(current_dir().unwrap());
        fs::write("f", "bytes").unwrap();
        fs::write("../g", "above").unwrap();
        let ends = [why(set_current_dir("missing")), why(set_current_dir("f")), why(set_current_dir("b"))];
        let below = directory(current_dir().unwrap());
        let listed = [list(Path::new("..")), list(test_dir.root())];
        let up = File::open("../..").unwrap();
        // SAFETY: takes a number.
        let by_descriptor = answer(unsafe { libc::fchdir(number(&up)) });
        let above = directory(current_dir().unwrap());
        set_current_dir("a/b").unwrap();
        fs::remove_dir(test_dir.path("a/b")).unwrap();
        let gone = (why(current_dir().map(drop)), why(fs::write("f", "")));
        set_current_dir(&before).unwrap();
        (here, ends, below, listed, by_descriptor, above, gone)
    });
}

#[test]
fn the_working_directory_fits_the_buffer_or_is_refused() {
    let _exclusive = exclusive_test();
    let before = current_dir().unwrap();
    let test_dir = TestDir::new(Place::Local);
    set_current_dir(test_dir.root()).unwrap();
    let length = test_dir.root().as_os_str().len();
    let mut into: [c_char; 4096] = [0; 4096];
    // SAFETY: a buffer of `PATH_MAX` bytes; blocks of malloc(3), which are freed.
    unsafe {
        for (room, errno_now) in [(0, Errno::INVAL), (1, Errno::RANGE), (length, Errno::RANGE)] {
            assert_eq!((libc::getcwd(into.as_mut_ptr(), room), errno()), (null_mut(), Some(errno_now)), "{room}");
        }
        let path = test_dir.root().as_os_str().as_encoded_bytes();
        for given in [
            libc::getcwd(into.as_mut_ptr(), length + 1),
            getwd(into.as_mut_ptr()),
            __getcwd_chk(into.as_mut_ptr(), 4096, 4096),
        ] {
            assert_eq!(bytes(given), path);
        }
        for new in [libc::getcwd(null_mut(), 0), get_current_dir_name()] {
            assert_eq!(bytes(new), path);
            libc::free(new.cast());
        }
    }
    set_current_dir(before).unwrap();
}

#[test]
fn a_child_changes_only_its_own_working_directory() {
    let _exclusive = exclusive_test();
    let before = current_dir().unwrap();
    same_everywhere(|test_dir| {
        fs::create_dir(test_dir.path("a")).unwrap();
        set_current_dir(test_dir.root()).unwrap();
        let output = in_child(|| {
            let (before, moved) = (current_dir(), why(set_current_dir("a")));
            test_dir.without_root(&format!(
                "{before:?} {moved:?} {:?} {:?}",
                current_dir(),
                why(fs::write("f", "of a child"))
            ))
        });
        let stayed = current_dir().unwrap() == test_dir.root();
        set_current_dir(&before).unwrap();
        (output, stayed, test_dir.bytes("a/f"))
    });
}

#[test]
fn a_real_path_has_no_links_and_no_dots() {
    same_everywhere(|test_dir| {
        fs::create_dir_all(test_dir.path("a/b")).unwrap();
        fs::write(test_dir.path("a/f"), "").unwrap();
        symlink("a/b", test_dir.path("s")).unwrap();
        ["s/../f", "a//./b", "s", ".", "missing", "a/f/.", "a/f/", "a/missing/../f"].map(|name| {
            let (text, mut into) =
                (CString::new(format!("{}/{name}", test_dir.root().display())).unwrap(), vec![0; 4096]);
            // SAFETY: a nul-terminated string, and a buffer of `PATH_MAX` bytes.
            let found = unsafe { libc::realpath(text.as_ptr(), into.as_mut_ptr()) };
            if found.is_null() {
                return Err(errno().unwrap());
            }
            assert_eq!(found, into.as_mut_ptr());
            // SAFETY: nul-terminated.
            Ok(test_dir.without_root(unsafe { CStr::from_ptr(found) }.to_str().unwrap()))
        })
    });
}

#[test]
fn limits_of_paths_are_those_of_tmpfs_and_a_root_of_the_pool_is_refused() {
    let test_dir = TestDir::new(Place::Local);
    let file = test_dir.file("f", b"");
    // SAFETY: nul-terminated strings.
    unsafe {
        for path in [test_dir.c("f"), c_path(test_dir.root())] {
            assert_eq!(libc::pathconf(path.as_ptr(), libc::_PC_NAME_MAX), 255);
            assert_eq!(libc::pathconf(path.as_ptr(), libc::_PC_PATH_MAX), 4096);
        }
        assert_eq!(libc::fpathconf(number(&file), libc::_PC_NAME_MAX), 255);
        assert_eq!(
            (libc::pathconf(test_dir.c("missing").as_ptr(), libc::_PC_NAME_MAX), errno()),
            (-1, Some(Errno::NOENT))
        );
        assert_eq!(answer(libc::chroot(test_dir.c(".").as_ptr())), Err(Errno::PERM));
        assert_eq!(answer(libc::chroot(test_dir.c("missing").as_ptr())), Err(Errno::NOENT));
    }
}
