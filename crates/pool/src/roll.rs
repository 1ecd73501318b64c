//! Status of a pool's nodes: which ones answer, and their usage.

use crate::{
    NodeEntry, PoolFile,
    connect::{Key, runtime},
};
use base::Problem;
use client::Connection;
use placement::{Epoch, NodeId, PartitionId};
use std::{path::Path, time::Duration};
use tokio::{task::JoinSet, time::timeout};
use transport::Remote;
use wire::{Answer, Body, Failure, Request, Session, SpaceUsage};

/// Time limit for a node's answer; then it counts as down.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// A node of the pool file, and its state.
#[derive(Clone, Debug)]
pub struct Present {
    /// Entry of the node in the pool file.
    pub entry: NodeEntry,
    /// Present state of the node.
    pub state: State,
}

/// State of a node.
#[derive(Clone, Debug)]
pub enum State {
    /// The node answers.
    Up(Up),
    /// The node does not answer, or refuses this client; the reason.
    Down(String),
}

/// Report of a node that answers.
#[derive(Clone, Debug)]
pub struct Up {
    /// Space usage of the node.
    pub usage: SpaceUsage,
    /// Number of partitions that the node holds.
    pub partitions: u32,
}

/// Queries all nodes concurrently.
pub fn roll(path: &Path, file: &PoolFile) -> Result<Vec<Present>, Problem> {
    let key = file.key(path)?;
    let mut present = runtime()?.block_on(async {
        let mut asked = JoinSet::new();
        for entry in file.nodes.clone() {
            let key = key.clone();
            asked.spawn(async move {
                let state = state(&entry, &key).await;
                Present { entry, state }
            });
        }
        asked.join_all().await
    });
    present.sort_by_key(|node| node.entry.id);
    Ok(present)
}

async fn state(entry: &NodeEntry, key: &Key) -> State {
    let remote = match key.remote(entry) {
        Ok(remote) => remote,
        Err(problem) => return State::Down(problem.message),
    };
    match timeout(ANSWER_WAIT, ask(&remote, NodeId(entry.id))).await {
        Ok(Ok(up)) => State::Up(up),
        Ok(Err(failure)) => State::Down(failure.to_string()),
        Err(_) => State::Down(format!("it did not answer within {} s", ANSWER_WAIT.as_secs())),
    }
}

async fn ask(remote: &Remote, id: NodeId) -> Result<Up, Failure> {
    let of = |epoch, session, body| Request { epoch, session, skip_ack: false, partition: PartitionId(0), body };
    let unexpected = |answer: &Answer| Failure::Lost(format!("an answer that does not belong here: {answer:?}"));
    let welcome = match remote.call(of(Epoch::FIRST, Session::NONE, Body::Hello)).await? {
        Answer::Hello(welcome) if welcome.node == id => welcome,
        Answer::Hello(other) => return Err(Failure::Lost(format!("node {} answers in its place", other.node))),
        other => return Err(unexpected(&other)),
    };
    let partitions = welcome.map.partition_counts().get(&id).copied().unwrap_or(0);
    match remote.call(of(welcome.map.epoch(), welcome.session, Body::Usage)).await? {
        Answer::Usage(usage) => Ok(Up { usage, partitions }),
        other => Err(unexpected(&other)),
    }
}
