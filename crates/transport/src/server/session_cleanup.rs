//! Cleanup after clients that have gone.

use client::{Client, Connection, InProcessConnection, Nodes, RetryPolicy};
use node::Node;
use placement::{FileId, NodeId};
use std::sync::Arc;
use tokio::sync::OnceCell;
use wire::{Outcome, PendingDelete, Session, StripeRuns};

/// Finishes what a client has left at a node when its session has ended there. A file deleted with
/// it may have stripes at other nodes, and a transaction may have parts there, so the cleanup has
/// connections to all nodes.
#[derive(Debug)]
pub struct SessionCleanup {
    node: NodeId,
    nodes: Nodes,
    /// Connects at the first cleanup.
    client: OnceCell<Client>,
}

impl SessionCleanup {
    /// Creates the cleanup of a node, with connections to the other nodes of its pool.
    pub fn new(node: &Arc<Node>, others: &[(NodeId, Arc<dyn Connection>)]) -> Self {
        let local: Arc<dyn Connection> = Arc::new(InProcessConnection(node.clone()));
        let nodes = others.iter().cloned().chain([(node.id(), local)]).collect();
        Self { node: node.id(), nodes, client: OnceCell::new() }
    }

    /// Finishes what a session has left at this node.
    pub async fn end_session(&self, session: Session) -> Outcome<()> {
        self.client().await?.recover_at(self.node, session).await
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

    /// Returns those of the stripes that their file, at whichever node, has not planned and nobody
    /// has reserved.
    pub async fn unplanned(&self, file: FileId, stripes: &StripeRuns) -> Outcome<StripeRuns> {
        self.client().await?.find_unplanned(file, stripes).await
    }

    async fn client(&self) -> Outcome<&Client> {
        self.client.get_or_try_init(|| Client::connect_all(self.nodes.clone(), RetryPolicy::default())).await
    }
}
