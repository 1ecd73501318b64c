//! The managers of the simulated pool: the real leader and the real state, and a stand-in for the
//! log between them.
//!
//! Entries take a while to be agreed on, some a long one, so they overtake each other. Some come
//! twice. Messages to and from nodes get lost. The leader is lost now and then: the next one begins
//! without memory, while entries of the one before are still to come.

use crate::simulation::{
    connection::LOST_AFTER,
    executor::{SimState, sim_sleep},
    network::{Host, SimEvent},
    sim_node::SimNode,
};
use cluster::{
    ClusterCommand, ClusterEntry, ClusterEvent, ClusterState, Coordinator, CoordinatorSettings, NodePhase, NodeReport,
    PartitionLoad, PartitionMove, plan_moves,
};
use node::{Node, NodeSettings};
use parking_lot::Mutex;
use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use store::{Engine, ModelEngine};

/// Limits of the leaders, so short that much happens in a second.
const LEADER: CoordinatorSettings = CoordinatorSettings {
    moves_per_node: 4,
    silence: Duration::from_millis(900),
    retry_after: Duration::from_millis(500),
    plan_age_max: Duration::from_millis(200),
};
/// Longest time between two looks at the state.
const TICK_INTERVAL: Duration = Duration::from_millis(60);
/// Longest time until an entry is agreed on; of most entries, and of some.
const AGREED_AFTER: Duration = Duration::from_millis(3);
const AGREED_LATE: Duration = Duration::from_millis(400);
/// Bytes of an engine.
const ENGINE_BYTES: u64 = 64 << 20;

/// A report, with what the node waits for.
pub struct SimReport {
    pub node: NodeId,
    pub report: NodeReport,
    pub prepared: Vec<(PartitionId, Epoch)>,
}

/// The managers.
pub struct SimManagers {
    pub state: Arc<SimState>,
    settings: NodeSettings,
    began: Instant,
    cluster: Mutex<ClusterState>,
    leader: Mutex<Coordinator>,
    nodes: Mutex<BTreeMap<NodeId, Arc<SimNode>>>,
    /// The most moves that the changes of the pool need.
    planned: Mutex<usize>,
}

impl SimManagers {
    /// The managers of a pool that begins with nodes of these capacities.
    pub fn start(state: &Arc<SimState>, settings: NodeSettings, capacities: &[u64]) -> Arc<Self> {
        let shares: Vec<(NodeId, u64)> = (1..).map(NodeId).zip(capacities.iter().copied()).collect();
        let map = PartitionMap::proportional(&shares, settings.partitions).unwrap();
        let named = shares.iter().map(|(id, capacity)| (*id, format!("node {id}").into(), *capacity));
        let cluster = ClusterState::new(map, named);
        let managers = Arc::new(Self {
            state: state.clone(),
            settings,
            began: node::now(),
            cluster: Mutex::new(cluster),
            leader: Mutex::new(Coordinator::new(LEADER)),
            nodes: Mutex::default(),
            planned: Mutex::default(),
        });
        for (id, _) in shares {
            managers.start_node(id, managers.map());
        }
        state.spawn(Some(Host::Managers), managers.clone().lead_always());
        managers
    }

    fn start_node(self: &Arc<Self>, id: NodeId, map: PartitionMap) {
        let engine: Arc<dyn Engine> = Arc::new(ModelEngine::new(ENGINE_BYTES, self.settings.stripe_bytes));
        let stripes = engine.clone().stripes();
        let node = SimNode::start(Node::in_pool(id, map, self.settings.clone(), engine), stripes, self);
        self.nodes.lock().insert(id, node);
    }

    /// Forgets the nodes at the end of a world: they know the managers, which would keep both.
    pub fn forget_nodes(&self) {
        let nodes = mem::take(&mut *self.nodes.lock());
        drop(nodes);
    }

    /// The state that is agreed on.
    pub fn cluster(&self) -> ClusterState {
        self.cluster.lock().clone()
    }

    pub fn map(&self) -> PartitionMap {
        self.cluster.lock().map().clone()
    }

    /// The nodes that have not ended.
    pub fn live_nodes(&self) -> Vec<Arc<SimNode>> {
        let nodes = self.nodes.lock();
        let is_alive = |node: &&Arc<SimNode>| self.state.network.is_alive(Host::Node(node.node.id()));
        nodes.values().filter(is_alive).cloned().collect()
    }

