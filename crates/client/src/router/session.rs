//! Sessions: the life of one, and the change to the next.
//!
//! A node ends a session when the connection that carried it breaks. Then everything that the
//! session held at that node is lost. What it held at other nodes stays, and requests about that go
//! on in it; all else is sent in the next session, which the client derives from the one that
//! ended:
//!
//! ```text
//!   a node answers `Ended' --> the next session: hello to each node when it is needed, resend;
//!                              a change that may have been done before: `OutcomeUnknown`
//! ```
//!
//! Requests for things that belong to one session (an open file, its locks, an intent) are sent by
//! a client that is bound to it: [`Client::bind_to_session`](crate::Client::bind_to_session). Where
//! that session has ended, such a client refuses with `SessionEnded`.

use crate::router::{Router, handshake::handshake, nodes::NodeLink, sequence::Sequences};
use node::OnInvalidate;
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::BTreeMap,
    process,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use wire::{Object, Outcome, Refusal, Session};

/// A session of a client.
#[derive(Debug)]
pub struct SessionState {
    pub id: Session,
    /// The process that began it. A forked child must not end it: it is still its parent's.
    pub process: u32,
    pub sequences: Sequences,
    greeted: Mutex<BTreeMap<NodeId, Greeting>>,
}

/// The state of a session at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    Hello,
    Subscribed,
}

impl SessionState {
    pub fn new(session: Session, partitions: u32) -> Self {
        let (process, sequences) = (process::id(), Sequences::new(partitions));
        Self { id: session, process, sequences, greeted: Mutex::default() }
    }

    /// True if the session has said hello to a node.
    #[inline]
    pub fn has_greeted(&self, link: &NodeLink) -> bool {
        link.greeted.load(Relaxed) == self.id.0 || self.was_greeted(link)
    }

    #[cold]
    fn was_greeted(&self, link: &NodeLink) -> bool {
        let was = self.greeted.lock().contains_key(&link.node);
        if was {
            link.greeted.store(self.id.0, Relaxed);
        }
        was
    }

    /// Records the state of this session at a node.
    pub fn record(&self, link: &NodeLink, greeting: Greeting) {
        self.greeted.lock().insert(link.node, greeting);
        link.greeted.store(self.id.0, Relaxed);
    }

    /// The state of this session at a node; `None` if the node was never needed.
    pub fn greeting(&self, node: NodeId) -> Option<Greeting> {
        self.greeted.lock().get(&node).copied()
    }

    /// The nodes that know of the session, by ascending ids.
    pub fn greeted(&self) -> Vec<NodeId> {
        self.greeted.lock().keys().copied().collect()
    }
}

impl Router {
    /// The current session.
    pub fn session_state(&self) -> Arc<SessionState> {
        self.session.read().clone()
    }

    /// The earlier sessions that this process has begun, and not its parent.
    pub fn earlier_sessions(&self) -> Vec<Arc<SessionState>> {
        let mut earlier = self.earlier_sessions.lock().clone();
        earlier.retain(|state| state.process == process::id());
        earlier
    }

    /// Forgets the earlier sessions, which have ended at all nodes.
    pub fn forget_earlier_sessions(&self) {
        self.earlier_sessions.lock().clear();
    }

    /// Begins the session after `ended`, unless that has been done.
    pub async fn begin_next_session(&self, ended: &Arc<SessionState>) -> Outcome<()> {
        let _guard = self.session_lock.lock().await;
        if !Arc::ptr_eq(ended, &self.session_state()) {
            return Ok(());
        }
        let is_own = ended.process == process::id();
        let next = match ended.id.renewed().filter(|_| is_own) {
            Some(next) => SessionState::new(next, self.partitions),
            None => self.begin_anew(ended).await?,
        };
        tracing::warn!(
            ended = ended.id.0,
            begun = next.id.0,
            "a connection broke: files and locks that were open at its node are lost, and a new session has begun"
        );
        if is_own {
            self.earlier_sessions.lock().push(ended.clone());
        }
        *self.session.write() = Arc::new(next);
        Ok(())
    }

    /// Begins a session that has nothing to do with the one before: that is the parent's of this
    /// process, or has no renewal left.
    async fn begin_anew(&self, before: &SessionState) -> Outcome<SessionState> {
        let (reply, node) = handshake(&self.nodes, self.retry_policy).await?;
        self.check_pool(&reply)?;
        self.learn_map(&reply.map);
        self.nodes.links().iter().for_each(|link| link.connection.unsubscribe(before.id));
        let next = SessionState::new(reply.session, self.partitions);
        if let Some(link) = self.nodes.link(node) {
            next.record(link, self.subscribe_at(&next, link).await?);
        }
        Ok(next)
    }

    /// Sets the cache-invalidation callback, and subscribes at all nodes that know the session.
    /// Refused if one of them refuses; then this client is subscribed nowhere.
    pub async fn subscribe(&self, state: &SessionState, on_invalidate: OnInvalidate) -> Outcome<()> {
        let _guard = self.session_lock.lock().await;
        {
            let mut current = self.on_invalidate.lock();
            if current.is_some() {
                return Err(Refusal::invalid(Object::Pool, "this session is subscribed already"));
            }
            *current = Some(on_invalidate);
        }
        let subscribed = self.subscribe_everywhere(state).await;
        if subscribed.is_err() {
            self.unsubscribe(state.id);
        }
        subscribed
    }

    async fn subscribe_everywhere(&self, state: &SessionState) -> Outcome<()> {
        for link in self.nodes.links() {
            // A hello that is under way subscribes by itself.
            let _guard = link.hello_lock.lock().await;
            if state.greeting(link.node) == Some(Greeting::Hello) {
                let greeting = self.subscribe_at(state, link).await?;
                state.record(link, greeting);
            }
        }
        Ok(())
    }

    /// Removes the callback, and unsubscribes everywhere.
    pub fn unsubscribe(&self, session: Session) {
        *self.on_invalidate.lock() = None;
        self.nodes.links().iter().for_each(|link| link.connection.unsubscribe(session));
    }

    pub fn on_invalidate(&self) -> Option<OnInvalidate> {
        self.on_invalidate.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool_test::*;
    use placement::FileId;
    use wire::OpenFlags;

    #[tokio::test]
    async fn a_forked_child_ends_no_session_of_its_parent() {
        let pool = Pool::of(1);
        let (parent, child, other) = (pool.client().await, pool.client().await, pool.client().await);
        let (made, _) = parent.create(FileId::ROOT, b"f", 0o600, OWNER, OpenFlags::READ).await.unwrap();
        let router = child.router();
        let mut inherited = SessionState::new(parent.session(), router.partitions);
        inherited.process += 1;
        inherited.record(router.nodes.links()[0], Greeting::Hello);
        router.earlier_sessions.lock().push(Arc::new(inherited));
        assert!(child.own_session(parent.session()).is_none());
        child.close().await.unwrap();
        assert!((*other).open(made.file, OpenFlags::READ).await.unwrap().shared, "the parent has it open");
    }
}
