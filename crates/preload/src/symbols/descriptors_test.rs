//! Descriptors: the records follow what the kernel does with them, and locks are the pool's.

use super::*;
use crate::classify::{FdKind, is_recorded};
use crate::pool_test::{
    Place, TestDir, answer, exclusive_test, in_child, number, same_everywhere, why, without_children,
};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::without_provenance_mut;

/// First of the descriptor numbers that these tests choose, far above those of others.
const FAR: c_int = 900;

/// File of a descriptor that a call returned.
fn owned(descriptor: c_int) -> File {
    assert!(descriptor >= 0, "{:?}", crate::call::errno());
    // SAFETY: a descriptor that was just made for the caller.
    File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[test]
fn the_operation_of_flock_is_one_of_three_with_or_without_a_wait() {
    use FlockOperation::{LockExclusive, LockShared, NonBlockingLockExclusive, NonBlockingLockShared, Unlock};
    for (operation, found) in [
        (libc::LOCK_SH, Ok(LockShared)),
        (libc::LOCK_SH | libc::LOCK_NB, Ok(NonBlockingLockShared)),
        (libc::LOCK_EX, Ok(LockExclusive)),
        (libc::LOCK_EX | libc::LOCK_NB, Ok(NonBlockingLockExclusive)),
        (libc::LOCK_UN, Ok(Unlock)),
        (libc::LOCK_UN | libc::LOCK_NB, Ok(Unlock)),
        (libc::LOCK_SH | libc::LOCK_EX, Err(Errno::INVAL)),
        (libc::LOCK_NB, Err(Errno::INVAL)),
        (0, Err(Errno::INVAL)),
        (-1, Err(Errno::INVAL)),
    ] {
        assert_eq!(
            flock_operation(operation).map(|found| format!("{found:?}")),
            found.map(|found| format!("{found:?}")),
            "{operation}"
        );
    }
}

#[test]
fn the_reserved_descriptors_of_the_library_are_found_in_any_range() {
    drop(TestDir::new(Place::Local));
    let first = first_reserved(0, c_uint::MAX).expect("the connection to the pool");
    assert!(posix::is_reserved(first.cast_signed()));
    assert_eq!(first_reserved(first, first), Some(first));
    assert_eq!((first_reserved(0, first - 1), first_reserved(1, 0)), (None, None));
    assert_eq!(first_reserved(c_uint::MAX - 1, c_uint::MAX), None);
}

#[test]
fn a_program_cannot_close_or_replace_the_connection_to_the_pool() {
    let test_dir = TestDir::new(Place::Local);
    let reserved = first_reserved(0, c_uint::MAX).unwrap().cast_signed();
    let file = test_dir.file("f", b"bytes");
    // SAFETY: takes numbers only.
    unsafe {
        assert_eq!(answer(libc::close(reserved)), Err(Errno::BADF));
        assert_eq!(answer(libc::dup2(number(&file), reserved)), Err(Errno::BUSY));
        assert_eq!(answer(libc::dup3(number(&file), reserved, libc::O_CLOEXEC)), Err(Errno::BUSY));
        assert_eq!(answer(close_range(reserved.cast_unsigned(), reserved.cast_unsigned(), 0)), Ok(0));
    }
    assert_eq!(test_dir.bytes("f"), b"bytes", "the connection stands");
}

#[test]
fn a_program_that_closes_all_descriptors_still_reaches_the_pool() {
    let test_dir = TestDir::new(Place::Striped);
    test_dir.file("f", b"bytes");
    for all in [0, 1, 2] {
        let output = in_child(|| {
            let file = test_dir.file("f", b"bytes");
            // The test's own pipe has a lower number, and the connection to the pool a higher one.
            // SAFETY: takes numbers only.
            let descriptor = unsafe { libc::fcntl(number(&file), F_DUPFD, 350) };
            // SAFETY: takes numbers only.
            unsafe {
                match all {
                    0 => closefrom(descriptor),
                    1 => assert_eq!(close_range(descriptor.cast_unsigned(), c_uint::MAX, 0), 0),
                    _ => (descriptor..1024).for_each(|descriptor| {
                        libc::close(descriptor);
                    }),
                }
            }
            format!("{:?} {}", test_dir.bytes("f"), is_recorded(descriptor))
        });
        assert_eq!(output, format!("{:?} false", b"bytes"), "way {all}");
    }
}

#[test]
fn duplicates_share_their_offset_and_are_of_the_same_kind() {
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"0123456789");
        let descriptor = number(&file);
        // SAFETY: takes numbers only.
        let mut copies = unsafe {
            [
                owned(libc::dup(descriptor)),
                owned(libc::fcntl(descriptor, F_DUPFD, FAR)),
                owned(libc::fcntl(descriptor, F_DUPFD_CLOEXEC, FAR)),
                owned(libc::dup2(descriptor, FAR + 50)),
                owned(libc::dup3(descriptor, FAR + 51, libc::O_CLOEXEC)),
            ]
        };
        let kinds = copies.each_ref().map(|copy| kind(number(copy)) == kind(descriptor));
        // SAFETY: takes numbers only.
        let closed_at_exec = copies.each_ref().map(|copy| unsafe { libc::fcntl(number(copy), libc::F_GETFD) });
        let mut read = Vec::new();
        for copy in &mut copies {
            let mut byte = [0];
            copy.read_exact(&mut byte).unwrap();
            read.push(byte[0]);
        }
        let position = file.stream_position().unwrap();
        drop(file);
        let after = why(copies[0].write(b"x"));
        drop(copies);
        (kinds, closed_at_exec, read, position, after, test_dir.bytes("f"))
    });
}

