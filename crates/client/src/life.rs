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
//! a client that is bound to it: [`Client::bound`]. Once that session has ended, such a client
//! refuses with `SessionEnded` and sends nothing.

use crate::{
    Client,
    client::Inner,
    greet::{Greeted, greet, hello},
    numbers::Numbers,
};
use node::Hear;
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
use wire::{Answer, Failure, Object, Outcome, Recall, Refusal, Session};

/// Most sessions that one call begins. A call gives up on a pool in which each of them ends at
/// once.
pub const SESSIONS_MAX: u32 = 8;

/// A boxed future, for rare cases.
type Rare<'a, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'a>>;

/// A session of a client.
#[derive(Debug)]
pub struct Life {
    pub session: Session,
    /// The process that began it. A forked child must not end it: it is still its parent's.
    process: u32,
    pub numbers: Numbers,
    /// For each node, in the order of their ids, whether it has welcomed the session. The others
    /// did not answer then.
    greeted: Box<[AtomicBool]>,
}

impl Life {
    pub fn new(session: Session, partitions: u32, greeted: Vec<bool>) -> Self {
        let greeted = greeted.into_iter().map(AtomicBool::new).collect();
        Self { session, process: std::process::id(), numbers: Numbers::new(partitions), greeted }
    }

    /// True if the node with this index has welcomed the session.
    pub fn is_greeted(&self, place: usize) -> bool {
        self.greeted.get(place).is_some_and(|greeted| greeted.load(Relaxed))
    }
}

impl Client {
    /// The current session. Refused as `SessionEnded` if this client is bound to another one.
    pub(crate) fn life(&self) -> Outcome<Arc<Life>> {
        let now = self.0.life();
        match &self.2 {
            Some(bound) if !Arc::ptr_eq(bound, &now) => Err(Refusal::SessionEnded),
            _ => Ok(now),
        }
    }

    /// A client that is bound to the current session: it refuses with `SessionEnded` once that has
    /// ended.
    #[must_use]
    pub fn bound(&self) -> Self {
        let life = self.2.clone().unwrap_or_else(|| self.0.life());
        Self(self.0.clone(), self.1, Some(life), self.3.clone())
    }

    /// Runs an attempt in one session, by a client that is bound to it. If that session ended
    /// before the attempt was done, runs it again in the next.
    pub async fn in_one_session<T, F>(&self, attempt: impl Fn(Self) -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..SESSIONS_MAX {
            let life = self.life()?;
            match attempt(Self(self.0.clone(), self.1, Some(life.clone()), self.3.clone())).await {
                Err(Refusal::SessionEnded) => self.next_life(&life).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::SessionEnded)
    }

    /// Replaces a session that has ended with the next one. Refused if this client is bound to it.
    /// Boxed, because it is rare and part of every call.
    pub(crate) fn next_life<'a>(&'a self, ended: &'a Arc<Life>) -> Rare<'a, ()> {
        Box::pin(async move {
            if self.2.is_some() {
                return Err(Refusal::SessionEnded);
            }
            self.0.begin_again(ended).await?;
            self.leave_earlier().await;
            Ok(())
        })
    }

    /// Sends the hello of this session to a node that did not answer when the session began. False
    /// if the node had it already.
    pub(crate) fn greet_late<'a>(&'a self, life: &'a Life, node: NodeId) -> Rare<'a, bool> {
        Box::pin(async move {
            let place = self.0.nodes.place(node).filter(|place| !life.is_greeted(*place));
            let (Some(place), Some(connection)) = (place, self.0.nodes.get(node)) else { return Ok(false) };
            let _only = self.0.beginning.lock().await;
            if !life.is_greeted(place) {
                hello(connection, life.session, self.0.patience).await?;
                let mut watching = Watching { inner: &self.0, session: life.session, at: Vec::new() };
                watching.add(place).await?;
                watching.at.clear();
                life.greeted[place].store(true, Relaxed);
            }
            Ok(true)
        })
    }

    /// Ends earlier sessions at the nodes whose connections did not break. What fails now is
    /// retried the next time.
    pub(crate) fn leave_earlier(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // The holder of this lock does the work. It may be this very task, if another session
            // ended meanwhile.
            let Ok(_only) = self.0.leaving.try_lock() else { return };
            loop {
                let Some(session) = self.0.earlier.lock().first().copied() else { return };
                if let Err(error) = self.recover(session).await {
                    tracing::debug!(%error, session = session.0, "a session that has ended is not ended everywhere");
                    return;
                }
                self.0.earlier.lock().retain(|earlier| *earlier != session);
            }
        })
    }
}

