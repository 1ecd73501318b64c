//! Opens of programs of this host with descriptors of their own: getting the descriptors, and
//! probing their opens.

use crate::{Client, Connection, OpenedInode, ProgramFdFuture};
use node::ReplyFuture;
use parking_lot::Mutex;
use placement::{FileId, NodeId};
use std::{fmt, os::fd::OwnedFd, sync::Arc};
use wire::{
    Body, Command, Kind, LeaseKind, LeaseStatus, Lock, LockOwner, Object, OpenFlags, OpenLease, OpenLeaseId, Outcome,
    Refusal, Request, codec::ProgramFd,
};

/// A file or directory that was opened for a program.
#[derive(Debug)]
pub struct ProgramOpen {
    /// The file, as it was when it was opened.
    pub opened: OpenedInode,
    /// The program's descriptor.
    pub descriptor: OwnedFd,
    /// The open lease of the descriptor.
    pub lease: OpenLease,
}

/// A request for a descriptor that is attached to the request that opens the file.
pub struct FdRequest {
    flags: OpenFlags,
    /// The descriptor's future, since the request was last sent.
    future: Mutex<Option<ProgramFdFuture>>,
}

impl FdRequest {
    /// Sends a request that opens something, with the request for a descriptor.
    pub(crate) fn call(&self, node: &dyn Connection, request: Request) -> ReplyFuture {
        let (reply, future) = node.call_with_fd(request, self.flags);
        let before = std::mem::replace(&mut *self.future.lock(), future);
        drop(before); // drop it without the lock: its destructor tells its connection
        reply
    }
}

