//! The manager of a node while it leads: it hears reports, decides, and sees that it is
//! done.

use crate::{
    Manager,
    message::{
        ClusterStatus, ElasticReport, ManagerAnswer, ManagerRequest, MapVersion, PreparedPartition, ReportMessage,
        ReportedUsage, request_with,
    },
};
use cluster::{
    ClusterAnswer, ClusterCommand, ClusterEntry, ClusterEvent, ClusterRefusal, ClusterState, Coordinator, NodePhase,
    NodeReport, PartitionMove, wanted_members,
};
use cluster_log::ProposeError;
use parking_lot::Mutex;
use placement::{NodeId, PartitionId};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep},
};
use wire::Body;

/// Longest time between two looks at the state.
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Number of the last events that are not recorded again.
const REPEATED_EVENTS: usize = 16;
/// Time without a report of what lets the pool grow by itself after which it does not any more.
const ELASTIC_SILENCE: Duration = Duration::from_secs(10);
/// Events that are kept.
const EVENTS: usize = 1000;

/// The memory of a leader, which may be lost.
#[derive(Debug)]
pub struct Leader {
    began: Instant,
    /// Notified when something may be to do.
    wake: Notify,
    memory: Mutex<LeaderMemory>,
    /// True while the members are being changed.
    changes_members: AtomicBool,
}

#[derive(Debug, Default)]
struct LeaderMemory {
    coordinator: Coordinator,
    /// The last report of each node.
    usage: BTreeMap<NodeId, ReportedUsage>,
    events: VecDeque<(u64, String)>,
    /// The last report of what lets the pool grow by itself, and its time.
    elastic: Option<(ElasticReport, Duration)>,
    /// Nodes that are being ended.
    ending: BTreeSet<NodeId>,
}

impl LeaderMemory {
    /// What lets the pool grow by itself at this time.
    fn elastic(&self, now: Duration) -> Option<&ElasticReport> {
        let (report, at) = self.elastic.as_ref()?;
        (now.saturating_sub(*at) < ELASTIC_SILENCE).then_some(report)
    }
}

impl Leader {
    pub fn new(began: Instant) -> Self {
        Self { began, wake: Notify::new(), memory: Mutex::default(), changes_members: AtomicBool::new(false) }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn record(&self, event: String) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let events = &mut self.memory.lock().events;
        // An entry may be agreed on twice, and is done once.
        if events.iter().rev().take(REPEATED_EVENTS).any(|(_, known)| *known == event) {
            return;
        }
        tracing::info!("{event}");
        events.push_back((time, event));
        while events.len() > EVENTS {
            events.pop_front();
        }
    }
}

impl Manager {
    /// The state, if this node leads; else who may.
    fn led_state(&self) -> Result<Arc<ClusterState>, ManagerAnswer> {
        let state = self.log.state().borrow().clone();
        match state {
            Some(state) if self.log.is_leader() => Ok(state),
            _ => Err(ManagerAnswer::NotLeader(self.log.leader().filter(|leader| *leader != self.node.id()))),
        }
    }

    /// Takes a node's report.
    pub(crate) fn take_report(self: &Arc<Self>, message: ReportMessage) -> ManagerAnswer {
        let state = match self.led_state() {
            Ok(state) => state,
            Err(answer) => return answer,
        };
        let ReportMessage { node, report, prepared, known } = message;
        if state.nodes().get(&node).is_some_and(|known| known.phase == NodePhase::Left) {
            // It was not reached when it left.
            let manager = self.clone();
            self.spawn(async move { manager.tell_to_end(node).await });
        }
        let now = self.leader.now();
        let has_loads = report.loads.is_some();
        let NodeReport { used, capacity, pins, waiting, .. } = report;
        let usage = ReportedUsage { used, capacity, pins, waiting };
        let commands = {
            let mut memory = self.leader.memory.lock();
            memory.usage.insert(node, usage);
            memory.coordinator.on(ClusterEvent::Report { node, report }, &state, now)
        };
        self.execute(commands);
        self.commit_prepared(node, prepared, &state);
        if has_loads {
            // The plan may have waited for them.
            self.leader.wake.notify_one();
        }
        let map = (known < MapVersion::of(state.map())).then(|| Box::new(state.map().clone()));
        let memory = self.leader.memory.lock();
        let wants_loads = memory.coordinator.wants_loads();
        let growth_wait = memory.elastic(now).map_or(Duration::ZERO, |elastic| elastic.growth_wait);
        ManagerAnswer::Reported { map, wants_loads, growth_wait }
    }

    /// Takes a report of what lets the pool grow and shrink by itself.
    pub(crate) fn take_elastic(&self, mut report: Option<ElasticReport>) -> ManagerAnswer {
        if let Err(answer) = self.led_state() {
            return answer;
        }
        if let Some(event) = report.as_mut().and_then(|report| report.event.take()) {
            self.leader.record(event);
        }
        self.leader.memory.lock().elastic = report.map(|report| (report, self.leader.now()));
        ManagerAnswer::Done
    }

