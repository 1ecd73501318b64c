//! System calls by number: those on files of the pool end as the functions of their names.

use super::*;
use crate::pool_test::{Place, TestDir, answer, number, same_everywhere};
use libc::AT_FDCWD;
use std::fs::{self, File};
use std::mem::zeroed;
use std::os::unix::fs::{MetadataExt, symlink};
use std::ptr::{null, null_mut};

#[test]
fn a_register_is_cut_to_the_width_of_its_argument() {
    assert_eq!((int(-1), int(0x1_0000_0002), int(0x8000_0000)), (-1, 2, c_int::MIN));
    assert_eq!((uint(-1), uint(0x1_0000_0002)), (u32::MAX, 2));
    assert_eq!((at(-1), at(4096)), (usize::MAX, 4096));
}

#[test]
fn files_are_opened_read_and_written() {
    same_everywhere(|test_dir| {
        let (mut bytes, path) = ([0_u8; 8], test_dir.c("f"));
        // SAFETY: the arguments of each call.
        unsafe {
            let open = |flags: c_int| libc::syscall(libc::SYS_openat, AT_FDCWD, path.as_ptr(), flags, 0o600);
            let missing = answer(open(libc::O_RDONLY));
            let file = open(libc::O_RDWR | libc::O_CREAT);
            assert!(file >= 0);
            let ends = [
                missing,
                answer(libc::syscall(libc::SYS_write, file, c"0123456789".as_ptr(), 10)),
                answer(libc::syscall(libc::SYS_pwrite64, file, c"xy".as_ptr(), 2, 8_i64)),
                answer(libc::syscall(libc::SYS_lseek, file, 2_i64, libc::SEEK_SET)),
                answer(libc::syscall(libc::SYS_read, file, bytes.as_mut_ptr(), 4)),
                answer(libc::syscall(libc::SYS_pread64, file, bytes.as_mut_ptr().add(4), 4, 6_i64)),
                answer(libc::syscall(libc::SYS_fallocate, file, 0, 0_i64, 20_i64)),
                answer(libc::syscall(libc::SYS_ftruncate, file, 12_i64)),
                answer(libc::syscall(libc::SYS_fsync, file)),
                answer(libc::syscall(libc::SYS_fdatasync, file)),
                answer(libc::syscall(libc::SYS_flock, file, libc::LOCK_EX)),
                answer(libc::syscall(libc::SYS_fchmod, file, 0o640)),
                answer(libc::syscall(libc::SYS_fchown, file, -1, -1)),
            ];
            let copies =
                [libc::syscall(libc::SYS_dup, file), libc::syscall(libc::SYS_dup3, file, 980, libc::O_CLOEXEC)];
            let pieces = [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 3 }];
            let more = copies.map(|copy| {
                [
                    answer(libc::syscall(libc::SYS_readv, copy, pieces.as_ptr(), 1)),
                    answer(libc::syscall(libc::SYS_writev, copy, pieces.as_ptr(), 1)),
                    answer(libc::syscall(libc::SYS_close, copy)),
                ]
            });
            let closed = answer(libc::syscall(libc::SYS_close_range, file, file, 0));
            (ends, more, closed, bytes, test_dir.bytes("f"))
        }
    });
}

#[test]
fn names_are_made_changed_and_removed() {
    same_everywhere(|test_dir| {
        let directory = File::open(test_dir.root()).unwrap();
        let root = number(&directory);
        let mut text = [0_u8; 16];
        // SAFETY: the arguments of each call.
        unsafe {
            let ends = [
                answer(libc::syscall(libc::SYS_mkdirat, root, c"d".as_ptr(), 0o700)),
                answer(libc::syscall(libc::SYS_mknodat, root, c"f".as_ptr(), libc::S_IFREG | 0o600, 0)),
                answer(libc::syscall(libc::SYS_symlinkat, c"target".as_ptr(), root, c"s".as_ptr())),
                answer(libc::syscall(libc::SYS_readlinkat, root, c"s".as_ptr(), text.as_mut_ptr(), 16)),
                answer(libc::syscall(libc::SYS_linkat, root, c"f".as_ptr(), root, c"g".as_ptr(), 0)),
                answer(libc::syscall(
                    libc::SYS_renameat2,
                    root,
                    c"f".as_ptr(),
                    root,
                    c"g".as_ptr(),
                    libc::RENAME_NOREPLACE,
                )),
                answer(libc::syscall(libc::SYS_fchmodat, root, c"f".as_ptr(), 0o640)),
                answer(libc::syscall(libc::SYS_fchownat, root, c"f".as_ptr(), -1, -1, 0)),
                answer(libc::syscall(libc::SYS_faccessat, root, c"f".as_ptr(), libc::R_OK)),
                answer(libc::syscall(libc::SYS_faccessat2, root, c"f".as_ptr(), libc::X_OK, libc::AT_EACCESS)),
                answer(libc::syscall(libc::SYS_unlinkat, root, c"d".as_ptr(), 0)),
                answer(libc::syscall(libc::SYS_unlinkat, root, c"d".as_ptr(), libc::AT_REMOVEDIR)),
            ];
            let mut found: libc::stat = zeroed();
            let stat = answer(libc::syscall(libc::SYS_newfstatat, root, c"f".as_ptr(), &raw mut found, 0));
            let mut more: libc::statx = zeroed();
            let statx =
                answer(libc::syscall(libc::SYS_statx, root, c"f".as_ptr(), 0, libc::STATX_BASIC_STATS, &raw mut more));
            (ends, text, (stat, found.st_mode, found.st_nlink), (statx, more.stx_mode, more.stx_nlink))
        }
    });
}

