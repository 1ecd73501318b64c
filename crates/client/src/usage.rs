//! How full the pool is: every node asked at once, and what each said last.

use crate::{
    Client, Connection,
    client::{at_once, unexpected},
    retry::{Retry, Step},
};
use node::sleep_until;
use parking_lot::Mutex;
use placement::{NodeId, PartitionId};
use std::{
    future::{Future, poll_fn},
    task::Poll,
};
use wire::{Answer, Body, Failure, Object, Outcome, Request, Usage};

/// What each node said last, in the order of their ids; none of those that never answered.
#[derive(Debug)]
pub struct Usages(Mutex<Box<[Option<Usage>]>>);

impl Usages {
    /// Of so many nodes, none of which has been asked.
    pub fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![None; nodes].into()))
    }

    /// Takes what was answered now; all nodes together, of which those count that ever answered.
    fn with(&self, answered: impl Iterator<Item = Option<Usage>>) -> Usage {
        let mut known = self.0.lock();
        for (known, answered) in known.iter_mut().zip(answered) {
            *known = answered.or(*known);
        }
        known.iter().flatten().fold(Usage::default(), Usage::with)
    }

    fn is_unknown(&self) -> bool {
        self.0.lock().iter().all(Option::is_none)
    }
}

impl Client {
    /// How full the pool is, all its nodes together: as of now where a node answers at once, as those in this process do, else as
    /// it said last; a node that was never asked by [`Self::ask_usage`] or [`Self::usages`] counts for nothing then.
    pub fn usage(&self) -> Usage {
        let asked: Vec<Option<Usage>> = self.0.nodes.iter().map(|(_, node)| self.usage_at_once(node)).collect();
        self.0.usages.with(asked.into_iter())
    }

    /// How full each node is, by ascending ids. All are asked at once; one that does not answer is `Unavailable` after this
    /// client's patience.
    pub async fn usages(&self) -> Vec<(NodeId, Outcome<Usage>)> {
        let asked = self.0.nodes.iter().map(|(id, node)| async move { (id, self.usage_of(node).await) });
        let answered = all(asked).await;
        self.0.usages.with(answered.iter().map(|(_, usage)| usage.as_ref().ok().copied()));
        answered
    }

    /// How full the pool is, all its nodes asked. One that does not answer counts as it did when it answered last; refused as
    /// `Unavailable` when none ever did.
    pub async fn ask_usage(&self) -> Outcome<Usage> {
        let answered = self.usages().await;
        match answered.into_iter().find_map(|(_, usage)| usage.err()) {
            Some(refusal) if self.0.usages.is_unknown() => Err(refusal),
            _ => Ok(self.0.usages.with(std::iter::empty())),
        }
    }

    async fn usage_of(&self, node: &dyn Connection) -> Outcome<Usage> {
        let mut retry = Retry::new(self.0.patience);
        loop {
            let failure = match node.call(self.usage_request()).await {
                Ok(Answer::Usage(usage)) => return Ok(usage),
                Ok(other) => return Err(unexpected(&other)),
                Err(failure) => failure,
            };
            match retry.on(failure, || Object::Pool) {
                Step::Refuse(refusal) => return Err(refusal),
                Step::Follow(map) => self.0.follow(map),
                Step::Again(pause) => sleep_until(node::now() + pause).await,
            }
        }
    }

    fn usage_at_once(&self, node: &dyn Connection) -> Option<Usage> {
        match at_once(node.call(self.usage_request()))? {
            Ok(Answer::Usage(usage)) => Some(usage),
            Err(Failure::StaleMap(map)) => {
                self.0.follow(map);
                None
            }
            _ => None,
        }
    }

    fn usage_request(&self) -> Request {
        let (epoch, session, partition) = (self.0.epoch(), self.session(), PartitionId(0));
        Request { epoch, session, hurried: false, partition, body: Body::Usage }
    }
}

/// What comes of all futures, in their order; none waits for another.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, done) in waiting.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if waiting.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}
