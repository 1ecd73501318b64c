//! Locks of programs: those of ranges (`fcntl`, open file descriptions) and of whole files (`flock`).
//!
//! A handle remembers who locked through it. So closing it ends what is left of their locks, and an owner that never locked
//! costs no message when one of its descriptors is closed.

use crate::{Handle, Vfs};
use placement::FileId;
use wire::{Lock, LockKind, LockStyle, Outcome};

impl Vfs {
    /// The first lock of another owner that stands in the way of `lock`, if there is one.
    pub fn test_lock(&self, handle: Handle, lock: Lock) -> impl Future<Output = Outcome<Option<Lock>>> + Send + use<> {
        let (client, open) = (self.client.clone(), self.handles.get(handle));
        async move { client.test_lock(open?.file, lock).await }
    }

    /// Sets a lock, changes what the owner has there, or ends it. Where another owner's lock is in the way it is refused with
    /// `Locked`, or with `wait` set once it can be. A waiting future that is dropped leaves nothing.
    pub fn lock(&self, handle: Handle, lock: Lock, wait: bool) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, open) = (self.client.clone(), self.handles.get(handle));
        async move { client.lock(open?.file, lock, wait).await }
    }

    /// Ends all locks of the style that an owner has on a file: what closing any descriptor of it does to a process's locks.
    /// No message, when the owner never locked it.
    pub fn unlock_all(
        &self,
        file: FileId,
        owner: u64,
        style: LockStyle,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        let style = if style == LockStyle::Whole { style } else { LockStyle::EVERYWHERE };
        let lock = Lock { owner, kind: LockKind::Unlock, style, pid: 0 };
        async move { client.lock(file, lock, false).await }
    }
}
