//! A member of the managers' log, or a node that may become one.

use crate::{
    MemberLink,
    entry_store::EntryStore,
    member_network::MemberNetwork,
    message::{DamagedMessage, MemberAnswer, MemberRequest, decode, encode},
    raft_types::{
        ClusterRaft, ClusterSnapshot, LogCommand, MAJORITY_SILENCE_MS, PROPOSE_TIME, StateSnapshot, raft_config,
    },
    state_replica::StateReplica,
};
use bytes::Bytes;
use cluster::{ClusterAnswer, ClusterEntry, ClusterRefusal, ClusterState};
use openraft::{
    EmptyNode, RaftMetrics,
    error::{ClientWriteError, Fatal, RaftError},
};
use placement::NodeId;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, sync::Arc};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

/// A member of the managers' log, or a node that may become one. Clones are the same member.
///
/// It runs until [`Self::stop`], even if no clone is left. All calls need a `tokio` runtime with
/// its clock.
#[derive(Clone)]
pub struct ClusterLog {
    pub(crate) id: u32,
    pub(crate) raft: ClusterRaft,
    pub(crate) link: Arc<dyn MemberLink>,
    state: watch::Receiver<StateSnapshot>,
    /// Held while the members are changed.
    pub(crate) change: Arc<Mutex<()>>,
    #[cfg(test)]
    pub(crate) entries: EntryStore,
}

/// The error of a member that cannot begin, or cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The bytes are no message, or one that no member sends.
    #[error(transparent)]
    Damaged(#[from] DamagedMessage),
    /// This member has been stopped.
    #[error("this member of the managers has ended")]
    Ended,
}

/// The error of a proposal.
///
/// An entry whose proposal has failed may still be executed, now or later, unless the error is
/// [`Self::NotLeader`] and no leader has changed meanwhile. So it is proposed again: entries are
/// done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// Another member leads, or this node is no member and knows none that leads.
    #[error("another member leads the managers; ask it")]
    NotLeader(Option<NodeId>),
    /// Too few members answer, or they could not elect a leader in time.
    #[error("the managers have no majority now: too few of them answer")]
    NoMajority,
    /// A node that is to be a member did not take the entries in time.
    #[error("node {0} is to be a manager, but does not answer")]
    NoAnswer(NodeId),
    /// This member has been stopped.
    #[error("this member of the managers has ended")]
    Ended,
}

impl ClusterLog {
    /// Begins the log of a pool: the first member, alone, with the pool's state.
    ///
    /// # Errors
    /// [`LogError::Ended`] if its tasks end at once, as they do when the runtime shuts down.
    pub async fn found(id: NodeId, state: ClusterState, link: Arc<dyn MemberLink>) -> Result<Self, LogError> {
        let log = Self::follow(id, link).await?;
        let founded = async {
            log.raft.initialize(BTreeSet::from([id.0])).await.map_err(|_| LogError::Ended)?;
            let mut metrics = log.raft.metrics();
            metrics.wait_for(|known| known.current_leader == Some(id.0)).await.map_err(|_| LogError::Ended)?;
            log.raft.client_write(LogCommand::Found(Arc::new(state))).await.map_err(|_| LogError::Ended)
        };
        match founded.await {
            Ok(_) => Ok(log),
            Err(error) => {
                log.stop().await;
                Err(error)
            }
        }
    }

    /// Begins a node that may become a member: it waits until a leader adds it.
    ///
    /// # Errors
    /// [`LogError::Ended`] if its tasks end at once, as they do when the runtime shuts down.
    pub async fn follow(id: NodeId, link: Arc<dyn MemberLink>) -> Result<Self, LogError> {
        let entries = EntryStore::default();
        let (states, state) = watch::channel(None);
        let network = MemberNetwork { sender: id.0, link: link.clone() };
        let replica = StateReplica::new(states);
        let raft = ClusterRaft::new(id.0, Arc::new(raft_config()), network, entries.clone(), replica).await?;
        Ok(Self {
            id: id.0,
            raft,
            link,
            state,
            change: Arc::default(),
            #[cfg(test)]
            entries,
        })
    }

    /// Answers a message of another member; within 10 s, mostly at once.
    ///
    /// # Errors
    /// [`LogError::Damaged`] for bytes that are no message, or one that no member sends.
    /// [`LogError::Ended`] after [`Self::stop`].
    pub async fn handle(&self, message: Bytes) -> Result<Bytes, LogError> {
        let answer = match decode(&message, self.id)? {
            MemberRequest::Append(request) => MemberAnswer::Append(self.raft.append_entries(request).await?),
            MemberRequest::Vote(request) => MemberAnswer::Vote(self.raft.vote(request).await?),
            MemberRequest::Snapshot(sent) => {
                let snapshot = ClusterSnapshot { meta: sent.meta, snapshot: Box::new(sent.state) };
                MemberAnswer::Snapshot(self.raft.install_full_snapshot(sent.vote, snapshot).await?)
            }
            MemberRequest::TakeOver { vote, members } => MemberAnswer::TakeOver(self.take_over(vote, members).await),
        };
        Ok(encode(&answer).expect("an answer has nothing that cannot be encoded"))
    }

