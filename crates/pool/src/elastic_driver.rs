//! Lets a pool grow and shrink by itself: looks at its usage once a second, decides by a policy,
//! and has a provisioner start and end machines.
//!
//! ```text
//!            +--- Add ----> Growing: the provisioner starts nodes, which join
//!   Idle ----+                  |
//!     ^      +-- Remove --> Quiescing: nodes get no more work, and end what they have
//!     |                     Shrinking: nodes are drained, and leave; if the others get full
//!     |                         |      meanwhile, those that are still there stay
//!     +-------------------------+
//! ```
//! With this process ends growing by itself. While it lives the managers hear of it each second, so
//! that requests wait longer for space while nodes may come.

use crate::{
    connect::runtime,
    provisioner::Provisioner,
    resize::{CHANGE_PATIENCE, ResizedPool, is_settled, present_nodes},
};
use base::Problem;
use cluster::{ClusterEntry, ElasticPolicy, ForeseenUse, MemoryUse, NodeLimits, NodePhase, ScaleDecision};
use manager::{ClusterStatus, ElasticReport};
use placement::NodeId;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::Runtime,
    select,
    sync::watch,
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

/// Interval of looks at the pool.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a start that has failed; doubled with each further one, up to the last.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
const RETRY_PAUSE_MAX: Duration = Duration::from_mins(2);
/// Number of looks at a pool without an answer after which it is given up.
const FAILED_TURNS_MAX: u32 = 5;
/// Number of failed starts after which requests wait no longer for space than otherwise.
const FAILURES_MAX: u32 = 3;

/// How a pool grows and shrinks by itself.
#[derive(Clone, Debug)]
pub struct ElasticSpec {
    /// The policy, as it is written.
    pub text: String,
    /// The policy.
    pub policy: ElasticPolicy,
    /// The least and the most nodes.
    pub limits: NodeLimits,
}

/// Something that the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElasticEvent {
    /// The pool is to have more nodes.
    Grows(String),
    /// These nodes have joined.
    Joined(Vec<u32>),
    /// No node could be started, and why.
    Failed(Problem),
    /// The pool is to have fewer nodes.
    Shrinks(String),
    /// These nodes have left.
    Left(Vec<u32>),
    /// The nodes that were to leave stay: the pool fills again.
    Stays(Vec<u32>),
}

/// What is foreseen of the memory that will be used.
pub type Foresight = Box<dyn Fn() -> Option<ForeseenUse> + Send>;

/// Lets a pool grow and shrink by itself.
pub struct ElasticDriver {
    path: PathBuf,
    spec: ElasticSpec,
    provisioner: Arc<dyn Provisioner>,
    foresight: Foresight,
    /// Nodes that hold no data to speak of, and neither count nor leave.
    uncounted: BTreeSet<NodeId>,
    /// The number of nodes at the start.
    initial: u32,
    began: Instant,
    change: PoolChange,
    /// Starts that have failed one after the other, and the time before which none is tried.
    failures: u32,
    not_before: Instant,
    /// A decision for the event log of the managers.
    news: Option<String>,
}

/// The change of the pool that is under way.
enum PoolChange {
    None,
    Growing(JoinHandle<Result<Vec<u32>, Problem>>),
    Quiescing(BTreeSet<NodeId>),
    Shrinking(BTreeSet<NodeId>),
}

impl ElasticDriver {
    /// For the pool of the pool file at `path`. `foresight` tells what will be used, if that is
    /// known.
    pub fn new(path: PathBuf, spec: ElasticSpec, provisioner: Arc<dyn Provisioner>, foresight: Foresight) -> Self {
        let now = Instant::now();
        Self {
            path,
            spec,
            provisioner,
            foresight,
            uncounted: BTreeSet::new(),
            initial: 0,
            began: now,
            change: PoolChange::None,
            failures: 0,
            not_before: now,
            news: None,
        }
    }

    /// Leaves a node out of account, which holds no data to speak of and never leaves.
    #[must_use]
    pub fn without(mut self, node: NodeId) -> Self {
        self.uncounted.insert(node);
        self
    }