#[test]
fn duplications_that_the_kernel_refuses_close_nothing() {
    same_everywhere(|test_dir| {
        let (file, other) = (test_dir.file("f", b"0123"), test_dir.file("g", b""));
        let (from, to) = (number(&file), number(&other));
        // SAFETY: takes numbers only.
        let ends = unsafe {
            [
                answer(libc::dup2(-1, to)),
                answer(libc::dup2(FAR + 99, to)),
                answer(libc::dup2(from, -1)),
                answer(libc::dup3(from, to, 1 << 30)),
                answer(libc::dup3(from, from, 0)),
                answer(libc::dup(-1)),
                answer(libc::dup2(from, from)).map(|same| same - i64::from(from)),
            ]
        };
        (ends, why(other.metadata()).map(|found| found.len()), why(file.metadata()).map(|found| found.len()))
    });
}

#[test]
fn a_replaced_descriptor_is_of_the_file_that_replaces_it() {
    let (pool, host) = (TestDir::new(Place::Striped), TestDir::new(Place::Host));
    let (file, other) = (pool.file("f", b"of the pool"), host.file("f", b"of the host"));
    let read = |descriptor: c_int| {
        let mut text = [0_u8; 11];
        // SAFETY: a buffer of eleven bytes.
        unsafe { libc::pread(descriptor, text.as_mut_ptr().cast(), 11, 0) };
        text
    };
    // SAFETY: takes numbers only.
    let copy = owned(unsafe { libc::dup(number(&file)) });
    // SAFETY: takes numbers only.
    unsafe { libc::dup2(number(&other), number(&copy)) };
    assert_eq!((kind(number(&copy)), &read(number(&copy))), (None, b"of the host"));
    // SAFETY: takes numbers only.
    unsafe { libc::dup2(number(&file), number(&copy)) };
    assert_eq!((kind(number(&copy)), &read(number(&copy))), (Some(FdKind::Remote), b"of the pool"));
}

#[test]
fn a_range_of_descriptors_is_closed_or_marked() {
    let test_dir = TestDir::new(Place::Local);
    let file = test_dir.file("f", b"");
    let range = [FAR + 60, FAR + 61, FAR + 63];
    // SAFETY: takes numbers only.
    unsafe {
        for descriptor in range {
            assert_eq!(libc::dup2(number(&file), descriptor), descriptor);
        }
        let (first, last) = ((FAR + 60).cast_unsigned(), (FAR + 63).cast_unsigned());
        assert_eq!(answer(close_range(first, last, libc::CLOSE_RANGE_CLOEXEC.cast_signed())), Ok(0));
        assert!(range.into_iter().all(|descriptor| libc::fcntl(descriptor, libc::F_GETFD) == libc::FD_CLOEXEC && is_recorded(descriptor)));
        assert_eq!(answer(close_range(last, first, 0)), Err(Errno::INVAL));
        assert_eq!(answer(close_range(first, last - 1, 0)), Ok(0));
        assert_eq!(range.map(is_recorded), [false, false, true]);
        assert_eq!(answer(libc::close(FAR + 63)), Ok(0));
        assert_eq!(answer(libc::close(FAR + 63)), Err(Errno::BADF));
    }
}

