//! Sessions: the life of one, and the change to the next.
//!
//! A session ends when a connection that carries it breaks. Then everything that it held is lost,
//! at all nodes. Later requests are sent in a new session:
//!
//! ```text
//!   a node answers `Ended' --> it had no hello of the session yet? hello, then resend
//!                          \-> hello to all, subscribe, drop caches, resend in the new session;
//!                               a change that may have been done before: `OutcomeUnknown`
//! ```
//!
//! Requests for things that belong to one session (an open file, its locks, an intent) are sent by
//! a client that is bound to it: [`Client::bind_to_session`]. Once that session has ended, such a
//! client refuses with `SessionEnded` and sends nothing.

use crate::{
    Client,
    client::{CallOptions, Inner},
    handshake::{HandshakeResult, handshake, send_hello},
    sequence::Sequences,
};
use node::OnInvalidate;
use placement::NodeId;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use wire::{Failure, Object, Outcome, Recall, Refusal, Session};

/// Most sessions that one call begins. A call gives up on a pool in which each of them ends at
/// once.
pub const SESSIONS_MAX: u32 = 8;

/// A boxed future, for rare cases.
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'a>>;

/// A session of a client.
#[derive(Debug)]
pub struct SessionState {
    pub id: Session,
    /// The process that began it. A forked child must not end it: it is still its parent's.
    process: u32,
    pub sequences: Sequences,
    /// For each node, in the order of their ids, whether it has welcomed the session. The others
    /// did not answer then.
    reached: Box<[AtomicBool]>,
}

impl SessionState {
    pub fn new(session: Session, partitions: u32, reached: Vec<bool>) -> Self {
        let reached = reached.into_iter().map(AtomicBool::new).collect();
        Self { id: session, process: std::process::id(), sequences: Sequences::new(partitions), reached }
    }

    /// True if the node with this index has welcomed the session.
    pub fn is_reached(&self, index: usize) -> bool {
        self.reached.get(index).is_some_and(|reached| reached.load(Relaxed))
    }
}

impl Client {
    /// The current session. Refused as `SessionEnded` if this client is bound to another one.
    pub(crate) fn session_state(&self) -> Outcome<Arc<SessionState>> {
        let now = self.inner.session_state();
        match &self.options.session {
            Some(bound) if !Arc::ptr_eq(bound, &now) => Err(Refusal::SessionEnded),
            _ => Ok(now),
        }
    }

    /// A client that is bound to the current session: it refuses with `SessionEnded` once that has
    /// ended.
    #[must_use]
    pub fn bind_to_session(&self) -> Self {
        let state = self.options.session.clone().unwrap_or_else(|| self.inner.session_state());
        self.in_session(state)
    }

    fn in_session(&self, state: Arc<SessionState>) -> Self {
        self.with_options(CallOptions { session: Some(state), ..self.options.clone() })
    }

    /// Runs an attempt in one session, by a client that is bound to it. If that session ended
    /// before the attempt was done, runs it again in the next.
    pub async fn run_in_session<T, F>(&self, attempt: impl Fn(Self) -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state()?;
            match attempt(self.in_session(state.clone())).await {
                Err(Refusal::SessionEnded) => self.renew_session(&state).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::SessionEnded)
    }

    /// Replaces a session that has ended with the next one. Refused if this client is bound to it.
    /// Boxed, because it is rare and part of every call.
    pub(crate) fn renew_session<'a>(&'a self, ended: &'a Arc<SessionState>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.options.session.is_some() {
                return Err(Refusal::SessionEnded);
            }
            self.inner.begin_next_session(ended).await?;
            self.end_earlier_sessions().await;
            Ok(())
        })
    }

    /// Sends the hello of this session to a node that did not answer when the session began. False
    /// if the node had it already.
    pub(crate) fn handshake_late<'a>(&'a self, state: &'a SessionState, node: NodeId) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let index = self.inner.nodes.index(node).filter(|index| !state.is_reached(*index));
            let (Some(index), Some(connection)) = (index, self.inner.nodes.get(node)) else { return Ok(false) };
            let _guard = self.inner.session_lock.lock().await;
            if !state.is_reached(index) {
                send_hello(connection, state.id, self.inner.retry_policy).await?;
                let mut subscriptions =
                    SubscriptionGuard { inner: &self.inner, session: state.id, indexes: Vec::new() };
                subscriptions.add(index).await?;
                subscriptions.indexes.clear();
                state.reached[index].store(true, Relaxed);
            }
            Ok(true)
        })
    }

    /// Ends earlier sessions at the nodes whose connections did not break. What fails now is
    /// retried the next time.
    pub(crate) fn end_earlier_sessions(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // The holder of this lock does the work. It may be this very task, if another session
            // ended meanwhile.
            let Ok(_guard) = self.inner.cleanup_lock.try_lock() else { return };
            loop {
                let Some(session) = self.inner.earlier_sessions.lock().first().copied() else { return };
                if let Err(error) = self.recover(session).await {
                    tracing::debug!(%error, session = session.0, "a session has ended, but not at every node yet");
                    return;
                }
                self.inner.earlier_sessions.lock().retain(|earlier| *earlier != session);
            }
        })
    }
}

