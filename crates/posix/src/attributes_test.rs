//! Tests of the calls that read and change attributes.

use crate::pool_test::{TestPool, at, of, with_and_without_capabilities, without_capabilities};
use crate::{Errno, FileTimes, Stat};
use rustix::fs::{Access, AtFlags, OFlags, UTIME_NOW, UTIME_OMIT};
use rustix::process::{getegid, geteuid};
use std::os::unix::fs::MetadataExt;

const NONE: AtFlags = AtFlags::empty();
const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;
/// Owner or group that a call leaves unchanged.
const UNCHANGED: u32 = u32::MAX;

fn stat(pool: &TestPool, path: &str) -> Stat {
    pool.process.stat(at(path), NOFOLLOW).unwrap()
}

#[test]
fn a_stat_is_of_a_symlinks_target_unless_the_call_says_nofollow() {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    pool.symlink("f", "link");
    let (file, link) = (stat(&pool, "f"), stat(&pool, "link"));
    assert_eq!(pool.process.stat(at("link"), NONE), Ok(file));
    assert_eq!((file.size, file.mode, link.size, link.mode), (4, 0o100_644, 1, 0o120_777));
    assert_ne!(file.inode, link.inode);
    assert_eq!(pool.process.stat(at("link/"), NOFOLLOW), Err(Errno::NOTDIR), "a slash follows it");
    assert_eq!(pool.process.stat(at("f"), AtFlags::REMOVEDIR), Err(Errno::INVAL));
}

#[test]
fn an_open_file_keeps_its_attributes_after_its_name_is_removed() {
    let pool = TestPool::start();
    pool.make("f", b"tide");
    let descriptor = pool.open("f", OFlags::RDWR).unwrap();
    pool.process.unlink(at("f"), NONE).unwrap();
    let found = pool.process.stat(of(&descriptor), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!((found.links, found.size), (0, 4));
    with_and_without_capabilities(|| {
        pool.process.chmod(of(&descriptor), 0o640, AtFlags::EMPTY_PATH).unwrap();
        let mode = pool.process.stat(of(&descriptor), AtFlags::EMPTY_PATH).unwrap().mode;
        assert_eq!(mode, 0o100_640);
        assert_eq!(pool.process.stat(of(&descriptor), NONE), Err(Errno::NOENT), "an empty path names nothing");
    });
}

#[test]
fn chmod_sets_permissions_and_never_the_type() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        pool.make("f", b"");
        pool.symlink("f", "link");
        pool.process.chmod(at("link"), 0o171_777, NONE).unwrap();
        assert_eq!(stat(&pool, "f").mode, 0o101_777);
        assert_eq!(pool.process.chmod(at("link"), 0o600, NOFOLLOW), Err(Errno::OPNOTSUPP));
        assert_eq!(pool.process.chmod(at("none"), 0o600, NONE), Err(Errno::NOENT));
        assert_eq!(pool.process.chmod(at("f"), 0o600, AtFlags::SYMLINK_FOLLOW), Err(Errno::INVAL));
    });
}

#[test]
fn chown_clears_the_set_id_bits_of_files_and_not_of_directories() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        pool.make("f", b"");
        pool.mkdir("d");
        for (path, after) in [("f", 0o100_755), ("d", 0o046_755)] {
            let descriptor = pool.open(path, OFlags::RDONLY).unwrap();
            for (arg, flags) in [(at(path), NONE), (of(&descriptor), AtFlags::EMPTY_PATH)] {
                pool.process.chmod(arg, 0o6755, flags).unwrap();
                pool.process.chown(arg, uid, UNCHANGED, flags).unwrap();
                assert_eq!(stat(&pool, path).mode, after, "{path} {flags:?}");
            }
        }
        let found = stat(&pool, "f");
        assert_eq!((found.uid, found.gid), (uid, gid));
    });
}

#[test]
fn a_user_without_capabilities_gives_no_file_away() {
    let pool = TestPool::start();
    pool.make("f", b"");
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    without_capabilities(|| {
        let descriptor = pool.open("f", OFlags::RDONLY).unwrap();
        for (new_uid, new_gid) in [(uid + 1, UNCHANGED), (UNCHANGED, 54_321), (uid + 1, gid)] {
            assert_eq!(pool.process.chown(at("f"), new_uid, new_gid, NONE), Err(Errno::PERM));
            let by_descriptor = pool.process.chown(of(&descriptor), new_uid, new_gid, AtFlags::EMPTY_PATH);
            assert_eq!(by_descriptor, Err(Errno::PERM));
        }
        assert_eq!(pool.process.chown(at("f"), UNCHANGED, gid, NONE), Ok(()));
    });
}

