//! Grows and shrinks a pool that runs.
//!
//! ```text
//!   grow:   launch nodes --Listening--> Join (managers: an id) --Joined--> Ready --> pool file
//!           --> Detach --> Admit; then partitions move to them, until each has its share
//!   shrink: Drain (managers) ... partitions move away ... the node ends --> pool file
//! ```
//! What was begun goes on without this process; it only shows the progress. If it is interrupted,
//! it has the managers take back what they were asked for.

use crate::{
    NodeEntry, PoolFile,
    bootstrap::{BootstrapPlan, StarterMessage, VERSION},
    connect::{PoolSecret, parse_entry, runtime},
    launch::{BootstrapLink, Launched, NodeCommandLine},
    pins::{DrainedPins, unknown_node},
    start::{PoolSpec, START_WAIT, collect_entries, node_specs, wait_until_ready},
    status::{NodeState, query_status},
};
use base::{ByteSize, Problem};
use client::Connection;
use cluster::{ClusterAnswer, ClusterEntry, NodePhase, PartitionLoad, PartitionMove, plan_moves};
use manager::{ClusterStatus, ManagerError, PinList, RemoteManager};
use placement::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{select, signal, time::sleep};

/// Interval at which progress is asked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time to wait for a leader while a pool is changed, and before its status is shown.
pub const CHANGE_PATIENCE: Duration = Duration::from_secs(30);
pub const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// Time for a node of this machine to end after it has left.
const END_WAIT: Duration = Duration::from_secs(10);
/// Most memory of the nodes that stay, in percent, that the data may take when others leave.
const FILL_PERCENT_MAX: u64 = 95;

/// The nodes that a pool is to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShrinkTarget {
    /// This node.
    Node(u32),
    /// This number of nodes: those that joined last.
    Count(u32),
}

/// The progress of a change of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeProgress {
    /// Number of partitions that are still to move.
    pub left: usize,
    /// Number of partitions that move now.
    pub moving: usize,
    /// The last event of the managers.
    pub last_event: Option<String>,
    /// Drained nodes that serve nothing any more, and what their hosts have there: they live until
    /// that has ended. A node that does not answer has a reason instead.
    pub waiting: Vec<(u32, Result<PinList, String>)>,
}

/// The result of a change of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// The nodes that have joined or left.
    pub nodes: Vec<u32>,
    /// True if it was interrupted, and taken back.
    pub cancelled: bool,
    /// What was ended by force at each node.
    pub ended: Vec<(u32, PinList)>,
    /// The nodes of the pool that do not answer: nothing moves from them or to them.
    pub silent: Vec<u32>,
}

/// Starts nodes and has them join the pool at `path`; returns when they have their shares.
/// `spec` says where they run, with how much memory and how many slots, and by which program.
///
/// # Errors
/// If the pool may not have so many nodes, or a node cannot start: then nothing is left of it. If
/// no manager answers.
pub fn grow(path: &Path, spec: &PoolSpec, progress: &mut dyn FnMut(ResizeProgress)) -> Result<Resized, Problem> {
    let runtime = runtime()?;
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    let nodes = pool.launch(&runtime, spec, Vec::new())?;
    let nodes: Vec<u32> = nodes.into_iter().map(|node| node.0).collect();
    let settled = runtime.block_on(async {
        select! {
            settled = pool.settle(progress) => settled.map(Some),
            _ = signal::ctrl_c() => Ok(None),
        }
    });
    let Some(silent) = settled? else {
        let target = nodes.iter().map(|id| NodeId(*id)).collect();
        runtime.block_on(pool.drain(&target, false, progress))?;
        pool.write_file(&runtime)?;
        return Ok(Resized { nodes, cancelled: true, ..Resized::default() });
    };
    Ok(Resized { nodes, silent, ..Resized::default() })
}

