//! The nodes of a pool: the connection to each, and which of them do not answer.

use crate::{
    Connection, Connector,
    router::circuit_breaker::{BreakerDecision, CircuitBreaker},
};
use futures_util::future::{Either, select};
use node::{ReplyFuture, sleep_until};
use parking_lot::Mutex;
use placement::{NodeId, PartitionMap};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use wire::{Failure, Object, Outcome, Refusal, Request, Session};

/// Longest time that a call waits for its probe of a node; the next call waits for the same probe
/// again.
const PROBE_WAIT: Duration = Duration::from_millis(100);

/// Interval at which other nodes are asked where the partitions of one are that is not reached.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// The nodes of a pool that a process knows, each with a connection. Cheap to clone; clones share
/// the connections, and the knowledge of which nodes answer. Nodes are added as they are learnt of.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<NodesInner>);

#[derive(Debug)]
struct NodesInner {
    connector: Option<Arc<dyn Connector>>,
    /// Each node once; in most pools the node with id 1 first, and so on.
    links: boxcar::Vec<NodeLink>,
    /// Held while nodes are added.
    learning: Mutex<()>,
    /// Number of nodes that do not answer, readable without a lock.
    unavailable: AtomicUsize,
    /// The number of times that a node has ceased to answer.
    outages: AtomicU64,
}

/// The connection to a node, and its state.
#[derive(Debug)]
pub struct NodeLink {
    pub node: NodeId,
    pub connection: Arc<dyn Connection>,
    breaker: Mutex<CircuitBreaker>,
    /// A probe in flight that nobody waits for now.
    probe: Mutex<Option<ReplyFuture>>,
    /// True if the node has left the pool.
    departed: AtomicBool,
    /// The session that has said hello to the node last.
    pub greeted: AtomicU64,
    /// The time at which another node may be asked again where the partitions of this one are.
    next_question: Mutex<Option<Instant>>,
    /// Held while a session says hello, or subscribes.
    pub hello_lock: tokio::sync::Mutex<()>,
}

impl NodeLink {
    fn new(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        let (breaker, probe, next_question, hello_lock, departed) = Default::default();
        let greeted = AtomicU64::new(Session::NONE.0);
        Self { node, connection, breaker, probe, departed, greeted, next_question, hello_lock }
    }

    /// True if another node should be asked now where the partitions of this one are, which is not
    /// reached: at most once in an interval.
    pub fn may_have_left(&self) -> bool {
        let (now, mut next) = (node::now(), self.next_question.lock());
        let is_due = next.is_none_or(|next| next <= now);
        if is_due {
            *next = Some(now + QUESTION_INTERVAL);
        }
        is_due
    }

    /// False if the node has left the pool.
    pub fn is_present(&self) -> bool {
        !self.departed.load(Relaxed)
    }

    /// False if the node is known not to answer.
    pub fn is_available(&self) -> bool {
        self.breaker.lock().outage().is_none()
    }
}

impl NodesInner {
    /// Counts a node that answers again, or has left. It may do both at one time.
    fn count_available(&self) {
        // An error says that there is none that does not answer.
        let _ = self.unavailable.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
    }
}

impl Nodes {
    /// The nodes of a pool that has one.
    pub(crate) fn one(node: NodeId, connection: Arc<dyn Connection>) -> Self {
        [(node, connection)].into_iter().collect()
    }

    /// These nodes, and all that the map of their pool names later: `connector` makes the
    /// connections to them. Of two connections to one node the later counts.
    pub fn with_connector(
        connector: Arc<dyn Connector>,
        first: impl IntoIterator<Item = (NodeId, Arc<dyn Connection>)>,
    ) -> Self {
        Self::new(Some(connector), first)
    }

    fn new(
        connector: Option<Arc<dyn Connector>>,
        first: impl IntoIterator<Item = (NodeId, Arc<dyn Connection>)>,
    ) -> Self {
        let first: BTreeMap<NodeId, Arc<dyn Connection>> = first.into_iter().collect();
        let links = first.into_iter().map(|(node, connection)| NodeLink::new(node, connection));
        Self(Arc::new(NodesInner {
            connector,
            links: links.collect(),
            learning: Mutex::default(),
            unavailable: AtomicUsize::new(0),
            outages: AtomicU64::new(0),
        }))
    }

