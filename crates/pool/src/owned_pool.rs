//! A pool whose nodes are processes of this one: they end with it, whatever happens.
//!
//! The kernel ends a child when the thread ends that has started it. So one thread starts all of
//! them, and lives as long as the pool.

use crate::{
    bootstrap::Memory,
    connect::runtime,
    launch::{BootstrapLink, LaunchTarget, LinkedHost, wait},
    node_process::host_name,
    process::ProcessHandle,
    provisioner::{LOCAL_TIME_OUT, Provisioner},
    resize::{CHANGE_PATIENCE, ResizedPool},
    start::{PoolSpec, start_linked},
};
use base::Problem;
use parking_lot::Mutex;
use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time that a node gets to end.
const END_WAIT: Duration = Duration::from_secs(5);
/// Address at which nodes of one machine reach each other.
const LOOPBACK: &str = "127.0.0.1";

/// The nodes of a pool that ends with this process.
#[derive(Clone, Debug)]
pub struct OwnedPoolSpec {
    /// True if machines elsewhere are to join: the nodes can be reached at the name of this host,
    /// with encryption. Otherwise they are at loopback.
    pub is_open: bool,
    /// Memory of each node.
    pub memory: Memory,
    /// Task slots of each node; `None` for its number of processors.
    pub slots: Option<u32>,
    /// Number of nodes at the start.
    pub nodes: u32,
    /// The most nodes that the pool may have.
    pub max_nodes: u32,
    /// Number of partitions.
    pub partitions: u32,
    /// Time that a request waits for space.
    pub space_wait: Duration,
    /// The program that becomes a node.
    pub program: PathBuf,
}

/// A pool whose nodes are processes of this one. They end when this is dropped. As a provisioner it
/// adds such nodes.
#[derive(Debug)]
pub struct OwnedPool {
    path: PathBuf,
    spec: OwnedPoolSpec,
    nodes: Mutex<Vec<OwnedNode>>,
    starter: ChildStarter,
}

#[derive(Debug)]
struct OwnedNode {
    id: u32,
    child: Child,
    /// True if the pool began with it.
    is_first: bool,
}

/// A child that becomes a node, with the way to it.
type StartedChild = (Child, BootstrapLink);

impl OwnedPool {
    /// Starts the pool, and writes its pool file to `path`.
    ///
    /// # Errors
    /// If a node cannot start: then nothing is left of it.
    pub fn start(path: &Path, spec: OwnedPoolSpec) -> Result<Self, Problem> {
        let starter = ChildStarter::start()?;
        let mut children = Children::start(&starter, path, &spec, spec.nodes)?;
        let links = children.take_links();
        start_linked(path, &spec.of_nodes(spec.nodes), links)?;
        let ids = 1..=spec.nodes;
        let node = |(id, child)| OwnedNode { id, child, is_first: true };
        let nodes = Mutex::new(ids.zip(children.keep()).map(node).collect());
        Ok(Self { path: path.to_owned(), spec, nodes, starter })
    }
}

impl OwnedPoolSpec {
    /// The specification of this number of nodes.
    fn of_nodes(&self, nodes: u32) -> PoolSpec {
        let address = if self.is_open { host_name() } else { LOOPBACK.to_owned() };
        let host = LinkedHost { address, memory: self.memory, slots: self.slots, name: None };
        PoolSpec {
            target: LaunchTarget::Linked(vec![host; nodes as usize]),
            memory: self.memory,
            slots: self.slots,
            port: None,
            metrics: None,
            max_nodes: Some(self.max_nodes),
            partitions: self.partitions,
            space_wait: self.space_wait,
            tls: true,
            program: self.program.clone(),
        }
    }
}