    /// Takes the news that partitions have arrived at a node.
    pub(crate) fn take_prepared(self: &Arc<Self>, node: NodeId, prepared: Vec<PreparedPartition>) -> ManagerAnswer {
        match self.led_state() {
            Ok(state) => self.commit_prepared(node, prepared, &state),
            Err(answer) => return answer,
        }
        ManagerAnswer::Done
    }

    fn commit_prepared(self: &Arc<Self>, node: NodeId, prepared: Vec<PreparedPartition>, state: &ClusterState) {
        for (partition, epoch) in prepared {
            // One that is not under way has ended: the node learns of that from the map.
            let is_meant = |step: &PartitionMove| (step.partition, step.to, step.epoch) == (partition, node, epoch);
            if let Some(step) = state.moves().find(is_meant) {
                self.execute(self.hear(ClusterEvent::MoveReady(step), state));
            }
        }
    }

    /// Takes the failure of a move.
    pub(crate) fn take_failure(self: &Arc<Self>, step: PartitionMove, why: &str) -> ManagerAnswer {
        let state = match self.led_state() {
            Ok(state) => state,
            Err(answer) => return answer,
        };
        let PartitionMove { partition, from, to, .. } = step;
        self.leader.record(format!("partition {partition} stays at node {from} for now, not at {to}: {why}"));
        let commands = self.hear(ClusterEvent::MoveFailed(step), &state);
        self.execute(commands);
        ManagerAnswer::Done
    }

    /// Appends an entry that somebody asks for.
    pub(crate) async fn propose_for(self: &Arc<Self>, entry: ClusterEntry) -> ManagerAnswer {
        match self.propose(entry).await {
            Ok(done) => ManagerAnswer::Proposed(done),
            Err(ProposeError::NotLeader(known)) => ManagerAnswer::NotLeader(known),
            Err(error) => ManagerAnswer::Failed(error.to_string()),
        }
    }

    /// The knowledge of this leader.
    pub(crate) fn status(&self) -> ManagerAnswer {
        let state = match self.led_state() {
            Ok(state) => state,
            Err(answer) => return answer,
        };
        let memory = self.leader.memory.lock();
        ManagerAnswer::Status(Box::new(ClusterStatus {
            state: (*state).clone(),
            leader: self.node.id(),
            members: self.log.members(),
            usage: memory.usage.clone(),
            silent: memory.coordinator.silent_nodes(&state, self.leader.now()),
            elastic: memory.elastic(self.leader.now()).cloned(),
            events: memory.events.iter().cloned().collect(),
        }))
    }

    /// Leads, whenever this node is the leader.
    pub(crate) async fn lead_always(self: Arc<Self>) {
        let mut led = false;
        loop {
            match self.led_state() {
                Ok(state) => {
                    if !led {
                        *self.leader.memory.lock() = LeaderMemory::default();
                        self.leader.record(format!("node {} leads the managers", self.node.id()));
                    }
                    led = true;
                    // A leader that leaves the members leaves what is to begin to the next one:
                    // what it proposed meanwhile would hold up its own successor.
                    if self.change_members(&state) {
                        let commands = self.hear(ClusterEvent::Tick, &state);
                        self.execute(commands);
                    }
                }
                Err(_) => led = false,
            }
            select! {
                () = sleep(TICK_INTERVAL) => {}
                () = self.leader.wake.notified() => {}
            }
        }
    }

    fn hear(&self, event: ClusterEvent, state: &ClusterState) -> Vec<ClusterCommand> {
        self.leader.memory.lock().coordinator.on(event, state, self.leader.now())
    }

    fn execute(self: &Arc<Self>, commands: Vec<ClusterCommand>) {
        for command in commands {
            let manager = self.clone();
            self.spawn(async move { manager.execute_one(command).await });
        }
    }

    async fn execute_one(self: &Arc<Self>, command: ClusterCommand) {
        match command {
            ClusterCommand::Propose(entry) => {
                // What is refused, or not agreed on, is decided anew at the next tick.
                if let Err(error) = self.propose(entry.clone()).await {
                    tracing::debug!(%error, ?entry, "an entry was not agreed on");
                }
            }
            ClusterCommand::StartMove(step) => {
                let started = self.tell(step.from, &ManagerRequest::Start(step)).await;
                if let Err(why) = started {
                    self.take_failure(step, &why);
                }
            }
            ClusterCommand::AskLoads(node) => {
                // One that is not reached is asked again with the next plan.
                if let Err(why) = self.tell(node, &ManagerRequest::ReportLoads).await {
                    tracing::debug!(why, node = node.0, "a node was not asked what its partitions weigh");
                }
            }
            ClusterCommand::StopNode(node) => self.stop_node(node).await,
        }
    }

