//! Lock owners that outlive sessions: processes of this host, and open leases. Their locks end when
//! they do, even if nobody reports it. A file with such a lock may be at another node: then this
//! node notes the lock before it is set, and releases it there when its owner ends.

use crate::{HostWork, Node, lock_queue::LockRequest};
use parking_lot::Mutex;
use partition::Holder;
use placement::FileId;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{collections::HashMap, os::fd::OwnedFd};
use wire::{Command, Lock, LockKind, LockOwner, Object, OpenLeaseId, Outcome, Refusal, Session};

/// Processes that may have locks: a pidfd for each process id.
#[derive(Debug, Default)]
pub struct ProcessMonitor(Mutex<HashMap<u32, OwnedFd>>);

impl ProcessMonitor {
    /// Number of processes that may have locks.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// `None` for a process that is not known.
    fn is_dead(&self, process: u32) -> Option<bool> {
        self.0.lock().get(&process).map(has_ended)
    }
}

fn open_pidfd(process: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn has_ended(process: &OwnedFd) -> bool {
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&no_wait)).is_ok_and(|ready| ready > 0)
}

impl Node {
    /// Watches the owner of a lock from now on, so that its end is noticed. Refused for a process
    /// that the node cannot see.
    pub(crate) fn watch_owner(&self, request: &LockRequest) -> Outcome<()> {
        self.watch(request.file, &request.lock)
    }

    fn watch(&self, file: FileId, lock: &Lock) -> Outcome<()> {
        let LockOwner::Process { node, process } = lock.owner else { return Ok(()) };
        let is_known = || self.process_monitor.is_dead(process) == Some(false);
        if node != self.id() || lock.kind == LockKind::Unlock || is_known() {
            return Ok(());
        }
        // Another process may have had the id before.
        self.unlock_process(process);
        let unseen = || Refusal::Unsupported {
            object: Object::File(file),
            what: "locks of a process that the node does not see, as in another namespace of processes,".into(),
        };
        self.process_monitor.0.lock().insert(process, open_pidfd(process).ok_or_else(unseen)?);
        Ok(())
    }

    /// True for the process that asks, of the host of another node: only that node knows which one
    /// it is, and must be asked first.
    pub(crate) fn is_unknown_process(&self, owner: LockOwner) -> bool {
        matches!(owner, LockOwner::Process { node, process: 0 } if node != self.id())
    }

    /// Notes the lock of a request that is refused because its partition has moved: the client
    /// sends it to another node.
    pub(crate) fn note_moved_lock(&self, command: Option<&Command>) {
        if let Some(Command::Lock { file, lock, .. }) = command
            && lock.owner.host() == Some(self.id())
            && let Err(refusal) = self.note_lock(*file, *lock)
        {
            tracing::debug!(%refusal, "the owner of a lock that has moved is not watched");
        }
    }

    /// Notes a lock that is about to be set at another node, so that it ends with its owner.
    /// Returns the owner. Refused for an owner that does not exist on this host, and as
    /// busy while earlier locks of the owner are released.
    pub(crate) fn note_lock(&self, file: FileId, lock: Lock) -> Outcome<LockOwner> {
        if lock.owner.host() != Some(self.id()) {
            return Err(Refusal::invalid(Object::File(file), "the owner of a lock is of the host of another node"));
        }
        self.watch(file, &lock)?;
        if lock.kind != LockKind::Unlock {
            if self.is_dead(lock.owner) {
                return Err(Refusal::Unsupported {
                    object: Object::File(file),
                    what: "a lock of a process or an open that has ended".into(),
                });
            }
            if self.hosted.is_unlocking(lock.owner, file) {
                return Err(Refusal::Busy(Object::File(file)));
            }
            self.lock_queue.adopt(Holder::new(Session::NONE, lock.owner), file);
        }
        Ok(lock.owner)
    }

    /// Ends conflicting locks whose owners no longer exist; true if there were any.
    pub(crate) fn unlock_dead(&self, request: &LockRequest) -> bool {
        let dead = |holder: &Holder| self.is_dead(holder.owner());
        let dead: Vec<Holder> = self.blockers(request).into_iter().filter(dead).collect();
        for holder in &dead {
            self.unlock(holder.owner(), request.file);
        }
        !dead.is_empty()
    }

    fn is_dead(&self, owner: LockOwner) -> bool {
        match owner {
            // Its host tells.
            _ if owner.host() != Some(self.id()) => false,
            LockOwner::Session(_) => false,
            LockOwner::Process { process, .. } => self.process_monitor.is_dead(process) != Some(false),
            LockOwner::Open(lease) => !self.is_lease_open(lease),
        }
    }

    /// Ends the locks of an open that has ended.
    pub(crate) fn unlock_open(&self, lease: OpenLeaseId, file: FileId) {
        if self.has_locks(LockOwner::Open(lease)) {
            self.unlock(LockOwner::Open(lease), file);
        }
    }

    /// True if an owner that outlives sessions may have locks.
    pub(crate) fn has_locks(&self, owner: LockOwner) -> bool {
        !self.lock_queue.files_locked_by(Holder::new(Session::NONE, owner)).is_empty()
    }

    /// Ends all locks that a process has on the file of this open, because it closed a descriptor
    /// of it: POSIX ends them whichever descriptor they were set through.
    pub fn unlock_on_close(&self, process: u32, lease: OpenLeaseId) {
        let owner = LockOwner::Process { node: self.id(), process };
        if self.process_monitor.is_dead(process).is_some()
            && let Some(file) = self.leased_file(lease)
            && self.lock_queue.files_locked_by(Holder::new(Session::NONE, owner)).contains(&file)
        {
            self.unlock(owner, file);
        }
    }

    /// Ends the locks of processes that have ended; returns how many.
    pub(crate) fn unlock_ended_processes(&self) -> u64 {
        let mut dead: Vec<u32> = self.process_monitor.0.lock().keys().copied().collect();
        dead.retain(|process| self.process_monitor.is_dead(*process) == Some(true));
        for process in &dead {
            self.unlock_process(*process);
        }
        dead.len() as u64
    }

    fn unlock_process(&self, process: u32) {
        let owner = LockOwner::Process { node: self.id(), process };
        for file in self.lock_queue.files_locked_by(Holder::new(Session::NONE, owner)) {
            self.unlock(owner, file);
        }
        self.process_monitor.0.lock().remove(&process);
    }

    /// Ends all locks of an owner that outlives sessions, on one file. If its inode is at another
    /// node, that node is told.
    pub(crate) fn unlock(&self, owner: LockOwner, file: FileId) {
        let Some(mut partition) = self.partitions.lock(file.partition()) else {
            self.lock_queue.forget(Holder::new(Session::NONE, owner), file);
            self.hosted.push(HostWork::Unlock { file, owner });
            return;
        };
        for lock in Lock::all_released(owner) {
            let (answer, _) = self.apply_own(&mut partition, Command::Lock { file, lock, wait: false }, 0);
            if let Err(refusal) = answer {
                tracing::debug!(%refusal, "the file of a lock whose owner has ended is gone");
            }
        }
        drop(partition);
        self.lock_queue.forget(Holder::new(Session::NONE, owner), file);
    }
}
