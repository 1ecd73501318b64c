//! A change of the members, by joint consensus (Raft, section 6).
//!
//! ```text
//!   new nodes follow, until they have all entries
//!   members before and after together   an entry needs a majority of both
//!   members after                       those that are removed follow, until they know it
//!   nobody else follows
//! ```
//!
//! A leader that is to be removed does not do it: it has one of the others elected, which does (as
//! in the transfer of leadership, Ongaro's thesis, section 3.10). A leader outside of its own
//! members, which Raft allows, could leave them without a leader for good if it is cut off before
//! they know of the change.
//!
//! A change that was interrupted, also by the loss of the leader, is ended by the next one.

use crate::{
    ClusterLog, ProposeError,
    cluster_log::{has_majority, refused},
    member_network::MemberPeer,
    message::{MemberAnswer, MemberRequest},
    raft_types::{CATCH_UP_TIME, CHANGE_PAUSE, CHANGE_TIME, FAREWELL_TIME, LogVote, TAKE_OVER_ROUND, TAKE_OVER_TIME},
};
use openraft::{
    ChangeMembers, EmptyNode, LogIdOptionExt, RaftMetrics,
    error::{ChangeMembershipError, ClientWriteError, RaftError},
};
use placement::NodeId;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use tokio::time::{sleep, timeout};

type Change = ChangeMembers<u32, EmptyNode>;

impl ClusterLog {
    /// Makes these nodes the members. Only the leader can. If it is none of them, one of them takes
    /// over, and does it. It ends within 6 s. After an error the members may be those before, those
    /// after, or both together: another call, by whoever leads then, ends the change.
    ///
    /// # Errors
    /// [`ProposeError::NoAnswer`] if a new node does not take the entries in time: then nothing has
    /// changed. [`ProposeError::NotLeader`], [`ProposeError::NoMajority`] and
    /// [`ProposeError::Ended`] as [`Self::propose`].
    ///
    /// # Panics
    /// If `members` is empty.
    pub async fn set_members(&self, members: BTreeSet<NodeId>) -> Result<(), ProposeError> {
        assert!(!members.is_empty(), "somebody must be a member");
        let members: BTreeSet<u32> = members.into_iter().map(|node| node.0).collect();
        let changed = async {
            let _only = self.change.lock().await;
            self.lead().await?;
            if members.contains(&self.id) { self.replace(&members).await } else { self.hand_over(members).await }
        };
        timeout(CHANGE_TIME, changed).await.unwrap_or(Err(ProposeError::NoMajority))
    }

    /// Makes these nodes, of which this one is one, the members.
    async fn replace(&self, members: &BTreeSet<u32>) -> Result<(), ProposeError> {
        self.dismiss_others(members).await?;
        let unknown: BTreeSet<u32> = members.difference(&self.followers_and_voters()).copied().collect();
        if !unknown.is_empty() {
            let nodes = unknown.iter().map(|node| (*node, EmptyNode::new())).collect();
            self.change(Change::AddNodes(nodes)).await?;
        }
        if let Err(error) = self.catch_up(members).await {
            self.change(Change::RemoveNodes(unknown)).await?;
            return Err(error);
        }
        let agreed = self.change(Change::ReplaceAllVoters(members.clone())).await?;
        // Those that are removed follow for a moment, so that they know it and ask for no election.
        let removed = self.followers_and_voters().difference(members).copied().collect();
        let _ = timeout(FAREWELL_TIME, self.replicated(&removed, agreed)).await;
        self.dismiss_others(members).await
    }

    /// Has one of these nodes, of which this one is none, take over and make them the members.
    async fn hand_over(&self, members: BTreeSet<u32>) -> Result<(), ProposeError> {
        let is_voter = |node: &u32| self.members().contains(&NodeId(*node));
        if !members.iter().any(is_voter) {
            let with_this = members.iter().copied().chain([self.id]).collect();
            self.replace(&with_this).await?;
        }
        let metrics = self.raft.metrics().borrow().clone();
        let last = |node: &u32| metrics.replication.as_ref().and_then(|known| *known.get(node)?);
        let mut successors: Vec<u32> = members.iter().copied().filter(is_voter).collect();
        successors.sort_by_key(|node| Reverse(last(node)));
        let mut outcome = Err(ProposeError::NoMajority);
        for receiver in successors {
            let peer = MemberPeer { sender: self.id, receiver, link: self.link.clone() };
            match peer.ask(MemberRequest::TakeOver { vote: metrics.vote, members: members.clone() }).await {
                Ok(MemberAnswer::TakeOver(done)) => return done,
                _ => outcome = Err(ProposeError::NoAnswer(NodeId(receiver))),
            }
        }
        outcome
    }

