//! Sessions that keep what they are answered.

use crate::{Client, client::unexpected};
use node::Hear;
use placement::FileId;
use std::sync::Arc;
use wire::{Answer, Command, Outcome, Recall};

impl Client {
    /// Another session over the same connections.
    pub async fn another(&self) -> Outcome<Self> {
        Self::connect_all(self.0.nodes.clone(), self.0.patience).await
    }

    /// From now on this session may keep what it is answered, until `hear` is told to forget it.
    pub fn watch(&self, hear: &Hear) -> Outcome<()> {
        let (inner, hear) = (Arc::downgrade(&self.0), hear.clone());
        let hear: Hear = Arc::new(move |recalls: &[Recall]| {
            if let Some(inner) = inner.upgrade() {
                inner.parts.recalled(recalls);
            }
            hear(recalls);
        });
        let (session, nodes) = (self.0.session, &self.0.nodes);
        for (at, (_, node)) in nodes.iter().enumerate() {
            if let Err(refusal) = node.watch(session, &hear) {
                nodes.iter().take(at).for_each(|(_, watched)| watched.unwatch(session));
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// From now on what others remove is kept for this session too while its kernel knows it; `hear` is told of it.
    pub fn prunes(&self) {
        self.0.nodes.iter().for_each(|(_, node)| node.prunes(self.0.session));
    }

    /// The session's kernel knows the inode no more.
    pub async fn forgotten(&self, file: FileId) -> Outcome<()> {
        match self.ask(file.partition(), Command::Forgotten { file }).await? {
            Answer::Removed { gone, .. } => {
                self.purge(gone).await;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Ends this session, and with it what it holds and what it was granted.
    pub async fn end(&self) -> Outcome<()> {
        let closed = self.close().await;
        self.0.nodes.iter().for_each(|(_, node)| node.unwatch(self.0.session));
        closed
    }
}