    /// The most moves that the changes of the pool need, so far.
    pub fn planned_moves(&self) -> usize {
        *self.planned.lock()
    }

    /// Lets a node join. It takes no partitions yet.
    pub async fn join(self: &Arc<Self>, capacity: u64) -> NodeId {
        let token = self.state.rng.lock().next_u64();
        let address: Arc<str> = format!("node of {token}").into();
        self.propose(&ClusterEntry::Join { token, address: address.clone(), capacity });
        loop {
            sim_sleep(Duration::from_millis(1)).await;
            let (known, map) = {
                let cluster = self.cluster.lock();
                let known = cluster.nodes().iter().find(|(_, node)| node.address == address).map(|(id, _)| *id);
                (known, cluster.map().clone())
            };
            if let Some(id) = known {
                // It knows the map as it was a while ago.
                sim_sleep(self.state.random_time(Duration::from_millis(50))).await;
                self.start_node(id, map);
                self.state.network.count(SimEvent::NodeJoined);
                return id;
            }
        }
    }

    /// Appends an entry to the log.
    pub fn propose(self: &Arc<Self>, entry: &ClusterEntry) {
        let is_calm = self.state.network.is_calm();
        let copies = if !is_calm && self.state.one_in(8) { 2 } else { 1 };
        if copies == 2 {
            self.state.network.count(SimEvent::EntryDoubled);
        }
        for _ in 0..copies {
            let is_late = !is_calm && self.state.one_in(12);
            if is_late {
                self.state.network.count(SimEvent::EntryLate);
            }
            let after = self.state.random_time(if is_late { AGREED_LATE } else { AGREED_AFTER });
            let (managers, entry) = (self.clone(), entry.clone());
            self.state.spawn(Some(Host::Managers), async move {
                sim_sleep(after).await;
                managers.apply(&entry, is_late);
            });
        }
    }

    fn apply(self: &Arc<Self>, entry: &ClusterEntry, is_late: bool) {
        let (answer, changed) = {
            let mut cluster = self.cluster.lock();
            let before = cluster.clone();
            let answer = cluster.apply(entry);
            if before.capacities() != cluster.capacities() {
                *self.planned.lock() += count_planned(&cluster);
            }
            if is_late && matches!(entry, ClusterEntry::Begin(_)) && *cluster != before {
                // It is of a plan that another has followed, which may put this right by a move
                // back.
                *self.planned.lock() += 2;
            }
            (answer, *cluster != before)
        };
        self.state.trace(|| format!("{entry:?} is {answer:?}"));
        let network = &self.state.network;
        match entry {
            _ if answer.is_err() => network.count(SimEvent::EntryRefused),
            ClusterEntry::Commit(step) => {
                if changed {
                    network.count(SimEvent::MoveCommitted);
                }
                self.announce(*step);
            }
            ClusterEntry::Abandon(step) => {
                if changed {
                    network.count(SimEvent::MoveAbandoned);
                }
                self.announce(*step);
            }
            ClusterEntry::Begin(_) => self.state.move_began.notify_waiters(),
            ClusterEntry::Leave { node, lost: false } => self.tell_to_end(*node),
            _ => {}
        }
        let commands = self.hear(ClusterEvent::Tick);
        self.execute(commands);
    }

    /// Tells source and target which of them serves. Whoever is not reached learns with the next
    /// report.
    fn announce(self: &Arc<Self>, step: PartitionMove) {
        let Some(entry) = self.cluster.lock().map().entry(step.partition).cloned() else { return };
        for to in [step.to, step.from] {
            let entry = entry.clone();
            self.tell(to, move |node| node.node.learn(step.partition, &entry), || {});
        }
    }

    fn tell_to_end(self: &Arc<Self>, node: NodeId) {
        self.tell(node, SimNode::stop, || {});
    }

    /// Brings a message to a node, once.
    fn tell(
        self: &Arc<Self>,
        to: NodeId,
        message: impl FnOnce(&Arc<SimNode>) + Send + 'static,
        if_lost: impl FnOnce() + Send + 'static,
    ) {
        let managers = self.clone();
        self.state.spawn(Some(Host::Managers), async move {
            let is_there = managers.state.carry(Host::Managers, Host::Node(to), 100).await;
            let node = managers.nodes.lock().get(&to).filter(|_| is_there).cloned();
            if let Some(node) = node {
                message(&node);
            } else {
                sim_sleep(LOST_AFTER).await;
                if_lost();
            }
        });
    }

