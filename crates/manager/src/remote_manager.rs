//! The managers of a pool, as a tool sees them.

use crate::message::{self, ClusterStatus, ElasticReport, ManagerAnswer, ManagerRequest};
use client::Connection;
use cluster::{ClusterAnswer, ClusterEntry, ClusterRefusal};
use placement::NodeId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Time within which a manager answers.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Usual time for a leader to be found. Elections take longer where processors are busy.
const LEADER_WAIT: Duration = Duration::from_secs(4);
/// Pause between two tries to find a leader.
const LEADER_PAUSE: Duration = Duration::from_millis(200);

/// The managers of a pool, reached over connections to its nodes.
#[derive(Debug)]
pub struct RemoteManager {
    nodes: BTreeMap<NodeId, Arc<dyn Connection>>,
    patience: Duration,
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
        Self { nodes: nodes.into_iter().collect(), patience: LEADER_WAIT }
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

    async fn ask(&self, request: &ManagerRequest) -> Result<ManagerAnswer, ManagerError> {
        let (mut why, end) = ("the pool has no node".to_owned(), Instant::now() + self.patience);
        loop {
            for (node, connection) in &self.nodes {
                match timeout(ANSWER_WAIT, connection.call(message::request(request))).await {
                    Ok(reply) => match message::answer(reply) {
                        Ok(ManagerAnswer::NotLeader(_)) => why = "there is no majority of its managers".into(),
                        Ok(ManagerAnswer::Failed(reason)) => why = reason,
                        Ok(answer) => return Ok(answer),
                        Err(failure) => why = format!("node {node}: {failure}"),
                    },
                    Err(_) => why = format!("node {node} does not answer"),
                }
            }
            if Instant::now() >= end {
                return Err(ManagerError::NoLeader(why));
            }
            sleep(LEADER_PAUSE).await;
        }
    }
}
