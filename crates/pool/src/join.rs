//! Has this machine join a pool that runs: a node that lives as long as this process, or until it
//! has left.

use crate::{
    PoolFile,
    bootstrap::Memory,
    connect::runtime,
    launch::{BootstrapLink, LaunchTarget, LinkedHost},
    owned_pool::{node_command, spawn_node},
    resize::{CHANGE_PATIENCE, ResizedPool, manager_problem},
    start::PoolSpec,
    status::{NodeState, query_status},
};
use base::Problem;
use cluster::ClusterEntry;
use placement::NodeId;
use rustix::system::uname;
use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use transport::Address;

/// Interval of looks whether other nodes are there.
const ORPHAN_LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of looks whether the node has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time to wait until a node that was admitted has its share.
const SHARE_WAIT: Duration = Duration::from_secs(30);

/// The node with which a machine joins.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// Name or address at which the other nodes reach this machine; `None` for its host name, or
    /// for loopback if all nodes are there.
    pub address: Option<String>,
    /// Memory of the node.
    pub memory: Memory,
    /// Task slots of the node; `None` for its number of processors.
    pub slots: Option<u32>,
    /// A name by which its starter knows it.
    pub name: Option<String>,
    /// Time that a request waits for space.
    pub space_wait: Duration,
    /// Time without any other node of the pool after which the node ends.
    pub orphan_wait: Duration,
    /// The program that becomes the node.
    pub program: PathBuf,
}

/// A node that has joined, as a process of this one.
#[derive(Debug)]
pub struct JoinedNode {
    path: PathBuf,
    /// Its id.
    pub id: u32,
    child: Child,
    orphan_wait: Duration,
}

/// Starts a node that joins the pool of the pool file at `path`. It ends with this process, or
/// rather with the thread that calls this.
///
/// # Errors
/// If the pool may not have another node, or the node cannot start: then nothing is left of it. If
/// no manager answers.
pub fn join(path: &Path, spec: &JoinSpec) -> Result<JoinedNode, Problem> {
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    let (mut child, link) = spawn_node(&mut node_command(&spec.program, path, 1))?;
    let orphan_wait = spec.orphan_wait;
    let address = spec.address.clone().unwrap_or_else(|| own_address(&pool.file));
    let host = LinkedHost { address, memory: spec.memory, slots: spec.slots, name: spec.name.clone() };
    let spec = PoolSpec { program: spec.program.clone(), ..spec_of_host(&pool.file, host, spec.space_wait) };
    let joined = runtime().and_then(|runtime| pool.launch(&runtime, &spec, vec![link]));
    let Ok([NodeId(id)]) = joined.as_deref() else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(joined.err().unwrap_or_else(|| Problem::new("the node did not join")));
    };
    let id = *id;
    Ok(JoinedNode { path: path.to_owned(), id, child, orphan_wait })
}

/// Has a process on a host become a node of the pool of the pool file at `path`, and returns its
/// id. The caller has started the process; `link` leads to it. The node takes no partitions before
/// [`admit_linked`]. Blocks.
///
/// # Errors
/// If the pool may not have another node, the node cannot start, or no manager answers.
pub fn join_linked(path: &Path, host: LinkedHost, space_wait: Duration, link: BootstrapLink) -> Result<u32, Problem> {
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    let spec = spec_of_host(&pool.file, host, space_wait);
    let joined = pool.launch_unadmitted(&runtime()?, &spec, vec![link])?;
    joined.first().map(|node| node.0).ok_or_else(|| Problem::new("the node did not join"))
}

/// Lets a node of [`join_linked`] take partitions, and waits until it has its share, or a part of
/// it after a while. Blocks.
///
/// # Errors
/// If it gets no partition, or no manager answers.
pub fn admit_linked(path: &Path, node: u32) -> Result<(), Problem> {
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    runtime()?.block_on(async {
        pool.admit(NodeId(node)).await?;
        // A pool that is used may take longer.
        let settled = tokio::time::timeout(SHARE_WAIT, pool.settle(&mut |_| ())).await;
        settled.unwrap_or(Ok(Vec::new()))?;
        let counts = pool.status().await?.state.map().partition_counts();
        let has_share = counts.contains_key(&NodeId(node));
        has_share.then_some(()).ok_or_else(|| Problem::new(format!("node {node} has got no share of the pool")))
    })
}

/// Has the pool forget a node of [`join_linked`] that was not admitted. Blocks.
///
/// # Errors
/// If no manager answers.
pub fn dismiss_linked(path: &Path, node: u32) -> Result<(), Problem> {
    let pool = ResizedPool::open(path, CHANGE_PATIENCE)?;
    let runtime = runtime()?;
    let leave = ClusterEntry::Leave { node: NodeId(node), lost: false };
    runtime.block_on(pool.managers.propose(leave)).map_err(|error| manager_problem(&error))?;
    pool.write_file(&runtime)
}

/// The specification of one node that joins a pool.
fn spec_of_host(file: &PoolFile, host: LinkedHost, space_wait: Duration) -> PoolSpec {
    PoolSpec {
        memory: host.memory,
        slots: host.slots,
        target: LaunchTarget::Linked(vec![host]),
        port: None,
        metrics: None,
        max_nodes: Some(file.max_nodes),
        partitions: file.partitions,
        space_wait,
        tls: true,
        program: PathBuf::new(),
    }
}

impl JoinedNode {
    /// Waits until the node has ended. When `leave` becomes true, its partitions move to others
    /// first. True if it has left the pool.
    ///
    /// # Errors
    /// If no manager answers when it is to leave: then it lives on.
    pub fn wait(&mut self, mut leave: watch::Receiver<bool>) -> Result<bool, Problem> {
        let runtime = runtime()?;
        let (mut seen, mut looked) = (Instant::now(), Instant::now());
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| Problem::new(error.to_string()))? {
                return Ok(status.success());
            }
            let is_to_leave = runtime.block_on(async {
                tokio::select! {
                    changed = leave.changed() => changed.is_ok(),
                    () = tokio::time::sleep(LOOK_INTERVAL) => false,
                }
            });
            if looked.elapsed() > ORPHAN_LOOK_INTERVAL {
                looked = Instant::now();
                if self.sees_others() {
                    seen = looked;
                } else if seen.elapsed() > self.orphan_wait {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err(Problem::new(format!(
                        "no other node of the pool of {} has answered for {} s: this one was ended",
                        self.path.display(),
                        self.orphan_wait.as_secs()
                    )));
                }
            }
            if is_to_leave && *leave.borrow() {
                let pool = ResizedPool::open(&self.path, CHANGE_PATIENCE)?;
                runtime.block_on(pool.drain(&BTreeSet::from([NodeId(self.id)]), false, &mut |_| ()))?;
                pool.write_file(&runtime)?;
            }
        }
    }
}

impl JoinedNode {
    /// True if another node of the pool answers, or if that cannot be known.
    fn sees_others(&self) -> bool {
        let Ok(file) = PoolFile::read(&self.path) else { return false };
        let Ok(present) = query_status(&self.path, &file) else { return false };
        present.iter().any(|node| node.entry.id != self.id && matches!(node.state, NodeState::Up(_)))
    }
}

/// Loopback if all nodes are there; else the name of this host.
fn own_address(file: &PoolFile) -> String {
    let is_loopback = |address: &Address| match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } | Address::Tls { host, .. } => {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
        }
    };
    if file.nodes.iter().flat_map(|node| &node.addresses).all(is_loopback) {
        "127.0.0.1".to_owned()
    } else {
        uname().nodename().to_string_lossy().into_owned()
    }
}
