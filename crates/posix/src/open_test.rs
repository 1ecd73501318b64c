//! Tests of open(2).

use crate::pool_test::{CREATE, TestPool, at, of, operand, with_and_without_capabilities, without_capabilities};
use crate::{Errno, FdKind, OpenOutcome, PathArg, PathBase, PathOperand};
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::{FdFlags, fcntl_getfd};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

const EXCLUSIVE: OFlags = CREATE.union(OFlags::EXCL);

#[test]
fn an_open_is_refused_with_the_errno_of_the_system() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        for directory in ["", "d/"] {
            let named = |name: &str| format!("{directory}{name}");
            if !directory.is_empty() {
                pool.mkdir(directory);
            }
            pool.make(&named("f"), b"tide");
            pool.mkdir(&named("sub"));
            pool.symlink("f", &named("link"));
            pool.symlink("none", &named("dangling"));
            pool.process.mknod(at(&named("socket")), 0o140_644, 0).unwrap();
            let cases = [
                ("none", OFlags::RDONLY, Errno::NOENT),
                ("none", OFlags::PATH, Errno::NOENT),
                ("dangling", OFlags::RDONLY, Errno::NOENT),
                ("f", EXCLUSIVE, Errno::EXIST),
                ("sub", EXCLUSIVE, Errno::EXIST),
                ("link", EXCLUSIVE, Errno::EXIST),
                ("dangling", EXCLUSIVE, Errno::EXIST),
                (".", EXCLUSIVE, Errno::EXIST),
                ("sub/..", EXCLUSIVE, Errno::EXIST),
                ("sub", CREATE, Errno::ISDIR),
                ("sub", OFlags::CREATE, Errno::ISDIR),
                ("sub", OFlags::WRONLY, Errno::ISDIR),
                ("sub", OFlags::TRUNC, Errno::ISDIR),
                ("f", OFlags::DIRECTORY, Errno::NOTDIR),
                ("f", OFlags::DIRECTORY | OFlags::PATH, Errno::NOTDIR),
                ("f/", OFlags::RDONLY, Errno::NOTDIR),
                ("f/", CREATE, Errno::ISDIR),
                ("new/", CREATE, Errno::ISDIR),
                ("link", OFlags::NOFOLLOW, Errno::LOOP),
                ("link", OFlags::NOFOLLOW | OFlags::DIRECTORY, Errno::NOTDIR),
                ("f", OFlags::CREATE | OFlags::DIRECTORY, Errno::INVAL),
                ("socket", OFlags::RDONLY, Errno::NXIO),
                ("sub", OFlags::TMPFILE, Errno::INVAL),
                ("f", OFlags::TMPFILE | OFlags::RDWR, Errno::NOTDIR),
            ];
            for (name, flags, errno) in cases {
                // The second attempt may find the directory in the path cache.
                for _ in 0..2 {
                    assert_eq!(pool.open(&named(name), flags).map(drop), Err(errno), "{} {flags:?}", named(name));
                }
            }
            assert_eq!(pool.text(&named("f")), b"tide", "no failed open has truncated it");
        }
    });
}

#[test]
fn creating_through_a_dangling_symlink_creates_its_target() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.symlink("d/target", "link");
    pool.make("link", b"tide");
    assert_eq!(pool.text("d/target"), b"tide");
}

#[test]
fn a_new_file_has_the_mode_without_the_bits_of_the_umask() {
    let pool = TestPool::start();
    pool.mkdir("d");
    let cases = [(0o022, 0o7777, 0o7755), (0o777, 0o666, 0), (0o027, 0o100_666, 0o640), (0o1000, 0o1666, 0o1666)];
    for (number, (umask, mode, expected)) in cases.into_iter().enumerate() {
        pool.process.set_umask(umask);
        for directory in ["", "d/"] {
            let path = format!("{directory}{number}");
            let opened = pool.process.open(at(&path), CREATE, mode).unwrap();
            assert!(matches!(opened, OpenOutcome::Pool(..)));
            let found = pool.process.stat(at(&path), AtFlags::empty()).unwrap().mode;
            assert_eq!(found, 0o100_000 | expected, "{path}: {mode:o} without {umask:o}");
        }
    }
}

