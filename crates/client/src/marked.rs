//! Opens of programs of this host with descriptors of their own: getting the descriptors, and
//! probing their opens.

use crate::{Client, Connection, Obtaining, Opened, call::until_answered, client::unexpected};
use node::Reply;
use parking_lot::Mutex;
use placement::{FileId, NodeId, PartitionId};
use std::{fmt, os::fd::OwnedFd, sync::Arc};
use wire::{
    Answer, Body, Kind, LeaseKind, LeaseStatus, Object, OpenFlags, OpenLease, OpenLeaseId, Outcome, Refusal, Request,
    codec::ProgramFd,
};

/// A file or directory that was opened for a program.
#[derive(Debug)]
pub struct Given {
    /// The file, as it was when it was opened.
    pub opened: Opened,
    /// The program's descriptor.
    pub descriptor: OwnedFd,
    /// The open of the descriptor: its mark, file and flags, and the kind of descriptor.
    pub marked: OpenLease,
}

/// A request for a descriptor that is attached to the request that opens the file.
pub struct Gift {
    flags: OpenFlags,
    /// The descriptor's future, since the request was last sent.
    asked: Mutex<Option<Obtaining>>,
}

impl Gift {
    /// Sends a request that opens something, with the request for a descriptor.
    pub(crate) fn call(&self, node: &dyn Connection, request: Request) -> Reply {
        let (reply, asked) = node.call_attaching(request, self.flags);
        let before = std::mem::replace(&mut *self.asked.lock(), asked);
        drop(before); // drop it without the lock: its destructor tells its connection
        reply
    }
}

impl fmt::Debug for Gift {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Gift").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens something by a client that asks for the descriptor in the same message where possible,
    /// and waits for the descriptor. If there is none to be had, the file is closed again and the
    /// call is refused as `Unavailable`. `None` if `open` returned none.
    pub async fn with_descriptor_if<F>(&self, flags: OpenFlags, open: impl Fn(Self) -> F) -> Outcome<Option<Given>>
    where
        F: Future<Output = Outcome<Option<Opened>>>,
    {
        let attempt = |mut client: Self| {
            let gift = Arc::new(Gift { flags, asked: Mutex::new(None) });
            let plain = client.clone();
            client.3 = Some(gift.clone());
            let opening = open(client);
            async move {
                let Some(opened) = opening.await? else { return Ok(None) };
                let asked = gift.asked.lock().take();
                let came = match asked {
                    Some(asked) => asked.await,
                    None => None,
                };
                let marked = |mark| OpenLease {
                    id: mark,
                    file: opened.attributes.file,
                    flags,
                    kind: LeaseKind::for_open(&opened.attributes, flags),
                };
                let (descriptor, marked) = match came {
                    Some((descriptor, mark)) => (descriptor, marked(mark)),
                    None => plain.obtain_or_close(&opened, flags).await?,
                };
                Ok(Some(Given { opened, descriptor, marked }))
            }
        };
        self.in_one_session(attempt).await
    }

    /// Like [`Self::with_descriptor_if`], for an `open` that always returns something.
    pub async fn with_descriptor<F>(&self, flags: OpenFlags, open: impl Fn(Self) -> F) -> Outcome<Given>
    where
        F: Future<Output = Outcome<Opened>>,
    {
        let opened = self.with_descriptor_if(flags, |client| {
            let opening = open(client);
            async move { opening.await.map(Some) }
        });
        Ok(opened.await?.expect("what was opened has a descriptor, or was refused"))
    }

    /// Like [`Self::obtain`]; closes the file if there is no descriptor.
    async fn obtain_or_close(&self, opened: &Opened, flags: OpenFlags) -> Outcome<(OwnedFd, OpenLease)> {
        let obtained = self.obtain(opened, flags).await;
        if obtained.is_err()
            && let Err(error) = self.close_file(opened.attributes.file).await
        {
            tracing::debug!(%error, "what got no descriptor is open until the session ends");
        }
        obtained
    }

