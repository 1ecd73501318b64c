//! File locks of programs (fcntl(2), flock(2), lockf(3)). All are taken in the pool, so they
//! conflict with locks taken through mounts and by other hosts.

use crate::fd_table::OpenDescription;
use crate::{Errno, PosixProcess};
use rustix::fs::{FlockOperation, SeekFrom, seek};
use rustix::process::getpid;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use wire::{Lock, LockKind, LockOwner, LockStyle, Refusal};

/// Last byte of a lock that extends to the end of the file, however far the file grows.
const TO_THE_END: u64 = i64::MAX.cast_unsigned();
/// Flag of a session's lock owner that is an open file description and not a process.
const OPEN_OWNER: u64 = 1 << 63;

/// Operation on a range lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOperation {
    /// Return a conflicting lock.
    Test,
    /// Set the lock, or fail.
    Set,
    /// Set the lock, waiting until it is free.
    Wait,
}

/// Range lock, as fcntl(2) describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// Kind: read, write or unlock.
    pub kind: LockKind,
    /// Base of `start`.
    pub from: LockBase,
    /// First byte.
    pub start: i64,
    /// Length in bytes. 0 extends to the end of the file, also as it grows; a negative length
    /// counts the bytes before `start`.
    pub bytes: i64,
    /// Process that holds the lock; set by a test.
    pub process: i32,
}

/// Base of a lock's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockBase {
    /// Start of the file.
    Start,
    /// Current offset of the descriptor.
    Current,
    /// End of the file.
    End,
}

impl PosixProcess {
    /// fcntl(2) with a lock that belongs to the process, or to the open file description
    /// (`of_open`). A test returns a conflicting lock. A waiting call polls `interrupted` ten times
    /// a second.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn lock(
        &self,
        descriptor: BorrowedFd<'_>,
        operation: LockOperation,
        of_open: bool,
        range: LockRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<LockRange>, Errno> {
        let open = self.table.get(descriptor)?;
        if operation != LockOperation::Test {
            check_lock_access(&open, range.kind)?;
        }
        let owner = if of_open { LockOwner::Open(open.lease) } else { LockOwner::THIS_PROCESS };
        let style = self.absolute_range(descriptor, &open, range)?;
        let lock = Lock { owner, kind: range.kind, style, pid: if of_open { 0 } else { own_pid() } };
        if operation == LockOperation::Test {
            let found = self.wait(async {
                let found = match self.client.test_lock(open.file, lock).await {
                    Err(Refusal::Unsupported { .. }) => {
                        self.client.test_lock(open.file, with_session_owner(lock)).await
                    }
                    found => found,
                };
                found.map_err(|refusal| crate::errno(&refusal))
            })?;
            return Ok(Some(found.map_or(LockRange { kind: LockKind::Unlock, ..range }, to_range)));
        }
        if !of_open {
            open.locked.store(true, Relaxed);
        }
        self.set_lock(&open, lock, (operation == LockOperation::Wait).then_some(interrupted))?;
        Ok(None)
    }

    /// flock(2). A waiting call polls `interrupted` as [`Self::lock`] does.
    ///
    /// # Errors
    /// As flock(2).
    pub fn flock(
        &self,
        descriptor: BorrowedFd<'_>,
        operation: FlockOperation,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        self.check_not_path_only(descriptor)?;
        let open = self.table.get(descriptor)?;
        let (kind, wait) = match operation {
            FlockOperation::LockShared => (LockKind::Read, true),
            FlockOperation::LockExclusive => (LockKind::Write, true),
            FlockOperation::NonBlockingLockShared => (LockKind::Read, false),
            FlockOperation::NonBlockingLockExclusive => (LockKind::Write, false),
            FlockOperation::Unlock | FlockOperation::NonBlockingUnlock => (LockKind::Unlock, false),
        };
        self.set_lock(
            &open,
            Lock { owner: LockOwner::Open(open.lease), kind, style: LockStyle::Whole, pid: 0 },
            wait.then_some(interrupted),
        )
    }

