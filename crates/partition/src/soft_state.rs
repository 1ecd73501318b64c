//! The soft state of a partition, which goes along when another node serves it.

use crate::{Holder, Partition, SubscriberId, SubscriberIds, inode::InodeBody, inode_grants::InodeGrants};
use placement::{FileId, NodeId};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wire::{Extent, HostFile, Session};

/// Bytes of a file that are at the host of a node, whichever node has the inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostedBytes {
    /// In an extent of the node.
    Extent(Extent),
    /// In a file of the host.
    Bound(Arc<HostFile>),
}

/// State of a partition that the kernels of a node's subscribers may cache, or know.
/// Subscribers have the numbers of that node.
#[derive(Debug, Serialize, Deserialize)]
pub struct SoftState {
    grants: Vec<(FileId, InodeGrants)>,
    /// Subscribers that unlinked inodes are kept for.
    keepers: BTreeMap<FileId, SubscriberIds>,
    /// Sessions that have sent commands, by the numbers of their subscribers.
    sessions: Vec<(SubscriberId, Session)>,
}

impl SoftState {
    /// Returns this state with other numbers; what belongs to a subscriber without one is dropped.
    #[must_use]
    pub fn renumbered(mut self, number: impl Fn(SubscriberId) -> Option<SubscriberId>) -> Self {
        let renumber = |set: SubscriberIds| set.iter().filter_map(&number).collect();
        for (_, grants) in &mut self.grants {
            *grants = grants.map(renumber);
        }
        for keepers in self.keepers.values_mut() {
            *keepers = renumber(*keepers);
        }
        self.sessions =
            self.sessions.into_iter().filter_map(|(known, session)| Some((number(known)?, session))).collect();
        self
    }
}

impl Partition {
    /// Returns the soft state.
    pub fn soft_state(&self) -> SoftState {
        let granted = self.inodes.iter().filter(|(_, inode)| !inode.grants.is_empty());
        SoftState {
            grants: granted.map(|(file, inode)| (*file, inode.grants.clone())).collect(),
            keepers: self.grants.unlinked.inodes.clone(),
            sessions: self.grants.unlinked.sessions().collect(),
        }
    }

    /// Sets the soft state of a partition that was restored.
    pub fn set_soft_state(&mut self, state: SoftState) {
        for (file, grants) in state.grants {
            if let Some(inode) = self.inodes.get_mut(&file) {
                inode.grants = grants;
            }
        }
        self.grants.unlinked.inodes = state.keepers;
        for (subscriber, session) in state.sessions {
            self.grants.unlinked.set_session(subscriber, session);
        }
    }

    /// Returns the subscribers that have sent commands, with their sessions.
    pub fn subscribers(&self) -> impl Iterator<Item = (SubscriberId, Session)> {
        self.grants.unlinked.sessions()
    }

    /// Returns the sessions that have state here, durable or soft.
    pub fn sessions(&self) -> BTreeSet<Session> {
        self.iter_sessions().filter(|session| *session != Session::NONE).collect()
    }

    /// True if a session has state here, durable or soft.
    pub fn has_session(&self, session: Session) -> bool {
        self.iter_sessions().any(|known| known == session)
    }

    fn iter_sessions(&self) -> impl Iterator<Item = Session> {
        let opens = self.inodes.values().flat_map(|inode| inode.opens.iter().map(|(session, _)| *session));
        let locked = self.lock_holders().map(|(_, holder)| holder.session);
        let others = self.replies.sessions().chain(self.intents.sessions()).chain(self.reserved.sessions());
        let subscribed = self.grants.unlinked.sessions().map(|(_, session)| session);
        opens.chain(locked).chain(others).chain(subscribed)
    }

    /// Returns the holder of each lock, with its file.
    pub fn lock_holders(&self) -> impl Iterator<Item = (FileId, Holder)> {
        self.inodes.iter().flat_map(|(file, inode)| inode.lock_holders().map(|holder| (*file, holder)))
    }

    /// Returns the files whose bytes are at the host of a node.
    pub fn hosted_files(&self, node: NodeId) -> impl Iterator<Item = (FileId, HostedBytes)> {
        self.inodes.iter().filter_map(move |(file, inode)| {
            let hosted = match &inode.body {
                InodeBody::Bound(host) if host.node == node => HostedBytes::Bound(host.clone()),
                _ => HostedBytes::Extent(inode.extent().filter(|extent| extent.node == node)?),
            };
            Some((*file, hosted))
        })
    }
}
