//! Status of a pool's nodes: which ones answer, and their usage.

use crate::{
    NodeEntry, PoolFile,
    connect::{PoolSecret, runtime},
};
use base::Problem;
use client::Connection;
use placement::{Epoch, NodeId, PartitionId};
use std::{path::Path, time::Duration};
use tokio::{task::JoinSet, time::timeout};
use transport::Remote;
use wire::{Body, Failure, Request, Session, SpaceUsage, WorkerStatus};

/// Time limit for a node's answer; then it counts as down.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// A node of the pool file, and its state.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Entry of the node in the pool file.
    pub entry: NodeEntry,
    /// Present state of the node.
    pub state: NodeState,
}

/// State of a node.
#[derive(Clone, Debug)]
pub enum NodeState {
    /// The node answers.
    Up(LiveNode),
    /// The node does not answer, or refuses this client; the reason.
    Down(String),
}

/// Report of a node that answers.
#[derive(Clone, Debug)]
pub struct LiveNode {
    /// Space usage of the node.
    pub usage: SpaceUsage,
    /// Number of partitions that the node holds.
    pub partitions: u32,
    /// Work of the node beside requests.
    pub workers: Vec<WorkerStatus>,
}

/// Queries all nodes concurrently.
pub fn query_status(path: &Path, file: &PoolFile) -> Result<Vec<NodeStatus>, Problem> {
    let secret = file.secret(path)?;
    let mut present = runtime()?.block_on(async {
        let mut queries = JoinSet::new();
        for entry in file.nodes.clone() {
            let secret = secret.clone();
            queries.spawn(async move {
                let state = query_state(&entry, &secret).await;
                NodeStatus { entry, state }
            });
        }
        queries.join_all().await
    });
    present.sort_by_key(|node| node.entry.id);
    Ok(present)
}

async fn query_state(entry: &NodeEntry, secret: &PoolSecret) -> NodeState {
    let remote = match secret.remote(entry) {
        Ok(remote) => remote,
        Err(problem) => return NodeState::Down(problem.message),
    };
    match timeout(ANSWER_WAIT, query_node(&remote, NodeId(entry.id))).await {
        Ok(Ok(up)) => NodeState::Up(up),
        Ok(Err(failure)) => NodeState::Down(failure.to_string()),
        Err(_) => NodeState::Down(format!("it did not answer within {} s", ANSWER_WAIT.as_secs())),
    }
}

async fn query_node(remote: &Remote, id: NodeId) -> Result<LiveNode, Failure> {
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    let query = |session, body| remote.call(Request { epoch, session, skip_ack: false, partition, body });
    let welcome = query(Session::NONE, Body::Hello).await?.hello()?;
    if welcome.node != id {
        return Err(Failure::Lost(format!("node {} answers in its place", welcome.node)));
    }
    let partitions = welcome.map.partition_counts().get(&id).copied().unwrap_or(0);
    let usage = query(welcome.session, Body::Usage).await?.usage()?;
    let workers = query(welcome.session, Body::Workers).await?.workers()?;
    Ok(LiveNode { usage, partitions, workers })
}
