//! Locks of programs: those of ranges (`fcntl`, open file descriptions) and of whole files (`flock`).
//!
//! A handle remembers who locked through it. So closing it ends what is left of their locks, and an owner that never locked
//! costs no message when one of its descriptors is closed.

use crate::{Handle, Vfs, handles::OpenFile};
use client::Client;
use placement::FileId;
use wire::{Lock, LockKind, LockOwner, LockStyle, Outcome};

impl Vfs {
    /// The first lock of another owner that stands in the way of `lock`, if there is one.
    pub fn test_lock(&self, handle: Handle, lock: Lock) -> impl Future<Output = Outcome<Option<Lock>>> + Send + use<> {
        let open = self.handles.get(handle);
        async move {
            let open = open?;
            open.client.test_lock(open.file, lock).await
        }
    }

    /// Sets a lock, changes what the owner has there, or ends it. Where another owner's lock is in the way it is refused with
    /// `Locked`, or with `wait` set once it can be. A waiting future that is dropped leaves nothing.
    pub fn lock(&self, handle: Handle, lock: Lock, wait: bool) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (vfs, open) = (self.clone(), self.handles.get(handle));
        async move {
            let open = open?;
            let file = open.file;
            if lock.kind != LockKind::Unlock {
                vfs.handles.lockers.note(file, handle, lock.owner, lock.style);
            }
            open.client.lock(file, lock, wait).await
        }
    }

    /// Ends all locks of the style that an owner has on a file: what closing any descriptor of it does to a process's locks.
    /// No message, when the owner never locked it.
    pub fn unlock_all(
        &self,
        file: FileId,
        owner: LockOwner,
        style: LockStyle,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        let locked = self.handles.lockers.forget(file, owner, style);
        async move { if locked { unlock(&client, file, owner, style).await } else { Ok(()) } }
    }

    /// Ends all locks that were made through a handle which is closed.
    pub(crate) async fn unlock_closed(&self, open: &OpenFile, handle: Handle) {
        let file = open.file;
        for (owner, style) in self.handles.lockers.close(file, handle) {
            if let Err(error) = unlock(&open.client, file, owner, style).await {
                tracing::debug!(%file, "its locks could not be ended with it");
                tracing::warn!(%error, "locks of a file that was closed are held until this mount or program ends");
            }
        }
    }
}

/// Ends all locks of an owner, of one style.
async fn unlock(client: &Client, file: FileId, owner: LockOwner, style: LockStyle) -> Outcome<()> {
    let style = if style == LockStyle::Whole { style } else { LockStyle::EVERYWHERE };
    let lock = Lock { owner, kind: LockKind::Unlock, style, pid: 0 };
    client.lock(file, lock, false).await
}
