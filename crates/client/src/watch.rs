//! Sessions that keep what they are answered.

use crate::{Client, client::unexpected, life::Watching};
use node::Hear;
use placement::FileId;
use std::sync::{Arc, atomic::Ordering::Relaxed};
use wire::{Answer, Command, Outcome, Recall};

impl Client {
    /// Another session over the same connections.
    pub async fn another(&self) -> Outcome<Self> {
        Self::connect_all(self.0.nodes.clone(), self.0.patience).await
    }

    /// From now on this session may keep what it is answered, until `hear` is told to forget it.
    ///
    /// After a connection has broken it is told [`Recall::All`], and this client watches again by itself.
    pub async fn watch(&self, hear: &Hear) -> Outcome<()> {
        let (inner, hear) = (Arc::downgrade(&self.0), hear.clone());
        let hear: Hear = Arc::new(move |recalls: &[Recall]| {
            if let Some(inner) = inner.upgrade() {
                inner.parts.recalled(recalls);
            }
            hear(recalls);
        });
        self.in_one_session(|client| {
            let hear = hear.clone();
            async move { client.watch_bound(hear).await }
        })
        .await
    }

    async fn watch_bound(&self, hear: Hear) -> Outcome<()> {
        let (inner, life) = (&*self.0, self.life()?);
        let _only = inner.beginning.lock().await;
        let before = inner.hear.lock().replace(hear);
        let mut watching = Watching { inner, session: life.session, at: Vec::new() };
        for place in (0..inner.nodes.len()).filter(|place| life.is_greeted(*place)) {
            if let Err(refusal) = watching.add(place).await {
                *inner.hear.lock() = before;
                return Err(refusal);
            }
        }
        watching.at.clear();
        Ok(())
    }

    /// From now on what others remove is kept for this session too while its kernel knows it; `hear` is told of it.
    pub fn prunes(&self) {
        self.0.prunes.store(true, Relaxed);
        let session = self.session();
        self.0.nodes.iter().for_each(|(_, node)| node.prunes(session));
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
        let session = self.session();
        *self.0.hear.lock() = None;
        self.0.nodes.iter().for_each(|(_, node)| node.unwatch(session));
        closed
    }
}
