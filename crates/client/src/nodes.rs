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

/// Longest time that a call waits for its probe of a node; the next call waits for the same probe
/// again.
const PROBE_WAIT: Duration = Duration::from_millis(100);

/// A connection to each node of a pool. Cheap to clone; clones share the knowledge of which nodes
/// answer.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<All>);

#[derive(Debug)]
struct All {
    /// By ascending ids.
    ways: Box<[Way]>,
    /// Number of nodes that do not answer, readable without a lock.
    silent: AtomicUsize,
}

/// The connection to a node, and its state.
#[derive(Debug)]
struct Way {
    node: NodeId,
    connection: Arc<dyn Connection>,
    outage: Mutex<Outage>,
    /// A probe in flight that nobody waits for now.
    probe: Mutex<Option<Reply>>,
}

impl Nodes {
    /// The nodes of a pool that has one.
    pub(crate) fn one(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        [(node, connection)].into_iter().collect()
    }

    /// The connection to a node, if there is one.
    pub(crate) fn get(&self, node: NodeId) -> Option<&dyn Connection> {
        self.way(node).map(|way| &*way.connection)
    }

    fn way(&self, node: NodeId) -> Option<&Way> {
        Some(&self.0.ways[self.place(node)?])
    }

    /// The index of a node.
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.0.ways.binary_search_by_key(&node, |way| way.node).ok()
    }

    /// The only node and its connection, in a pool of one node.
    pub(crate) fn only(&self) -> Option<(NodeId, &dyn Connection)> {
        match &*self.0.ways {
            [way] => Some((way.node, &*way.connection)),
            _ => None,
        }
    }

    /// The first node in this process; if there is none, the first on this host.
    pub(crate) fn own(&self) -> Option<NodeId> {
        let first = |is: fn(&dyn Connection) -> bool| self.iter().find(|(_, way)| is(*way)).map(|(node, _)| node);
        first(|way| way.is_inside()).or_else(|| first(|way| way.is_here()))
    }

    /// All nodes, by ascending ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &dyn Connection)> {
        self.0.ways.iter().map(|way| (way.node, &*way.connection))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.ways.len()
    }

    /// True if some node does not answer. Otherwise [`Self::pass`] need not be called.
    pub(crate) fn is_any_silent(&self) -> bool {
        self.0.silent.load(Relaxed) > 0
    }

    /// True if no node answers.
    pub(crate) fn are_all_silent(&self) -> bool {
        self.0.silent.load(Relaxed) == self.len()
    }

    /// Decides whether a call to a node may be sent; refused as `Unavailable` at once if the node
    /// is known not to answer. If a probe is due, this call sends it, and waits for a moment.
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

    /// True if the node answers a probe within a moment.
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

    /// Records that a node did not answer a call after all its tries.
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
    /// Of two connections to one node the later counts.
    fn from_iter<I: IntoIterator<Item = (NodeId, Arc<dyn Connection>)>>(ways: I) -> Self {
        let ways: BTreeMap<NodeId, Arc<dyn Connection>> = ways.into_iter().collect();
        let way = |(node, connection)| Way { node, connection, outage: Mutex::default(), probe: Mutex::default() };
        Self(Arc::new(All { ways: ways.into_iter().map(way).collect(), silent: AtomicUsize::new(0) }))
    }
}
