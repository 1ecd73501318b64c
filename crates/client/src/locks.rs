//! Locks of files. The end of an owner that outlives sessions is noticed by a node of its host:
//! that node is asked first, if the file is at another one.

use crate::{Client, router::retry::RetryState};
use placement::FileId;
use wire::{Body, Command, Lock, LockKind, LockOwner, Object, Outcome, Refusal};

impl Client {
    /// A lock that conflicts with this one, if any.
    pub async fn test_lock(&self, file: FileId, lock: Lock) -> Outcome<Option<Lock>> {
        // Nothing is to be noted.
        let noted = Lock { kind: LockKind::Unlock, ..lock };
        let mut retry = RetryState::new(self.router().retry_policy);
        loop {
            let lock = Lock { owner: self.with_host(file, noted).await?.owner, ..lock };
            match self.query(file.partition(), Command::test_lock(file, self.session(), lock)).await {
                Err(refusal @ Refusal::Stale(_)) => retry.pause_after(refusal).await?,
                outcome => return outcome,
            }
        }
    }

    /// Sets or removes a lock. With `wait` it waits until the lock can be set; dropped before that,
    /// it leaves nothing behind.
    ///
    /// # Errors
    /// `Unsupported` for the lock of a process that no node of the pool sees.
    pub async fn lock(&self, file: FileId, lock: Lock, wait: bool) -> Outcome<()> {
        let mut retry = RetryState::new(self.router().retry_policy);
        loop {
            let known = match self.with_host(file, lock).await {
                Err(refusal @ Refusal::Busy(_)) => {
                    retry.pause_after(refusal).await?;
                    continue;
                }
                known => known?,
            };
            match self.mutate(file.partition(), Command::lock(file, known, wait)).await {
                // The file has moved to another node, which does not know the process.
                Err(refusal @ Refusal::Stale(_)) => retry.pause_after(refusal).await?,
                outcome => return outcome,
            }
        }
    }

    /// The lock with its owner as all nodes know it.
    async fn with_host(&self, file: FileId, lock: Lock) -> Outcome<Lock> {
        let (owner, node) = match lock.owner {
            LockOwner::Session(_) => return Ok(lock),
            LockOwner::Process { process, .. } => {
                let what = "a lock that outlives its session, of a program on whose host the pool has no node,".into();
                let none = || Refusal::Unsupported { object: Object::File(file), what };
                let node = self.local_node().ok_or_else(none)?;
                (LockOwner::Process { node, process }, node)
            }
            LockOwner::Open(lease) => (lock.owner, lease.origin().0),
        };
        let lock = Lock { owner, ..lock };
        if self.router().home(file.partition()) == Some(node) {
            return Ok(lock); // it fills in the process
        }
        let owner = self.query_node(node, Body::NoteLock { file, lock }).await?.lock_owner()?;
        Ok(Lock { owner, ..lock })
    }
}
