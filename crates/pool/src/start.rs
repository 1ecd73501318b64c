//! Starts a pool: all its nodes, or none.

use crate::{
    bootstrap::{AddressSource, BootstrapPlan, Memory, NodeMessage, NodeSpec, StarterMessage, VERSION, partition_map},
    file::{NodeEntry, PoolFile},
    launch::{BootstrapLink, LaunchTarget, Launched, NodeCommandLine},
    start_lock::StartLock,
    status::{NodeState, query_status},
};
use base::Problem;
use placement::{NodeId, PartitionMap};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use transport::Identity;

/// Time limit for all nodes to be ready. Starting a process takes milliseconds, SSH to a slow host
/// seconds, and `srun` may have to wait for a host to come up.
pub(crate) const START_WAIT: Duration = Duration::from_mins(1);
/// Length of a token before it is encoded as hexadecimal text, bytes.
pub(crate) const TOKEN_BYTES: usize = 32;
/// Length of a pool's id before it is encoded as hexadecimal text, bytes.
pub(crate) const ID_BYTES: usize = 16;

/// Specification of a pool to start.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Hosts on which its nodes run, and how they are launched.
    pub target: LaunchTarget,
    /// Memory of each node.
    pub memory: Memory,
    /// Task slots of each node; `None` for its number of processors.
    pub slots: Option<u32>,
    /// TCP port of the first node; each further node on the same host takes the next one. `None`
    /// for any free port.
    pub port: Option<u16>,
    /// Largest number of nodes that the pool may ever have; by default four times the initial
    /// number, and no more than it has partitions.
    pub max_nodes: Option<u32>,
    /// Address at which the first node serves metrics; each further node on the same host takes
    /// the next port. `None` for nodes that record none.
    pub metrics: Option<SocketAddr>,
    /// Number of partitions, fixed for the pool's life; a power of two.
    pub partitions: u32,
    /// Time that a request waits for space.
    pub space_wait: Duration,
    /// Encrypts traffic between hosts with TLS.
    pub tls: bool,
    /// The program that becomes a node.
    pub program: PathBuf,
}

/// A pool that has started.
#[derive(Debug)]
pub struct StartedPool {
    /// The pool file that was written.
    pub file: PoolFile,
    /// True if the file of a pool that no longer exists was replaced.
    pub replaced: bool,
}

/// Starts a pool and writes its pool file. If anything fails, nothing is left of it.
pub fn start(path: &Path, pool_spec: &PoolSpec) -> Result<StartedPool, Problem> {
    start_linked(path, pool_spec, Vec::new())
}

/// Like [`start`], with the processes that the caller has started, in the order of
/// [`LaunchTarget::Linked`].
pub fn start_linked(path: &Path, pool_spec: &PoolSpec, links: Vec<BootstrapLink>) -> Result<StartedPool, Problem> {
    let max_nodes = validate(pool_spec)?;
    let replaced = std::cell::Cell::new(false);
    let lock = StartLock::acquire(path, |path| {
        replaced.set(true);
        check_not_running(path)
    })?;
    let nodes = node_specs(pool_spec)?;
    let is_encrypted = pool_spec.tls && nodes.iter().any(|spec| spec.address_source.is_open());
    let identity = is_encrypted.then(Identity::generate).transpose();
    let identity = identity.map_err(|error| Problem::new(error.to_string()))?;
    let plan = BootstrapPlan {
        version: VERSION.to_owned(),
        pool: random_text(ID_BYTES)?,
        token: random_text(TOKEN_BYTES)?,
        identity: identity.as_ref().map(Identity::to_pem),
        certificate: None,
        own_identity: false,
        partitions: pool_spec.partitions,
        space_wait: pool_spec.space_wait,
        nodes,
    };
    let command_line = NodeCommandLine { program: pool_spec.program.clone(), file: path.to_owned() };
    let mut launched = Launched::spawn(&pool_spec.target, &command_line, links)?;
    let until = Instant::now() + START_WAIT;
    launched.send(&plan);
    let nodes = collect_entries(&mut launched, &plan, until)?;
    partition_map(&nodes, pool_spec.partitions)?;
    launched.send(&StarterMessage::NodeEntries(nodes.clone()));
    wait_until_ready(&mut launched, &plan, until)?;
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let file =
        PoolFile::new(started, (plan.pool, plan.token), identity.as_ref(), pool_spec.partitions, max_nodes, nodes);
    file.write(path)
        .map_err(|error| Problem::new(format!("the pool file {} cannot be written: {error}", path.display())))?;
    lock.commit();
    launched.send(&StarterMessage::Detach);
    launched.release(until);
    Ok(StartedPool { file, replaced: replaced.get() })
}

/// Refuses an impossible specification before anything starts. Returns the largest number of nodes
/// that the pool may have.
fn validate(pool_spec: &PoolSpec) -> Result<u32, Problem> {
    let nodes = pool_spec.target.count();
    if nodes == 0 {
        return Err(Problem::new("a pool has nodes".to_owned()).hint("--nodes N with N from 1, or --hosts a,b,c"));
    }
    PartitionMap::one_node(NodeId(1), pool_spec.partitions).map_err(|error| Problem::new(error.to_string()))?;
    if nodes > pool_spec.partitions {
        return Err(too_many(nodes, pool_spec.partitions));
    }
    let max_nodes = pool_spec.max_nodes.unwrap_or_else(|| nodes.saturating_mul(4).min(pool_spec.partitions));
    if max_nodes < nodes {
        return Err(Problem::new(format!("--max-nodes {max_nodes} is less than the {nodes} nodes of the start")));
    }
    if max_nodes > pool_spec.partitions {
        return Err(too_many(max_nodes, pool_spec.partitions));
    }
    if pool_spec.memory == Memory::Bytes(0) {
        return Err(Problem::new("a pool needs a node with memory".to_owned()).hint("give the nodes --memory"));
    }
    Ok(max_nodes)
}