    /// Appends an entry, and has all who wait for it know.
    async fn propose(
        self: &Arc<Self>,
        entry: ClusterEntry,
    ) -> Result<Result<ClusterAnswer, ClusterRefusal>, ProposeError> {
        let done = self.log.propose(entry.clone()).await?;
        match &done {
            Ok(answer) => {
                if let Some(event) = describe(&entry, *answer) {
                    self.leader.record(event);
                }
                if let ClusterEntry::Commit(step) | ClusterEntry::Abandon(step) = entry {
                    self.announce(step).await;
                }
                self.leader.wake.notify_one();
            }
            Err(refusal) => tracing::debug!(%refusal, ?entry, "an entry is refused"),
        }
        Ok(done)
    }

    /// Tells source and target which of them serves.
    async fn announce(self: &Arc<Self>, PartitionMove { partition, from, to, .. }: PartitionMove) {
        let state = self.log.state().borrow().clone();
        let Some(entry) = state.and_then(|state| state.map().entry(partition).cloned()) else { return };
        let message = ManagerRequest::Learn(partition, entry);
        // Whoever is not reached learns with the next report.
        let (_, _) = futures_util::join!(self.tell(to, &message), self.tell(from, &message));
    }

    async fn tell(self: &Arc<Self>, to: NodeId, request: &ManagerRequest) -> Result<(), String> {
        let answer =
            if to == self.node.id() { self.answer(request.clone()).await } else { self.peers.ask(to, request).await? };
        match answer {
            ManagerAnswer::Done => Ok(()),
            ManagerAnswer::Failed(why) => Err(why),
            other => Err(format!("node {to} has answered with {other:?}")),
        }
    }

    /// Ends a node that nobody needs any more.
    async fn stop_node(self: &Arc<Self>, node: NodeId) {
        // Afterwards the map has no address of it.
        drop(self.peers.connection(node));
        // A member is replaced before.
        if self.log.members().contains(&node) || !self.leader.memory.lock().ending.insert(node) {
            return;
        }
        let left = self.propose(ClusterEntry::Leave { node, lost: false }).await;
        if !matches!(left, Ok(Ok(_))) {
            self.leader.memory.lock().ending.remove(&node);
            return;
        }
        self.tell_to_end(node).await;
    }

    /// Tells a node that has left to end. One that is not reached reports, and is told then.
    async fn tell_to_end(&self, node: NodeId) {
        let told = match self.peers.connection(node) {
            Ok(connection) => {
                connection.call(request_with(PartitionId(0), Body::Stop)).await.map_err(|why| why.to_string())
            }
            Err(why) => Err(why),
        };
        if let Err(why) = told {
            tracing::debug!(why, node = node.0, "a node that has left was not told to end");
        }
    }

    /// Has the right nodes agree on the state. Returns whether this one is to be among them.
    fn change_members(self: &Arc<Self>, state: &ClusterState) -> bool {
        let members = self.log.members();
        let silent = self.leader.memory.lock().coordinator.silent_nodes(state, self.leader.now());
        let wanted = wanted_members(state, &members, &silent);
        let stays = wanted.contains(&self.node.id());
        if wanted == members || self.leader.changes_members.swap(true, SeqCst) {
            return stays;
        }
        let manager = self.clone();
        self.spawn(async move {
            match manager.log.set_members(wanted.clone()).await {
                Ok(()) => manager.leader.record(format!("the managers are the nodes {wanted:?} now")),
                Err(error) => tracing::debug!(%error, ?wanted, "the managers could not be changed"),
            }
            manager.leader.changes_members.store(false, SeqCst);
        });
        stays
    }
}

/// Says what an entry has changed, for the event log.
fn describe(entry: &ClusterEntry, answer: ClusterAnswer) -> Option<String> {
    Some(match entry {
        ClusterEntry::Join { .. } => {
            let ClusterAnswer::Joined(node) = answer else { return None };
            format!("node {node} has joined")
        }
        ClusterEntry::Drain(node) => format!("node {node} is drained: its partitions move to others"),
        ClusterEntry::Admit(node) => format!("node {node} takes partitions"),
        ClusterEntry::Begin(PartitionMove { partition, from, to, .. }) => {
            format!("partition {partition} moves from node {from} to {to}")
        }
        ClusterEntry::Commit(PartitionMove { partition, to, .. }) => format!("partition {partition} is at node {to}"),
        ClusterEntry::Abandon(PartitionMove { partition, from, .. }) => {
            format!("partition {partition} stays at node {from}")
        }
        ClusterEntry::Leave { node, lost: false } => format!("node {node} has left"),
        ClusterEntry::Leave { node, lost: true } => format!("node {node} is lost, with what it served"),
    })
}
