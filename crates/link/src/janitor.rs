//! Ends what clients leave behind that have gone.

use client::{Client, Connection, InProcess, Nodes, Patience};
use node::Node;
use placement::{FileId, NodeId};
use std::sync::Arc;
use tokio::sync::OnceCell;
use wire::{Gone, Outcome, Session, StripeRuns};

/// Finishes what a client has left at a node when its session has ended there: a file that went with it may have stripes at other
/// nodes, a change that it has begun other parts. So there are ways to all of them.
#[derive(Debug)]
pub struct Janitor {
    node: NodeId,
    nodes: Nodes,
    /// Connects with the first who leaves something.
    client: OnceCell<Client>,
}

impl Janitor {
    /// Of a node; with ways to the other nodes of its pool.
    pub fn new(node: &Arc<Node>, others: &[(NodeId, Arc<dyn Connection>)]) -> Self {
        let here: Arc<dyn Connection> = Arc::new(InProcess(node.clone()));
        let nodes = others.iter().cloned().chain([(node.id(), here)]).collect();
        Self { node: node.id(), nodes, client: OnceCell::new() }
    }

    /// Finishes what a session has left at this node.
    pub async fn end(&self, session: Session) -> Outcome<()> {
        self.client().await?.recover_at(self.node, session).await
    }

    /// Removes the stripes of files that are gone, wherever they are.
    pub async fn purge(&self, gone: Vec<Gone>) -> Outcome<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let client = self.client().await?;
        for gone in gone {
            client.purge(Some(gone)).await;
        }
        Ok(())
    }

    /// Those of these stripes that neither the file has, wherever it is, nor anybody has reserved.
    pub async fn unplanned(&self, file: FileId, stripes: &StripeRuns) -> Outcome<StripeRuns> {
        self.client().await?.unplanned(file, stripes).await
    }

    async fn client(&self) -> Outcome<&Client> {
        self.client.get_or_try_init(|| Client::connect_all(self.nodes.clone(), Patience::default())).await
    }
}