#[test]
fn times_are_set_by_a_path_or_by_a_descriptor_without_one() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"");
        let times = |seconds| [libc::timespec { tv_sec: seconds, tv_nsec: 0 }; 2];
        let set = |descriptor: c_int, path: *const libc::c_char, seconds, flags: c_int| {
            // SAFETY: the arguments of the call.
            let ended =
                answer(unsafe { libc::syscall(libc::SYS_utimensat, descriptor, path, times(seconds).as_ptr(), flags) });
            (ended, file.metadata().unwrap().mtime())
        };
        let path = test_dir.c("f");
        [
            set(AT_FDCWD, path.as_ptr(), 1, 0),
            set(number(&file), null(), 2, 0),
            set(number(&file), null(), 3, libc::AT_SYMLINK_NOFOLLOW),
            set(-1, null(), 4, 0),
        ]
    });
}

#[test]
fn entries_statistics_and_copies_are_the_pools() {
    same_everywhere(|test_dir| {
        let (from, to) = (test_dir.file("f", b"0123456789"), test_dir.file("g", b""));
        let directory = File::open(test_dir.root()).unwrap();
        let mut entries = [0_u64; 64];
        // SAFETY: the arguments of each call.
        unsafe {
            let mut found: libc::statfs = zeroed();
            let listed = libc::syscall(libc::SYS_getdents64, number(&directory), entries.as_mut_ptr(), 512);
            (
                listed > 0,
                answer(libc::syscall(libc::SYS_statfs, test_dir.c("f").as_ptr(), &raw mut found)),
                answer(libc::syscall(libc::SYS_fstatfs, number(&from), &raw mut found)),
                found.f_type,
                answer(libc::syscall(
                    libc::SYS_copy_file_range,
                    number(&from),
                    null_mut::<i64>(),
                    number(&to),
                    null_mut::<i64>(),
                    6,
                    0,
                )),
                test_dir.bytes("g"),
            )
        }
    });
}

#[test]
fn a_call_that_is_not_supported_is_refused_as_by_a_kernel_without_it() {
    let test_dir = TestDir::new(Place::Local);
    symlink("f", test_dir.path("s")).unwrap();
    let (how, root) = ([0_u64; 3], File::open(test_dir.root()).unwrap());
    // SAFETY: the arguments of each call.
    unsafe {
        for (directory, path) in [(AT_FDCWD, test_dir.c("s")), (number(&root), c"s".to_owned())] {
            assert_eq!(
                answer(libc::syscall(libc::SYS_openat2, directory, path.as_ptr(), how.as_ptr(), 24)),
                Err(Errno::NOSYS)
            );
        }
        let ring = answer(libc::syscall(libc::SYS_io_uring_setup, 8, how.as_ptr()));
        assert_eq!((ring, rings::io_uring_setup()), (Err(Errno::NOSYS), -libc::ENOSYS));
        let opened = libc::syscall(libc::SYS_openat2, AT_FDCWD, c"/".as_ptr(), how.as_ptr(), 24);
        assert!(opened >= 0 || crate::call::errno() != Some(Errno::NOSYS), "the host's files are left to the kernel");
        libc::syscall(libc::SYS_close, opened);
    }
}

#[test]
fn other_calls_go_to_the_kernel_with_all_their_arguments() {
    // SAFETY: the arguments of each call.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_getpid), i64::from(std::process::id()));
        let mapped =
            libc::syscall(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert!(mapped > 0);
        assert_eq!(libc::syscall(libc::SYS_munmap, mapped, 4096), 0);
        assert_eq!(answer(libc::syscall(-1)), Err(Errno::NOSYS));
    }
    let host = TestDir::new(Place::Host);
    fs::write(host.path("f"), "bytes").unwrap();
    // SAFETY: the arguments of the call.
    assert_eq!(unsafe { libc::syscall(libc::SYS_unlinkat, AT_FDCWD, host.c("f").as_ptr(), 0) }, 0);
    assert!(!host.path("f").exists());
}
