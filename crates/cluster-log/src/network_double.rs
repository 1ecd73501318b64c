//! A network between members of one process, for tests: it is late, loses and doubles messages, and
//! cuts nodes off.
//!
//! Times are those of tokio's clock, which tests stop: then it jumps to the next thing that waits.

use crate::{ClusterLog, MemberLink};
use bytes::Bytes;
use cluster::{ClusterAnswer, ClusterEntry, ClusterState};
use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use placement::{NodeId, PartitionMap};
use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
    time::Duration,
};
use test_support::Random;
use tokio::time::{Instant, sleep, timeout};

/// The longest wait of a test.
const LIMIT: Duration = Duration::from_mins(1);
/// The byte of a message that says its kind, and its value in a snapshot.
const KIND_AT: usize = 9;
const SNAPSHOT_KIND: u8 = 2;

/// Faults of a network; 0 is never.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// One message in so many is lost on its way, and one answer.
    pub lost_one_in: u64,
    /// One message in so many comes again later.
    pub doubled_one_in: u64,
    /// Longest delay of a message, and of an answer.
    pub delay_ms_max: u64,
}

/// The members of a test, and the network between them.
pub struct NetworkDouble(Mutex<Wires>);

struct Wires {
    logs: BTreeMap<NodeId, ClusterLog>,
    cut: BTreeSet<NodeId>,
    faults: Faults,
    random: Random,
    /// The messages that were sent, and those of them with a snapshot.
    sent: [usize; 2],
}

struct DoubledLink {
    from: NodeId,
    network: Arc<NetworkDouble>,
}

impl MemberLink for DoubledLink {
    fn send(&self, to: NodeId, message: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        carry(self.network.clone(), self.from, to, message).boxed()
    }
}

async fn carry(network: Arc<NetworkDouble>, from: NodeId, to: NodeId, message: Bytes) -> Result<Bytes, String> {
    let [is_lost, is_answer_lost, is_doubled] = network.fate(&message);
    sleep(network.delay()).await;
    if is_doubled {
        tokio::spawn(deliver_again(network.clone(), from, to, message.clone()));
    }
    if is_lost {
        return future::pending().await;
    }
    let answer = network.between(from, to).await?.handle(message).await.map_err(|error| error.to_string())?;
    sleep(network.delay()).await;
    if is_answer_lost {
        return future::pending().await;
    }
    network.between(from, to).await.map(|_| answer)
}

/// Delivers a message once more, much later.
async fn deliver_again(network: Arc<NetworkDouble>, from: NodeId, to: NodeId, message: Bytes) {
    sleep(network.delay() * 20).await;
    if let Ok(log) = network.between(from, to).await {
        let _ = log.handle(message).await;
    }
}

impl NetworkDouble {
    /// A network without members.
    pub fn new(seed: u64) -> Arc<Self> {
        let (logs, cut, faults) = (BTreeMap::new(), BTreeSet::new(), Faults::default());
        Arc::new(Self(Mutex::new(Wires { logs, cut, faults, random: Random::new(seed), sent: [0, 0] })))
    }

    /// A network with these members, of which the first has begun the log.
    pub async fn with_members(members: &[u32]) -> Arc<Self> {
        let network = Self::new(1);
        network.found(members[0]).await;
        for node in &members[1..] {
            network.follow(*node).await;
        }
        network.log(members[0]).set_members(ids(members)).await.unwrap();
        network
    }

    /// Begins the log with a state of as many nodes as this id.
    pub async fn found(self: &Arc<Self>, node: u32) {
        let log = ClusterLog::found(NodeId(node), first_state(node), self.link(node)).await.unwrap();
        self.0.lock().logs.insert(NodeId(node), log);
    }

    /// Begins a node that may become a member.
    pub async fn follow(self: &Arc<Self>, node: u32) {
        let log = ClusterLog::follow(NodeId(node), self.link(node)).await.unwrap();
        self.0.lock().logs.insert(NodeId(node), log);
    }

    fn link(self: &Arc<Self>, node: u32) -> Arc<dyn MemberLink> {
        Arc::new(DoubledLink { from: NodeId(node), network: self.clone() })
    }

