//! The leader of the managers: it starts moves, a few at a time, and commits those that are ready.
//!
//! ```text
//!   tick ----> plan --Begin--> log --> StartMove to the source
//!   MoveReady (from the target) ------> Commit
//!   MoveFailed, or a node is silent --> Abandon; the partition is left alone for a while
//!   Commit and Abandon are the next entry of the map, from which source and target learn the end
//!   a drained node has nothing left --> StopNode
//! ```
//!
//! It remembers nothing that must not be lost: each leader begins anew, from the state and from
//! what nodes report. So a move may be started twice, which a source must take as once.
//!
//! A node that is silent keeps its partitions: whether it is lost is not decided here.

use crate::{ClusterEntry, ClusterState, NodePhase, PartitionLoad, PartitionMove, plan_moves};
use placement::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Time after which an entry that was asked for counts as lost.
const PROPOSAL_WAIT: Duration = Duration::from_secs(5);

/// Limits of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Most moves of one node at a time, from it or to it.
    pub moves_per_node: usize,
    /// Time without a report after which a node is silent.
    pub silence: Duration,
    /// Time for which a partition is left alone after its move has failed.
    pub retry_after: Duration,
    /// Age from which a plan is not used: loads change.
    pub plan_age_max: Duration,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            moves_per_node: 4,
            silence: Duration::from_secs(5),
            retry_after: Duration::from_secs(5),
            plan_age_max: Duration::from_secs(1),
        }
    }
}

/// A report of a node about itself, made once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The load of each of its partitions, if that was asked for; those that are not named hold
    /// nothing.
    pub loads: Option<BTreeMap<PartitionId, PartitionLoad>>,
    /// Its used memory, bytes.
    pub used: u64,
    /// Its memory for the pool, bytes.
    pub capacity: u64,
    /// Files, mounts and programs of its host that need the node, whatever it serves.
    pub pins: u32,
    /// Requests that wait for space there.
    pub waiting: u64,
}

/// Something that the leader hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// Time has passed, or the state has changed.
    Tick,
    /// A node has reported.
    Report {
        /// The node.
        node: NodeId,
        /// Its report.
        report: NodeReport,
    },
    /// The target of a move has everything, and waits for the commit.
    MoveReady(PartitionMove),
    /// A move cannot go on.
    MoveFailed(PartitionMove),
}

/// Something that the leader wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterCommand {
    /// Append an entry to the log.
    Propose(ClusterEntry),
    /// Have the source of a move begin, unless it has.
    StartMove(PartitionMove),
    /// Have a node report now what each of its partitions weighs.
    AskLoads(NodeId),
    /// End a node that is drained: nothing needs it any more.
    StopNode(NodeId),
}

/// Moves that are to begin, as of a moment.
#[derive(Clone, Debug, Default)]
struct MovePlan {
    capacities: BTreeMap<NodeId, u64>,
    steps: VecDeque<PartitionMove>,
    /// True if partitions are to move, also if it is not known what they weigh.
    is_needed: bool,
    /// Nodes from which partitions are to move, and of which it is not known what those weigh.
    unknown: BTreeSet<NodeId>,
    made: Option<Duration>,
}

/// The leader's part, from one event to the next.
#[derive(Clone, Debug, Default)]
pub struct Coordinator {
    settings: CoordinatorSettings,
    reports: BTreeMap<NodeId, (NodeReport, Duration)>,
    /// The moves that sources were asked to begin, and when.
    started: BTreeMap<PartitionId, (PartitionMove, Duration)>,
    /// Moves that are to begin, and when that was asked: the log has not got them yet.
    proposed: BTreeMap<PartitionId, (PartitionMove, Duration)>,
    /// Partitions that are left alone until then.
    left_alone: BTreeMap<PartitionId, Duration>,
    plan: MovePlan,
    /// When each node was first heard of: one that has never reported is silent only after a while.
    known_since: BTreeMap<NodeId, Duration>,
}

