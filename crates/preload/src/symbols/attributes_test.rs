//! Attributes: read and changed in the pool as on the host.

use super::*;
use crate::pool_test::{Place, TestDir, answer, in_child, number, same_everywhere, why};
use libc::stat as Found;
use std::fs::{self, FileTimes as Times, Permissions};
use std::mem::zeroed;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};
use std::time::{Duration, SystemTime};

/// Attributes of which each field has another value.
fn sample() -> Stat {
    Stat {
        device: (1, 2),
        inode: 3,
        mode: libc::S_IFREG | 0o4751,
        links: 5,
        uid: 6,
        gid: 7,
        special: (8, 9),
        size: 10,
        block_bytes: 4096,
        blocks: 11,
        accessed: (12, 13),
        modified: (14, 15),
        changed: (16, 17),
        created: (18, 19),
    }
}

#[test]
fn every_attribute_has_its_place_in_the_structures_of_c() {
    let (stat, statx) = (as_stat(&sample()), as_statx(&sample()));
    assert_eq!((stat.st_dev, stat.st_ino, stat.st_mode), (libc::makedev(1, 2), 3, libc::S_IFREG | 0o4751));
    assert_eq!((stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_rdev), (5, 6, 7, libc::makedev(8, 9)));
    assert_eq!((stat.st_size, stat.st_blksize, stat.st_blocks), (10, 4096, 11));
    assert_eq!(
        [(stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)],
        [(12, 13), (14, 15), (16, 17)]
    );
    assert_eq!((statx.stx_dev_major, statx.stx_dev_minor, statx.stx_rdev_major, statx.stx_rdev_minor), (1, 2, 8, 9));
    assert_eq!((statx.stx_ino, statx.stx_mode, statx.stx_nlink), (3, 0o100_000 | 0o4751, 5));
    assert_eq!((statx.stx_uid, statx.stx_gid, statx.stx_size), (6, 7, 10));
    assert_eq!((statx.stx_blksize, statx.stx_blocks), (4096, 11));
    let times =
        [statx.stx_atime, statx.stx_mtime, statx.stx_ctime, statx.stx_btime].map(|time| (time.tv_sec, time.tv_nsec));
    assert_eq!(times, [(12, 13), (14, 15), (16, 17), (18, 19)]);
    assert_eq!(statx.stx_mask & libc::STATX_BTIME, libc::STATX_BTIME, "all fields are set");
}

#[test]
fn a_value_is_given_whole_or_not_at_all_and_its_length_without_a_buffer() {
    let mut into = [b'-'; 8];
    for (outcome, room, result) in [
        (Ok(b"value".to_vec()), 0, Ok(5)),
        (Ok(b"value".to_vec()), 4, Err(Errno::RANGE)),
        (Ok(b"value".to_vec()), 5, Ok(5)),
        (Ok(Vec::new()), 8, Ok(0)),
        (Err(Errno::NODATA), 8, Err(Errno::NODATA)),
    ] {
        // SAFETY: a buffer of eight bytes.
        assert_eq!(answer(unsafe { copy_value(outcome, into.as_mut_ptr().cast(), room) }), result, "{room}");
    }
    assert_eq!(&into, b"value---");
    // SAFETY: an address where nothing is, which is checked.
    assert_eq!(answer(unsafe { copy_value(Ok(b"value".to_vec()), without_provenance_mut(64), 8) }), Err(Errno::FAULT));
}

#[test]
fn a_value_longer_than_any_attribute_is_refused_before_it_is_read() {
    let value = vec![0_u8; VALUE_BYTES_MAX];
    // SAFETY: a value of the given length, or an address where nothing is.
    unsafe {
        assert_eq!(load_value(value.as_ptr().cast(), VALUE_BYTES_MAX).map(<[u8]>::len), Ok(VALUE_BYTES_MAX));
        assert_eq!(load_value(without_provenance(64), VALUE_BYTES_MAX + 1), Err(Errno::TOOBIG));
        assert_eq!(load_value(without_provenance(64), 1), Err(Errno::FAULT));
        assert_eq!(load_value(null(), 0), Ok(&[][..]));
    }
}

#[test]
fn times_are_taken_from_the_program_or_are_now() {
    let seconds = [timespec { tv_sec: 1, tv_nsec: 2 }, timespec { tv_sec: 3, tv_nsec: libc::UTIME_OMIT }];
    let microseconds = [timeval { tv_sec: 1, tv_usec: 2 }, timeval { tv_sec: 3, tv_usec: 999_999 }];
    // SAFETY: null, two times, or an address where nothing is.
    unsafe {
        assert_eq!(times_of(null()), Ok(FileTimes::NOW));
        assert_eq!(times_of(seconds.as_ptr()), Ok(FileTimes { accessed: (1, 2), modified: (3, libc::UTIME_OMIT) }));
        assert_eq!(times_of(without_provenance(64)), Err(Errno::FAULT));
        assert_eq!(microseconds_of(null()), Ok(FileTimes::NOW));
        assert_eq!(
            microseconds_of(microseconds.as_ptr()),
            Ok(FileTimes { accessed: (1, 2000), modified: (3, 999_999_000) })
        );
        assert_eq!(microseconds_of(without_provenance(64)), Err(Errno::FAULT));
    }
}