    /// Sets a lock. Waits for it if `waits` is given, until that returns true; else fails at once
    /// if the lock is taken.
    fn set_lock(&self, open: &OpenDescription, lock: Lock, waits: Option<&dyn Fn() -> bool>) -> Result<(), Errno> {
        let wait = waits.is_some();
        let held = async {
            let held = match self.client.lock(open.file, lock, wait).await {
                Err(Refusal::Unsupported { .. }) => self.client.lock(open.file, with_session_owner(lock), wait).await,
                held => held,
            };
            match held {
                Err(Refusal::Locked(_)) => Err(Errno::AGAIN),
                held => held.map_err(|refusal| crate::errno(&refusal)),
            }
        };
        match waits {
            Some(interrupted) => self.reactor().block_on_unless(held, interrupted).unwrap_or(Err(Errno::INTR)),
            None => self.wait(held),
        }
    }

    /// Ends all locks that this process holds on a file: closing any descriptor of the file does
    /// that (fcntl(2)).
    pub(crate) async fn unlock(&self, open: &OpenDescription) {
        let lock =
            Lock { owner: LockOwner::THIS_PROCESS, kind: LockKind::Unlock, style: LockStyle::EVERYWHERE, pid: 0 };
        if let Err(Refusal::Unsupported { .. }) = self.client.lock(open.file, lock, false).await {
            // A lock that cannot be ended now ends with the session.
            let _ = self.client.lock(open.file, with_session_owner(lock), false).await;
        }
    }

    /// Converts a range to absolute first and last bytes.
    fn absolute_range(
        &self,
        descriptor: BorrowedFd<'_>,
        open: &OpenDescription,
        range: LockRange,
    ) -> Result<LockStyle, Errno> {
        let base = match range.from {
            LockBase::Start => 0,
            LockBase::Current => seek(descriptor, SeekFrom::Current(0))?,
            LockBase::End => self.wait(self.stat_description(open))?.size,
        };
        let start = i64::try_from(base).ok().and_then(|base| base.checked_add(range.start)).ok_or(Errno::OVERFLOW)?;
        let (first, last) = match range.bytes {
            0 => (start, i64::MAX),
            bytes if bytes > 0 => (start, start.checked_add(bytes - 1).ok_or(Errno::OVERFLOW)?),
            bytes => (start.checked_add(bytes).ok_or(Errno::INVAL)?, start - 1),
        };
        let unsigned = |at: i64| u64::try_from(at).map_err(|_| Errno::INVAL);
        Ok(LockStyle::Range { start: unsigned(first)?, end: unsigned(last)? })
    }
}

/// Returns the lock with the session as its owner. A node of another host supports no other owner,
/// because it cannot see the processes of this host.
fn with_session_owner(lock: Lock) -> Lock {
    let number = match lock.owner {
        LockOwner::Open(lease) => OPEN_OWNER | lease.0,
        _ => own_pid().into(),
    };
    Lock { owner: LockOwner::Session(number), ..lock }
}

/// Returns the id of this process.
fn own_pid() -> u32 {
    u32::try_from(getpid().as_raw_nonzero().get()).unwrap_or(0)
}

/// Checks the descriptor's access mode: a read lock needs reading, a write lock needs writing.
fn check_lock_access(open: &OpenDescription, kind: LockKind) -> Result<(), Errno> {
    let may = match kind {
        LockKind::Read => open.flags.read,
        LockKind::Write => open.flags.write,
        LockKind::Unlock => true,
    };
    if may { Ok(()) } else { Err(Errno::BADF) }
}

fn to_range(found: Lock) -> LockRange {
    let (start, end) = match found.style {
        LockStyle::Range { start, end } => (start, end.min(TO_THE_END)),
        LockStyle::Whole => (0, TO_THE_END),
    };
    let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let bytes = if end == TO_THE_END { 0 } else { signed(end - start + 1) };
    let process = if found.pid == 0 { -1 } else { i32::try_from(found.pid).unwrap_or(-1) };
    LockRange { kind: found.kind, from: LockBase::Start, start: signed(start), bytes, process }
}