impl Coordinator {
    /// A leader that knows nothing yet.
    pub fn new(settings: CoordinatorSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Handles an event at the time `now`, counted from any moment.
    pub fn on(&mut self, event: ClusterEvent, state: &ClusterState, now: Duration) -> Vec<ClusterCommand> {
        for node in state.capacities().into_keys() {
            self.known_since.entry(node).or_insert(now);
        }
        match event {
            ClusterEvent::Tick => self.tick(state, now),
            ClusterEvent::Report { node, report } => {
                if report.loads.is_some() && self.plan.unknown.contains(&node) {
                    self.plan.made = None;
                }
                self.reports.insert(node, (report, now));
                Vec::new()
            }
            // One that is not under way any more was given up, or is committed.
            ClusterEvent::MoveReady(step) if state.moves().any(|known| known == step) => {
                vec![ClusterCommand::Propose(ClusterEntry::Commit(step))]
            }
            ClusterEvent::MoveReady(_) => Vec::new(),
            ClusterEvent::MoveFailed(step) => self.give_up(step, now),
        }
    }

    fn tick(&mut self, state: &ClusterState, now: Duration) -> Vec<ClusterCommand> {
        self.left_alone.retain(|_, until| *until > now);
        // What goes on for long may have failed unheard: the source is asked again.
        let is_recent = |begun: Duration| now.saturating_sub(begun) < self.settings.retry_after;
        self.started.retain(|_, (step, begun)| is_recent(*begun) && state.moves().any(|known| known == *step));
        let mut commands = Vec::new();
        for step in state.moves() {
            if self.is_silent(step.to, now) {
                commands.extend(self.give_up(step, now));
            } else if self.started.get(&step.partition).is_none_or(|(known, _)| *known != step) {
                self.started.insert(step.partition, (step, now));
                commands.push(ClusterCommand::StartMove(step));
            }
        }
        commands.extend(self.begin_moves(state, now));
        commands.extend(self.stop_drained(state));
        commands
    }

    fn give_up(&mut self, step: PartitionMove, now: Duration) -> Vec<ClusterCommand> {
        self.left_alone.insert(step.partition, now + self.settings.retry_after);
        vec![ClusterCommand::Propose(ClusterEntry::Abandon(step))]
    }

    /// Begins the next moves of the plan, as many as nodes may have at a time.
    fn begin_moves(&mut self, state: &ClusterState, now: Duration) -> Vec<ClusterCommand> {
        let is_open = |step: &PartitionMove| {
            let entry = state.map().entry(step.partition);
            entry.is_some_and(|entry| entry.epoch == step.epoch) && state.moves().all(|known| known != *step)
        };
        self.proposed.retain(|_, (step, at)| now.saturating_sub(*at) < PROPOSAL_WAIT && is_open(step));
        let mut commands = self.renew_plan(state, now);
        let mut busy: BTreeMap<NodeId, usize> = BTreeMap::new();
        for PartitionMove { from, to, .. } in state.moves().chain(self.proposed.values().map(|(step, _)| *step)) {
            *busy.entry(from).or_default() += 1;
            *busy.entry(to).or_default() += 1;
        }
        let mut later = VecDeque::new();
        while let Some(step) = self.plan.steps.pop_front() {
            let PartitionMove { partition, from, to, epoch } = step;
            let entry = state.map().entry(partition);
            let is_current = entry.is_some_and(|entry| (entry.server, entry.epoch) == (from, epoch));
            let is_begun = self.proposed.contains_key(&partition);
            if !is_current || is_begun || state.moves().any(|known| known.partition == partition) {
                continue; // it has moved, or moves
            }
            let is_free = [from, to].iter().all(|node| {
                busy.get(node).copied().unwrap_or(0) < self.settings.moves_per_node && !self.is_silent(*node, now)
            });
            if !is_free || self.left_alone.contains_key(&partition) {
                later.push_back(step);
                continue;
            }
            for node in [from, to] {
                *busy.entry(node).or_default() += 1;
            }
            self.proposed.insert(partition, (step, now));
            commands.push(ClusterCommand::Propose(ClusterEntry::Begin(step)));
        }
        self.plan.steps = later;
        commands
    }

    /// Plans anew if the plan is too old, or the nodes have changed. It is for the map as it
    /// will be after the moves under way. Asks the nodes of which it must know more.
    fn renew_plan(&mut self, state: &ClusterState, now: Duration) -> Vec<ClusterCommand> {
        let capacities = state.capacities();
        let is_fresh = self.plan.made.is_some_and(|made| now.saturating_sub(made) < self.settings.plan_age_max);
        if is_fresh && self.plan.capacities == capacities {
            return Vec::new();
        }
        let mut map = state.map().clone();
        // Also after those that are to begin: otherwise others would take their place.
        for PartitionMove { partition, to, .. } in state.moves().chain(self.proposed.values().map(|(step, _)| *step)) {
            if let Some(entry) = map.entry(partition).map(|entry| entry.moved(to)) {
                map.learn(partition, entry);
            }
        }
        let mut steps = VecDeque::new();
        if capacities.values().any(|capacity| *capacity > 0) {
            steps.extend(plan_moves(&map, &capacities, |partition| self.load(state, partition)));
        }
        // What a lost node served does not move.
        steps.retain(|step| capacities.contains_key(&step.from));
        let is_needed = !steps.is_empty();
        // What its partitions weigh decides which of them go.
        let unknown: BTreeSet<NodeId> =
            steps.iter().map(|step| step.from).filter(|node| !self.has_loads(*node)).collect();
        steps.retain(|step| !unknown.contains(&step.from));
        let ask = unknown.iter().copied().map(ClusterCommand::AskLoads).collect();
        self.plan = MovePlan { capacities, steps, is_needed, unknown, made: Some(now) };
        ask
    }

    fn load(&self, state: &ClusterState, partition: PartitionId) -> PartitionLoad {
        let report = state.map().node(partition).and_then(|node| self.reports.get(&node));
        let loads = report.and_then(|(report, _)| report.loads.as_ref());
        loads.and_then(|loads| loads.get(&partition)).copied().unwrap_or_default()
    }

    fn has_loads(&self, node: NodeId) -> bool {
        self.reports.get(&node).is_some_and(|(report, _)| report.loads.is_some())
    }

    /// True if reports should have the loads of partitions: some are to move.
    pub fn wants_loads(&self) -> bool {
        self.plan.is_needed
    }

    /// The nodes that have not reported for a while.
    pub fn silent_nodes(&self, state: &ClusterState, now: Duration) -> BTreeSet<NodeId> {
        state.capacities().into_keys().filter(|node| self.is_silent(*node, now)).collect()
    }

    /// Ends the drained nodes that serve nothing, and that nobody of their hosts needs.
    fn stop_drained(&self, state: &ClusterState) -> Vec<ClusterCommand> {
        let serving = state.map().partition_counts();
        let involved: BTreeSet<NodeId> = state.moves().flat_map(|step| [step.from, step.to]).collect();
        let unneeded = |node: &NodeId| {
            !serving.contains_key(node)
                && !involved.contains(node)
                && self.reports.get(node).is_some_and(|(report, _)| report.pins == 0)
        };
        let drained = state.nodes().iter().filter(|(_, node)| node.phase == NodePhase::Draining);
        drained.map(|(id, _)| *id).filter(unneeded).map(ClusterCommand::StopNode).collect()
    }

    /// True if a node has not reported for a while. One that has never reported counts from the
    /// moment at which this leader has first heard of it.
    fn is_silent(&self, node: NodeId, now: Duration) -> bool {
        let last = self.reports.get(&node).map(|(_, at)| *at).or(self.known_since.get(&node).copied()).unwrap_or(now);
        now.saturating_sub(last) > self.settings.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterAnswer;
    use placement::PartitionMap;
    use test_support::Random;

    const PARTITIONS: u32 = 64;

    /// A pool whose nodes copy partitions for a while, fail to, fall silent, and whose leader
    /// changes. Its log is late, and may have entries twice.
    struct World {
        state: ClusterState,
        leader: Coordinator,
        random: Random,
        now: Duration,
        log: VecDeque<ClusterEntry>,
        /// Copies under way, with the seconds that are left.
        copies: BTreeMap<PartitionId, (PartitionMove, u32)>,
        ready: BTreeSet<PartitionId>,
        silent: BTreeSet<NodeId>,
        stopped: BTreeSet<NodeId>,
        commits: usize,
    }

    impl World {
        fn new(nodes: u32, seed: u64) -> Self {
            let shares: Vec<(NodeId, u64)> = (1..=nodes).map(|id| (NodeId(id), 1)).collect();
            let map = PartitionMap::proportional(&shares, PARTITIONS).unwrap();
            let state = ClusterState::new(map, (1..=nodes).map(|id| (NodeId(id), "".into(), 100)));
            Self {
                state,
                leader: Coordinator::default(),
                random: Random::new(seed),
                now: Duration::ZERO,
                log: VecDeque::new(),
                copies: BTreeMap::new(),
                ready: BTreeSet::new(),
                silent: BTreeSet::new(),
                stopped: BTreeSet::new(),
                commits: 0,
            }
        }

        fn join(&mut self, token: u64) -> NodeId {
            let entry = ClusterEntry::Join { token, address: "".into(), capacity: 100 };
            let Ok(ClusterAnswer::Joined(id)) = self.state.apply(&entry) else { panic!("{entry:?}") };
            self.state.apply(&ClusterEntry::Admit(id)).unwrap();
            id
        }

        fn hear(&mut self, event: ClusterEvent) {
            for command in self.leader.on(event, &self.state, self.now) {
                match command {
                    ClusterCommand::Propose(entry) => {
                        if self.random.one_in(10) {
                            self.log.push_back(entry.clone());
                        }
                        self.log.push_back(entry);
                    }
                    ClusterCommand::StartMove(step) => {
                        let takes = 1 + self.random.below(4_u32);
                        self.copies.entry(step.partition).or_insert((step, takes));
                    }
                    ClusterCommand::AskLoads(_) => {}
                    ClusterCommand::StopNode(node) => {
                        assert!(!self.state.map().partition_counts().contains_key(&node), "{node} serves");
                        self.stopped.insert(node);
                        self.log.push_back(ClusterEntry::Leave { node, lost: false });
                    }
                }
            }
        }

        fn second(&mut self, faults: bool) {
            self.now += Duration::from_secs(1);
            let present = self.state.capacities().into_keys().filter(|node| !self.silent.contains(node));
            for node in present.collect::<Vec<_>>() {
                let report = NodeReport { loads: Some(BTreeMap::new()), ..NodeReport::default() };
                self.hear(ClusterEvent::Report { node, report });
            }
            if faults && self.random.one_in(20) {
                self.leader = Coordinator::default();
            }
            self.copy(faults);
            self.hear(ClusterEvent::Tick);
            let late = if faults { self.random.below(3) } else { 0 };
            while self.log.len() > late {
                let entry = self.log.pop_front().unwrap();
                self.apply(&entry);
            }
            self.check();
        }

        fn copy(&mut self, faults: bool) {
            let ended: Vec<PartitionMove> =
                self.copies.values().filter(|(_, left)| *left == 0).map(|(step, _)| *step).collect();
            self.copies.values_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            for step in ended {
                if self.silent.contains(&step.to) || self.silent.contains(&step.from) {
                    continue;
                }
                if faults && self.random.one_in(8) {
                    // Once it is ready, a target stays so until the end of the move.
                    if !self.ready.contains(&step.partition) {
                        self.copies.remove(&step.partition);
                    }
                    self.hear(ClusterEvent::MoveFailed(step));
                } else {
                    self.ready.insert(step.partition);
                    self.hear(ClusterEvent::MoveReady(step));
                }
            }
        }

        fn apply(&mut self, entry: &ClusterEntry) {
            let before = self.state.clone();
            let done = self.state.apply(entry);
            if let (ClusterEntry::Commit(step), Ok(_)) = (entry, done)
                && before.map().node(step.partition) != self.state.map().node(step.partition)
            {
                self.commits += 1;
                assert!(self.ready.remove(&step.partition), "a target that is not ready does not serve");
            }
            // Source and target learn the partition's next entry, and with it the end of the move.
            let state = &self.state;
            let goes_on = |step: &PartitionMove| state.moves().any(|known| known == *step);
            self.copies.retain(|_, (step, _)| goes_on(step));
            let copies = &self.copies;
            self.ready.retain(|partition| copies.contains_key(partition));
        }

        fn check(&self) {
            let mut busy: BTreeMap<NodeId, usize> = BTreeMap::new();
            for step in self.state.moves() {
                for node in [step.from, step.to] {
                    *busy.entry(node).or_default() += 1;
                }
                assert_ne!(self.state.nodes()[&step.to].phase, NodePhase::Draining);
            }
            // Entries that are late or double may be more than a leader knows of.
            assert!(busy.values().all(|moves| *moves <= 2 * self.leader.settings.moves_per_node), "{busy:?}");
        }

        /// Goes on until nothing has happened for longer than anything is put off.
        fn settle(&mut self) {
            let mut quiet = 0;
            for _ in 0..1000 {
                self.second(false);
                let is_quiet = self.log.is_empty() && self.state.moves().next().is_none();
                quiet = if is_quiet { quiet + 1 } else { 0 };
                if quiet == 12 {
                    return;
                }
            }
            panic!("it never ends: {:?}", self.state);
        }

        fn counts(&self) -> Vec<u32> {
            self.state.map().partition_counts().into_values().collect()
        }
    }

    #[test]
    fn no_more_moves_begin_than_nodes_may_have_while_the_log_is_late() {
        let mut world = World::new(2, 3);
        world.join(99);
        for node in 1..=3 {
            let report = NodeReport { loads: Some(BTreeMap::new()), ..NodeReport::default() };
            world.leader.on(ClusterEvent::Report { node: NodeId(node), report }, &world.state, world.now);
        }
        let is_begin = |command: &ClusterCommand| matches!(command, ClusterCommand::Propose(ClusterEntry::Begin(_)));
        let most = world.leader.settings.moves_per_node;
        let mut tick = || {
            let commands = world.leader.on(ClusterEvent::Tick, &world.state, world.now);
            commands.into_iter().filter(is_begin).count()
        };
        assert_eq!([tick(), tick(), tick()], [most, 0, 0]);
    }

    #[test]
    fn a_node_is_asked_what_its_partitions_weigh_and_the_plan_is_made_when_it_says_so() {
        let mut world = World::new(1, 5);
        let tick = |world: &mut World| world.leader.on(ClusterEvent::Tick, &world.state, world.now);
        let report = |loads| NodeReport { loads, ..NodeReport::default() };
        world.leader.on(ClusterEvent::Report { node: NodeId(1), report: report(None) }, &world.state, world.now);
        assert_eq!(tick(&mut world), [], "nothing is to move");
        let fresh = world.join(70);
        world.leader.on(ClusterEvent::Report { node: fresh, report: report(None) }, &world.state, world.now);
        assert_eq!(tick(&mut world), [ClusterCommand::AskLoads(NodeId(1))]);
        assert_eq!(tick(&mut world), [], "once");
        let known = ClusterEvent::Report { node: NodeId(1), report: report(Some(BTreeMap::new())) };
        world.leader.on(known, &world.state, world.now);
        assert_eq!(tick(&mut world).len(), world.leader.settings.moves_per_node, "and they begin without waiting");
    }

    #[test]
    fn plans_that_are_made_while_the_log_is_late_count_what_is_to_begin() {
        for seed in 0..50 {
            let mut world = World::new(2, seed);
            world.join(99);
            let mut begun = 0;
            while begun < 21 {
                for node in 1..=3 {
                    let report = NodeReport { loads: Some(BTreeMap::new()), ..NodeReport::default() };
                    world.leader.on(ClusterEvent::Report { node: NodeId(node), report }, &world.state, world.now);
                }
                world.leader.on(ClusterEvent::Tick, &world.state, world.now);
                let planned = world.leader.plan.steps.len() + world.leader.proposed.len() + begun;
                assert_eq!(planned, 21, "seed {seed}: a third of 64, after {begun}");
                // Of those that are to begin, the log gets one.
                let steps: Vec<_> = world.leader.proposed.values().map(|(step, _)| *step).collect();
                let step = world.random.pick(&steps);
                world.state.apply(&ClusterEntry::Begin(step)).unwrap();
                world.state.apply(&ClusterEntry::Commit(step)).unwrap();
                begun += 1;
                world.now += Duration::from_secs(1);
            }
        }
    }

    #[test]
    fn a_pool_that_grows_moves_each_partition_once_and_ends_even() {
        let mut world = World::new(2, 1);
        world.join(70);
        world.join(71);
        world.settle();
        assert_eq!(world.counts(), [16; 4]);
        assert_eq!(world.commits, 32, "half of them, each once");
        world.settle();
        assert_eq!(world.commits, 32, "and then nothing");
    }

    #[test]
    fn a_drained_node_is_ended_when_it_has_nothing_left_and_nobody_needs_it() {
        let mut world = World::new(4, 2);
        world.state.apply(&ClusterEntry::Drain(NodeId(2))).unwrap();
        world.second(false);
        assert!(world.stopped.is_empty());
        world.settle();
        assert_eq!((world.stopped.iter().copied().collect::<Vec<_>>(), world.counts().len()), (vec![NodeId(2)], 3));
        let mut coordinator = Coordinator::default();
        let mut state = World::new(2, 3).state;
        let third = ClusterEntry::Join { token: 9, address: "".into(), capacity: 0 };
        state.apply(&third).unwrap();
        state.apply(&ClusterEntry::Drain(NodeId(3))).unwrap();
        let report =
            |pins| ClusterEvent::Report { node: NodeId(3), report: NodeReport { pins, ..NodeReport::default() } };
        let mut stops = |pins| {
            coordinator.on(report(pins), &state, Duration::ZERO);
            coordinator.on(ClusterEvent::Tick, &state, Duration::ZERO).contains(&ClusterCommand::StopNode(NodeId(3)))
        };
        assert!(!stops(1) && stops(0), "a mount of its host needs it");
    }

    #[test]
    fn a_silent_target_gets_nothing_and_its_moves_are_given_up() {
        let mut world = World::new(2, 4);
        let fresh = world.join(70);
        world.second(false);
        assert!(world.state.moves().next().is_some());
        world.silent.insert(fresh);
        world.settle();
        assert_eq!((world.state.moves().count(), world.counts().len()), (0, 2), "and it got nothing");
        world.silent.clear();
        world.settle();
        assert_eq!(world.counts(), [22, 21, 21]);
    }

    #[test]
    fn a_node_that_has_just_joined_is_silent_only_if_it_does_not_report_for_a_while() {
        let (mut world, mut leader) = (World::new(1, 1), Coordinator::default());
        leader.on(ClusterEvent::Tick, &world.state, Duration::ZERO);
        let (joined, node) = (Duration::from_mins(1), world.join(7));
        leader.on(ClusterEvent::Tick, &world.state, joined);
        assert_eq!(leader.silent_nodes(&world.state, joined), [NodeId(1)].into());
        let later = joined + leader.settings.silence + Duration::from_millis(1);
        assert!(leader.silent_nodes(&world.state, later).contains(&node));
    }

    #[test]
    fn pools_become_even_whatever_fails_on_the_way() {
        for seed in 0..40 {
            let mut world = World::new(1 + u32::try_from(seed % 4).unwrap(), seed);
            for token in 100..104 {
                world.join(token);
                for _ in 0..15 {
                    world.second(true);
                }
            }
            let drained = world.random.pick(&[1, 2, 3]);
            world.state.apply(&ClusterEntry::Drain(NodeId(drained))).unwrap();
            for _ in 0..20 {
                world.second(true);
            }
            world.settle();
            let (least, most) = (world.counts().into_iter().min().unwrap(), world.counts().into_iter().max().unwrap());
            assert!(most - least <= 1 && world.state.moves().count() == 0, "seed {seed}: {:?}", world.counts());
            assert!(world.stopped.contains(&NodeId(drained)), "seed {seed}");
        }
    }
}