fn too_many(nodes: u32, partitions: u32) -> Problem {
    Problem::new(format!("a pool of {partitions} partitions cannot have {nodes} nodes: each holds at least one"))
        .hint("fewer nodes, or more --partitions")
}

pub(crate) fn node_specs(pool_spec: &PoolSpec) -> Result<Vec<NodeSpec>, Problem> {
    let mut taken: BTreeMap<AddressSource, u16> = BTreeMap::new();
    let spec = |place: usize| {
        let (address_source, nodes_on_host) = pool_spec.target.address_source(place);
        let next = taken.entry(address_source.clone()).or_default();
        let port = match pool_spec.port {
            None => 0,
            Some(first) => first.checked_add(*next).ok_or_else(|| {
                Problem::new(format!("--port {first}: there is no port for node {}", place + 1)).hint("begin lower")
            })?,
        };
        let metrics = pool_spec.metrics.map(|first| nth_address(first, *next, place)).transpose()?;
        // Under Slurm each node has a host to itself, so all of them use the first port.
        *next += u16::from(address_source != AddressSource::HostName);
        let id = u32::try_from(place + 1).expect("there are fewer nodes");
        let (memory, slots) = pool_spec.target.resources(place).unwrap_or((pool_spec.memory, pool_spec.slots));
        let name = pool_spec.target.name(place);
        Ok(NodeSpec { id, nodes_on_host, address_source, port, memory, slots, name, metrics })
    };
    (0..pool_spec.target.count() as usize).map(spec).collect()
}

/// The address for the metrics of a node that has `before` other nodes before it on its host. Port
/// 0, any free one, stays.
fn nth_address(first: SocketAddr, before: u16, place: usize) -> Result<SocketAddr, Problem> {
    if first.port() == 0 {
        return Ok(first);
    }
    let none =
        || Problem::new(format!("--metrics {first}: there is no port for node {}", place + 1)).hint("begin lower");
    Ok(SocketAddr::new(first.ip(), first.port().checked_add(before).ok_or_else(none)?))
}

/// Collects the entries of all nodes.
pub(crate) fn collect_entries(
    launched: &mut Launched,
    plan: &BootstrapPlan,
    until: Instant,
) -> Result<Vec<NodeEntry>, Problem> {
    let mut entries: BTreeMap<u32, NodeEntry> = BTreeMap::new();
    while entries.len() < plan.nodes.len() {
        match launched.recv(until)? {
            Some(NodeMessage::Listening(entry)) => drop(entries.insert(entry.id, entry)),
            Some(_) => {}
            None => return Err(timeout_problem(plan, |id| entries.contains_key(&id))),
        }
    }
    Ok(entries.into_values().collect())
}

/// Waits until all nodes serve.
pub(crate) fn wait_until_ready(launched: &mut Launched, plan: &BootstrapPlan, until: Instant) -> Result<(), Problem> {
    let mut ready = BTreeSet::new();
    while ready.len() < plan.nodes.len() {
        match launched.recv(until)? {
            Some(NodeMessage::Ready(id)) => drop(ready.insert(id)),
            Some(_) => {}
            None => return Err(timeout_problem(plan, |id| ready.contains(&id))),
        }
    }
    Ok(())
}

/// Names the nodes that did not answer in time.
fn timeout_problem(plan: &BootstrapPlan, has: impl Fn(u32) -> bool) -> Problem {
    let silent: Vec<String> = plan.nodes.iter().filter(|spec| !has(spec.id)).map(describe).collect();
    let (nodes, seconds) = (silent.join(", "), START_WAIT.as_secs());
    Problem::new(format!("{nodes} did not answer within {seconds} s")).hint("nothing was left running")
}

fn describe(spec: &NodeSpec) -> String {
    match &spec.address_source {
        AddressSource::Named(host) => format!("node {} at {host}", spec.id),
        AddressSource::LocalHost | AddressSource::HostName => format!("node {}", spec.id),
    }
}

/// Fails if the file's pool is still running, or if the file is not a pool file.
fn check_not_running(path: &Path) -> Result<(), Problem> {
    let file = PoolFile::read(path)?;
    let present = query_status(path, &file)?;
    let up: Vec<u32> =
        present.iter().filter(|node| matches!(node.state, NodeState::Up(_))).map(|node| node.entry.id).collect();
    let alive = present.iter().find(|node| node.entry.process.open().is_some());
    match (up.first(), alive) {
        (None, None) => Ok(()),
        (None, Some(node)) => Err(Problem::new(format!(
            "node {} of the pool at {} runs (process {}) and does not answer",
            node.entry.id,
            path.display(),
            node.entry.pid()
        ))
        .hint("`tidemill pool stop` ends it")),
        (Some(_), _) => Err(Problem::new(format!(
            "a pool runs at {}: {} of its {} nodes answer",
            path.display(),
            up.len(),
            present.len()
        ))
        .hint("use it, end it with `tidemill pool stop`, or start another with --pool FILE")),
    }
}

/// Random bytes from the system, as hexadecimal text.
pub(crate) fn random_text(length: usize) -> Result<String, Problem> {
    let mut bytes = vec![0; length];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    if got != Ok(length) {
        return Err(Problem::new("the system gives no random bytes".to_owned()));
    }
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    Ok(text)
}
