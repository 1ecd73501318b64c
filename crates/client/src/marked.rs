//! Opens of programs of this host, which have descriptors of their own: how those are had, and what they are of.

use crate::{
    Client, Connection, Opened,
    client::unexpected,
    retry::{Retry, Step},
};
use node::sleep_until;
use placement::{NodeId, PartitionId};
use std::os::fd::OwnedFd;
use wire::{
    Answer, Body, Kind, Lent, Looked, Mark, Marked, Object, OpenFlags, Outcome, Refusal, Request, codec::Obtain,
};

/// Who may write to such a file past us would not take these bits away.
const SET_ID: u32 = 0o6000;

impl Client {
    /// A descriptor for what this client has opened in the session that it is bound to, and the mark of the open, which is the descriptor's from
    /// then on: it ends with its last copy. Of the file's extent where that can be had on this host, of a stand-in else.
    ///
    /// Refused as `Unavailable` where no node of this host has one to give; then the open is still the session's.
    pub async fn obtain(&self, opened: &Opened, flags: OpenFlags) -> Outcome<(OwnedFd, Marked)> {
        let (file, session) = (opened.attributes.file, self.session());
        let stands = if opened.attributes.kind == Kind::Directory { Lent::Directory } else { Lent::Bytes };
        let set_id = flags.write && opened.attributes.mode & SET_ID != 0;
        let extent = opened.attributes.whole.filter(|_| !set_id);
        let home = self.0.home(file.partition());
        let ways = [
            extent.map(|extent| (Some(extent.node), Lent::Extent(extent))),
            // Where the inode is, the open can be ended however its descriptor is closed.
            Some((home.filter(|home| self.is_near(*home)).or_else(|| self.own_node()), stands)),
        ];
        for (node, lent) in ways.into_iter().flatten() {
            let way = node.and_then(|node| self.0.nodes.get(node));
            let Some(obtaining) = way.and_then(|way| way.obtain(Obtain { session, file, flags, lent })) else {
                continue;
            };
            if let Some((descriptor, mark)) = obtaining.await {
                return Ok((descriptor, Marked { mark, file, flags, lent }));
            }
        }
        let why = "no node of this host has a descriptor to give: is one of the pool's here, and of this user?".into();
        Err(Refusal::Unavailable { object: Object::File(file), tries: 1, why })
    }

    fn is_near(&self, node: NodeId) -> bool {
        self.0.nodes.get(node).is_some_and(Connection::is_here)
    }

    /// A copy of the descriptor with this mark was closed: if it was the last, the file is closed. Says whether it was not.
    pub async fn look(&self, mark: Mark) -> Outcome<bool> {
        match self.ask_of(mark.origin().0, Body::Look { mark }).await? {
            Answer::Looked(Looked::Held) => Ok(true),
            Answer::Looked(Looked::Ended { gone }) => {
                self.purge(gone).await;
                Ok(false)
            }
            Answer::Looked(Looked::EndedElsewhere { file, session }) => {
                if session == self.session() {
                    self.close_file(file).await?;
                }
                Ok(false)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The nodes of this host, which may have given descriptors.
    pub fn near_nodes(&self) -> Vec<NodeId> {
        self.0.nodes.iter().filter(|(_, way)| way.is_here()).map(|(node, _)| node).collect()
    }

    /// Which opens live that have a descriptor from this node of a file that `stat` tells so. Which of them a descriptor is of, the system
    /// knows: the one whose [byte](Mark::byte) no other open has locked.
    pub async fn which(&self, node: NodeId, (device, inode): (u64, u64)) -> Outcome<Vec<Marked>> {
        let (mut found, mut after) = (Vec::new(), Mark(0));
        loop {
            match self.ask_of(node, Body::Which { device, inode, after }).await? {
                Answer::Marked(more) if more.is_empty() => return Ok(found),
                Answer::Marked(more) => {
                    after = more.last().map_or(after, |marked| marked.mark);
                    found.extend(more);
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Asks a node what concerns none of its partitions.
    async fn ask_of(&self, node: NodeId, body: Body) -> Outcome<Answer> {
        let unknown = || Refusal::invalid(Object::Pool, "a mark of a node that is not of this pool");
        let way = self.0.nodes.get(node).ok_or_else(unknown)?;
        let mut retry = Retry::new(self.0.patience);
        loop {
            let (epoch, session, partition) = (self.0.epoch(), self.session(), PartitionId(0));
            let request = Request { epoch, session, hurried: false, partition, body: body.clone() };
            let failure = match way.call(request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match retry.on(failure, || Object::Pool) {
                Step::Refuse(refusal) => return Err(refusal),
                Step::Follow(map) => self.0.follow(map),
                Step::Again(pause) => sleep_until(node::now() + pause).await,
            }
        }
    }
}