    /// Appends an entry, and returns its answer when a majority has it and this member has applied
    /// it. During an election it waits for the outcome. It ends within 2.5 s.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if another member leads, [`ProposeError::NoMajority`] if too few
    /// members answer; a leader that knows this appends nothing. [`ProposeError::Ended`] after
    /// [`Self::stop`].
    pub async fn propose(&self, entry: ClusterEntry) -> Result<Result<ClusterAnswer, ClusterRefusal>, ProposeError> {
        let appended = async {
            self.lead().await?;
            self.raft.client_write(LogCommand::Change(entry)).await.map_err(|error| refused(&error))
        };
        let response = timeout(PROPOSE_TIME, appended).await.unwrap_or(Err(ProposeError::NoMajority))?;
        Ok(response.data.expect("a log begins with a state"))
    }

    /// The state as far as this member knows; changes wake the receiver. `None` until a node that
    /// follows has entries or a snapshot.
    pub fn state(&self) -> watch::Receiver<Option<Arc<ClusterState>>> {
        self.state.clone()
    }

    /// The member that leads, as far as this one knows; `None` during elections, and if this one
    /// leads but too few members have answered lately.
    pub fn leader(&self) -> Option<NodeId> {
        let metrics = self.raft.metrics();
        let known = metrics.borrow();
        known.current_leader.filter(|leader| *leader != self.id || has_majority(&known)).map(NodeId)
    }

    /// True if this member leads, and a majority has answered it within the last second.
    pub fn is_leader(&self) -> bool {
        self.leader() == Some(NodeId(self.id))
    }

    /// The number of entries that this member has applied.
    pub fn entries(&self) -> u64 {
        self.raft.metrics().borrow().last_applied.map_or(0, |last| last.index)
    }

    /// The members, as far as this one knows: while they change, those before and those after.
    /// Empty until a node that follows has been added.
    pub fn members(&self) -> BTreeSet<NodeId> {
        voters(&self.raft.metrics().borrow())
    }

    /// Ends this member: it neither answers nor asks any more. The other members see it as lost, so
    /// one that is drained is replaced before.
    pub async fn stop(self) {
        // An error says that a task has panicked; the member has ended just so.
        let _ = self.raft.shutdown().await;
    }

    /// Waits until this member leads, if there is no other that does.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if another one leads or this is no member,
    /// [`ProposeError::NoMajority`] if it leads but too few answer.
    pub(crate) async fn lead(&self) -> Result<(), ProposeError> {
        let mut metrics = self.raft.metrics();
        loop {
            {
                let known = metrics.borrow_and_update();
                known.running_state.as_ref().map_err(|_| ProposeError::Ended)?;
                match known.current_leader {
                    Some(leader) if leader == self.id && has_majority(&known) => return Ok(()),
                    // It was just elected, and has asked nobody yet.
                    Some(leader) if leader == self.id && known.millis_since_quorum_ack.is_none() => {}
                    Some(leader) if leader == self.id => return Err(ProposeError::NoMajority),
                    Some(leader) => return Err(ProposeError::NotLeader(Some(NodeId(leader)))),
                    None if !voters(&known).contains(&NodeId(self.id)) => return Err(ProposeError::NotLeader(None)),
                    None => {}
                }
            }
            metrics.changed().await.map_err(|_| ProposeError::Ended)?;
        }
    }
}

impl fmt::Debug for ClusterLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (leader, members) = (self.leader(), self.members());
        out.debug_struct("ClusterLog")
            .field("id", &self.id)
            .field("leader", &leader)
            .field("members", &members)
            .finish_non_exhaustive()
    }
}

impl From<Fatal<u32>> for LogError {
    fn from(_: Fatal<u32>) -> Self {
        Self::Ended
    }
}

impl From<RaftError<u32>> for LogError {
    fn from(_: RaftError<u32>) -> Self {
        Self::Ended
    }
}

/// The voters of the last configuration, of both while it is a joint one.
pub(crate) fn voters(metrics: &RaftMetrics<u32, EmptyNode>) -> BTreeSet<NodeId> {
    metrics.membership_config.voter_ids().map(NodeId).collect()
}

/// True if a leader has had answers of a majority lately.
pub(crate) fn has_majority(metrics: &RaftMetrics<u32, EmptyNode>) -> bool {
    metrics.millis_since_quorum_ack.is_some_and(|silence| silence <= MAJORITY_SILENCE_MS)
}

/// Why openraft has not appended an entry.
pub(crate) fn refused(error: &RaftError<u32, ClientWriteError<u32, EmptyNode>>) -> ProposeError {
    use openraft::error::ChangeMembershipError::LearnerNotFound;
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(other)) => {
            ProposeError::NotLeader(other.leader_id.map(NodeId))
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(LearnerNotFound(missing))) => {
            ProposeError::NoAnswer(NodeId(missing.node_id))
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(_)) => ProposeError::NoMajority,
        RaftError::Fatal(_) => ProposeError::Ended,
    }
}