/// Has nodes leave the pool at `path`: moves what they hold to the others, and ends them. With
/// `force` it ends what their hosts have there, instead of waiting for the end of that.
///
/// # Errors
/// If the others cannot hold the data, the pool has no such node, or no manager answers.
pub fn shrink(
    path: &Path,
    target: ShrinkTarget,
    force: bool,
    progress: &mut dyn FnMut(ResizeProgress),
) -> Result<Resized, Problem> {
    let runtime = runtime()?;
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    let status = runtime.block_on(pool.status())?;
    let leaving = choose(&status, target)?;
    let serving = status.state.map().partition_counts();
    if let Some(node) = leaving.iter().find(|node| status.silent.contains(node) && serving.contains_key(node)) {
        return Err(Problem::new(format!("node {node} does not answer, so what it holds cannot move to others"))
            .hint("it keeps that, and goes on when it answers again; `tidemill pool status` shows its process"));
    }
    check_space(path, &pool.file, &leaving)?;
    let ended = runtime.block_on(async {
        select! {
            ended = pool.drain(&leaving, force, progress) => ended.map(Some),
            _ = signal::ctrl_c() => Ok(None),
        }
    })?;
    let cancelled = ended.is_none();
    if cancelled {
        for node in &leaving {
            // One that has left meanwhile cannot stay.
            drop(runtime.block_on(pool.managers.propose(ClusterEntry::Admit(*node))));
        }
    }
    pool.write_file(&runtime)?;
    if !cancelled {
        let left = pool.file.nodes.iter().filter(|entry| leaving.contains(&NodeId(entry.id)));
        for process in left.filter_map(|entry| entry.process.open()) {
            process.wait(END_WAIT);
        }
    }
    let nodes = leaving.into_iter().map(|node| node.0).collect();
    Ok(Resized { nodes, cancelled, ended: ended.unwrap_or_default(), silent: Vec::new() })
}

/// Asks for the knowledge of the managers of the pool at `path`.
///
/// # Errors
/// If the file is no pool file, or no manager answers.
pub fn cluster_status(path: &Path) -> Result<ClusterStatus, Problem> {
    runtime()?.block_on(ResizedPool::open(path, STATUS_PATIENCE)?.status())
}

/// A pool that is changed.
pub struct ResizedPool<'a> {
    path: &'a Path,
    pub file: PoolFile,
    secret: PoolSecret,
    pub managers: RemoteManager,
}

impl<'a> ResizedPool<'a> {
    /// Opens the pool of a pool file. Waits for so long for a leader.
    pub fn open(path: &'a Path, patience: Duration) -> Result<Self, Problem> {
        let file = PoolFile::read(path)?;
        let secret = file.secret(path)?;
        let managers = RemoteManager::new(connections(&secret, &file.nodes)).with_patience(patience);
        Ok(Self { path, file, secret, managers })
    }

    /// Reaches each of these nodes.
    pub fn reach(&self, entries: &[NodeEntry]) -> RemoteManager {
        RemoteManager::new(connections(&self.secret, entries))
    }

    /// Asks for the managers' knowledge.
    pub async fn status(&self) -> Result<ClusterStatus, Problem> {
        self.managers.status().await.map_err(|error| manager_problem(&error))
    }

    /// Refuses more nodes than the pool may have.
    fn check_count(&self, status: &ClusterStatus, wanted: usize) -> Result<(), Problem> {
        let (present, max) = (present_nodes(status).count(), self.file.max_nodes as usize);
        if present + wanted <= max {
            return Ok(());
        }
        let plural = if present == 1 { "" } else { "s" };
        Err(Problem::new(format!("the pool has {present} node{plural} and may have {max}: {wanted} more are too many"))
            .hint("a pool is made for a number of nodes: `tidemill pool start --max-nodes M`"))
    }

    /// Starts nodes, or takes these processes that the caller has started, has them join, and
    /// writes the pool file.
    pub fn launch(
        &self,
        runtime: &tokio::runtime::Runtime,
        spec: &PoolSpec,
        links: Vec<BootstrapLink>,
    ) -> Result<Vec<NodeId>, Problem> {
        let joined = self.launch_unadmitted(runtime, spec, links)?;
        // From now on they end no more with this process, and may take partitions.
        for node in &joined {
            runtime.block_on(self.admit(*node))?;
        }
        Ok(joined)
    }

    /// Lets a node take partitions that has joined.
    pub async fn admit(&self, node: NodeId) -> Result<(), Problem> {
        let admitted = self.managers.propose(ClusterEntry::Admit(node)).await;
        admitted.map(drop).map_err(|error| manager_problem(&error))
    }