/// Mode, links and size of an attribute call's result.
fn seen(outcome: c_int, found: &Found) -> Result<(u32, u64, i64), Errno> {
    answer(outcome).map(|_| (found.st_mode, found.st_nlink, found.st_size))
}

#[test]
fn every_function_of_the_family_of_stat_sees_the_same_file() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123");
        symlink("f", test_dir.path("s")).unwrap();
        // SAFETY: a structure of plain numbers; nul-terminated strings; a local structure.
        unsafe {
            let mut found: Found = zeroed();
            let into = &raw mut found;
            ["f", "s", ".", "missing", "f/x"].map(|name| {
                let path = test_dir.c(name);
                let path = path.as_ptr();
                let ends = [
                    seen(libc::stat(path, into), &*into),
                    seen(libc::lstat(path, into), &*into),
                    seen(libc::fstatat(libc::AT_FDCWD, path, into, 0), &*into),
                    seen(libc::fstatat(libc::AT_FDCWD, path, into, AT_SYMLINK_NOFOLLOW), &*into),
                    seen(libc::fstatat(libc::AT_FDCWD, path, into, 1 << 30), &*into),
                    seen(libc::fstat(number(&file), into), &*into),
                ]
                .map(|end| {
                    end.map(|(mode, links, size)| {
                        (mode, links, if mode & libc::S_IFMT == libc::S_IFDIR { 0 } else { size })
                    })
                });
                let mut more: libc::statx = zeroed();
                let by_statx = answer(libc::statx(libc::AT_FDCWD, path, 0, libc::STATX_BASIC_STATS, &raw mut more));
                (ends, by_statx.map(|_| more.stx_mode), answer(libc::stat(path, without_provenance_mut(64))))
            })
        }
    });
}

#[test]
fn the_names_of_older_programs_are_the_same_functions() {
    let test_dir = TestDir::new(Place::Local);
    let file = test_dir.file("f", b"0123");
    symlink("f", test_dir.path("s")).unwrap();
    let (path, link) = (test_dir.c("f"), test_dir.c("s"));
    // SAFETY: a structure of plain numbers; nul-terminated strings.
    unsafe {
        let mut found: Found = zeroed();
        let into = &raw mut found;
        assert_eq!((__xstat(1, path.as_ptr(), into), (*into).st_size), (0, 4));
        assert_eq!((__lxstat(1, link.as_ptr(), into), (*into).st_mode & libc::S_IFMT), (0, libc::S_IFLNK));
        assert_eq!((__fxstat(1, number(&file), into), (*into).st_size), (0, 4));
        assert_eq!((__fxstatat(1, libc::AT_FDCWD, link.as_ptr(), into, 0), (*into).st_size), (0, 4));
        assert_eq!((__lxstat64(1, link.as_ptr(), into), (*into).st_mode & libc::S_IFMT), (0, libc::S_IFLNK));
        assert_eq!((fstat64(number(&file), into), lstat64(path.as_ptr(), into)), (0, 0));
    }
}

#[test]
fn permissions_are_changed_and_checked() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"");
        symlink("f", test_dir.path("s")).unwrap();
        let path = test_dir.c("f");
        // SAFETY: nul-terminated strings.
        let ends = unsafe {
            [
                answer(libc::chmod(path.as_ptr(), 0o7642)),
                answer(libc::fchmod(number(&file), 0o640)),
                answer(libc::fchmodat(libc::AT_FDCWD, test_dir.c("s").as_ptr(), 0o600, 0)),
                answer(libc::chmod(test_dir.c("missing").as_ptr(), 0o600)),
                answer(libc::access(path.as_ptr(), libc::F_OK)),
                answer(libc::access(path.as_ptr(), libc::R_OK | libc::W_OK)),
                answer(libc::access(path.as_ptr(), libc::X_OK)),
                answer(libc::access(test_dir.c("missing").as_ptr(), libc::F_OK)),
                answer(libc::access(path.as_ptr(), 8)),
                answer(libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::R_OK, AT_EACCESS)),
                answer(libc::eaccess(path.as_ptr(), libc::X_OK)),
                answer(libc::chown(path.as_ptr(), u32::MAX, u32::MAX)),
                answer(libc::fchown(number(&file), libc::getuid(), libc::getgid())),
                answer(libc::lchown(test_dir.c("s").as_ptr(), libc::getuid(), u32::MAX)),
                answer(libc::chown(test_dir.c("missing").as_ptr(), u32::MAX, u32::MAX)),
            ]
        };
        (ends, file.metadata().unwrap().mode(), fs::metadata(test_dir.path("s")).unwrap().mode())
    });
}