    /// Goes on until `end` is true, or until the pool has no manager for long. What is under way is
    /// then finished (a start) or given up (a node that is drained stays). Blocks.
    ///
    /// # Errors
    /// If the pool does not answer at the start, or has ended.
    pub fn run(
        mut self,
        mut end: watch::Receiver<bool>,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<(), Problem> {
        let runtime = runtime()?;
        let path = self.path.clone();
        let mut pool = ResizedPool::open(&path, CHANGE_PATIENCE)?;
        let status = runtime.block_on(pool.status())?;
        self.initial = u32::try_from(self.serving(&status).count()).unwrap_or(u32::MAX);
        let uncounted = u32::try_from(self.uncounted.len()).unwrap_or(u32::MAX);
        let limits = &mut self.spec.limits;
        limits.max = limits.max.min(pool.file.max_nodes.saturating_sub(uncounted));
        let (provisioner, mut failed_turns) = (self.provisioner.clone(), 0);
        while !*end.borrow_and_update() {
            let turned = self.turn(&runtime, &pool, on_event);
            failed_turns = if turned.is_ok() { 0 } else { failed_turns + 1 };
            match turned {
                Ok(false) => {}
                Ok(true) => pool = ResizedPool::open(&path, CHANGE_PATIENCE)?,
                Err(problem) if failed_turns < FAILED_TURNS_MAX => {
                    // Nodes may have changed otherwise; a pool that has ended has no file.
                    pool = ResizedPool::open(&path, CHANGE_PATIENCE)?;
                    tracing::warn!("{problem}");
                }
                Err(problem) => return Err(problem),
            }
            runtime.block_on(async {
                select! {
                    () = sleep(POLL_INTERVAL) => {}
                    // Its other end lives as long as this.
                    _ = end.changed() => {}
                }
            });
        }
        provisioner.cancel();
        self.finish(&runtime, &pool, on_event)
    }

    /// One look at the pool. True if its nodes have changed.
    fn turn(
        &mut self,
        runtime: &Runtime,
        pool: &ResizedPool,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<bool, Problem> {
        let status = runtime.block_on(pool.status())?;
        let has_changed = match &mut self.change {
            PoolChange::Growing(start) if start.is_finished() => {
                let PoolChange::Growing(start) = std::mem::replace(&mut self.change, PoolChange::None) else {
                    unreachable!("it was just that")
                };
                self.take_started(runtime.block_on(start), on_event)
            }
            PoolChange::None | PoolChange::Growing(_) => false,
            PoolChange::Quiescing(nodes) => {
                let nodes = nodes.clone();
                self.look_at_quiescing(runtime, pool, &status, &nodes, on_event)?;
                false
            }
            PoolChange::Shrinking(nodes) => {
                let nodes = nodes.clone();
                self.look_at_leaving(runtime, pool, &status, &nodes, on_event)?
            }
        };
        if matches!(self.change, PoolChange::None) && !has_changed {
            self.decide(runtime, pool, &status, on_event)?;
        }
        let report = ElasticReport {
            policy: self.spec.text.clone(),
            min: self.spec.limits.min,
            max: self.spec.limits.max,
            growth_wait: self.growth_wait(&status),
            event: self.news.take(),
        };
        // A leader that is lost is asked again with the next look.
        drop(runtime.block_on(pool.managers.report_elastic(Some(report))));
        Ok(has_changed)
    }

    /// The time for which requests wait for space: until more nodes have come, if some may.
    fn growth_wait(&self, status: &ClusterStatus) -> Duration {
        let nodes = u32::try_from(self.serving(status).count()).unwrap_or(u32::MAX);
        let is_under_way = matches!(self.change, PoolChange::Growing(_)) || status.state.moves().next().is_some();
        let is_allowed = nodes < self.spec.limits.max && self.failures < FAILURES_MAX;
        if is_under_way || is_allowed { self.provisioner.time_out() } else { Duration::ZERO }
    }

    fn decide(
        &mut self,
        runtime: &Runtime,
        pool: &ResizedPool,
        status: &ClusterStatus,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<(), Problem> {
        let decision = self.decision(status);
        match decision {
            ScaleDecision::Stay(_) => {}
            ScaleDecision::Add { .. } if Instant::now() < self.not_before => {}
            ScaleDecision::Add { nodes, .. } => {
                let text = decision.to_string();
                self.news = Some(format!("{} {text}", self.spec.text));
                on_event(ElasticEvent::Grows(text));
                let provisioner = self.provisioner.clone();
                let _entered = runtime.enter();
                self.change = PoolChange::Growing(spawn_blocking(move || provisioner.start(nodes)));
            }
            ScaleDecision::Remove { nodes, .. } => {
                let leaving = self.leaving(status, nodes);
                if leaving.is_empty() {
                    return Ok(());
                }
                let text = decision.to_string();
                self.news = Some(format!("{} {text}", self.spec.text));
                on_event(ElasticEvent::Shrinks(text));
                self.change = PoolChange::Quiescing(leaving.clone());
                self.look_at_quiescing(runtime, pool, status, &leaving, on_event)?;
            }
        }
        Ok(())
    }

    fn decision(&mut self, status: &ClusterStatus) -> ScaleDecision {
        let capacities: Vec<u64> = self.serving(status).map(|node| status.state.nodes()[&node].capacity).collect();
        let reports = self.serving(status).filter_map(|node| status.usage.get(&node));
        let (used, waiting) =
            reports.fold((0, 0), |(used, waiting), usage| (used + usage.used, waiting + usage.waiting));
        // Space comes to those who wait while partitions move to nodes that have just joined.
        let is_short = waiting > 0 && is_settled(status);
        let usage = MemoryUse { used, capacities: &capacities, is_short, foreseen: (self.foresight)() };
        self.spec.policy.decide(usage, self.initial, self.spec.limits, self.began.elapsed())
    }

    /// The nodes that take partitions, but those that do not count.
    fn serving(&self, status: &ClusterStatus) -> impl Iterator<Item = NodeId> {
        let serves = |node: &NodeId| status.state.nodes()[node].phase == NodePhase::Serving;
        present_nodes(status).filter(move |node| serves(node) && !self.uncounted.contains(node))
    }

    /// The nodes that leave: those that the provisioner has started, the last one first.
    fn leaving(&self, status: &ClusterStatus, count: u32) -> BTreeSet<NodeId> {
        let present: BTreeSet<NodeId> = self.serving(status).filter(|node| !status.silent.contains(node)).collect();
        let started = self.provisioner.started().into_iter().map(NodeId).filter(|node| present.contains(node));
        started.take(count as usize).collect()
    }

    /// Takes the result of a start. True if nodes have joined.
    fn take_started(
        &mut self,
        started: Result<Result<Vec<u32>, Problem>, tokio::task::JoinError>,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> bool {
        match started.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
            Ok(nodes) => {
                self.failures = 0;
                on_event(ElasticEvent::Joined(nodes));
                true
            }
            Err(problem) => {
                let pause = RETRY_PAUSE.saturating_mul(1 << self.failures.min(10)).min(RETRY_PAUSE_MAX);
                self.failures += 1;
                self.not_before = Instant::now() + pause;
                self.news = Some(format!("no node could be added: {}", problem.message));
                on_event(ElasticEvent::Failed(problem));
                false
            }
        }
    }

    /// Drains the nodes that are to leave as soon as they have no work, unless they have to stay.
    fn look_at_quiescing(
        &mut self,
        runtime: &Runtime,
        pool: &ResizedPool,
        status: &ClusterStatus,
        nodes: &BTreeSet<NodeId>,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<(), Problem> {
        if self.provisioner.quiesce(&ids(nodes)) {
            for node in nodes {
                let drained = runtime.block_on(pool.managers.propose(ClusterEntry::Drain(*node)));
                drained.map_err(|error| crate::resize::manager_problem(&error))?;
            }
            self.change = PoolChange::Shrinking(nodes.clone());
        } else if matches!(self.decision(status), ScaleDecision::Add { .. }) {
            self.provisioner.readmit(&ids(nodes));
            self.change = PoolChange::None;
            on_event(ElasticEvent::Stays(ids(nodes)));
        }
        Ok(())
    }

    /// Looks whether nodes have left, or have to stay. True if they have left.
    fn look_at_leaving(
        &mut self,
        runtime: &Runtime,
        pool: &ResizedPool,
        status: &ClusterStatus,
        nodes: &BTreeSet<NodeId>,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<bool, Problem> {
        let phase = |node: &NodeId| status.state.nodes().get(node).map(|known| known.phase);
        if nodes.iter().all(|node| matches!(phase(node), None | Some(NodePhase::Left))) {
            self.change = PoolChange::None;
            pool.write_file(runtime)?;
            self.provisioner.release(&ids(nodes));
            on_event(ElasticEvent::Left(ids(nodes)));
            return Ok(true);
        }
        if matches!(self.decision(status), ScaleDecision::Add { .. }) {
            self.keep(runtime, pool, nodes);
            self.news = Some("the nodes that were to leave stay: the pool fills again".to_owned());
            self.change = PoolChange::None;
            on_event(ElasticEvent::Stays(ids(nodes)));
        }
        Ok(false)
    }

    /// Lets nodes that are drained stay.
    fn keep(&self, runtime: &Runtime, pool: &ResizedPool, nodes: &BTreeSet<NodeId>) {
        self.provisioner.readmit(&ids(nodes));
        for node in nodes {
            // One that has left meanwhile cannot stay.
            drop(runtime.block_on(pool.managers.propose(ClusterEntry::Admit(*node))));
        }
    }

    fn finish(
        mut self,
        runtime: &Runtime,
        pool: &ResizedPool,
        on_event: &mut dyn FnMut(ElasticEvent),
    ) -> Result<(), Problem> {
        drop(runtime.block_on(pool.managers.report_elastic(None)));
        match std::mem::replace(&mut self.change, PoolChange::None) {
            PoolChange::None => {}
            PoolChange::Quiescing(nodes) => self.provisioner.readmit(&ids(&nodes)),
            PoolChange::Growing(start) => drop(self.take_started(runtime.block_on(start), on_event)),
            PoolChange::Shrinking(nodes) => {
                self.keep(runtime, pool, &nodes);
                pool.write_file(runtime)?;
            }
        }
        Ok(())
    }
}

fn ids(nodes: &BTreeSet<NodeId>) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}
