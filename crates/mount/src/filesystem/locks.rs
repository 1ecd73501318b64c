//! Operations on locks that are held in the pool: fcntl, open file descriptions, flock.

use fuse_transport::{FuseOp, FuseReply};
use rustix::io::Errno;
use vfs::Handle;
use wire::{Lock, LockKind, LockOwner, LockStyle};

use super::{FuseFs, RequestContext};
use crate::deferred::{OnSignal, RequestOptions, WaitQueue};

/// Last byte of a lock that extends to the end of the file, however long the file becomes.
const TO_THE_END: u64 = i64::MAX as u64;

impl FuseFs {
    pub(super) fn locks(&self, _: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        match *operation {
            // The kernel sends no such request if locks are its own.
            _ if !self.cache_policy.pool_locks => reply.error(Errno::NOSYS.raw_os_error()),
            FuseOp::Getlk { handle, owner, lock, flock } => {
                let conflict = self.vfs.test_lock(Handle(handle), pool_lock((handle, owner), lock, flock));
                self.serve("getlk", conflict, reply, move |reply, found| {
                    reply.lock(&found.map_or(
                        fuse_transport::FuseLock { kind: fuse_transport::FuseLockKind::Unlock, ..lock },
                        kernel_lock,
                    ));
                });
            }
            FuseOp::Setlk { handle, owner, lock, flock, wait } => {
                let set = self.vfs.lock(Handle(handle), pool_lock((handle, owner), lock, flock), wait);
                let call = RequestOptions { operation: "setlk", on_signal: OnSignal::Cancel, queue: WaitQueue::Locks };
                self.deferred.serve(call, set, reply, |reply: FuseReply, ()| reply.done());
            }
            _ => unreachable!("only operations on locks come here"),
        }
    }
}

/// Lock of the kernel's request, for the pool. A flock is owned by a descriptor and ends with its
/// release, which follows the close a moment later. By then the kernel may have reused the owner
/// number for another descriptor, so the handle identifies the owner.
fn pool_lock((handle, owner): (u64, u64), lock: fuse_transport::FuseLock, flock: bool) -> Lock {
    let kind = match lock.kind {
        fuse_transport::FuseLockKind::Read => LockKind::Read,
        fuse_transport::FuseLockKind::Write => LockKind::Write,
        fuse_transport::FuseLockKind::Unlock => LockKind::Unlock,
    };
    let style = if flock { LockStyle::Whole } else { LockStyle::Range { start: lock.start, end: lock.end } };
    let owner = if flock { handle } else { owner };
    Lock { owner: LockOwner::Session(owner), kind, style, pid: lock.pid }
}

fn kernel_lock(found: Lock) -> fuse_transport::FuseLock {
    let kind = match found.kind {
        LockKind::Read => fuse_transport::FuseLockKind::Read,
        LockKind::Write => fuse_transport::FuseLockKind::Write,
        LockKind::Unlock => fuse_transport::FuseLockKind::Unlock,
    };
    let (start, end) = match found.style {
        LockStyle::Range { start, end } => (start, end.min(TO_THE_END)),
        LockStyle::Whole => (0, TO_THE_END),
    };
    fuse_transport::FuseLock { start, end, kind, pid: found.pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_comes_back_as_it_was_sent() {
        let lock =
            fuse_transport::FuseLock { start: 5, end: TO_THE_END, kind: fuse_transport::FuseLockKind::Write, pid: 9 };
        assert_eq!(kernel_lock(pool_lock((7, 3), lock, false)), lock);
        assert_eq!(pool_lock((7, 3), lock, true).style, LockStyle::Whole);
    }

    #[test]
    fn a_lock_of_a_whole_file_is_its_descriptors_though_the_kernel_gives_the_owners_number_again() {
        let lock =
            fuse_transport::FuseLock { start: 0, end: TO_THE_END, kind: fuse_transport::FuseLockKind::Write, pid: 9 };
        assert_ne!(pool_lock((7, 3), lock, true).owner, pool_lock((8, 3), lock, true).owner);
        assert_eq!(
            pool_lock((7, 3), lock, false).owner,
            pool_lock((8, 3), lock, false).owner,
            "those of ranges are the process's"
        );
    }
}