#[test]
fn the_flags_of_a_descriptor_are_those_it_was_opened_with_and_can_be_changed() {
    same_everywhere(|test_dir| {
        test_dir.file("f", b"0123");
        let mut appends = OpenOptions::new().append(true).open(test_dir.path("f")).unwrap();
        let descriptor = number(&appends);
        let known = libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK;
        // SAFETY: takes numbers only.
        let flags = || unsafe { libc::fcntl(descriptor, libc::F_GETFL) } & known;
        let before = flags();
        // SAFETY: takes numbers only.
        let set = [libc::O_NONBLOCK, libc::O_APPEND, 0]
            .map(|wanted| (answer(unsafe { libc::fcntl(descriptor, libc::F_SETFL, wanted) }), flags()));
        appends.rewind().unwrap();
        let written = why(appends.write(b"x"));
        (before, set, written, test_dir.bytes("f"))
    });
}

#[test]
fn leases_seals_and_notices_are_refused_as_for_a_file_that_others_use() {
    let test_dir = TestDir::new(Place::Local);
    let (file, directory) = (test_dir.file("f", b""), File::open(test_dir.root()).unwrap());
    // SAFETY: takes numbers only.
    let answered = |file: &File, command, what: c_int| answer(unsafe { libc::fcntl(number(file), command, what) });
    for (file, command, what, outcome) in [
        (&file, libc::F_GETLEASE, 0, Ok(libc::F_UNLCK.into())),
        (&file, libc::F_SETLEASE, libc::F_RDLCK, Err(Errno::AGAIN)),
        (&file, libc::F_SETLEASE, 77, Err(Errno::INVAL)),
        (&directory, libc::F_SETLEASE, libc::F_RDLCK, Err(Errno::INVAL)),
        (&file, libc::F_NOTIFY, 0, Err(Errno::NOTDIR)),
        (&directory, libc::F_NOTIFY, 0, Err(Errno::INVAL)),
        (&file, libc::F_GET_SEALS, 0, Ok(libc::F_SEAL_SEAL.into())),
        (&file, libc::F_ADD_SEALS, libc::F_SEAL_WRITE, Err(Errno::PERM)),
    ] {
        assert_eq!(answered(file, command, what), outcome, "{command} {what}");
    }
}

#[test]
fn a_location_supports_only_calls_of_the_descriptor_itself() {
    let test_dir = TestDir::new(Place::Local);
    test_dir.file("f", b"");
    // SAFETY: a nul-terminated string.
    let location = owned(unsafe { libc::open(test_dir.c("f").as_ptr(), libc::O_PATH) });
    // SAFETY: takes numbers only.
    let answered = |command, what: c_int| answer(unsafe { libc::fcntl(number(&location), command, what) });
    assert_eq!(answered(libc::F_GETFD, 0), Ok(0));
    assert_eq!(answered(libc::F_SETFD, libc::FD_CLOEXEC), Ok(0));
    assert_eq!(answered(libc::F_GETFL, 0).map(|flags| flags & i64::from(libc::O_PATH)), Ok(libc::O_PATH.into()));
    for command in [libc::F_SETFL, libc::F_GETLK, libc::F_SETLKW, libc::F_GETLEASE, libc::F_ADD_SEALS] {
        assert_eq!(answered(command, 0), Err(Errno::BADF), "{command}");
    }
    // SAFETY: takes numbers only.
    assert_eq!(answer(unsafe { libc::flock(number(&location), libc::LOCK_SH) }), Err(Errno::BADF));
}

#[test]
fn inode_flags_read_as_none_and_only_none_can_be_set() {
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"0123456789");
    let (mut flags, mut extended, mut left) = (7_u32, [7_u32; 7], 0_i32);
    // SAFETY: structures of the requests' sizes, or an address where nothing is.
    unsafe {
        assert_eq!(answer(libc::ioctl(number(&file), 0x8008_6601, &raw mut flags)), Ok(0));
        assert_eq!(answer(libc::ioctl(number(&file), 0x801c_581f, &raw mut extended)), Ok(0));
        assert_eq!((flags, extended), (0, [0; 7]));
        assert_eq!(answer(libc::ioctl(number(&file), 0x4008_6602, &raw mut flags)), Ok(0));
        assert_eq!(answer(libc::ioctl(number(&file), 0x401c_5820, &raw mut extended)), Ok(0));
        (flags, extended[2]) = (0x10, 1);
        assert_eq!(answer(libc::ioctl(number(&file), 0x4008_6602, &raw mut flags)), Err(Errno::OPNOTSUPP));
        assert_eq!(answer(libc::ioctl(number(&file), 0x401c_5820, &raw mut extended)), Err(Errno::OPNOTSUPP));
        assert_eq!(
            answer(libc::ioctl(number(&file), 0x8008_6601, without_provenance_mut::<u32>(64))),
            Err(Errno::FAULT)
        );
        assert_eq!(libc::lseek(number(&file), 4, libc::SEEK_SET), 4);
        assert_eq!(answer(libc::ioctl(number(&file), libc::FIONREAD, &raw mut left)), Ok(0));
    }
    assert_eq!(left, 6);
}