    /// Makes connections to the nodes that the map has an address of, and that are not known yet.
    /// Those that have left the pool are not used any more.
    pub(crate) fn learn(&self, map: &PartitionMap) {
        for link in map.departed().filter_map(|node| self.link(node)) {
            if !link.departed.swap(true, Relaxed) && !link.is_available() {
                self.0.count_available();
            }
        }
        let Some(connector) = &self.0.connector else { return };
        let _guard = self.0.learning.lock();
        for (node, address) in map.addresses().filter(|(node, _)| self.link(*node).is_none()) {
            match connector.connect(node, address) {
                Ok(connection) => drop(self.0.links.push(NodeLink::new(node, connection))),
                Err(why) => tracing::warn!("there is no way to node {node}: {why}"),
            }
        }
    }

    /// The link to a node, if there is one.
    pub(crate) fn link(&self, node: NodeId) -> Option<&NodeLink> {
        let likely = self.0.links.get((node.0 as usize).wrapping_sub(1)).filter(|link| link.node == node);
        likely.or_else(|| self.0.links.iter().map(|(_, link)| link).find(|link| link.node == node))
    }

    /// The connection to a node, if there is one.
    pub(crate) fn connection(&self, node: NodeId) -> Option<&dyn Connection> {
        Some(&*self.link(node)?.connection)
    }

    /// The first node in this process; if there is none, the first on this host.
    pub(crate) fn local_node(&self) -> Option<NodeId> {
        let links = self.links();
        let first = |is: fn(&dyn Connection) -> bool| links.iter().find(|link| is(&*link.connection));
        let found = first(|link| link.is_in_process()).or_else(|| first(|link| link.is_on_local_host()));
        found.map(|link| link.node)
    }

    /// All links to nodes that have not left, by ascending ids.
    pub(crate) fn links(&self) -> Vec<&NodeLink> {
        let present = self.0.links.iter().map(|(_, link)| link).filter(|link| link.is_present());
        let mut links: Vec<&NodeLink> = present.collect();
        links.sort_unstable_by_key(|link| link.node);
        links
    }

    pub(crate) fn len(&self) -> usize {
        self.links().len()
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
        link: &NodeLink,
        probe: impl FnOnce() -> Request,
        object: impl FnOnce() -> Object,
    ) -> Outcome<()> {
        if !self.is_any_unavailable() {
            return Ok(());
        }
        let decision = link.breaker.lock().on_call(node::now());
        match decision {
            BreakerDecision::Send => return Ok(()),
            BreakerDecision::Probe if self.probe(link, probe).await => return Ok(()),
            BreakerDecision::Probe | BreakerDecision::Refuse => {}
        }
        let breaker = link.breaker.lock();
        let Some(outage) = breaker.outage() else { return Ok(()) };
        let why = format!("node {}: {}", link.node, outage.describe(node::now()));
        Err(Refusal::Unavailable { object: object(), tries: outage.tries, why: why.into() })
    }

    /// True if the node answers a probe within a moment.
    async fn probe(&self, link: &NodeLink, request: impl FnOnce() -> Request) -> bool {
        let in_flight = link.probe.lock().take();
        let reply = in_flight.unwrap_or_else(|| link.connection.call(request()));
        let moment = pin!(sleep_until(node::now() + PROBE_WAIT));
        match select(reply, moment).await {
            Either::Left((Err(failure @ (Failure::Unreachable(_) | Failure::Lost(_))), _)) => {
                self.record_outage(link, 1, &failure.to_string());
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
    pub(crate) fn record_outage(&self, link: &NodeLink, tries: u32, why: &str) {
        if link.breaker.lock().on_failure(node::now(), tries, why.to_owned()) && !link.departed.load(Relaxed) {
            self.0.unavailable.fetch_add(1, Relaxed);
            self.0.outages.fetch_add(1, Relaxed);
            let node = link.node;
            tracing::warn!("node {node} does not answer, so the data that it holds is unavailable: {why}");
        }
    }

    fn record_answer(&self, link: &NodeLink) {
        let silent = link.breaker.lock().on_success(node::now());
        if let Some(silent) = silent.filter(|_| !link.departed.load(Relaxed)) {
            self.0.count_available();
            tracing::warn!("node {} answers again, after {:.1} s", link.node, silent.as_secs_f64());
        }
    }
}

impl FromIterator<(NodeId, Arc<dyn Connection>)> for Nodes {
    /// Of two connections to one node the later counts.
    fn from_iter<I: IntoIterator<Item = (NodeId, Arc<dyn Connection>)>>(links: I) -> Self {
        Self::new(None, links)
    }
}
