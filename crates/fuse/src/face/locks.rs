//! Locks of programs, where they are the pool's: fcntl, open file descriptions, flock.

use kernel::{Operation, Reply};
use rustix::io::Errno;
use vfs::Handle;
use wire::{Lock, LockKind, LockStyle};

use super::{Caller, Face};
use crate::park::{Call, OnSignal, Queue};

/// The last byte of a lock that reaches to the end of the file, however long it will be.
const TO_THE_END: u64 = i64::MAX as u64;

impl Face {
    pub(super) fn locks(&self, _: Caller, operation: &Operation<'_>, reply: Reply) {
        match *operation {
            // Never asked when locks are the kernel's own.
            _ if !self.manners.pool_locks => reply.error(Errno::NOSYS.raw_os_error()),
            Operation::Getlk { handle, owner, lock, flock } => {
                let in_the_way = self.vfs.test_lock(Handle(handle), wanted(owner, lock, flock));
                self.serve("getlk", in_the_way, reply, move |reply, found| {
                    reply.lock(&found.map_or(kernel::Lock { kind: kernel::LockKind::Unlock, ..lock }, told));
                });
            }
            Operation::Setlk { handle, owner, lock, flock, wait } => {
                let set = self.vfs.lock(Handle(handle), wanted(owner, lock, flock), wait);
                let call = Call { operation: "setlk", on_signal: OnSignal::GiveUp, queue: Queue::Locks };
                self.parking.serve(call, set, reply, |reply: Reply, ()| reply.done());
            }
            _ => unreachable!("only operations on locks come here"),
        }
    }
}

fn wanted(owner: u64, lock: kernel::Lock, flock: bool) -> Lock {
    let kind = match lock.kind {
        kernel::LockKind::Read => LockKind::Read,
        kernel::LockKind::Write => LockKind::Write,
        kernel::LockKind::Unlock => LockKind::Unlock,
    };
    let style = if flock { LockStyle::Whole } else { LockStyle::Range { start: lock.start, end: lock.end } };
    Lock { owner, kind, style, pid: lock.pid }
}

fn told(found: Lock) -> kernel::Lock {
    let kind = match found.kind {
        LockKind::Read => kernel::LockKind::Read,
        LockKind::Write => kernel::LockKind::Write,
        LockKind::Unlock => kernel::LockKind::Unlock,
    };
    let (start, end) = match found.style {
        LockStyle::Range { start, end } => (start, end.min(TO_THE_END)),
        LockStyle::Whole => (0, TO_THE_END),
    };
    kernel::Lock { start, end, kind, pid: found.pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_comes_back_as_it_was_sent() {
        let lock = kernel::Lock { start: 5, end: TO_THE_END, kind: kernel::LockKind::Write, pid: 9 };
        assert_eq!(told(wanted(3, lock, false)), lock);
        assert_eq!(wanted(3, lock, true).style, LockStyle::Whole);
    }
}
