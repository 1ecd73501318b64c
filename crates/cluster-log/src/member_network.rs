//! The requests of openraft, sent as bytes over a [`MemberLink`].

use crate::{
    message::{MemberAnswer, MemberRequest, SentSnapshot, decode, encode},
    raft_types::{ClusterSnapshot, LogVote, RETRY_PAUSE, RaftTypes},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::{
    AnyError, EmptyNode, RaftNetwork, RaftNetworkFactory,
    error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption},
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};
use placement::NodeId;
use std::{future::Future, iter, sync::Arc};

/// Carries messages to other members.
pub trait MemberLink: Send + Sync + 'static {
    /// Sends a message to a node and returns its answer; an error says why there is none.
    ///
    /// The node answers by `ClusterLog::handle`. A message may come late, twice or never. No limit
    /// of time is needed: the future is dropped when nobody waits for it any more.
    fn send(&self, to: NodeId, message: Bytes) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// The network of a member.
pub struct MemberNetwork {
    /// The member that sends.
    pub sender: u32,
    pub link: Arc<dyn MemberLink>,
}

/// The way to one other member.
pub struct MemberPeer {
    pub sender: u32,
    pub receiver: u32,
    pub link: Arc<dyn MemberLink>,
}

type RequestError = RPCError<u32, EmptyNode, RaftError<u32>>;

impl RaftNetworkFactory<RaftTypes> for MemberNetwork {
    type Network = MemberPeer;

    async fn new_client(&mut self, receiver: u32, _: &EmptyNode) -> MemberPeer {
        MemberPeer { sender: self.sender, receiver, link: self.link.clone() }
    }
}

impl MemberPeer {
    /// Sends a request; an error of any kind is one for which the member is tried again later.
    pub async fn ask(&self, request: MemberRequest) -> Result<MemberAnswer, Unreachable> {
        let message = encode(&request).map_err(|error| Unreachable::new(&error))?;
        let answer = self.link.send(NodeId(self.receiver), message).await;
        let answer = answer.map_err(|reason| unreachable_because(&reason))?;
        decode(&answer, self.sender).map_err(|error| Unreachable::new(&error))
    }
}

fn unreachable_because(reason: &str) -> Unreachable {
    Unreachable::new(&AnyError::error(reason))
}

fn wrong_answer() -> Unreachable {
    unreachable_because("the answer belongs to another message")
}

impl RaftNetwork<RaftTypes> for MemberPeer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<RaftTypes>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u32>, RequestError> {
        match self.ask(MemberRequest::Append(request)).await? {
            MemberAnswer::Append(answer) => Ok(answer),
            _ => Err(wrong_answer().into()),
        }
    }

    async fn vote(&mut self, request: VoteRequest<u32>, _: RPCOption) -> Result<VoteResponse<u32>, RequestError> {
        match self.ask(MemberRequest::Vote(request)).await? {
            MemberAnswer::Vote(answer) => Ok(answer),
            _ => Err(wrong_answer().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: LogVote,
        snapshot: ClusterSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u32>, StreamingError<RaftTypes, Fatal<u32>>> {
        let ClusterSnapshot { meta, snapshot: state } = snapshot;
        let request = MemberRequest::Snapshot(Box::new(SentSnapshot { vote, meta, state: *state }));
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = tokio::time::timeout(option.hard_ttl(), self.ask(request)) => match answer {
                Ok(Ok(MemberAnswer::Snapshot(answer))) => Ok(answer),
                Ok(Ok(_)) => Err(wrong_answer().into()),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(unreachable_because("the snapshot was not answered in time").into()),
            },
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(iter::repeat(RETRY_PAUSE))
    }
}