/// Lock of a range.
fn lock_of(kind: c_int, start: off_t, length: off_t) -> libc::flock {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind.try_into().unwrap(), start, length);
    lock
}

/// Makes a lock call. Returns the type and range that it stored.
fn lock(file: &File, command: c_int, kind: c_int, start: off_t, length: off_t) -> Result<(i16, off_t, off_t), Errno> {
    let mut lock = lock_of(kind, start, length);
    // SAFETY: the test's own structure.
    let outcome = answer(unsafe { libc::fcntl(number(file), command, &raw mut lock) });
    outcome.map(|_| (lock.l_type, lock.l_start, lock.l_len))
}

#[test]
fn locks_of_opens_exclude_each_other_by_ranges() {
    use libc::{F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK};
    same_everywhere(|test_dir| {
        let (first, second) = (
            test_dir.file("f", b"0123456789"),
            OpenOptions::new().read(true).write(true).open(test_dir.path("f")).unwrap(),
        );
        [
            lock(&first, F_OFD_SETLK, F_WRLCK, 0, 4),
            lock(&second, F_OFD_SETLK, F_WRLCK, 4, 0),
            lock(&second, F_OFD_GETLK, F_RDLCK, 2, 1),
            lock(&first, F_OFD_GETLK, F_WRLCK, 2, 100),
            lock(&second, F_OFD_SETLK, F_RDLCK, 3, 1),
            lock(&first, F_OFD_SETLK, F_RDLCK, 0, 4),
            lock(&second, F_OFD_SETLK, F_RDLCK, 3, 1),
            lock(&first, F_OFD_SETLK, F_UNLCK, 0, 0),
            lock(&second, F_OFD_SETLK, F_WRLCK, 0, 4),
            lock(&first, F_OFD_SETLK, 9, 0, 1),
            lock(&first, F_OFD_SETLK, F_WRLCK, -1, 1),
        ]
    });
}

#[test]
fn locks_of_a_process_exclude_its_children_and_end_with_any_close() {
    use libc::{F_GETLK, F_RDLCK, F_SETLK, F_WRLCK};
    same_everywhere(|test_dir| {
        let (file, other) = (test_dir.file("f", b"0123456789"), File::open(test_dir.path("f")).unwrap());
        let taken = lock(&file, F_SETLK, F_WRLCK, 2, 3);
        let of_child = || {
            in_child(|| {
                let found = [
                    lock(&file, F_SETLK, F_WRLCK, 0, 2),
                    lock(&file, F_SETLK, F_RDLCK, 4, 1),
                    lock(&file, F_GETLK, F_WRLCK, 0, 0),
                ];
                let mut lock = lock_of(F_WRLCK, 0, 0);
                // SAFETY: the test's own structure; takes no arguments.
                let parent =
                    unsafe { libc::fcntl(number(&file), F_GETLK, &raw mut lock) == 0 && lock.l_pid == libc::getppid() };
                format!("{found:?} {parent}")
            })
        };
        let while_taken = of_child();
        drop(other);
        (taken, while_taken, of_child())
    });
}

#[test]
fn a_lock_call_is_refused_for_its_arguments_and_its_descriptor() {
    use libc::{F_OFD_SETLK, F_RDLCK, F_SETLK, F_WRLCK};
    same_everywhere(|test_dir| {
        test_dir.file("f", b"");
        let (reads, writes) =
            (File::open(test_dir.path("f")).unwrap(), OpenOptions::new().write(true).open(test_dir.path("f")).unwrap());
        let mut with_process = lock_of(F_RDLCK, 0, 1);
        with_process.l_pid = 1;
        let mut bad_base = lock_of(F_RDLCK, 0, 1);
        bad_base.l_whence = 7;
        // SAFETY: the test's own structures, and an address where nothing is.
        let by_structure = unsafe {
            [
                answer(libc::fcntl(number(&reads), F_OFD_SETLK, &raw mut with_process)),
                answer(libc::fcntl(number(&reads), F_SETLK, &raw mut bad_base)),
                answer(libc::fcntl(number(&reads), F_SETLK, without_provenance_mut::<libc::flock>(64))),
            ]
        };
        (
            [
                lock(&reads, F_SETLK, F_WRLCK, 0, 1),
                lock(&writes, F_SETLK, F_RDLCK, 0, 1),
                lock(&reads, F_SETLK, F_RDLCK, 0, 1),
            ],
            by_structure,
        )
    });
}

