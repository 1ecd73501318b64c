//! Usage of the pool: all nodes are asked at once, and the last answer of each is kept.

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
    time::{Duration, Instant},
};
use wire::{Answer, Body, Failure, Object, Outcome, Refusal, Request, SpaceUsage};

/// Interval at which nodes are asked again for placement by free memory. In between, the client
/// counts what it has placed itself.
const ASKED_AGAIN: Duration = Duration::from_millis(100);
/// The interval after a node did not answer: with the shorter one, placement would wait for that
/// node most of the time.
const SILENT_AGAIN: Duration = Duration::from_secs(5);

/// The last answer of each node.
#[derive(Debug)]
pub struct Usages {
    /// In the order of the nodes' ids.
    known: Mutex<Box<[Said]>>,
    /// When all nodes are to be asked again, for placement by free memory; `None` before the first
    /// time.
    next: Mutex<Option<Instant>>,
}

/// The last answer of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Its usage; `None` if it never answered.
    usage: Option<SpaceUsage>,
    /// True if it did not answer when it was asked last.
    silent: bool,
    /// Bytes that were placed there by free memory since then, as far as that is known.
    placed: u64,
}

impl Said {
    fn free(&self) -> Option<u64> {
        let usage = self.usage.filter(|_| !self.silent)?;
        Some(usage.capacity.saturating_sub(usage.used).saturating_sub(self.placed))
    }
}

impl Usages {
    /// The state for this many nodes, none of which has been asked.
    pub fn new(nodes: usize) -> Self {
        Self { known: Mutex::new(vec![Said::default(); nodes].into()), next: Mutex::default() }
    }

    /// Stores new answers; returns the sum over all nodes that ever answered.
    fn with(&self, answered: impl Iterator<Item = Option<SpaceUsage>>) -> SpaceUsage {
        let mut known = self.known.lock();
        for (known, answered) in known.iter_mut().zip(answered) {
            if answered.is_some() {
                *known = Said { usage: answered, ..Said::default() };
            }
        }
        known.iter().filter_map(|said| said.usage.as_ref()).fold(SpaceUsage::default(), SpaceUsage::with)
    }

    fn is_unknown(&self) -> bool {
        self.known.lock().iter().all(|said| said.usage.is_none())
    }

    /// The index of the node with the most free memory, which gets `more` bytes; `None` if no
    /// node's is known.
    fn freest(&self, more: u64) -> Option<usize> {
        let mut known = self.known.lock();
        let free = known.iter().enumerate().filter_map(|(at, said)| Some((said.free()?, at)));
        // Of equals the first.
        let (_, chosen) = free.max_by_key(|(free, at)| (*free, std::cmp::Reverse(*at)))?;
        known[chosen].placed += more;
        Some(chosen)
    }

    /// True if all nodes are to be asked now, by this caller.
    fn is_due(&self) -> bool {
        let (now, mut next) = (node::now(), self.next.lock());
        let due = next.is_none_or(|next| next <= now);
        if due {
            *next = Some(now + ASKED_AGAIN);
        }
        due
    }

    /// Notes which nodes did not answer, after all were asked.
    fn note_silent(&self, silent: impl Iterator<Item = bool>) {
        let mut any = false;
        for (said, silent) in self.known.lock().iter_mut().zip(silent) {
            said.silent = silent;
            any |= silent;
        }
        if any {
            *self.next.lock() = Some(node::now() + SILENT_AGAIN);
        }
    }
}

impl Client {
    /// How full the pool is, over all its nodes. Nodes that answer at once, as those in this
    /// process do, are asked now; for others their last answer counts. A node without an answer to
    /// [`Self::ask_usage`] or [`Self::usages`] so far counts as nothing.
    pub fn usage(&self) -> SpaceUsage {
        let asked: Vec<Option<SpaceUsage>> = self.0.nodes.iter().map(|(_, node)| self.usage_at_once(node)).collect();
        self.0.usages.with(asked.into_iter())
    }

    /// How full each node is, by ascending ids. All are asked at once. A node that does not answer
    /// is `Unavailable` after this client's tries.
    pub async fn usages(&self) -> Vec<(NodeId, Outcome<SpaceUsage>)> {
        let asked = self.0.nodes.iter().map(|(id, node)| async move { (id, self.usage_of(id, node).await) });
        let answered = all(asked).await;
        self.0.usages.with(answered.iter().map(|(_, usage)| usage.as_ref().ok().copied()));
        answered
    }

    /// How full the pool is: asks all its nodes. A node that does not answer counts with its last
    /// answer. Refused as `Unavailable` if none ever answered.
    pub async fn ask_usage(&self) -> Outcome<SpaceUsage> {
        let answered = self.usages().await;
        match answered.into_iter().find_map(|(_, usage)| usage.err()) {
            Some(refusal) if self.0.usages.is_unknown() => Err(refusal),
            _ => Ok(self.0.usages.with(std::iter::empty())),
        }
    }

    /// The total capacity of some nodes, by their last answers; `None` if one of them never
    /// answered.
    pub(crate) fn known_capacity(&self, counts: impl Fn(NodeId) -> bool) -> Option<u64> {
        let known = self.0.usages.known.lock();
        let said = self.0.nodes.iter().zip(known.iter()).filter(|((node, _), _)| counts(*node));
        said.map(|(_, said)| said.usage.map(|usage| usage.capacity)).sum()
    }

    /// The node with the most free memory, as of a moment ago, which is to get `more` bytes; `None`
    /// if no node has answered.
    pub(crate) async fn freest(&self, more: u64) -> Option<NodeId> {
        if self.0.usages.is_due() {
            let answered = self.usages().await;
            self.0.usages.note_silent(answered.iter().map(|(_, usage)| usage.is_err()));
        }
        let chosen = self.0.usages.freest(more)?;
        self.0.nodes.iter().nth(chosen).map(|(node, _)| node)
    }

    async fn usage_of(&self, id: NodeId, node: &dyn Connection) -> Outcome<SpaceUsage> {
        self.0.nodes.pass(id, || self.usage_request(), || Object::Pool).await?;
        let mut retry = Retry::new(self.0.patience);
        loop {
            let failure = match node.call(self.usage_request()).await {
                Ok(Answer::Usage(usage)) => return Ok(usage),
                Ok(other) => return Err(unexpected(&other)),
                Err(failure) => failure,
            };
            match retry.on(failure, || Object::Pool) {
                Step::Refuse(refusal) => {
                    if let Refusal::Unavailable { tries, why, .. } = &refusal {
                        self.0.nodes.silent(id, *tries, why);
                    }
                    return Err(refusal);
                }
                Step::Follow(map) => self.0.follow(map),
                Step::Again(pause) => sleep_until(node::now() + pause).await,
            }
        }
    }

    fn usage_at_once(&self, node: &dyn Connection) -> Option<SpaceUsage> {
        match at_once(node.call(self.usage_request()))? {
            Ok(Answer::Usage(usage)) => Some(usage),
            Err(Failure::StaleMap(map)) => {
                self.0.follow(map);
                None
            }
            _ => None,
        }
    }

    /// True if no node of the pool answers, as far as is known from calls.
    pub fn is_cut_off(&self) -> bool {
        self.0.nodes.are_all_silent()
    }

    pub(crate) fn usage_request(&self) -> Request {
        let (epoch, session, partition) = (self.0.epoch(), self.session(), PartitionId(0));
        Request { epoch, session, skip_ack: false, partition, body: Body::Usage }
    }
}

/// Runs all futures concurrently; returns their results in order.
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