    pub fn log(&self, node: u32) -> ClusterLog {
        self.0.lock().logs[&NodeId(node)].clone()
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Cuts these nodes off from all others, and heals all other cuts.
    pub fn cut(&self, nodes: &[u32]) {
        self.0.lock().cut = ids(nodes);
    }

    /// Ends a node.
    pub async fn lose(&self, node: u32) {
        let log = self.0.lock().logs.remove(&NodeId(node)).unwrap();
        log.stop().await;
    }

    pub fn messages(&self) -> usize {
        self.0.lock().sent[0]
    }

    pub fn snapshots(&self) -> usize {
        self.0.lock().sent[1]
    }

    /// Waits for a leader among these nodes that all of them know; returns it.
    pub async fn leader_of(&self, nodes: &[u32]) -> u32 {
        let logs: Vec<ClusterLog> = nodes.iter().map(|node| self.log(*node)).collect();
        let agreed = || {
            let leaders: BTreeSet<Option<NodeId>> = logs.iter().map(ClusterLog::leader).collect();
            leaders.first().copied().flatten().filter(|leader| leaders.len() == 1 && nodes.contains(&leader.0))
        };
        let mut leader = None;
        eventually("a leader", &logs[0], |_| {
            leader = agreed();
            leader.is_some()
        })
        .await;
        leader.unwrap().0
    }

    /// Lets a node with this token join, by whoever leads these nodes.
    pub async fn join(&self, nodes: &[u32], token: u64) -> NodeId {
        let leader = self.leader_of(nodes).await;
        joined(&self.log(leader), token).await
    }

    /// Waits until these nodes have the same state, with this number of nodes; returns it.
    pub async fn agreed(&self, nodes: &[u32], count: usize) -> Arc<ClusterState> {
        let mut states = Vec::new();
        for node in nodes {
            let mut state = self.log(*node).state();
            let has_all =
                |state: &Option<Arc<ClusterState>>| state.as_ref().is_some_and(|state| state.nodes().len() == count);
            let state = timeout(LIMIT, state.wait_for(has_all)).await.expect("they get there").unwrap().clone();
            states.push(state.unwrap());
        }
        assert!(states.iter().all(|state| *state == states[0]), "they agree");
        states.swap_remove(0)
    }

    /// Whether a message is lost, its answer is, and whether it comes again.
    fn fate(&self, message: &Bytes) -> [bool; 3] {
        let mut wires = self.0.lock();
        wires.sent[0] += 1;
        wires.sent[1] += usize::from(message[KIND_AT] == SNAPSHOT_KIND);
        let Faults { lost_one_in, doubled_one_in, .. } = wires.faults;
        [lost_one_in, lost_one_in, doubled_one_in].map(|times| times > 0 && wires.random.one_in(times))
    }

    fn delay(&self) -> Duration {
        let mut wires = self.0.lock();
        let longest = wires.faults.delay_ms_max;
        Duration::from_millis(wires.random.below(longest + 1))
    }

    /// The receiver, if it is reached; a cut is an error or a silence.
    async fn between(&self, from: NodeId, to: NodeId) -> Result<ClusterLog, String> {
        let is_silent = {
            let mut wires = self.0.lock();
            let is_cut = wires.cut.contains(&from) || wires.cut.contains(&to);
            match wires.logs.get(&to) {
                Some(log) if !is_cut => return Ok(log.clone()),
                _ => wires.random.one_in(2),
            }
        };
        if is_silent { future::pending().await } else { Err(format!("{to} is not reached")) }
    }
}

/// The state of a pool of nodes that all have joined at its begin.
pub fn first_state(nodes: u32) -> ClusterState {
    let map = PartitionMap::one_node(NodeId(1), 16).unwrap();
    ClusterState::new(map, (1..=nodes).map(|id| (NodeId(id), Arc::from(format!("n{id}")), 100)))
}

pub fn ids(nodes: &[u32]) -> BTreeSet<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

pub fn join(token: u64) -> ClusterEntry {
    ClusterEntry::Join { token, address: format!("t{token}").into(), capacity: 100 }
}

/// Lets a node join by a leader; returns its id.
pub async fn joined(leader: &ClusterLog, token: u64) -> NodeId {
    match leader.propose(join(token)).await {
        Ok(Ok(ClusterAnswer::Joined(node))) => node,
        other => panic!("{other:?}"),
    }
}

/// Waits until something holds at a member, and looks whenever its knowledge changes; returns the
/// time that it took.
pub async fn eventually(what: &str, log: &ClusterLog, mut holds: impl FnMut(&ClusterLog) -> bool) -> Duration {
    let begin = Instant::now();
    let mut metrics = log.raft.metrics();
    let waited = async {
        while !holds(log) {
            metrics.changed().await.expect("the member runs");
        }
    };
    timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("did not happen within {LIMIT:?}: {what}"));
    begin.elapsed()
}