#[test]
fn times_are_set_omitted_or_now_each_for_itself() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        pool.make("f", b"");
        let set = |accessed, modified| pool.process.set_times(at("f"), FileTimes { accessed, modified }, NONE);
        let times = || {
            let found = stat(&pool, "f");
            (found.accessed, found.modified)
        };
        set((-1, 5), (7, 999_999_999)).unwrap();
        assert_eq!(times(), ((-1, 5), (7, 999_999_999)));
        set((9, 0), (0, UTIME_OMIT)).unwrap();
        assert_eq!(times(), ((9, 0), (7, 999_999_999)));
        set((0, UTIME_OMIT), (0, UTIME_OMIT)).unwrap();
        assert_eq!(times(), ((9, 0), (7, 999_999_999)));
        set((0, UTIME_OMIT), (0, UTIME_NOW)).unwrap();
        assert_eq!(times().0, (9, 0));
        assert!(times().1.0 > 1_000_000_000, "a time of this century");
        assert_eq!(set((0, 1_000_000_000), (0, 0)), Err(Errno::INVAL));
    });
}

#[test]
fn truncate_changes_files_alone_and_fills_with_zeros() {
    with_and_without_capabilities(|| {
        let pool = TestPool::start();
        pool.make("f", b"tide");
        pool.symlink("f", "link");
        pool.mkdir("d");
        pool.process.mknod(at("fifo"), 0o010_644, 0).unwrap();
        pool.process.truncate(at("link"), 2).unwrap();
        pool.process.truncate(at("f"), 5).unwrap();
        assert_eq!(pool.text("f"), b"ti\0\0\0");
        let cases =
            [("f", -1, Errno::INVAL), ("d", 0, Errno::ISDIR), ("fifo", 0, Errno::INVAL), ("none", 0, Errno::NOENT)];
        for (path, bytes, errno) in cases {
            assert_eq!(pool.process.truncate(at(path), bytes), Err(errno), "{path}");
        }
    });
}

#[test]
fn access_checks_the_mode_for_a_user_without_capabilities() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.process.chmod(at("f"), 0o400, NONE).unwrap();
    without_capabilities(|| {
        for flags in [NONE, AtFlags::EACCESS] {
            let access = |wanted| pool.process.access(at("f"), wanted, flags);
            assert_eq!(access(Access::EXISTS), Ok(()));
            assert_eq!(access(Access::READ_OK), Ok(()));
            assert_eq!(access(Access::WRITE_OK), Err(Errno::ACCESS));
            assert_eq!(access(Access::READ_OK | Access::EXEC_OK), Err(Errno::ACCESS));
        }
        assert_eq!(pool.process.truncate(at("f"), 0), Err(Errno::ACCESS));
    });
    assert_eq!(pool.process.access(at("none"), Access::EXISTS, NONE), Err(Errno::NOENT));
    assert_eq!(pool.process.access(at("f"), Access::EXISTS, AtFlags::SYMLINK_FOLLOW), Err(Errno::INVAL));
}

#[test]
fn calls_on_a_symlink_that_leads_out_of_the_pool_change_the_hosts_file() {
    let pool = TestPool::start();
    let file = pool.symlink_to_host("out", b"tide");
    let host = || std::fs::metadata(&file).unwrap();
    let found = pool.process.stat(at("out"), NONE).unwrap();
    assert_eq!((found.inode, found.size, found.mode), (host().ino(), 4, host().mode()));
    pool.process.truncate(at("out"), 2).unwrap();
    pool.process.chmod(at("out"), 0o600, NONE).unwrap();
    pool.process.set_times(at("out"), FileTimes { accessed: (1, 0), modified: (2, 3) }, NONE).unwrap();
    pool.process.chown(at("out"), geteuid().as_raw(), UNCHANGED, NONE).unwrap();
    assert_eq!((host().size(), host().mode(), host().mtime(), host().mtime_nsec()), (2, 0o100_600, 2, 3));
    assert_eq!(pool.process.access(at("out"), Access::READ_OK, NONE), Ok(()));
    assert_eq!(stat(&pool, "out").mode, 0o120_777, "the symlink is of the pool");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(pool.process.stat(at("out"), NONE), Err(Errno::NOENT));
}
