//! Locks of programs (fcntl(2), flock(2), lockf(3)): all are the pool's, so they meet those of mounts and of other hosts.

use crate::table::Open;
use crate::{Errno, Process};
use rustix::fs::{FlockOperation, SeekFrom, seek};
use rustix::process::getpid;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use wire::{Lock, LockKind, LockOwner, LockStyle, Refusal};

/// The last byte of a lock that reaches to the end of the file, however long it will be.
const TO_THE_END: u64 = i64::MAX.cast_unsigned();
/// Owners of a session's locks that are opens, not processes.
const OF_OPEN: u64 = 1 << 63;

/// What a lock of a range is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Tell who is in the way.
    Test,
    /// Set it, or say that it cannot be.
    Set,
    /// Set it as soon as it can be.
    Wait,
}

/// A lock of a range, as fcntl(2) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// What it allows, or that it ends.
    pub kind: LockKind,
    /// What `start` counts from.
    pub from: From,
    /// Its first byte.
    pub start: i64,
    /// How many; 0: to the end, whatever that will be; below: those before `start`.
    pub bytes: i64,
    /// Who holds it; told by a test.
    pub process: i32,
}

/// What a lock's start counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The file's first byte.
    Start,
    /// Where the descriptor is.
    Here,
    /// The file's end.
    End,
}

impl Process {
    /// fcntl(2) with a lock: of the process, or of the open (`of_open`). A test tells what is in the way. Who waits asks ten times a second
    /// whether a signal wants to be seen to.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn lock(
        &self,
        descriptor: BorrowedFd<'_>,
        wanted: Wanted,
        of_open: bool,
        range: Range,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Range>, Errno> {
        let open = self.table.get(descriptor)?;
        if wanted != Wanted::Test {
            may_hold(&open, range.kind)?;
        }
        let owner = if of_open { LockOwner::Open(open.mark) } else { LockOwner::Process(0) };
        let style = self.place(descriptor, &open, range)?;
        let lock = Lock { owner, kind: range.kind, style, pid: if of_open { 0 } else { own_number() } };
        if wanted == Wanted::Test {
            let found = self.wait(async {
                let found = match self.client.test_lock(open.file, lock).await {
                    Err(Refusal::Unsupported { .. }) => self.client.test_lock(open.file, of_session(lock)).await,
                    found => found,
                };
                found.map_err(|refusal| crate::errno(&refusal))
            })?;
            return Ok(Some(found.map_or(Range { kind: LockKind::Unlock, ..range }, told)));
        }
        if !of_open {
            open.locked.store(true, Relaxed);
        }
        self.hold(&open, lock, (wanted == Wanted::Wait).then_some(interrupted))?;
        Ok(None)
    }

    /// flock(2), whose wait is interrupted likewise.
    ///
    /// # Errors
    /// As flock(2).
    pub fn flock(
        &self,
        descriptor: BorrowedFd<'_>,
        operation: FlockOperation,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        self.reaches(descriptor)?;
        let open = self.table.get(descriptor)?;
        let (kind, wait) = match operation {
            FlockOperation::LockShared => (LockKind::Read, true),
            FlockOperation::LockExclusive => (LockKind::Write, true),
            FlockOperation::NonBlockingLockShared => (LockKind::Read, false),
            FlockOperation::NonBlockingLockExclusive => (LockKind::Write, false),
            FlockOperation::Unlock | FlockOperation::NonBlockingUnlock => (LockKind::Unlock, false),
        };
        self.hold(
            &open,
            Lock { owner: LockOwner::Open(open.mark), kind, style: LockStyle::Whole, pid: 0 },
            wait.then_some(interrupted),
        )
    }

    /// Locks, waiting until it can unless `waits` says that it is interrupted; at once or not without.
    fn hold(&self, open: &Open, lock: Lock, waits: Option<&dyn Fn() -> bool>) -> Result<(), Errno> {
        let wait = waits.is_some();
        let held = async {
            let held = match self.client.lock(open.file, lock, wait).await {
                Err(Refusal::Unsupported { .. }) => self.client.lock(open.file, of_session(lock), wait).await,
                held => held,
            };
            match held {
                Err(Refusal::Locked(_)) => Err(Errno::AGAIN),
                held => held.map_err(|refusal| crate::errno(&refusal)),
            }
        };
        match waits {
            Some(interrupted) => self.hand().block_on_unless(held, interrupted).unwrap_or(Err(Errno::INTR)),
            None => self.wait(held),
        }
    }

    /// Ends all locks that this process has on a file: closing any descriptor of it does that (fcntl(2)).
    pub(crate) async fn unlock(&self, open: &Open) {
        let lock = Lock { owner: LockOwner::Process(0), kind: LockKind::Unlock, style: LockStyle::EVERYWHERE, pid: 0 };
        if let Err(Refusal::Unsupported { .. }) = self.client.lock(open.file, lock, false).await {
            // What cannot be ended now ends with the session.
            let _ = self.client.lock(open.file, of_session(lock), false).await;
        }
    }

    /// A range as the pool has it: first byte and last.
    fn place(&self, descriptor: BorrowedFd<'_>, open: &Open, range: Range) -> Result<LockStyle, Errno> {
        let base = match range.from {
            From::Start => 0,
            From::Here => seek(descriptor, SeekFrom::Current(0))?,
            From::End => self.wait(self.stat_of(open))?.size,
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

/// The same as a lock of the session: all that can be had of a node of another host, which sees no process of ours.
fn of_session(lock: Lock) -> Lock {
    let number = match lock.owner {
        LockOwner::Open(mark) => OF_OPEN | mark.0,
        _ => own_number().into(),
    };
    Lock { owner: LockOwner::Session(number), ..lock }
}

/// The number of this process.
fn own_number() -> u32 {
    u32::try_from(getpid().as_raw_nonzero().get()).unwrap_or(0)
}

/// A descriptor must be able to do what a lock keeps others from.
fn may_hold(open: &Open, kind: LockKind) -> Result<(), Errno> {
    let may = match kind {
        LockKind::Read => open.flags.read,
        LockKind::Write => open.flags.write,
        LockKind::Unlock => true,
    };
    if may { Ok(()) } else { Err(Errno::BADF) }
}

fn told(found: Lock) -> Range {
    let (start, end) = match found.style {
        LockStyle::Range { start, end } => (start, end.min(TO_THE_END)),
        LockStyle::Whole => (0, TO_THE_END),
    };
    let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let bytes = if end == TO_THE_END { 0 } else { signed(end - start + 1) };
    let process = if found.pid == 0 { -1 } else { i32::try_from(found.pid).unwrap_or(-1) };
    Range { kind: found.kind, from: From::Start, start: signed(start), bytes, process }
}