    /// Takes a node's report; answers with the map, and whether loads are wanted.
    pub fn take_report(self: &Arc<Self>, message: SimReport) -> (PartitionMap, bool) {
        let SimReport { node, report, prepared } = message;
        if self.cluster.lock().nodes().get(&node).is_some_and(|known| known.phase == NodePhase::Left) {
            // It was not reached when it left.
            self.tell_to_end(node);
        }
        let commands = self.hear(ClusterEvent::Report { node, report });
        self.execute(commands);
        self.take_prepared(node, prepared);
        (self.map(), self.leader.lock().wants_loads())
    }

    /// Takes the news that partitions have arrived at a node.
    pub fn take_prepared(self: &Arc<Self>, node: NodeId, prepared: Vec<(PartitionId, Epoch)>) {
        for (partition, epoch) in prepared {
            let is_meant = |step: &PartitionMove| (step.partition, step.to, step.epoch) == (partition, node, epoch);
            let meant = self.cluster.lock().moves().find(is_meant);
            if let Some(step) = meant {
                let commands = self.hear(ClusterEvent::MoveReady(step));
                self.execute(commands);
            }
        }
    }

    /// Takes the failure of a move.
    pub fn take_failure(self: &Arc<Self>, step: PartitionMove) {
        let commands = self.hear(ClusterEvent::MoveFailed(step));
        self.execute(commands);
    }

    async fn lead_always(self: Arc<Self>) {
        loop {
            sim_sleep(self.state.random_time(TICK_INTERVAL)).await;
            if !self.state.network.is_calm() && self.state.one_in(40) {
                self.state.network.count(SimEvent::LeaderLost);
                *self.leader.lock() = Coordinator::new(LEADER);
            }
            let commands = self.hear(ClusterEvent::Tick);
            self.execute(commands);
        }
    }

    fn hear(&self, event: ClusterEvent) -> Vec<ClusterCommand> {
        let now = node::now() - self.began;
        self.leader.lock().on(event, &self.cluster.lock(), now)
    }

    fn execute(self: &Arc<Self>, commands: Vec<ClusterCommand>) {
        for command in commands {
            match command {
                ClusterCommand::Propose(entry) => self.propose(&entry),
                ClusterCommand::StartMove(step) => {
                    let managers = self.clone();
                    self.tell(step.from, move |node| node.start_move(step), move || managers.take_failure(step));
                }
                // Its next report has them.
                ClusterCommand::AskLoads(_) => {}
                ClusterCommand::StopNode(node) => self.propose(&ClusterEntry::Leave { node, lost: false }),
            }
        }
    }

    /// True if every node has its share, and nothing is under way or to be done.
    pub fn is_settled(&self) -> bool {
        let cluster = self.cluster.lock();
        // If those that were to take its partitions have died, a node is drained for ever.
        let is_draining = cluster.nodes().values().any(|node| node.phase == NodePhase::Draining)
            && cluster.capacities().values().any(|capacity| *capacity > 0);
        let live = self.live_nodes();
        let is_ended = |id: &NodeId| live.iter().all(|node| node.node.id() != *id);
        if !self.state.network.has_lost_partitions() && live.iter().any(|node| node.is_busy()) {
            return false;
        }
        let mut left = cluster.nodes().iter().filter(|(_, node)| node.phase == NodePhase::Left);
        !is_draining
            && cluster.moves().next().is_none()
            && count_planned(&cluster) == 0
            && left.all(|(id, _)| is_ended(id))
    }
}

/// The number of moves that lead to the shares from the map after the moves under way.
fn count_planned(cluster: &ClusterState) -> usize {
    let (mut map, capacities) = (cluster.map().clone(), cluster.capacities());
    for PartitionMove { partition, to, .. } in cluster.moves() {
        if let Some(entry) = map.entry(partition).map(|entry| entry.moved(to)) {
            map.learn(partition, entry);
        }
    }
    if capacities.values().all(|capacity| *capacity == 0) {
        return 0;
    }
    let steps = plan_moves(&map, &capacities, |_| PartitionLoad::default());
    // What a lost node served stays lost.
    steps.iter().filter(|step| capacities.contains_key(&step.from)).count()
}
