//! The nodes of a pool: a connection to each, and which of them do not answer.

use crate::{
    Connection,
    outage::{Outage, Verdict},
};
use futures_util::future::{Either, select};
use node::{Reply, sleep_until};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use wire::{Failure, Object, Outcome, Refusal, Request};

/// A call waits so long for its probe of a node; the next one waits for the same probe again.
const PROBE_WAIT: Duration = Duration::from_millis(100);

/// A connection to each node of a pool. Cheap to clone; clones know the same of which nodes answer.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<All>);

#[derive(Debug)]
struct All {
    /// By ascending ids.
    ways: Box<[Way]>,
    /// How many nodes do not answer, for a look without a lock.
    silent: AtomicUsize,
}

/// The way to a node.
#[derive(Debug)]
struct Way {
    node: NodeId,
    connection: Arc<dyn Connection>,
    outage: Mutex<Outage>,
    /// A probe that is under way, and that nobody waits for now.
    probe: Mutex<Option<Reply>>,
}

impl Nodes {
    /// Of one.
    pub(crate) fn one(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        [(node, connection)].into_iter().collect()
    }

    /// The way to a node, if there is one.
    pub(crate) fn get(&self, node: NodeId) -> Option<&dyn Connection> {
        self.way(node).map(|way| &*way.connection)
    }

    fn way(&self, node: NodeId) -> Option<&Way> {
        Some(&self.0.ways[self.place(node)?])
    }

    /// Its place among all.
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.0.ways.binary_search_by_key(&node, |way| way.node).ok()
    }

    /// The way to the only one, in a pool of one node.
    pub(crate) fn only(&self) -> Option<(NodeId, &dyn Connection)> {
        match &*self.0.ways {
            [way] => Some((way.node, &*way.connection)),
            _ => None,
        }
    }

    /// The first that is in this process, else the first on this host.
    pub(crate) fn own(&self) -> Option<NodeId> {
        let first = |is: fn(&dyn Connection) -> bool| self.iter().find(|(_, way)| is(*way)).map(|(node, _)| node);
        first(|way| way.is_inside()).or_else(|| first(|way| way.is_here()))
    }

    /// All, by ascending ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &dyn Connection)> {
        self.0.ways.iter().map(|way| (way.node, &*way.connection))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.ways.len()
    }

    /// Whether some node does not answer; else [`Self::pass`] need not be asked.
    pub(crate) fn is_any_silent(&self) -> bool {
        self.0.silent.load(Relaxed) > 0
    }

    /// Whether no node answers.
    pub(crate) fn are_all_silent(&self) -> bool {
        self.0.silent.load(Relaxed) == self.len()
    }

    /// Lets a call to a node be sent; refused as `Unavailable` at once when that is known not to answer. A call for which a probe is due sends
    /// it, and waits for a moment.
    pub(crate) async fn pass(
        &self,
        node: NodeId,
        probe: impl FnOnce() -> Request,
        object: impl FnOnce() -> Object,
    ) -> Outcome<()> {
        let Some(way) = self.way(node).filter(|_| self.is_any_silent()) else { return Ok(()) };
        let verdict = way.outage.lock().on_call(node::now());
        match verdict {
            Verdict::Send => return Ok(()),
            Verdict::Probe if self.probe(way, probe).await => return Ok(()),
            Verdict::Probe | Verdict::Refuse => {}
        }
        let outage = way.outage.lock();
        let Some(silence) = outage.silence() else { return Ok(()) };
        let why = format!("node {node}: {}", silence.told(node::now()));
        Err(Refusal::Unavailable { object: object(), tries: silence.tries, why: why.into() })
    }

    /// Whether the node answers a probe, within a moment.
    async fn probe(&self, way: &Way, request: impl FnOnce() -> Request) -> bool {
        let under_way = way.probe.lock().take();
        let reply = under_way.unwrap_or_else(|| way.connection.call(request()));
        let moment = pin!(sleep_until(node::now() + PROBE_WAIT));
        match select(reply, moment).await {
            Either::Left((Err(failure @ (Failure::Unreachable(_) | Failure::Lost(_))), _)) => {
                self.silent(way.node, 1, &failure.to_string());
                false
            }
            Either::Left(_) => {
                self.answers(way);
                true
            }
            Either::Right(((), reply)) => {
                *way.probe.lock() = Some(reply);
                false
            }
        }
    }

    /// A node did not answer a call, however often that was sent.
    pub(crate) fn silent(&self, node: NodeId, tries: u32, why: &str) {
        let Some(way) = self.way(node) else { return };
        if way.outage.lock().on_silence(node::now(), tries, why.to_owned()) {
            self.0.silent.fetch_add(1, Relaxed);
            tracing::warn!("node {node} does not answer, and what it holds is not there: {why}");
        }
    }

    fn answers(&self, way: &Way) {
        let silent = way.outage.lock().on_answer(node::now());
        if let Some(silent) = silent {
            self.0.silent.fetch_sub(1, Relaxed);
            tracing::warn!("node {} answers again, after {:.1} s", way.node, silent.as_secs_f64());
        }
    }
}

impl FromIterator<(NodeId, Arc<dyn Connection>)> for Nodes {
    /// Of two ways to one node the later counts.
    fn from_iter<I: IntoIterator<Item = (NodeId, Arc<dyn Connection>)>>(ways: I) -> Self {
        let ways: BTreeMap<NodeId, Arc<dyn Connection>> = ways.into_iter().collect();
        let way = |(node, connection)| Way { node, connection, outage: Mutex::default(), probe: Mutex::default() };
        Self(Arc::new(All { ways: ways.into_iter().map(way).collect(), silent: AtomicUsize::new(0) }))
    }
}