#[test]
fn lockf_locks_from_the_offset_on() {
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"0123456789");
        file.seek(std::io::SeekFrom::Start(5)).unwrap();
        // SAFETY: takes numbers only.
        let lockf = |command, bytes| answer(unsafe { libc::lockf(number(&file), command, bytes) });
        let ends = [lockf(libc::F_TLOCK, 3), lockf(libc::F_TEST, 3), lockf(9, 1), lockf(libc::F_LOCK, -2)];
        let of_child = in_child(|| {
            // SAFETY: takes numbers only.
            let lockf = |command, bytes| answer(unsafe { libc::lockf(number(&file), command, bytes) });
            format!(
                "{:?}",
                [lockf(libc::F_TEST, 3), lockf(libc::F_TLOCK, 1), lockf(libc::F_TEST, -3), lockf(libc::F_TEST, -5)]
            )
        });
        (ends, of_child, lockf(libc::F_ULOCK, 0))
    });
}

#[test]
fn whole_file_locks_are_of_the_open_and_its_duplicates() {
    let _no_children = without_children();
    same_everywhere(|test_dir| {
        let (first, second) = (test_dir.file("f", b""), File::open(test_dir.path("f")).unwrap());
        let copy = first.try_clone().unwrap();
        // SAFETY: takes numbers only.
        let flock = |file: &File, operation| answer(unsafe { libc::flock(number(file), operation) });
        let shared = [flock(&first, libc::LOCK_SH), flock(&second, libc::LOCK_SH | libc::LOCK_NB)];
        let exclusive = [
            flock(&first, libc::LOCK_EX | libc::LOCK_NB),
            flock(&second, libc::LOCK_UN),
            flock(&first, libc::LOCK_EX | libc::LOCK_NB),
        ];
        drop(first);
        let held = flock(&second, libc::LOCK_SH | libc::LOCK_NB);
        drop(copy);
        let free = flock(&second, libc::LOCK_SH | libc::LOCK_NB);
        (shared, exclusive, held, free, flock(&second, 0))
    });
}

#[test]
fn a_wait_for_a_lock_ends_when_it_is_released() {
    same_everywhere(|test_dir| {
        let (first, second) = (test_dir.file("f", b""), test_dir.file("f", b""));
        // SAFETY: takes numbers only.
        assert_eq!(unsafe { libc::flock(number(&first), libc::LOCK_EX) }, 0);
        std::thread::scope(|scope| {
            // SAFETY: takes numbers only.
            let waits = scope.spawn(|| answer(unsafe { libc::flock(number(&second), libc::LOCK_EX) }));
            drop(first);
            waits.join().unwrap()
        })
    });
}

#[test]
fn a_descriptor_that_was_given_to_an_exec_is_identified_when_it_is_used() {
    let _exclusive = exclusive_test();
    let test_dir = TestDir::new(Place::Striped);
    let mut file = test_dir.file("f", b"0123456789");
    let descriptor = file.as_raw_fd();
    classify::record_inherited(descriptor, true);
    assert!(classify::is_unidentified(descriptor));
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!((&bytes, kind(descriptor)), (b"0123", Some(FdKind::Remote)));
    assert!(!classify::is_unidentified(descriptor));
}

#[test]
fn inherited_descriptors_are_found_by_the_devices_that_the_parent_names() {
    let _exclusive = exclusive_test();
    let (pool, host) = (TestDir::new(Place::Striped), TestDir::new(Place::Host));
    let (file, other) = (pool.file("f", b""), host.file("f", b""));
    let descriptor = number(&file);
    let device = rustix::fs::fstat(&file).unwrap().st_dev;
    let output = in_child(|| {
        record(descriptor, None);
        crate::inherited_fds::find(b"");
        crate::inherited_fds::find(b"nonsense,,-1,99999999999999999999");
        let before = classify::is_unidentified(descriptor);
        crate::inherited_fds::find(format!("1,{device}").as_bytes());
        format!("{before} {} {}", classify::is_unidentified(descriptor), classify::is_unidentified(number(&other)))
    });
    assert_eq!(output, "false true false");
}
