//! Cleanup after clients that have gone.

use client::{Client, Connection, Connector, InProcessConnection, Nodes, RetryPolicy};
use node::Node;
use placement::{FileId, NodeId, PartitionId};
use std::sync::Arc;
use tokio::sync::OnceCell;
use wire::{Outcome, PendingDelete, Session, StripeRuns};

/// Finishes what a client has left at a node when its session has ended there. A file deleted with
/// it may have stripes at other nodes, and a transaction may have parts there, so the cleanup has
/// connections to all nodes.
#[derive(Debug)]
pub struct SessionCleanup {
    nodes: Nodes,
    /// Connects at the first cleanup.
    client: OnceCell<Client>,
}

impl SessionCleanup {
    /// Creates the cleanup of a node. `connector` leads to the other nodes, if the pool has any.
    pub fn new(node: &Arc<Node>, connector: Option<Arc<dyn Connector>>) -> Self {
        let local: [(NodeId, Arc<dyn Connection>); 1] = [(node.id(), Arc::new(InProcessConnection(node.clone())))];
        let nodes = match connector {
            Some(connector) => Nodes::with_connector(connector, local),
            None => local.into_iter().collect(),
        };
        Self { nodes, client: OnceCell::new() }
    }

    /// Finishes what a session has left in partitions of this node.
    pub async fn end_session(&self, session: Session, left: Vec<PartitionId>) -> Outcome<()> {
        self.client().await?.recover_in(session, left).await
    }

    /// Removes the stripes of deleted files at all nodes; returns the number of files.
    pub async fn purge(&self, deleted: Vec<PendingDelete>) -> Outcome<u64> {
        let files = deleted.len() as u64;
        if files > 0 {
            let client = self.client().await?;
            for deleted in deleted {
                client.purge(Some(deleted)).await;
            }
        }
        Ok(files)
    }

    /// Does what the node needs other nodes for; returns how many things were done.
    pub async fn do_host_work(&self, node: &Node) -> Outcome<u64> {
        if !node.has_host_work() {
            return Ok(0);
        }
        self.client().await?.do_host_work(node).await
    }

    /// Returns those of the stripes that their file, at whichever node, has not planned and nobody
    /// has reserved.
    pub async fn unplanned(&self, file: FileId, stripes: &StripeRuns) -> Outcome<StripeRuns> {
        self.client().await?.find_unplanned(file, stripes).await
    }

    async fn client(&self) -> Outcome<&Client> {
        self.client.get_or_try_init(|| Client::connect_all(self.nodes.clone(), RetryPolicy::default())).await
    }
}