impl fmt::Debug for FdRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FdRequest").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens something by a client that asks for the descriptor in the same message where possible,
    /// and waits for the descriptor. If there is none to be had, the file is closed again and the
    /// call is refused as `Unavailable`. `None` if `open` returned none.
    pub async fn try_open_with_fd<F>(&self, flags: OpenFlags, open: impl Fn(Self) -> F) -> Outcome<Option<ProgramOpen>>
    where
        F: Future<Output = Outcome<Option<OpenedInode>>>,
    {
        let attempt = |mut client: Self| {
            let fd_request = Arc::new(FdRequest { flags, future: Mutex::new(None) });
            let plain = client.clone();
            client.options.fd_request = Some(fd_request.clone());
            let opening = open(client);
            async move {
                let Some(opened) = opening.await? else { return Ok(None) };
                let future = fd_request.future.lock().take();
                let leased = match future {
                    Some(future) => future.await,
                    None => None,
                };
                let lease = |id| OpenLease {
                    id,
                    file: opened.attributes.file,
                    flags,
                    kind: LeaseKind::for_open(&opened.attributes, flags),
                };
                let (descriptor, lease) = match leased {
                    Some((descriptor, id)) => (descriptor, lease(id)),
                    None => plain.dup_fd_or_close(&opened, flags).await?,
                };
                Ok(Some(ProgramOpen { opened, descriptor, lease }))
            }
        };
        self.run_in_session(attempt).await
    }

    /// Like [`Self::try_open_with_fd`], for an `open` that always returns something.
    pub async fn open_with_fd<F>(&self, flags: OpenFlags, open: impl Fn(Self) -> F) -> Outcome<ProgramOpen>
    where
        F: Future<Output = Outcome<OpenedInode>>,
    {
        let opened = self.try_open_with_fd(flags, |client| {
            let opening = open(client);
            async move { opening.await.map(Some) }
        });
        Ok(opened.await?.expect("what was opened has a descriptor, or was refused"))
    }

    /// Like [`Self::dup_fd_for_program`]; closes the file if there is no descriptor.
    async fn dup_fd_or_close(&self, opened: &OpenedInode, flags: OpenFlags) -> Outcome<(OwnedFd, OpenLease)> {
        let outcome = self.dup_fd_for_program(opened, flags).await;
        if outcome.is_err()
            && let Err(error) = self.close_file(opened.attributes.file).await
        {
            tracing::debug!(%error, "an open without a descriptor could not be closed: it ends with the session");
        }
        outcome
    }

    /// Gets a program's descriptor of something that this client has opened in the session that it
    /// is bound to, and its open lease. The open then belongs to the descriptor: it ends with
    /// its last copy. The descriptor is of the file's extent if that can be had on this host;
    /// otherwise it is a placeholder.
    ///
    /// Refused as `Unavailable` if no node of this host has one to give; then the open still
    /// belongs to the session.
    pub async fn dup_fd_for_program(&self, opened: &OpenedInode, flags: OpenFlags) -> Outcome<(OwnedFd, OpenLease)> {
        let (file, session) = (opened.attributes.file, self.session());
        let placeholder =
            if opened.attributes.kind == Kind::Directory { LeaseKind::Directory } else { LeaseKind::Bytes };
        let home = self.router().home(file.partition());
        let candidates = [
            match LeaseKind::for_open(&opened.attributes, flags) {
                LeaseKind::Extent(extent) => Some((Some(extent.node), LeaseKind::Extent(extent))),
                _ => None,
            },
            // The inode's node is preferred: it can end the open by itself, however the descriptor
            // is closed.
            Some((home.filter(|home| self.is_local(*home)).or_else(|| self.local_node()), placeholder)),
        ];
        for (node, kind) in candidates.into_iter().flatten() {
            let connection = node.and_then(|node| self.router().nodes.connection(node));
            let Some(reply) = connection
                .and_then(|connection| connection.dup_fd_for_program(ProgramFd { session, file, flags, kind }))
            else {
                continue;
            };
            if let Some((descriptor, id)) = reply.await {
                return Ok((descriptor, OpenLease { id, file, flags, kind }));
            }
        }
        let why = "no node of this host can give a descriptor: does a node of the pool run here, as this user?".into();
        Err(Refusal::Unavailable { object: Object::File(file), tries: 1, why })
    }

    fn is_local(&self, node: NodeId) -> bool {
        self.router().nodes.connection(node).is_some_and(Connection::is_on_local_host)
    }

    /// Probes the open with this lease after a copy of its descriptor was closed, and closes the
    /// file if that was the last one. True if the open is still alive.
    pub async fn probe_lease(&self, lease: OpenLeaseId) -> Outcome<bool> {
        match self.query_node(lease.origin().0, Body::ProbeLease { lease }).await?.lease_status()? {
            LeaseStatus::Open => Ok(true),
            LeaseStatus::Ended { deleted } => {
                self.purge(deleted).await;
                Ok(false)
            }
            LeaseStatus::EndedRemote { file, session, locked } => {
                // The node that gave the lease releases its locks too, a moment later.
                let locks = Lock::all_released(LockOwner::Open(lease)).into_iter().filter(|_| locked);
                for lock in locks {
                    if let Err(error) = self.mutate(file.partition(), Command::lock(file, lock, false)).await {
                        tracing::debug!(%error, "a lock of an open that has ended stays for a moment");
                    }
                }
                if let Some(own) = self.own_session(session) {
                    self.in_session(own).close_file(file).await?;
                }
                Ok(false)
            }
        }
    }

    /// Reports the close of a descriptor of a file or directory without stripes, if the node that
    /// gave it can do the rest alone. The node is told together with its next request, or probes a
    /// second later if none comes; nobody waits. False if [`Self::probe_lease`] must be used.
    pub fn notify_closed(&self, lease: OpenLeaseId, file: FileId) -> bool {
        let node = lease.origin().0;
        let alone = self.router().home(file.partition()) == Some(node);
        alone && self.router().nodes.connection(node).is_some_and(|connection| connection.notify_closed(lease))
    }

    /// The nodes of this host, which may have given descriptors.
    pub fn local_nodes(&self) -> Vec<NodeId> {
        let links = self.router().nodes.links();
        links.iter().filter(|link| link.connection.is_on_local_host()).map(|link| link.node).collect()
    }

    /// The live opens whose descriptors, given by this node, refer to the file with these `stat`
    /// numbers. The kernel knows which of them a descriptor belongs to: the one whose
    /// [byte](OpenLeaseId::lock_offset) no other open has locked.
    pub async fn find_leases(&self, node: NodeId, (device, inode): (u64, u64)) -> Outcome<Vec<OpenLease>> {
        let (mut found, mut after) = (Vec::new(), OpenLeaseId(0));
        loop {
            let more = self.query_node(node, Body::FindLeases { device, inode, after }).await?.open_leases()?;
            let Some(last) = more.last() else { return Ok(found) };
            after = last.id;
            found.extend(more);
        }
    }
}