#[test]
fn times_are_set_as_precisely_as_the_function_can() {
    let at = |seconds, nanoseconds| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"");
        let path = test_dir.c("f");
        let seen = || {
            file.metadata().map(|found| (found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec())).unwrap()
        };
        let set = why(file.set_times(Times::new().set_accessed(at(1, 2)).set_modified(at(3, 4))));
        let mut all = vec![(set.map(|()| 0), seen())];
        let specs = |accessed, modified| [accessed, modified].map(|tv_nsec| timespec { tv_sec: 7, tv_nsec });
        let vals = [timeval { tv_sec: 5, tv_usec: 6 }, timeval { tv_sec: 7, tv_usec: 8 }];
        let whole = utimbuf { actime: 9, modtime: 10 };
        let mut note = |end: c_int| all.push((answer(end), seen()));
        // SAFETY: nul-terminated strings, and two times each.
        unsafe {
            note(libc::utimes(path.as_ptr(), vals.as_ptr()));
            note(libc::futimes(number(&file), vals.as_ptr()));
            note(libc::utime(path.as_ptr(), &raw const whole));
            note(libc::utimensat(libc::AT_FDCWD, path.as_ptr(), specs(libc::UTIME_OMIT, 1).as_ptr(), 0));
            note(libc::utimensat(
                libc::AT_FDCWD,
                path.as_ptr(),
                specs(2, libc::UTIME_OMIT).as_ptr(),
                AT_SYMLINK_NOFOLLOW,
            ));
            note(libc::utimensat(libc::AT_FDCWD, path.as_ptr(), specs(-1, 0).as_ptr(), 0));
            note(libc::utimensat(libc::AT_FDCWD, path.as_ptr(), specs(1_000_000_000, 0).as_ptr(), 0));
            note(libc::utimensat(number(&file), null(), specs(11, 12).as_ptr(), 0));
            note(libc::futimens(number(&file), without_provenance(64)));
            note(libc::utimes(test_dir.c("missing").as_ptr(), vals.as_ptr()));
            note(libc::futimes(number(&file), [timeval { tv_sec: 1, tv_usec: 1_000_000 }; 2].as_ptr()));
        }
        all
    });
}

#[test]
fn a_time_that_is_now_lies_between_the_clock_before_and_after() {
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"");
    file.set_times(Times::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
    // The file's clock may be as coarse as the kernel's tick.
    let before = SystemTime::now() - Duration::from_millis(20);
    // SAFETY: a nul-terminated string.
    assert_eq!(unsafe { libc::utime(test_dir.c("f").as_ptr(), null()) }, 0);
    let modified = file.metadata().unwrap().modified().unwrap();
    assert!(before <= modified && modified <= SystemTime::now());
}

#[test]
fn a_file_is_truncated_by_its_path() {
    same_everywhere(|test_dir| {
        test_dir.file("f", b"0123456789");
        // SAFETY: nul-terminated strings.
        let ends = [("f", 4), ("f", 100_000), ("f", -1), (".", 0), ("missing", 0), ("f", 6)]
            .map(|(name, bytes)| answer(unsafe { libc::truncate(test_dir.c(name).as_ptr(), bytes) }));
        (ends, test_dir.bytes("f"))
    });
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let test_dir = TestDir::new(Place::Local);
    let (path, file) = (test_dir.c("f"), test_dir.file("f", b""));
    let (name, other) = (c"user.tide", c"user.ebb");
    let mut into = [0_u8; 64];
    // SAFETY: nul-terminated strings, values and buffers of the given lengths.
    unsafe {
        let set = |name: &std::ffi::CStr, value: &[u8], flags| {
            answer(libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags))
        };
        assert_eq!(set(name, b"high", libc::XATTR_REPLACE), Err(Errno::NODATA));
        assert_eq!(set(name, b"high", libc::XATTR_CREATE), Ok(0));
        assert_eq!(set(name, b"low", libc::XATTR_CREATE), Err(Errno::EXIST));
        assert_eq!(set(c"nonsense", b"", 0), Err(Errno::OPNOTSUPP));
        assert_eq!(answer(libc::fsetxattr(number(&file), other.as_ptr(), null(), 0, 0)), Ok(0));
        assert_eq!(answer(libc::getxattr(path.as_ptr(), name.as_ptr(), null_mut(), 0)), Ok(4));
        assert_eq!(
            answer(libc::getxattr(path.as_ptr(), name.as_ptr(), into.as_mut_ptr().cast(), 3)),
            Err(Errno::RANGE)
        );
        assert_eq!(answer(libc::fgetxattr(number(&file), name.as_ptr(), into.as_mut_ptr().cast(), 64)), Ok(4));
        assert_eq!(&into[..5], b"high\0");
        let listed = usize::try_from(libc::listxattr(path.as_ptr(), into.as_mut_ptr().cast(), 64)).unwrap();
        let names: Vec<&[u8]> = into[..listed].split(|byte| *byte == 0).collect();
        assert!(names.contains(&name.to_bytes()) && names.contains(&other.to_bytes()), "{names:?}");
        assert_eq!(answer(libc::flistxattr(number(&file), null_mut(), 0)), Ok(i64::try_from(listed).unwrap()));
        assert_eq!(answer(libc::removexattr(path.as_ptr(), name.as_ptr())), Ok(0));
        assert_eq!(answer(libc::fremovexattr(number(&file), name.as_ptr())), Err(Errno::NODATA));
        assert_eq!(answer(libc::getxattr(path.as_ptr(), without_provenance(64), null_mut(), 0)), Err(Errno::FAULT));
    }
}

