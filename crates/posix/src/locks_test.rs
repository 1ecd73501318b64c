//! Tests of locks: ranges, conflicts, and how locks end.

use crate::pool_test::{CREATE, TestPool};
use crate::{Errno, LockBase, LockKind, LockOperation, LockRange, PosixProcess};
use rustix::fs::{FlockOperation, OFlags};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const NEVER: &dyn Fn() -> bool = &|| false;

/// Range from a base, in bytes.
fn range(kind: LockKind, from: LockBase, start: i64, bytes: i64) -> LockRange {
    LockRange { kind, from, start, bytes, process: 0 }
}

fn bytes(kind: LockKind, start: i64, bytes: i64) -> LockRange {
    range(kind, LockBase::Start, start, bytes)
}

/// Pool with a file of ten bytes, which is open twice.
struct LockedFile {
    pool: TestPool,
    one: OwnedFd,
    two: OwnedFd,
}

impl LockedFile {
    fn new() -> Self {
        let pool = TestPool::start();
        pool.make("f", b"0123456789");
        let (one, two) = (pool.open("f", CREATE).unwrap(), pool.open("f", CREATE).unwrap());
        Self { pool, one, two }
    }

    /// Sets a lock of an open file description.
    fn set(&self, descriptor: &OwnedFd, range: LockRange) -> Result<(), Errno> {
        self.pool.process.lock(descriptor.as_fd(), LockOperation::Set, true, range, NEVER).map(drop)
    }

    /// Returns the lock that another open would meet.
    fn test(&self, descriptor: &OwnedFd, range: LockRange) -> LockRange {
        self.pool.process.lock(descriptor.as_fd(), LockOperation::Test, true, range, NEVER).unwrap().unwrap()
    }
}

#[test]
fn a_range_counts_from_its_base_and_a_test_reports_it_from_the_start() {
    let file = LockedFile::new();
    file.pool.process.seek_any(file.one.as_fd(), 4).unwrap();
    let cases = [
        (range(LockKind::Write, LockBase::Start, 2, 3), (2, 3)),
        (range(LockKind::Write, LockBase::Current, 1, 1), (5, 1)),
        (range(LockKind::Write, LockBase::End, -2, 4), (8, 4)),
        (range(LockKind::Write, LockBase::Start, 7, -3), (4, 3)),
        (range(LockKind::Write, LockBase::Start, 3, 0), (3, 0)),
        (range(LockKind::Write, LockBase::End, 0, 0), (10, 0)),
        (range(LockKind::Write, LockBase::Start, i64::MAX, 1), (i64::MAX, 0)),
        (range(LockKind::Read, LockBase::Start, 0, i64::MAX), (0, i64::MAX)),
    ];
    for (asked, (start, length)) in cases {
        file.set(&file.one, asked).unwrap();
        let found = file.test(&file.two, bytes(LockKind::Write, 0, 0));
        assert_eq!(found, LockRange { process: -1, ..bytes(asked.kind, start, length) }, "{asked:?}");
        file.set(&file.one, bytes(LockKind::Unlock, 0, 0)).unwrap();
    }
}

#[test]
fn a_range_before_the_start_or_past_the_largest_offset_is_refused() {
    let file = LockedFile::new();
    let cases = [
        (LockBase::Start, -1, 1, Errno::INVAL),
        (LockBase::End, -11, 0, Errno::INVAL),
        (LockBase::Start, 2, -3, Errno::INVAL),
        (LockBase::Start, 0, -1, Errno::INVAL),
        (LockBase::Start, -1, i64::MIN, Errno::INVAL),
        (LockBase::End, i64::MAX, 1, Errno::OVERFLOW),
        (LockBase::Start, 2, i64::MAX, Errno::OVERFLOW),
    ];
    for (from, start, length, errno) in cases {
        assert_eq!(file.set(&file.one, range(LockKind::Write, from, start, length)), Err(errno), "{start} {length}");
    }
    assert_eq!(file.test(&file.two, bytes(LockKind::Write, 0, 0)).kind, LockKind::Unlock, "nothing is locked");
}

#[test]
fn readers_share_a_range_and_a_writer_has_it_alone() {
    let file = LockedFile::new();
    file.set(&file.one, bytes(LockKind::Read, 0, 4)).unwrap();
    file.set(&file.two, bytes(LockKind::Read, 2, 4)).unwrap();
    assert_eq!(file.set(&file.two, bytes(LockKind::Write, 3, 1)), Err(Errno::AGAIN));
    assert_eq!(file.set(&file.two, bytes(LockKind::Write, 4, 4)), Ok(()));
    assert_eq!(file.set(&file.one, bytes(LockKind::Read, 3, 2)), Err(Errno::AGAIN));
    file.set(&file.one, bytes(LockKind::Unlock, 0, 0)).unwrap();
    assert_eq!(file.set(&file.two, bytes(LockKind::Write, 0, 0)), Ok(()));
    let unaffected = file.test(&file.two, bytes(LockKind::Write, 0, 0));
    assert_eq!(unaffected.kind, LockKind::Unlock, "an owner's own lock is no conflict");
}