#[test]
fn a_descriptor_is_closed_on_exec_only_if_the_open_says_so() {
    let pool = TestPool::start();
    for (flags, expected) in [(OFlags::CLOEXEC, FdFlags::CLOEXEC), (OFlags::empty(), FdFlags::empty())] {
        for access in [CREATE, OFlags::PATH] {
            let descriptor = pool.open("f", access | flags).unwrap();
            assert_eq!(fcntl_getfd(&descriptor), Ok(expected), "{access:?}");
        }
    }
}

#[test]
fn each_descriptor_has_the_kind_of_its_file() {
    let pool = TestPool::start();
    pool.mkdir_striped("striped");
    pool.mkdir("d");
    pool.make("striped/f", b"tide");
    for (path, flags, expected) in [
        ("striped/f", OFlags::RDONLY, FdKind::Remote),
        ("striped/f", OFlags::RDWR, FdKind::Remote),
        ("d", OFlags::RDONLY, FdKind::Directory),
        ("d", OFlags::PATH, FdKind::Path),
        ("striped/f", OFlags::PATH, FdKind::Path),
    ] {
        let (descriptor, kind) = pool.open_kind(path, flags).unwrap();
        assert_eq!(kind, expected, "{path} {flags:?}");
        assert!(pool.process.is_recorded(descriptor.as_fd()));
    }
}

#[test]
fn a_set_id_file_is_written_through_the_pool_and_loses_the_bit() {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    pool.process.chmod(at("f"), 0o4755, AtFlags::empty()).unwrap();
    without_capabilities(|| {
        let (descriptor, kind) = pool.open_kind("f", OFlags::WRONLY).unwrap();
        assert_eq!(kind, FdKind::Remote, "the kernel would not clear the bit of the pool");
        pool.process.write_any(descriptor.as_fd(), b"T", None).unwrap();
        assert_eq!(pool.process.stat(at("f"), AtFlags::empty()).unwrap().mode, 0o100_755);
        assert_eq!(pool.text("f"), b"Tide");
    });
}

#[test]
fn a_truncating_open_empties_the_file_and_needs_the_right_to_write() {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    pool.process.chmod(at("f"), 0o400, AtFlags::empty()).unwrap();
    without_capabilities(|| {
        for flags in [OFlags::TRUNC, OFlags::WRONLY, OFlags::RDWR] {
            for _ in 0..2 {
                assert_eq!(pool.open("f", flags).map(drop), Err(Errno::ACCESS), "{flags:?}");
            }
        }
        assert_eq!(pool.text("f"), b"tide");
        pool.process.chmod(at("f"), 0o600, AtFlags::empty()).unwrap();
        pool.open("f", OFlags::TRUNC).unwrap();
        assert_eq!(pool.text("f"), b"");
        pool.process.chmod(at("f"), 0, AtFlags::empty()).unwrap();
        assert_eq!(pool.open("f", OFlags::RDONLY).map(drop), Err(Errno::ACCESS));
        assert!(pool.open("f", OFlags::PATH).is_ok(), "a location needs no right to the file");
    });
}

#[test]
fn a_directory_without_the_right_to_write_takes_no_new_file_but_opens_those_it_has() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.make("d/f", b"");
    pool.process.chmod(at("d"), 0o555, AtFlags::empty()).unwrap();
    without_capabilities(|| {
        for _ in 0..2 {
            assert_eq!(pool.open("d/new", CREATE).map(drop), Err(Errno::ACCESS));
            assert_eq!(pool.open("d/f", EXCLUSIVE).map(drop), Err(Errno::EXIST));
            assert_eq!(pool.open("d", OFlags::TMPFILE | OFlags::RDWR).map(drop), Err(Errno::ACCESS));
            assert!(pool.open("d/f", CREATE).is_ok());
        }
    });
}