    /// Like [`Self::launch`]; the nodes take no partitions yet.
    pub fn launch_unadmitted(
        &self,
        runtime: &tokio::runtime::Runtime,
        spec: &PoolSpec,
        links: Vec<BootstrapLink>,
    ) -> Result<Vec<NodeId>, Problem> {
        self.check_count(&runtime.block_on(self.status())?, spec.target.count() as usize)?;
        let (pool, token) = self.file.credentials();
        let plan = BootstrapPlan {
            version: VERSION.to_owned(),
            pool,
            token,
            identity: None,
            certificate: self.file.certificate(),
            own_identity: self.file.certificate().is_some(),
            partitions: self.file.partitions,
            space_wait: spec.space_wait,
            nodes: node_specs(spec)?,
        };
        let command_line = NodeCommandLine { program: spec.program.clone(), file: self.path.to_owned() };
        let mut launched = Launched::spawn(&spec.target, &command_line, links)?;
        let until = Instant::now() + START_WAIT;
        launched.send(&plan);
        let entries = collect_entries(&mut launched, &plan, until).map_err(of_new_nodes)?;
        let mut joined = BTreeMap::new();
        let ready = self.join(runtime, &entries, &mut joined).and_then(|()| {
            let map = runtime.block_on(self.status())?.state.map().clone();
            let ids = joined.iter().map(|(seat, node)| (*seat, node.0)).collect();
            launched.send(&StarterMessage::Joined(ids, Box::new(map)));
            wait_until_ready(&mut launched, &plan, until).map_err(of_new_nodes)?;
            self.write_file(runtime)
        });
        if let Err(problem) = ready {
            for node in joined.into_values() {
                drop(runtime.block_on(self.managers.propose(ClusterEntry::Leave { node, lost: false })));
            }
            return Err(problem);
        }
        launched.send(&StarterMessage::Detach);
        launched.release(until);
        Ok(joined.into_values().collect())
    }