#[test]
fn a_lock_needs_a_descriptor_opened_for_its_kind_and_a_test_needs_none() {
    let file = LockedFile::new();
    let (reader, writer) = (file.pool.open("f", OFlags::RDONLY).unwrap(), file.pool.open("f", OFlags::WRONLY).unwrap());
    for (descriptor, kind, expected) in [
        (&reader, LockKind::Read, Ok(())),
        (&reader, LockKind::Write, Err(Errno::BADF)),
        (&writer, LockKind::Read, Err(Errno::BADF)),
        (&writer, LockKind::Unlock, Ok(())),
    ] {
        assert_eq!(file.set(descriptor, bytes(kind, 0, 1)), expected, "{kind:?}");
    }
    assert_eq!(file.test(&reader, bytes(LockKind::Write, 5, 1)).kind, LockKind::Unlock);
    let host = std::fs::File::open(file.pool.host.path()).unwrap();
    let not_ours = file.pool.process.flock(host.as_fd(), FlockOperation::LockShared, NEVER);
    assert_eq!(not_ours, Err(Errno::BADF));
}

#[test]
fn a_lock_of_the_process_ends_when_any_of_its_descriptors_of_the_file_is_closed() {
    let LockedFile { pool, one, two } = LockedFile::new();
    let process_lock =
        |descriptor: &OwnedFd, operation, range| pool.process.lock(descriptor.as_fd(), operation, false, range, NEVER);
    process_lock(&one, LockOperation::Set, bytes(LockKind::Write, 0, 4)).unwrap();
    process_lock(&two, LockOperation::Set, bytes(LockKind::Write, 2, 4)).unwrap();
    let three = pool.open("f", CREATE).unwrap();
    let meets = |kind| {
        let wanted = bytes(kind, 0, 0);
        pool.process.lock(three.as_fd(), LockOperation::Test, true, wanted, NEVER).unwrap().unwrap()
    };
    let own = i32::try_from(std::process::id()).unwrap();
    let held = LockRange { process: own, ..bytes(LockKind::Write, 0, 6) };
    assert_eq!(meets(LockKind::Read), held, "two locks of one process are one");
    pool.close(two);
    assert_eq!(meets(LockKind::Write).kind, LockKind::Unlock);
    process_lock(&one, LockOperation::Set, bytes(LockKind::Write, 0, 4)).unwrap();
    let copy = one.try_clone().unwrap();
    pool.process.record_dup(one.as_fd(), copy.as_raw_fd());
    pool.close(copy);
    assert_eq!(meets(LockKind::Write).kind, LockKind::Unlock, "a duplicate was closed");
}

#[test]
fn flock_belongs_to_the_open_file_and_ends_with_its_last_descriptor() {
    let LockedFile { pool, one, two } = LockedFile::new();
    let flock = |descriptor: &OwnedFd, operation| pool.process.flock(descriptor.as_fd(), operation, NEVER);
    flock(&one, FlockOperation::LockExclusive).unwrap();
    let copy = one.try_clone().unwrap();
    pool.process.record_dup(one.as_fd(), copy.as_raw_fd());
    assert_eq!(flock(&copy, FlockOperation::NonBlockingLockExclusive), Ok(()), "it is the same open file");
    for operation in [FlockOperation::NonBlockingLockShared, FlockOperation::NonBlockingLockExclusive] {
        assert_eq!(flock(&two, operation), Err(Errno::AGAIN), "{operation:?}");
    }
    flock(&one, FlockOperation::NonBlockingLockShared).unwrap();
    flock(&two, FlockOperation::LockShared).unwrap();
    flock(&two, FlockOperation::Unlock).unwrap();
    flock(&one, FlockOperation::LockExclusive).unwrap();
    pool.close(one);
    assert_eq!(flock(&two, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN), "a copy is open");
    pool.close(copy);
    assert_eq!(flock(&two, FlockOperation::NonBlockingLockExclusive), Ok(()));
    let location = pool.open("f", OFlags::PATH).unwrap();
    assert_eq!(flock(&location, FlockOperation::LockShared), Err(Errno::BADF));
}

#[test]
fn a_wait_for_a_lock_ends_with_an_interruption_or_with_the_lock() {
    let LockedFile { pool, one, two } = LockedFile::new();
    let whole = |kind| bytes(kind, 0, 0);
    let wait = |process: &PosixProcess, interrupted: &dyn Fn() -> bool| {
        process.lock(two.as_fd(), LockOperation::Wait, true, whole(LockKind::Write), interrupted).map(drop)
    };
    let set = |kind| pool.process.lock(one.as_fd(), LockOperation::Set, true, whole(kind), NEVER).map(drop).unwrap();
    set(LockKind::Write);
    assert_eq!(wait(&pool.process, &|| true), Err(Errno::INTR));
    set(LockKind::Unlock);
    set(LockKind::Read);
    let polls = Cell::new(0);
    let ended = wait(&pool.process, &|| {
        polls.set(polls.get() + 1);
        polls.get() > 1
    });
    assert_eq!((ended, polls.get()), (Err(Errno::INTR), 2));
    set(LockKind::Unlock);
    assert_eq!(wait(&pool.process, &|| true), Ok(()), "a free lock needs no wait");
}
