//! The nodes of a pool: a connection to each, and which of them do not answer.

use crate::{
    Connection,
    circuit_breaker::{BreakerDecision, CircuitBreaker},
};
use futures_util::future::{Either, select};
use node::{ReplyFuture, sleep_until};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
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
pub struct Nodes(Arc<NodesInner>);

#[derive(Debug)]
struct NodesInner {
    /// By ascending ids.
    links: Box<[NodeLink]>,
    /// Number of nodes that do not answer, readable without a lock.
    unavailable: AtomicUsize,
    /// The number of times that a node has ceased to answer.
    outages: AtomicU64,
}

/// The connection to a node, and its state.
#[derive(Debug)]
struct NodeLink {
    node: NodeId,
    connection: Arc<dyn Connection>,
    breaker: Mutex<CircuitBreaker>,
    /// A probe in flight that nobody waits for now.
    probe: Mutex<Option<ReplyFuture>>,
}

impl Nodes {
    /// The nodes of a pool that has one.
    pub(crate) fn one(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        [(node, connection)].into_iter().collect()
    }

    /// The connection to a node, if there is one.
    pub(crate) fn get(&self, node: NodeId) -> Option<&dyn Connection> {
        self.link(node).map(|link| &*link.connection)
    }

    fn link(&self, node: NodeId) -> Option<&NodeLink> {
        Some(&self.0.links[self.index(node)?])
    }

    /// The index of a node.
    pub(crate) fn index(&self, node: NodeId) -> Option<usize> {
        self.0.links.binary_search_by_key(&node, |link| link.node).ok()
    }

    /// The only node and its connection, in a pool of one node.
    pub(crate) fn single(&self) -> Option<(NodeId, &dyn Connection)> {
        match &*self.0.links {
            [link] => Some((link.node, &*link.connection)),
            _ => None,
        }
    }

    /// The first node in this process; if there is none, the first on this host.
    pub(crate) fn local_node(&self) -> Option<NodeId> {
        let first = |is: fn(&dyn Connection) -> bool| self.iter().find(|(_, link)| is(*link)).map(|(node, _)| node);
        first(|link| link.is_in_process()).or_else(|| first(|link| link.is_on_local_host()))
    }

    /// All nodes, by ascending ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &dyn Connection)> {
        self.0.links.iter().map(|link| (link.node, &*link.connection))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.links.len()
    }

    /// True if some node does not answer. Otherwise [`Self::admit`] need not be called.
    pub(crate) fn is_any_unavailable(&self) -> bool {
        self.0.unavailable.load(Relaxed) > 0
    }

    /// The number of times so far that a node has ceased to answer.
    pub(crate) fn outages(&self) -> u64 {
        self.0.outages.load(Relaxed)
    }

    /// True if no node answers.
    pub(crate) fn are_all_unavailable(&self) -> bool {
        self.0.unavailable.load(Relaxed) == self.len()
    }

    /// Decides whether a call to a node may be sent; refused as `Unavailable` at once if the node
    /// is known not to answer. If a probe is due, this call sends it, and waits for a moment.
    pub(crate) async fn admit(
        &self,
        node: NodeId,
        probe: impl FnOnce() -> Request,
        object: impl FnOnce() -> Object,
    ) -> Outcome<()> {
        let Some(link) = self.link(node).filter(|_| self.is_any_unavailable()) else { return Ok(()) };
        let decision = link.breaker.lock().on_call(node::now());
        match decision {
            BreakerDecision::Send => return Ok(()),
            BreakerDecision::Probe if self.probe(link, probe).await => return Ok(()),
            BreakerDecision::Probe | BreakerDecision::Refuse => {}
        }
        let breaker = link.breaker.lock();
        let Some(outage) = breaker.outage() else { return Ok(()) };
        let why = format!("node {node}: {}", outage.describe(node::now()));
        Err(Refusal::Unavailable { object: object(), tries: outage.tries, why: why.into() })
    }

    /// True if the node answers a probe within a moment.
    async fn probe(&self, link: &NodeLink, request: impl FnOnce() -> Request) -> bool {
        let in_flight = link.probe.lock().take();
        let reply = in_flight.unwrap_or_else(|| link.connection.call(request()));
        let moment = pin!(sleep_until(node::now() + PROBE_WAIT));
        match select(reply, moment).await {
            Either::Left((Err(failure @ (Failure::Unreachable(_) | Failure::Lost(_))), _)) => {
                self.record_outage(link.node, 1, &failure.to_string());
                false
            }
            Either::Left(_) => {
                self.record_answer(link);
                true
            }
            Either::Right(((), reply)) => {
                *link.probe.lock() = Some(reply);
                false
            }
        }
    }

    /// Records that a node did not answer a call after all its tries.
    pub(crate) fn record_outage(&self, node: NodeId, tries: u32, why: &str) {
        let Some(link) = self.link(node) else { return };
        if link.breaker.lock().on_failure(node::now(), tries, why.to_owned()) {
            self.0.unavailable.fetch_add(1, Relaxed);
            self.0.outages.fetch_add(1, Relaxed);
            tracing::warn!("node {node} does not answer, so the data that it holds is unavailable: {why}");
        }
    }

    fn record_answer(&self, link: &NodeLink) {
        let silent = link.breaker.lock().on_success(node::now());
        if let Some(silent) = silent {
            self.0.unavailable.fetch_sub(1, Relaxed);
            tracing::warn!("node {} answers again, after {:.1} s", link.node, silent.as_secs_f64());
        }
    }
}

impl FromIterator<(NodeId, Arc<dyn Connection>)> for Nodes {
    /// Of two connections to one node the later counts.
    fn from_iter<I: IntoIterator<Item = (NodeId, Arc<dyn Connection>)>>(links: I) -> Self {
        let links: BTreeMap<NodeId, Arc<dyn Connection>> = links.into_iter().collect();
        let link =
            |(node, connection)| NodeLink { node, connection, breaker: Mutex::default(), probe: Mutex::default() };
        Self(Arc::new(NodesInner {
            links: links.into_iter().map(link).collect(),
            unavailable: AtomicUsize::new(0),
            outages: AtomicU64::new(0),
        }))
    }
}
