//! The managers of a pool, as a tool sees them.

use crate::message::{self, ClusterStatus, ElasticReport, ManagerAnswer, ManagerRequest, NodeActivity};
use client::Connection;
use cluster::{ClusterAnswer, ClusterEntry, ClusterRefusal};
use futures_util::{StreamExt, stream::FuturesUnordered};
use node::PinList;
use parking_lot::Mutex;
use placement::NodeId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time within which a manager answers.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Usual time for a leader to be found. Elections take longer where processors are busy.
const LEADER_WAIT: Duration = Duration::from_secs(4);
/// Time for the others to answer when one has said that it does not lead.
const OTHERS_WAIT: Duration = Duration::from_millis(500);
/// Pause between two tries to find a leader.
const LEADER_PAUSE: Duration = Duration::from_millis(200);

/// The managers of a pool, reached over connections to its nodes.
#[derive(Debug)]
pub struct RemoteManager {
    nodes: BTreeMap<NodeId, Arc<dyn Connection>>,
    patience: Duration,
    /// The node that has answered as the leader last.
    leader: Mutex<Option<NodeId>>,
}

/// Why the managers have not done something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagerError {
    /// It is not possible.
    #[error(transparent)]
    Refused(#[from] ClusterRefusal),
    /// No leader has answered.
    #[error("no node of the pool leads it now: {0}")]
    NoLeader(String),
}

impl RemoteManager {
    /// The managers behind these nodes, some of which may have ended.
    pub fn new(nodes: impl IntoIterator<Item = (NodeId, Arc<dyn Connection>)>) -> Self {
        Self { nodes: nodes.into_iter().collect(), patience: LEADER_WAIT, leader: Mutex::default() }
    }

    /// Waits for so long until there is a leader.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Has an entry agreed on.
    ///
    /// # Errors
    /// If it is impossible, or no leader answers.
    pub async fn propose(&self, entry: ClusterEntry) -> Result<ClusterAnswer, ManagerError> {
        match self.ask(&ManagerRequest::Propose(entry)).await? {
            ManagerAnswer::Proposed(done) => Ok(done?),
            other => Err(ManagerError::NoLeader(format!("it has answered with {other:?}"))),
        }
    }

    /// Asks for the managers' knowledge.
    ///
    /// # Errors
    /// If no leader answers.
    pub async fn status(&self) -> Result<ClusterStatus, ManagerError> {
        match self.ask(&ManagerRequest::Status).await? {
            ManagerAnswer::Status(status) => Ok(*status),
            other => Err(ManagerError::NoLeader(format!("it has answered with {other:?}"))),
        }
    }

    /// Tells the leader what lets the pool grow and shrink by itself; `None` if it does not any
    /// more.
    ///
    /// # Errors
    /// If no leader answers.
    pub async fn report_elastic(&self, report: Option<ElasticReport>) -> Result<(), ManagerError> {
        self.ask(&ManagerRequest::Elastic(report)).await.map(drop)
    }

    /// Asks a node what its host has there; with `ends`, has it end that.
    ///
    /// # Errors
    /// If it does not answer, or still serves partitions.
    pub async fn pins(&self, node: NodeId, ends: bool) -> Result<PinList, String> {
        let request = if ends { ManagerRequest::EndPins } else { ManagerRequest::ListPins };
        match self.ask_node(node, &request).await? {
            ManagerAnswer::Pins(pins) => Ok(pins),
            other => Err(unexpected(other)),
        }
    }

    /// Asks a node what it does now.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn activity(&self, node: NodeId) -> Result<NodeActivity, String> {
        match self.ask_node(node, &ManagerRequest::Activity).await? {
            ManagerAnswer::Activity(activity) => Ok(activity),
            other => Err(unexpected(other)),
        }
    }

    /// Asks one node, once.
    async fn ask_node(&self, node: NodeId, request: &ManagerRequest) -> Result<ManagerAnswer, String> {
        let connection = self.nodes.get(&node).ok_or_else(|| format!("the address of node {node} is not known"))?;
        match timeout(ANSWER_WAIT, connection.call(message::request(request))).await {
            Ok(reply) => message::answer(reply).map_err(|failure| failure.to_string()),
            Err(_) => Err(format!("it did not answer within {} s", ANSWER_WAIT.as_secs())),
        }
    }

    /// Asks the leader, whichever node that is, until there is one.
    async fn ask(&self, request: &ManagerRequest) -> Result<ManagerAnswer, ManagerError> {
        let end = Instant::now() + self.patience;
        loop {
            let why = match self.ask_leader(request).await {
                Ok(answer) => return Ok(answer),
                Err(why) => why,
            };
            if Instant::now() >= end {
                return Err(ManagerError::NoLeader(why));
            }
            sleep(LEADER_PAUSE).await;
        }
    }

    /// Asks the node that led last, or all of them at once: one that does not answer holds up
    /// nobody. An error says why none has answered as the leader.
    async fn ask_leader(&self, request: &ManagerRequest) -> Result<ManagerAnswer, String> {
        let last = *self.leader.lock();
        if let Some(last) = last {
            if let Ok(answer) = self.ask_node(last, request).await.and_then(answer_of_leader) {
                return Ok(answer);
            }
            *self.leader.lock() = None;
        }
        let asked = self.nodes.keys().map(|node| async { (*node, self.ask_node(*node, request).await) });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (mut why, mut end) = ("the pool has no node".to_owned(), Instant::now() + ANSWER_WAIT);
        while let Ok(Some((node, answer))) = timeout_at(end, asked.next()).await {
            match answer {
                Ok(answer) => match answer_of_leader(answer) {
                    Ok(answer) => {
                        *self.leader.lock() = Some(node);
                        return Ok(answer);
                    }
                    Err(reason) => {
                        why = reason;
                        end = end.min(Instant::now() + OTHERS_WAIT);
                    }
                },
                Err(reason) => why = format!("node {node}: {reason}"),
            }
        }
        Err(why)
    }
}

/// The answer, if it is that of a leader; else the reason why it is none.
fn answer_of_leader(answer: ManagerAnswer) -> Result<ManagerAnswer, String> {
    match answer {
        ManagerAnswer::NotLeader(_) => Err("there is no majority of its managers".to_owned()),
        ManagerAnswer::Failed(why) => Err(why),
        answer => Ok(answer),
    }
}

fn unexpected(answer: ManagerAnswer) -> String {
    match answer {
        ManagerAnswer::Failed(why) => why,
        other => format!("it has answered with {other:?}"),
    }
}