    /// Gets a program's descriptor of something that this client has opened in the session that it
    /// is bound to, and the mark of the open. The open then belongs to the descriptor: it ends with
    /// its last copy. The descriptor is of the file's extent if that can be had on this host;
    /// otherwise it is a placeholder.
    ///
    /// Refused as `Unavailable` if no node of this host has one to give; then the open still
    /// belongs to the session.
    pub async fn obtain(&self, opened: &Opened, flags: OpenFlags) -> Outcome<(OwnedFd, OpenLease)> {
        let (file, session) = (opened.attributes.file, self.session());
        let stands = if opened.attributes.kind == Kind::Directory { LeaseKind::Directory } else { LeaseKind::Bytes };
        let home = self.0.home(file.partition());
        let ways = [
            match LeaseKind::for_open(&opened.attributes, flags) {
                LeaseKind::Extent(extent) => Some((Some(extent.node), LeaseKind::Extent(extent))),
                _ => None,
            },
            // The inode's node is preferred: it can end the open by itself, however the descriptor
            // is closed.
            Some((home.filter(|home| self.is_near(*home)).or_else(|| self.own_node()), stands)),
        ];
        for (node, lent) in ways.into_iter().flatten() {
            let way = node.and_then(|node| self.0.nodes.get(node));
            let Some(obtaining) = way.and_then(|way| way.obtain(ProgramFd { session, file, flags, kind: lent })) else {
                continue;
            };
            if let Some((descriptor, mark)) = obtaining.await {
                return Ok((descriptor, OpenLease { id: mark, file, flags, kind: lent }));
            }
        }
        let why = "no node of this host has a descriptor to give: is one of the pool's here, and of this user?".into();
        Err(Refusal::Unavailable { object: Object::File(file), tries: 1, why })
    }

    fn is_near(&self, node: NodeId) -> bool {
        self.0.nodes.get(node).is_some_and(Connection::is_here)
    }

    /// Probes the open with this mark after a copy of its descriptor was closed, and closes the
    /// file if that was the last one. True if the open is still alive.
    pub async fn look(&self, mark: OpenLeaseId) -> Outcome<bool> {
        match self.ask_of(mark.origin().0, Body::ProbeLease { lease: mark }).await? {
            Answer::LeaseStatus(LeaseStatus::Open) => Ok(true),
            Answer::LeaseStatus(LeaseStatus::Ended { deleted }) => {
                self.purge(deleted).await;
                Ok(false)
            }
            Answer::LeaseStatus(LeaseStatus::EndedRemote { file, session }) => {
                if session == self.session() {
                    self.close_file(file).await?;
                }
                Ok(false)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Reports the close of a descriptor of a file or directory without stripes, if the node that
    /// gave it can do the rest alone. The node is told together with its next request, or probes a
    /// second later if none comes; nobody waits. False if [`Self::look`] must be used.
    pub fn closed(&self, mark: OpenLeaseId, file: FileId) -> bool {
        let node = mark.origin().0;
        let alone = self.0.home(file.partition()) == Some(node);
        alone && self.0.nodes.get(node).is_some_and(|way| way.closed(mark))
    }

    /// The nodes of this host, which may have given descriptors.
    pub fn near_nodes(&self) -> Vec<NodeId> {
        self.0.nodes.iter().filter(|(_, way)| way.is_here()).map(|(node, _)| node).collect()
    }

    /// The live opens whose descriptors, given by this node, refer to the file with these `stat`
    /// numbers. The kernel knows which of them a descriptor belongs to: the one whose
    /// [byte](Mark::byte) no other open has locked.
    pub async fn which(&self, node: NodeId, (device, inode): (u64, u64)) -> Outcome<Vec<OpenLease>> {
        let (mut found, mut after) = (Vec::new(), OpenLeaseId(0));
        loop {
            match self.ask_of(node, Body::FindLeases { device, inode, after }).await? {
                Answer::OpenLeases(more) if more.is_empty() => return Ok(found),
                Answer::OpenLeases(more) => {
                    after = more.last().map_or(after, |marked| marked.id);
                    found.extend(more);
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Sends a node a request that concerns none of its partitions.
    async fn ask_of(&self, node: NodeId, body: Body) -> Outcome<Answer> {
        let unknown = || Refusal::invalid(Object::Pool, "a mark of a node that is not of this pool");
        let way = self.0.nodes.get(node).ok_or_else(unknown)?;
        let request = || {
            let (epoch, session, partition) = (self.0.epoch(), self.session(), PartitionId(0));
            Request { epoch, session, skip_ack: false, partition, body: body.clone() }
        };
        until_answered(way, self.0.patience, request, |map| self.0.follow(map)).await
    }
}
