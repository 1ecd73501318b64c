//! Subscribing: sessions that cache what they are answered.

use crate::{Client, client::Inner};
use node::OnInvalidate;
use placement::FileId;
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::runtime::Builder;
use wire::{Command, Outcome, Recall};

impl Client {
    /// Starts another session over the same connections.
    pub async fn new_session(&self) -> Outcome<Self> {
        let router = self.router();
        Self::connect_all(router.nodes.clone(), router.retry_policy).await
    }

    /// Subscribes this session: it may cache what it is answered from now on, until `on_invalidate`
    /// is called to invalidate it.
    ///
    /// After a connection has broken, `on_invalidate` is called with [`Recall::All`], and this
    /// client subscribes again by itself.
    pub async fn subscribe(&self, on_invalidate: &OnInvalidate) -> Outcome<()> {
        let (inner, on_invalidate) = (Arc::downgrade(&self.inner), on_invalidate.clone());
        let on_invalidate: OnInvalidate = Arc::new(move |recalls: &[Recall]| {
            if let Some(inner) = inner.upgrade() {
                inner.attribute_cache.invalidate(recalls);
                for recall in recalls {
                    inner.introduce(*recall);
                }
            }
            on_invalidate(recalls);
        });
        self.run_in_session(|client| {
            let on_invalidate = on_invalidate.clone();
            async move { client.router().subscribe(&client.session_state(), on_invalidate).await }
        })
        .await
    }

    /// Records that this session's kernel supports prune notices. From now on an inode that others
    /// remove is kept while that kernel knows it, and `on_invalidate` is notified of the removal.
    pub fn set_supports_prune(&self) {
        let (router, session) = (self.router(), self.session());
        router.supports_prune.store(true, Relaxed);
        router.nodes.links().iter().for_each(|link| link.connection.set_supports_prune(session));
    }

    /// Reports that the session's kernel has forgotten the inode.
    pub async fn report_forgotten(&self, file: FileId) -> Outcome<()> {
        let deleted = self.query(file.partition(), Command::forget_inode(file)).await?;
        self.purge(deleted).await;
        Ok(())
    }

    /// Ends this session, with all that it holds and all that it was granted.
    pub async fn end(&self) -> Outcome<()> {
        let closed = self.close().await;
        self.router().unsubscribe(self.session());
        closed
    }
}

impl Inner {
    /// Says hello to a node that a partition moves to, on the thread that delivers invalidations.
    /// If that fails, the node that asked finds out.
    fn introduce(&self, recall: Recall) {
        let Recall::Greet(node) = recall else { return };
        let Ok(runtime) = Builder::new_current_thread().build() else { return };
        if let Err(refusal) = runtime.block_on(self.router.introduce(node)) {
            tracing::debug!(%refusal, node = node.0, "no hello to a node that a partition moves to");
        }
    }
}