impl Provisioner for OwnedPool {
    fn start(&self, nodes: u32) -> Result<Vec<u32>, Problem> {
        let pool = ResizedPool::open(&self.path, CHANGE_PATIENCE)?;
        let mut children = Children::start(&self.starter, &self.path, &self.spec, nodes)?;
        let links = children.take_links();
        let joined = pool.launch(&runtime()?, &self.spec.of_nodes(nodes), links)?;
        let ids: Vec<u32> = joined.into_iter().map(|node| node.0).collect();
        let node = |(id, child)| OwnedNode { id, child, is_first: false };
        self.nodes.lock().extend(ids.iter().copied().zip(children.keep()).map(node));
        Ok(ids)
    }

    fn release(&self, nodes: &[u32]) {
        let released: Vec<OwnedNode> = self.nodes.lock().extract_if(.., |node| nodes.contains(&node.id)).collect();
        for mut node in released {
            end(&mut node.child);
        }
    }

    fn started(&self) -> Vec<u32> {
        self.nodes.lock().iter().rev().filter(|node| !node.is_first).map(|node| node.id).collect()
    }

    fn time_out(&self) -> Duration {
        LOCAL_TIME_OUT
    }
}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        let nodes = self.nodes.get_mut();
        for node in nodes.iter() {
            // A child keeps its id until it was waited for.
            if let Some(process) = ProcessHandle::from_pid(node.child.id()) {
                process.terminate();
            }
        }
        for node in nodes {
            end(&mut node.child);
        }
    }
}

/// Waits for a node to end. One that takes long is killed.
fn end(child: &mut Child) {
    if wait(child, END_WAIT).is_some() {
        return;
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Children that become nodes; those that are not kept are ended.
struct Children(Vec<(Child, Option<BootstrapLink>)>);

impl Children {
    fn start(starter: &ChildStarter, path: &Path, spec: &OwnedPoolSpec, count: u32) -> Result<Self, Problem> {
        let mut children = Self(Vec::new());
        for id in 1..=count {
            let mut command = node_command(&spec.program, path, id);
            let (child, link) = starter.run(move || spawn_node(&mut command))??;
            children.0.push((child, Some(link)));
        }
        Ok(children)
    }

    fn take_links(&mut self) -> Vec<BootstrapLink> {
        self.0.iter_mut().filter_map(|(_, link)| link.take()).collect()
    }

    fn keep(mut self) -> Vec<Child> {
        std::mem::take(&mut self.0).into_iter().map(|(child, _)| child).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command of a node that ends with the thread that starts it. `id` is that of its settings.
pub fn node_command(program: &Path, path: &Path, id: u32) -> Command {
    let mut command = Command::new(program);
    command.args(["node", "--pool"]).arg(path).args(["--id", &id.to_string(), "--with-parent"]);
    command
}

/// Starts a child that becomes a node.
pub fn spawn_node(command: &mut Command) -> Result<StartedChild, Problem> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| Problem::new(format!("no node can be started: {program}: {error}")))?;
    let link = BootstrapLink {
        input: Box::new(child.stdin.take().expect("it is piped")),
        output: Box::new(child.stdout.take().expect("it is piped")),
    };
    Ok((child, link))
}

/// Work of the thread that starts children.
type StarterJob = Box<dyn FnOnce() + Send>;

/// The thread that starts children.
struct ChildStarter {
    jobs: Option<Sender<StarterJob>>,
    thread: Option<JoinHandle<()>>,
}

impl ChildStarter {
    fn start() -> Result<Self, Problem> {
        let (jobs, received) = channel::<StarterJob>();
        let work = move || received.into_iter().for_each(|job| job());
        let thread = thread::Builder::new().name("nodes".into()).spawn(work);
        let thread = thread.map_err(|error| Problem::new(format!("no thread for nodes: {error}")))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has the thread do something, and waits for it.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let (sender, done) = channel();
        let job: StarterJob = Box::new(move || drop(sender.send(work())));
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let done = if sent { done.recv().ok() } else { None };
        done.ok_or_else(|| Problem::new("the thread that starts nodes has ended"))
    }
}

impl Drop for ChildStarter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ChildStarter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ChildStarter")
    }
}