impl Inner {
    /// The current session.
    pub fn life(&self) -> Arc<Life> {
        self.life.read().clone()
    }

    /// Begins the session after `ended`, unless that has been done.
    async fn begin_again(&self, ended: &Arc<Life>) -> Outcome<()> {
        let _only = self.beginning.lock().await;
        if !Arc::ptr_eq(ended, &self.life()) {
            return Ok(());
        }
        let Greeted { welcome, greeted } = greet(&self.nodes, self.patience).await?;
        if (welcome.seed, welcome.stripe_bytes, welcome.map.partitions()) != self.pool() {
            return Err(Refusal::invalid(Object::Pool, "another pool answers at its addresses now: connect anew"));
        }
        let life = Arc::new(Life::new(welcome.session, self.partitions, greeted));
        let mut watching = Watching { inner: self, session: life.session, at: Vec::new() };
        for place in (0..self.nodes.len()).filter(|place| life.is_greeted(*place)) {
            watching.add(place).await?;
        }
        watching.at.clear();
        self.forget_all()?;
        *self.life.write() = life.clone();
        self.parts.forget();
        self.follow(welcome.map);
        self.nodes.iter().for_each(|(_, node)| node.unwatch(ended.session));
        if self.nodes.only().is_none() && ended.session != life.session && ended.process == life.process {
            // A node whose connection broke ends the session by itself; the others do not know.
            self.earlier.lock().push(ended.session);
        }
        tracing::warn!(
            ended = ended.session.0,
            begun = life.session.0,
            "a connection broke: what was open or locked is lost, and a new session has begun"
        );
        Ok(())
    }

    /// Makes the frontend drop all that it caches. On a thread of its own, because the frontend may
    /// wait for the request that runs this.
    fn forget_all(&self) -> Outcome<()> {
        let Some(hear) = self.hear() else { return Ok(()) };
        let thread = thread::Builder::new().name("tidemill-forget".into());
        let started = thread.spawn(move || hear(&[Recall::All])).map(drop);
        started.map_err(|error| Refusal::Io {
            object: Object::Pool,
            why: format!("no thread to make a mount forget: {error}").into(),
        })
    }

    pub fn hear(&self) -> Option<Hear> {
        self.hear.lock().clone()
    }
}

/// Subscriptions of a session at some nodes. Dropping this unsubscribes there, unless `at` was
/// cleared.
pub struct Watching<'a> {
    pub inner: &'a Inner,
    pub session: Session,
    /// Indexes of the nodes.
    pub at: Vec<usize>,
}

impl Watching<'_> {
    /// Subscribes at one more node, if this client has a callback.
    pub async fn add(&mut self, place: usize) -> Outcome<()> {
        let (Some(hear), Some((_, node))) = (self.inner.hear(), self.inner.nodes.iter().nth(place)) else {
            return Ok(());
        };
        match node.watch(self.session, &hear).await {
            Ok(Answer::Done) => {}
            Ok(other) => return Err(crate::client::unexpected(&other)),
            Err(Failure::Refused(refusal)) => return Err(refusal),
            Err(failure) => {
                let (object, why) = (Object::Pool, failure.to_string().into());
                return Err(Refusal::Unavailable { object, tries: 1, why });
            }
        }
        self.at.push(place);
        if self.inner.prunes.load(Relaxed) {
            node.prunes(self.session);
        }
        Ok(())
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        for (_, node) in
            self.inner.nodes.iter().enumerate().filter(|(at, _)| self.at.contains(at)).map(|(_, node)| node)
        {
            node.unwatch(self.session);
        }
    }
}
