//! Starts a pool: all its nodes, or none.

use crate::{
    begin::Begun,
    file::{NodeEntry, PoolFile},
    launch::{Call, Launched, Places},
    order::{Memory, Order, Reach, Said, Seat, Told, VERSION, map_of},
    roll::{State, roll},
};
use base::Problem;
use placement::{NodeId, PartitionMap};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use transport::Identity;

/// Time limit for all nodes to be ready. Starting a process takes milliseconds, SSH to a slow host
/// seconds, and `srun` may have to wait for a host to come up.
const START_WAIT: Duration = Duration::from_mins(1);
/// Length of a token before it is encoded as hexadecimal text, bytes.
pub(crate) const TOKEN_BYTES: usize = 32;
/// Length of a pool's id before it is encoded as hexadecimal text, bytes.
pub(crate) const ID_BYTES: usize = 16;

/// Specification of a pool to start.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Hosts on which its nodes run, and how they are launched.
    pub places: Places,
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
pub struct Started {
    /// The pool file that was written.
    pub file: PoolFile,
    /// True if the file of a pool that no longer exists was replaced.
    pub replaced: bool,
}

/// Starts a pool and writes its pool file. If anything fails, nothing is left of it.
pub fn start(path: &Path, wanted: &Wanted) -> Result<Started, Problem> {
    let max_nodes = check(wanted)?;
    let replaced = std::cell::Cell::new(false);
    let begun = Begun::take(path, |path| {
        replaced.set(true);
        stands(path)
    })?;
    let seats = seats(wanted)?;
    let heard = wanted.tls && seats.iter().any(|seat| seat.reach.is_open());
    let identity = heard.then(Identity::generate).transpose();
    let identity = identity.map_err(|error| Problem::new(error.to_string()))?;
    let order = Order {
        version: VERSION.to_owned(),
        pool: random_text(ID_BYTES)?,
        token: random_text(TOKEN_BYTES)?,
        identity: identity.as_ref().map(Identity::to_pem),
        partitions: wanted.partitions,
        space_wait: wanted.space_wait,
        seats,
    };
    let call = Call { program: wanted.program.clone(), file: path.to_owned() };
    let mut launched = Launched::begin(&wanted.places, &call)?;
    let until = Instant::now() + START_WAIT;
    launched.tell(&order);
    let nodes = gather(&mut launched, &order, until)?;
    map_of(&nodes, wanted.partitions)?;
    launched.tell(&Told::Deal(nodes.clone()));
    all_ready(&mut launched, &order, until)?;
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let file =
        PoolFile::new(started, (order.pool, order.token), identity.as_ref(), wanted.partitions, max_nodes, nodes);
    file.write(path)
        .map_err(|error| Problem::new(format!("the pool file {} cannot be written: {error}", path.display())))?;
    begun.done();
    launched.tell(&Told::Keep);
    launched.let_go(until);
    Ok(Started { file, replaced: replaced.get() })
}

/// Refuses an impossible specification before anything starts. Returns the largest number of nodes
/// that the pool may have.
fn check(wanted: &Wanted) -> Result<u32, Problem> {
    let nodes = wanted.places.count();
    if nodes == 0 {
        return Err(Problem::new("a pool has nodes".to_owned()).hint("--nodes N with N from 1, or --hosts a,b,c"));
    }
    PartitionMap::one_node(NodeId(1), wanted.partitions).map_err(|error| Problem::new(error.to_string()))?;
    if nodes > wanted.partitions {
        return Err(too_many(nodes, wanted.partitions));
    }
    let max_nodes = wanted.max_nodes.unwrap_or_else(|| nodes.saturating_mul(4).min(wanted.partitions));
    if max_nodes < nodes {
        return Err(Problem::new(format!("--max-nodes {max_nodes} is less than the {nodes} nodes of the start")));
    }
    if max_nodes > wanted.partitions {
        return Err(too_many(max_nodes, wanted.partitions));
    }
    if wanted.memory == Memory::Bytes(0) {
        return Err(
            Problem::new("a pool whose nodes have no memory holds nothing".to_owned()).hint("give them --memory")
        );
    }
    Ok(max_nodes)
}

fn too_many(nodes: u32, partitions: u32) -> Problem {
    Problem::new(format!("a pool of {partitions} partitions cannot have {nodes} nodes: each holds at least one"))
        .hint("fewer nodes, or more --partitions")
}

fn seats(wanted: &Wanted) -> Result<Vec<Seat>, Problem> {
    let mut taken: BTreeMap<Reach, u16> = BTreeMap::new();
    let seat = |place: usize| {
        let (reach, nodes_here) = wanted.places.reach(place);
        let next = taken.entry(reach.clone()).or_default();
        let port = match wanted.port {
            None => 0,
            Some(first) => first.checked_add(*next).ok_or_else(|| {
                Problem::new(format!("--port {first}: there is no port for node {}", place + 1)).hint("begin lower")
            })?,
        };
        // Under Slurm each node has a host to itself, so all of them use the first port.
        *next += u16::from(reach != Reach::OwnName);
        let id = u32::try_from(place + 1).expect("there are fewer nodes");
        Ok(Seat { id, nodes_here, reach, port, memory: wanted.memory, slots: wanted.slots })
    };
    (0..wanted.places.count() as usize).map(seat).collect()
}

/// Collects the entries of all nodes.
fn gather(launched: &mut Launched, order: &Order, until: Instant) -> Result<Vec<NodeEntry>, Problem> {
    let mut here: BTreeMap<u32, NodeEntry> = BTreeMap::new();
    while here.len() < order.seats.len() {
        match launched.hear(until)? {
            Some(Said::Here(entry)) => drop(here.insert(entry.id, entry)),
            Some(_) => {}
            None => return Err(silent(order, |id| here.contains_key(&id))),
        }
    }
    Ok(here.into_values().collect())
}

/// Waits until all nodes serve.
fn all_ready(launched: &mut Launched, order: &Order, until: Instant) -> Result<(), Problem> {
    let mut ready = BTreeSet::new();
    while ready.len() < order.seats.len() {
        match launched.hear(until)? {
            Some(Said::Ready(id)) => drop(ready.insert(id)),
            Some(_) => {}
            None => return Err(silent(order, |id| ready.contains(&id))),
        }
    }
    Ok(())
}

/// Names the nodes that did not answer in time.
fn silent(order: &Order, has: impl Fn(u32) -> bool) -> Problem {
    let silent: Vec<String> = order.seats.iter().filter(|seat| !has(seat.id)).map(named).collect();
    let (who, seconds) = (silent.join(", "), START_WAIT.as_secs());
    Problem::new(format!("{who} did not answer within {seconds} s")).hint("nothing was left running")
}

fn named(seat: &Seat) -> String {
    match &seat.reach {
        Reach::Named(host) => format!("node {} at {host}", seat.id),
        Reach::Here | Reach::OwnName => format!("node {}", seat.id),
    }
}

/// Fails if the file's pool is still running, or if the file is not a pool file.
fn stands(path: &Path) -> Result<(), Problem> {
    let file = PoolFile::read(path)?;
    let present = roll(path, &file)?;
    let up: Vec<u32> =
        present.iter().filter(|node| matches!(node.state, State::Up(_))).map(|node| node.entry.id).collect();
    let alive = present.iter().find(|node| node.entry.process.find().is_some());
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