impl Inner {
    /// The current session.
    pub fn session_state(&self) -> Arc<SessionState> {
        self.session_state.read().clone()
    }

    /// Begins the session after `ended`, unless that has been done.
    async fn begin_next_session(&self, ended: &Arc<SessionState>) -> Outcome<()> {
        let _guard = self.session_lock.lock().await;
        if !Arc::ptr_eq(ended, &self.session_state()) {
            return Ok(());
        }
        let HandshakeResult { reply, reached } = handshake(&self.nodes, self.retry_policy).await?;
        if (reply.seed, reply.stripe_bytes, reply.map.partitions()) != self.pool() {
            return Err(Refusal::invalid(Object::Pool, "another pool answers at its addresses now: connect anew"));
        }
        let state = Arc::new(SessionState::new(reply.session, self.partitions, reached));
        let mut subscriptions = SubscriptionGuard { inner: self, session: state.id, indexes: Vec::new() };
        for index in (0..self.nodes.len()).filter(|index| state.is_reached(*index)) {
            subscriptions.add(index).await?;
        }
        subscriptions.indexes.clear();
        self.invalidate_caches()?;
        *self.session_state.write() = state.clone();
        self.attribute_cache.clear();
        self.learn_map(&reply.map);
        self.nodes.iter().for_each(|(_, node)| node.unsubscribe(ended.id));
        if self.nodes.single().is_none() && ended.id != state.id && ended.process == state.process {
            // A node whose connection broke ends the session by itself; the others do not know.
            self.earlier_sessions.lock().push(ended.id);
        }
        tracing::warn!(
            ended = ended.id.0,
            begun = state.id.0,
            "a connection broke: open files and locks are lost, and a new session has begun"
        );
        Ok(())
    }

    /// Makes the frontend drop all that it caches. On a thread of its own, because the frontend may
    /// wait for the request that runs this.
    fn invalidate_caches(&self) -> Outcome<()> {
        let Some(on_invalidate) = self.on_invalidate() else { return Ok(()) };
        let thread = thread::Builder::new().name("tidemill-forget".into());
        let started = thread.spawn(move || on_invalidate(&[Recall::All])).map(drop);
        started.map_err(|error| Refusal::Io {
            object: Object::Pool,
            why: format!("no thread for cache invalidations: {error}").into(),
        })
    }

    pub fn on_invalidate(&self) -> Option<OnInvalidate> {
        self.on_invalidate.lock().clone()
    }
}

/// Subscriptions of a session at some nodes. Dropping this unsubscribes there, unless `indexes` was
/// cleared.
pub struct SubscriptionGuard<'a> {
    pub inner: &'a Inner,
    pub session: Session,
    /// Indexes of the nodes.
    pub indexes: Vec<usize>,
}

impl SubscriptionGuard<'_> {
    /// Subscribes at one more node, if this client has a callback.
    pub async fn add(&mut self, index: usize) -> Outcome<()> {
        let (Some(on_invalidate), Some((_, node))) = (self.inner.on_invalidate(), self.inner.nodes.iter().nth(index))
        else {
            return Ok(());
        };
        match node.subscribe(self.session, &on_invalidate).await {
            Ok(answer) => answer.done()?,
            Err(Failure::Refused(refusal)) => return Err(refusal),
            Err(failure) => {
                let (object, why) = (Object::Pool, failure.to_string().into());
                return Err(Refusal::Unavailable { object, tries: 1, why });
            }
        }
        self.indexes.push(index);
        if self.inner.supports_prune.load(Relaxed) {
            node.set_supports_prune(self.session);
        }
        Ok(())
    }
}

impl Drop for SubscriptionGuard<'_> {
    fn drop(&mut self) {
        for (_, node) in
            self.inner.nodes.iter().enumerate().filter(|(at, _)| self.indexes.contains(at)).map(|(_, node)| node)
        {
            node.unsubscribe(self.session);
        }
    }
}
