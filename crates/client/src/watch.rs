//! Subscribing: sessions that cache what they are answered.

use crate::{Client, client::unexpected, life::Watching};
use node::Hear;
use placement::FileId;
use std::sync::{Arc, atomic::Ordering::Relaxed};
use wire::{Answer, Command, Outcome, Recall};

impl Client {
    /// Starts another session over the same connections.
    pub async fn another(&self) -> Outcome<Self> {
        Self::connect_all(self.0.nodes.clone(), self.0.patience).await
    }

    /// Subscribes this session: it may cache what it is answered from now on, until `hear` is
    /// called to invalidate it.
    ///
    /// After a connection has broken, `hear` is called with [`Recall::All`], and this client
    /// subscribes again by itself.
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

    /// Records that this session's kernel supports prune notices. From now on an inode that others
    /// remove is kept while that kernel knows it, and `hear` is notified of the removal.
    pub fn prunes(&self) {
        self.0.prunes.store(true, Relaxed);
        let session = self.session();
        self.0.nodes.iter().for_each(|(_, node)| node.prunes(session));
    }

    /// Reports that the session's kernel has forgotten the inode.
    pub async fn forgotten(&self, file: FileId) -> Outcome<()> {
        match self.ask(file.partition(), Command::ForgetInode { file }).await? {
            Answer::Removed { deleted, .. } => {
                self.purge(deleted).await;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Ends this session, with all that it holds and all that it was granted.
    pub async fn end(&self) -> Outcome<()> {
        let closed = self.close().await;
        let session = self.session();
        *self.0.hear.lock() = None;
        self.0.nodes.iter().for_each(|(_, node)| node.unwatch(session));
        closed
    }
}