    fn join(
        &self,
        runtime: &tokio::runtime::Runtime,
        entries: &[NodeEntry],
        joined: &mut BTreeMap<u32, NodeId>,
    ) -> Result<(), Problem> {
        for entry in entries {
            let address = serde_json::to_string(&NodeEntry { id: 0, ..entry.clone() });
            let address: Arc<str> = address.map_err(|error| Problem::new(error.to_string()))?.into();
            let mut token = [0; 8];
            rustix::rand::getrandom(&mut token[..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| Problem::new(format!("the system gives no random bytes: {error}")))?;
            let join = ClusterEntry::Join { token: u64::from_le_bytes(token), address, capacity: entry.memory };
            match runtime.block_on(self.managers.propose(join)).map_err(|error| manager_problem(&error))? {
                ClusterAnswer::Joined(node) => drop(joined.insert(entry.id, node)),
                ClusterAnswer::Done => return Err(Problem::new("the managers have given a node no id")),
            }
        }
        Ok(())
    }

    /// Waits until each node that answers has its share; returns those that do not.
    pub async fn settle(&self, progress: &mut dyn FnMut(ResizeProgress)) -> Result<Vec<u32>, Problem> {
        loop {
            let status = self.status().await?;
            let left = progress_of(&status);
            let is_done = left.left + left.moving == 0;
            progress(left);
            if is_done {
                return Ok(status.silent.iter().map(|node| node.0).collect());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Has nodes leave, and waits for that.
    /// Returns what it has ended by force.
    pub async fn drain(
        &self,
        nodes: &BTreeSet<NodeId>,
        force: bool,
        progress: &mut dyn FnMut(ResizeProgress),
    ) -> Result<Vec<(u32, PinList)>, Problem> {
        for node in nodes {
            self.managers.propose(ClusterEntry::Drain(*node)).await.map_err(|error| manager_problem(&error))?;
        }
        let mut pins = DrainedPins::new(self.reach(&entries_in(&self.status().await?)?), force);
        loop {
            let status = self.status().await?;
            let waiting: BTreeSet<NodeId> = status.waiting().intersection(nodes).copied().collect();
            for node in waiting.intersection(&status.silent).filter(|_| force) {
                // It serves nothing, and may never say again that it needs nothing.
                drop(self.managers.propose(ClusterEntry::Leave { node: *node, lost: false }).await);
            }
            pins.ask(&waiting).await;
            progress(ResizeProgress { waiting: pins.holding(), ..progress_of(&status) });
            let has_left = |node| status.state.nodes().get(node).is_none_or(|known| known.phase == NodePhase::Left);
            if nodes.iter().all(has_left) {
                return Ok(pins.into_ended());
            }
            check_answers(&status, nodes)?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Replaces the pool file by one that names the nodes of now.
    pub fn write_file(&self, runtime: &tokio::runtime::Runtime) -> Result<(), Problem> {
        let status = runtime.block_on(self.status())?;
        let mut file = self.file.clone();
        file.nodes = entries_in(&status)?;
        let failed = |error| Problem::new(format!("the pool file {} cannot be written: {error}", self.path.display()));
        file.write(self.path).map_err(failed)
    }
}

/// A problem of nodes that have no ids yet, and are counted from 1.
fn of_new_nodes(problem: Problem) -> Problem {
    Problem { message: format!("of the new nodes, {}", problem.message), ..problem }
}

pub fn connections(secret: &PoolSecret, nodes: &[NodeEntry]) -> Vec<(NodeId, Arc<dyn Connection>)> {
    let link = |node: &NodeEntry| {
        let remote = secret.remote(node).ok()?;
        Some((NodeId(node.id), Arc::new(remote) as Arc<dyn Connection>))
    };
    nodes.iter().filter_map(link).collect()
}

pub fn manager_problem(error: &ManagerError) -> Problem {
    let problem = Problem::new(error.to_string());
    match error {
        ManagerError::Refused(_) => problem,
        ManagerError::NoLeader(_) => problem.hint("`tidemill pool status` shows which nodes answer"),
    }
}

/// The entries of the nodes that have not left.
pub fn entries_in(status: &ClusterStatus) -> Result<Vec<NodeEntry>, Problem> {
    let entries = present_nodes(status).map(|node| {
        let known = &status.state.nodes()[&node];
        parse_entry(node, &known.address).map_err(|why| Problem::new(format!("node {node}: {why}")))
    });
    entries.collect()
}

/// The nodes that have not left.
pub fn present_nodes(status: &ClusterStatus) -> impl Iterator<Item = NodeId> {
    status.state.nodes().iter().filter(|(_, node)| node.phase != NodePhase::Left).map(|(id, _)| *id)
}

fn progress_of(status: &ClusterStatus) -> ResizeProgress {
    let state = &status.state;
    let planned = plan_moves(state.map(), &state.capacities(), |_| PartitionLoad::default());
    let is_possible = |step: &&PartitionMove| ![step.from, step.to].iter().any(|node| status.silent.contains(node));
    let last_event = status.events.last().map(|(_, event)| event.clone());
    let left = planned.iter().filter(is_possible).count();
    ResizeProgress { left, moving: state.moves().count(), last_event, waiting: Vec::new() }
}

/// True if no partition moves, and none is to.
pub fn is_settled(status: &ClusterStatus) -> bool {
    let ResizeProgress { left, moving, .. } = progress_of(status);
    left + moving == 0
}

fn choose(status: &ClusterStatus, target: ShrinkTarget) -> Result<BTreeSet<NodeId>, Problem> {
    let present: Vec<NodeId> = present_nodes(status).collect();
    match target {
        ShrinkTarget::Node(id) if !present.contains(&NodeId(id)) => Err(unknown_node(id, &present)),
        ShrinkTarget::Node(id) if present.len() > 1 => Ok([NodeId(id)].into()),
        ShrinkTarget::Count(count) if (count as usize) < present.len() => {
            Ok(present.into_iter().rev().take(count as usize).collect())
        }
        ShrinkTarget::Node(_) => Err(too_many_leave(1, 1)),
        ShrinkTarget::Count(count) => Err(too_many_leave(count, present.len())),
    }
}

/// The problem of a pool that would have no node left.
fn too_many_leave(leaving: u32, present: usize) -> Problem {
    let plural = if present == 1 { "" } else { "s" };
    Problem::new(format!("the pool has {present} node{plural}: {leaving} cannot leave, one must stay"))
        .hint("`tidemill pool stop` ends a pool")
}

/// Refuses to wait for a node that does not answer any more, and that still serves partitions.
fn check_answers(status: &ClusterStatus, leaving: &BTreeSet<NodeId>) -> Result<(), Problem> {
    let serving = status.state.map().partition_counts();
    let stuck = leaving.intersection(&status.silent).find_map(|node| Some((node, serving.get(node)?)));
    let Some((node, partitions)) = stuck else { return Ok(()) };
    Err(Problem::new(format!(
        "node {node} does not answer any more, so the {partitions} partitions that it holds cannot move"
    ))
    .hint("they are unavailable; if it answers again, they move and it leaves"))
}

/// Refuses to remove nodes if the others cannot hold the data.
fn check_space(path: &Path, file: &PoolFile, leaving: &BTreeSet<NodeId>) -> Result<(), Problem> {
    let (mut used, mut capacity) = (0, 0);
    for node in query_status(path, file)? {
        let NodeState::Up(up) = node.state else { continue };
        used += up.usage.used;
        capacity += if leaving.contains(&NodeId(node.entry.id)) { 0 } else { up.usage.capacity };
    }
    if u128::from(used) * 100 <= u128::from(capacity) * u128::from(FILL_PERCENT_MAX) {
        return Ok(());
    }
    let (used, capacity) = (ByteSize(used), ByteSize(capacity));
    Err(Problem::new(format!("the pool holds {used}, and the nodes that stay have {capacity}"))
        .hint("remove files, or let fewer nodes leave"))
}
