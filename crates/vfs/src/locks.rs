//! Advisory locks of programs: on ranges (`fcntl`, open file descriptions) and on whole files
//! (`flock`).
//!
//! A handle records the owners that locked through it. So closing the handle releases their
//! remaining locks, and closing a descriptor of an owner that never locked costs no message.

use crate::{Handle, Vfs, handles::OpenFile};
use client::Client;
use placement::FileId;
use wire::{Lock, LockKind, LockOwner, LockStyle, Outcome};

impl Vfs {
    /// The first lock of another owner that conflicts with `lock`, if any.
    pub fn test_lock(&self, handle: Handle, lock: Lock) -> impl Future<Output = Outcome<Option<Lock>>> + Send + use<> {
        let open = self.handles.get(handle);
        async move {
            let open = open?;
            open.client.test_lock(open.file, lock).await
        }
    }

    /// Sets, changes or releases a lock. If another owner's lock conflicts, this is refused with
    /// `Locked`; with `wait` it waits until the lock can be set. Dropping a waiting future cancels
    /// the request.
    pub fn lock(&self, handle: Handle, lock: Lock, wait: bool) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (vfs, open) = (self.clone(), self.handles.get(handle));
        async move {
            let open = open?;
            let file = open.file;
            if lock.kind != LockKind::Unlock {
                vfs.handles.lock_owners.record(file, handle, lock.owner, lock.style);
            }
            open.client.lock(file, lock, wait).await
        }
    }

    /// Releases all of an owner's locks of one style on a file, as closing any descriptor of the
    /// file does to a process's locks. Sends no message if the owner never locked it.
    pub fn unlock_all(
        &self,
        file: FileId,
        owner: LockOwner,
        style: LockStyle,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        let locked = self.handles.lock_owners.forget(file, owner, style);
        async move { if locked { unlock(&client, file, owner, style).await } else { Ok(()) } }
    }

    /// Releases all locks that were set through a closed handle.
    pub(crate) async fn unlock_closed(&self, open: &OpenFile, handle: Handle) {
        let file = open.file;
        for (owner, style) in self.handles.lock_owners.close(file, handle) {
            if let Err(error) = unlock(&open.client, file, owner, style).await {
                tracing::debug!(%file, "the locks of a closed file could not be released");
                tracing::warn!(%error, "the locks of a closed file stay until this mount or program ends");
            }
        }
    }
}

/// Releases all of an owner's locks of one style.
async fn unlock(client: &Client, file: FileId, owner: LockOwner, style: LockStyle) -> Outcome<()> {
    let style = if style == LockStyle::Whole { style } else { LockStyle::EVERYWHERE };
    let lock = Lock { owner, kind: LockKind::Unlock, style, pid: 0 };
    client.lock(file, lock, false).await
}
