//! What a pool does now, asked again and again: for `tidemill pool top`.

use crate::{
    NodeEntry, PoolFile,
    connect::{PoolSecret, runtime},
    resize::{connections, entries_in},
};
use base::Problem;
use manager::{ClusterStatus, NodeActivity, RemoteManager};
use placement::NodeId;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinSet, time::timeout};

/// Time within which the managers, and each node, must answer to be shown.
const ANSWER_WAIT: Duration = Duration::from_millis(900);

/// An observer of a pool.
#[derive(Debug)]
pub struct PoolObserver {
    runtime: Runtime,
    secret: PoolSecret,
    /// The nodes as they were known last.
    entries: Vec<NodeEntry>,
    nodes: Arc<RemoteManager>,
}

/// What a pool does at a moment.
#[derive(Clone, Debug)]
pub struct ObservedPool {
    /// When the nodes were asked.
    pub at: Instant,
    /// The managers' knowledge, or why there is none.
    pub managers: Result<ClusterStatus, String>,
    /// The nodes, by ascending ids.
    pub nodes: Vec<ObservedNode>,
}

/// What a node does at a moment.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// Its entry in the pool file.
    pub entry: NodeEntry,
    /// What it has said, or why it has not.
    pub activity: Result<NodeActivity, String>,
}

impl PoolObserver {
    /// Observes the pool of a pool file.
    ///
    /// # Errors
    /// If it is no pool file that this user may read.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let file = PoolFile::read(path)?;
        let secret = file.secret(path)?;
        let nodes = Arc::new(reach(&secret, &file.nodes));
        Ok(Self { runtime: runtime()?, secret, entries: file.nodes, nodes })
    }

    /// Asks the managers and all nodes; what does not answer within a second is shown so.
    pub fn sample(&mut self) -> ObservedPool {
        let nodes = self.nodes.clone();
        let asked = self.runtime.block_on(async move { timeout(ANSWER_WAIT, nodes.status()).await });
        let managers = match asked {
            Ok(status) => status.map_err(|error| error.to_string()),
            Err(_) => Err("no manager has answered".to_owned()),
        };
        if let Ok(status) = &managers
            && let Ok(entries) = entries_in(status)
            && entries != self.entries
        {
            self.nodes = Arc::new(reach(&self.secret, &entries));
            self.entries = entries;
        }
        let (at, asked) = (Instant::now(), self.entries.iter().map(|entry| ask(self.nodes.clone(), entry.clone())));
        let mut nodes = self.runtime.block_on(async { asked.collect::<JoinSet<_>>().join_all().await });
        nodes.sort_by_key(|node| node.entry.id);
        ObservedPool { at, managers, nodes }
    }
}

fn reach(secret: &PoolSecret, entries: &[NodeEntry]) -> RemoteManager {
    RemoteManager::new(connections(secret, entries)).with_patience(Duration::ZERO)
}

async fn ask(nodes: Arc<RemoteManager>, entry: NodeEntry) -> ObservedNode {
    let activity = timeout(ANSWER_WAIT, nodes.activity(NodeId(entry.id))).await;
    ObservedNode { entry, activity: activity.unwrap_or_else(|_| Err("it does not answer".to_owned())) }
}