#[test]
fn a_location_has_attributes_that_cannot_be_changed_through_it() {
    same_everywhere(|test_dir| {
        test_dir.file("f", b"0123");
        // SAFETY: nul-terminated strings; a local structure of plain numbers.
        unsafe {
            let location = libc::open(test_dir.c("f").as_ptr(), libc::O_PATH);
            let mut found: Found = zeroed();
            let ends = [
                seen(libc::fstat(location, &raw mut found), &found).map(|_| 0),
                answer(libc::fchmod(location, 0o600)),
                answer(libc::fchown(location, u32::MAX, u32::MAX)),
                answer(libc::futimens(location, null())),
                answer(libc::fgetxattr(location, c"user.tide".as_ptr(), null_mut(), 0)),
            ];
            libc::close(location);
            ends
        }
    });
}

#[test]
fn the_umask_takes_bits_from_the_modes_of_new_files() {
    same_everywhere(|test_dir| {
        in_child(|| {
            // SAFETY: takes a number; a child of its own.
            unsafe { libc::umask(0o027) };
            fs::create_dir(test_dir.path("d")).unwrap();
            fs::write(test_dir.path("f"), "").unwrap();
            let made = ["d", "f"].map(|name| fs::metadata(test_dir.path(name)).unwrap().mode() & 0o777);
            fs::set_permissions(test_dir.path("f"), Permissions::from_mode(0o777)).unwrap();
            let set = fs::metadata(test_dir.path("f")).unwrap().mode();
            // SAFETY: takes a number.
            format!("{made:?} {set:o} {:o}", unsafe { libc::umask(0) })
        })
    });
}

#[test]
fn the_pool_shows_itself_as_a_tmpfs_with_space() {
    let test_dir = TestDir::new(Place::Local);
    let file = test_dir.file("f", b"");
    // SAFETY: structures of plain numbers; nul-terminated strings.
    unsafe {
        let (mut by_path, mut by_file): (libc::statfs, libc::statfs) = (zeroed(), zeroed());
        assert_eq!(
            (libc::statfs(test_dir.c("f").as_ptr(), &raw mut by_path), libc::fstatfs(number(&file), &raw mut by_file)),
            (0, 0)
        );
        assert_eq!((by_path.f_type, by_path.f_namelen, by_path.f_frsize), (libc::TMPFS_MAGIC, 255, by_path.f_bsize));
        assert!(0 < by_path.f_bavail && by_path.f_bavail <= by_path.f_bfree && by_path.f_bfree <= by_path.f_blocks);
        assert_eq!((by_file.f_type, by_file.f_blocks), (by_path.f_type, by_path.f_blocks));
        let mut vfs: libc::statvfs = zeroed();
        assert_eq!(
            (libc::statvfs(test_dir.c("f").as_ptr(), &raw mut vfs), vfs.f_namemax, vfs.f_blocks),
            (0, 255, by_path.f_blocks)
        );
        assert_eq!((libc::fstatvfs(number(&file), &raw mut vfs), vfs.f_bsize), (0, by_path.f_bsize.unsigned_abs()));
        assert_eq!(answer(libc::statfs(test_dir.c("missing").as_ptr(), &raw mut by_path)), Err(Errno::NOENT));
        assert_eq!(answer(libc::fstatfs(number(&file), without_provenance_mut(64))), Err(Errno::FAULT));
    }
}