#[test]
fn a_location_gives_no_access_to_bytes_and_can_start_a_path() {
    let pool = TestPool::start();
    pool.mkdir("d");
    pool.make("d/f", b"tide");
    pool.symlink("d", "link");
    let file = pool.open("d/f", OFlags::PATH | OFlags::RDWR).unwrap();
    assert_eq!(pool.process.flags(file.as_fd()), Ok(OFlags::PATH));
    assert_eq!(pool.process.check_map(file.as_fd(), false), Err(Errno::BADF));
    assert_eq!(pool.process.read(file.as_fd(), &mut [0], None), Err(Errno::BADF));
    assert_eq!(pool.process.set_size(file.as_fd(), 0), Err(Errno::BADF));
    assert_eq!(pool.process.stat(of(&file), AtFlags::EMPTY_PATH).unwrap().size, 4);
    let directory = pool.open("d", OFlags::PATH).unwrap();
    let inside = PathArg { base: PathBase::Descriptor(directory.as_fd()), path: b"f" };
    assert_eq!(pool.process.stat(inside, AtFlags::empty()).unwrap().size, 4);
    let link = pool.open("link", OFlags::PATH | OFlags::NOFOLLOW).unwrap();
    let found = pool.process.stat(of(&link), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(FileType::from_raw_mode(found.mode), FileType::Symlink);
    assert_eq!(pool.process.read_link(of(&link)), Ok(b"d".to_vec()));
}

#[test]
fn an_unnamed_file_gets_a_name_unless_it_was_opened_exclusively() {
    let pool = TestPool::start();
    pool.mkdir("d");
    for (flags, name, expected) in [(OFlags::empty(), "d/f", Ok(())), (OFlags::EXCL, "d/exclusive", Err(Errno::NOENT))]
    {
        let descriptor = pool.open("d", OFlags::TMPFILE | OFlags::RDWR | flags).unwrap();
        pool.process.write_any(descriptor.as_fd(), b"tide", None).unwrap();
        assert_eq!(pool.process.stat(of(&descriptor), AtFlags::EMPTY_PATH).unwrap().links, 0);
        let linked = pool.process.link(PathOperand::Pool(of(&descriptor)), operand(name), AtFlags::EMPTY_PATH);
        assert_eq!(linked, expected);
    }
    assert_eq!(pool.text("d/f"), b"tide");
}

#[test]
fn a_fifo_of_the_pool_is_one_fifo_of_the_host_for_all_who_open_it() {
    let pool = TestPool::start();
    let path_of = |path: &str| match pool.process.open(at(path), OFlags::RDONLY | OFlags::NONBLOCK, 0) {
        Ok(OpenOutcome::Host(path)) => std::path::PathBuf::from(path.to_str().unwrap()),
        other => panic!("{other:?}"),
    };
    for path in ["one", "two"] {
        pool.process.mknod(at(path), 0o010_600, 0).unwrap();
    }
    let found = path_of("one");
    assert_eq!(found, path_of("one"));
    assert_ne!(found, path_of("two"));
    let metadata = found.metadata().unwrap();
    assert!(metadata.file_type().is_fifo());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o666, "the pool has checked the mode");
}

#[test]
fn a_symlink_out_of_the_pool_is_opened_by_the_kernel() {
    let pool = TestPool::start();
    let file = pool.symlink_to_host("out", b"tide");
    for flags in [OFlags::RDONLY, OFlags::PATH, OFlags::RDWR | OFlags::CREATE, OFlags::TMPFILE | OFlags::RDWR] {
        match pool.process.open(at("out"), flags, 0o600) {
            Ok(OpenOutcome::Host(path)) => assert_eq!(path.to_str().ok(), file.to_str(), "{flags:?}"),
            other => panic!("{flags:?}: {other:?}"),
        }
    }
}