    /// Leads, because the leader with this vote asks for it, and makes these nodes the members.
    pub(crate) async fn take_over(&self, vote: LogVote, members: BTreeSet<u32>) -> Result<(), ProposeError> {
        let known = self.raft.metrics().borrow().vote;
        if known != vote {
            // The message is late: somebody else has been elected, perhaps this member.
            return Err(ProposeError::NotLeader(self.leader()));
        }
        timeout(TAKE_OVER_TIME, self.win_from(vote.leader_id.node_id))
            .await
            .unwrap_or(Err(ProposeError::NoMajority))?;
        self.set_members(members.into_iter().map(NodeId).collect()).await
    }

    /// Asks for elections until this member leads, or another one than the leader that wants this.
    /// Of three members, this and the leader are a majority.
    async fn win_from(&self, leader: u32) -> Result<(), ProposeError> {
        let mut metrics = self.raft.metrics();
        while !self.is_leader() {
            let known = metrics.borrow_and_update().current_leader;
            if let Some(other) = known.filter(|known| ![leader, self.id].contains(known)) {
                return Err(ProposeError::NotLeader(Some(NodeId(other))));
            }
            self.raft.trigger().elect().await.map_err(|_| ProposeError::Ended)?;
            let won = metrics.wait_for(|known| known.current_leader == Some(self.id) && has_majority(known));
            if let Ok(Err(_)) = timeout(TAKE_OVER_ROUND, won).await {
                return Err(ProposeError::Ended);
            }
        }
        Ok(())
    }

    /// Removes the nodes that follow, and neither are nor become members.
    async fn dismiss_others(&self, members: &BTreeSet<u32>) -> Result<(), ProposeError> {
        let known = self.followers_and_voters();
        let voters = self.members();
        let others: BTreeSet<u32> =
            known.into_iter().filter(|node| !members.contains(node) && !voters.contains(&NodeId(*node))).collect();
        if !others.is_empty() {
            self.change(Change::RemoveNodes(others)).await?;
        }
        Ok(())
    }

    /// Waits until those of these nodes that are no members yet have all entries of now.
    async fn catch_up(&self, members: &BTreeSet<u32>) -> Result<(), ProposeError> {
        let (voters, last) = (self.members(), self.raft.metrics().borrow().last_log_index.unwrap_or(0));
        let fresh: BTreeSet<u32> = members.iter().filter(|node| !voters.contains(&NodeId(**node))).copied().collect();
        timeout(CATCH_UP_TIME, self.replicated(&fresh, last)).await.unwrap_or_else(|_| {
            let metrics = self.raft.metrics();
            let late = lacking(&metrics.borrow(), &fresh, last);
            late.map_or(Ok(()), |node| Err(ProposeError::NoAnswer(NodeId(node))))
        })
    }

    /// Waits until these nodes have the entry with this index.
    async fn replicated(&self, nodes: &BTreeSet<u32>, index: u64) -> Result<(), ProposeError> {
        let mut metrics = self.raft.metrics();
        let reached = metrics.wait_for(|known| known.replication.is_none() || lacking(known, nodes, index).is_none());
        match reached.await {
            Ok(known) if known.replication.is_some() => Ok(()),
            Ok(known) => Err(ProposeError::NotLeader(known.current_leader.map(NodeId))),
            Err(_) => Err(ProposeError::Ended),
        }
    }

    /// Appends a change of the members, after those that are under way; returns its index when it
    /// is agreed on. Members that are removed go on following.
    async fn change(&self, change: Change) -> Result<u64, ProposeError> {
        loop {
            match self.raft.change_membership(change.clone(), true).await {
                Ok(agreed) => {
                    let agreed = Some(agreed.log_id);
                    let mut metrics = self.raft.metrics();
                    let known = metrics.wait_for(|known| *known.membership_config.log_id() >= agreed).await;
                    return known.map(|_| agreed.index().unwrap_or(0)).map_err(|_| ProposeError::Ended);
                }
                Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                    ChangeMembershipError::InProgress(_),
                ))) => sleep(CHANGE_PAUSE).await,
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    fn followers_and_voters(&self) -> BTreeSet<u32> {
        self.raft.metrics().borrow().membership_config.nodes().map(|(node, _)| *node).collect()
    }
}

/// One of these nodes that does not have the entry with this index.
fn lacking(metrics: &RaftMetrics<u32, EmptyNode>, nodes: &BTreeSet<u32>, index: u64) -> Option<u32> {
    let none = BTreeMap::new();
    let known = metrics.replication.as_ref().unwrap_or(&none);
    let has = |node: &u32| known.get(node).is_some_and(|last| last.is_some_and(|last| last.index >= index));
    nodes.iter().copied().find(|node| !has(node))
}
