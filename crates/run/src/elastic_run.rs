//! The pool of a run that grows and shrinks by itself: nodes in processes of this machine, or on
//! machines that a command starts. The graph of the workflow tells how much memory it will need.

use base::{ByteSize, Problem};
use client::{Client, RetryPolicy};
use parking_lot::Mutex;
use placement::NodeId;
use pool::{
    CommandProvisioner, ElasticDriver, ElasticEvent, ElasticPolicy, ElasticSpec, ForeseenUse, MachineCommands, Memory,
    NodeLimits, OwnedPool, OwnedPoolSpec, Provisioner,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Number of partitions: enough for equal shares of some dozen nodes, and few enough to move soon.
const PARTITIONS: u32 = 1024;

/// How the pool of a run grows and shrinks by itself.
#[derive(Debug, Clone)]
pub struct ElasticRunSpec {
    /// The least and the most nodes.
    pub limits: NodeLimits,
    /// The policy, as it is written.
    pub text: String,
    /// The policy.
    pub policy: ElasticPolicy,
    /// The commands that start and end machines; `None`: nodes are processes of this machine.
    pub machines: Option<MachineCommands>,
    /// Path of this program.
    pub program: PathBuf,
}

/// The pool of a run that grows and shrinks by itself. All its nodes end when this is dropped.
#[derive(Debug)]
pub struct ElasticRun {
    /// Its pool file.
    pub file: PathBuf,
    /// A client of it.
    pub client: Client,
    /// The runtime of the connections.
    pub io: Handle,
    driver: Option<ElasticThread>,
    provisioner: Arc<dyn Provisioner>,
    /// The nodes of this machine. The last owner ends them.
    owned: Arc<OwnedPool>,
}

/// What the event loop of a run and its elastic pool tell each other.
#[derive(Debug)]
pub struct ElasticLink {
    /// What happens to the pool.
    pub events: UnboundedReceiver<ElasticEvent>,
    /// What the workflow will use.
    pub foreseen: Arc<Mutex<Option<ForeseenUse>>>,
    /// The memory that the pool may have, bytes.
    pub potential: u64,
    /// Keeps the usage of its nodes known, as long as this lives.
    pub refresh: Option<AbortHandle>,
    /// True if no node could be added the last time.
    pub is_stuck: bool,
}

impl Drop for ElasticLink {
    fn drop(&mut self) {
        self.refresh.iter().for_each(AbortHandle::abort);
    }
}

/// The thread that lets a pool grow and shrink. Dropping this ends what is under way.
#[derive(Debug)]
pub struct ElasticThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    provisioner: Arc<dyn Provisioner>,
}

impl ElasticThread {
    /// Lets the pool of a pool file grow and shrink from now on. `uncounted` is a node that holds
    /// no data of tasks; `potential` is the memory that the pool may have, in bytes.
    pub fn start(
        (file, spec): (&Path, &ElasticRunSpec),
        provisioner: Arc<dyn Provisioner>,
        uncounted: Option<NodeId>,
        potential: u64,
    ) -> Result<(Self, ElasticLink), Problem> {
        let (stop, end) = watch::channel(false);
        let (sender, events) = unbounded_channel();
        let foreseen = Arc::new(Mutex::new(None));
        let elastic = ElasticSpec { text: spec.text.clone(), policy: spec.policy.clone(), limits: spec.limits };
        let foresight = foreseen.clone();
        let driver =
            ElasticDriver::new(file.to_owned(), elastic, provisioner.clone(), Box::new(move || *foresight.lock()));
        let driver = uncounted.into_iter().fold(driver, ElasticDriver::without);
        let work = move || {
            // Nobody listens when the run has ended.
            let mut tell = |event| drop(sender.send(event));
            if let Err(problem) = driver.run(end, &mut tell) {
                tell(ElasticEvent::Failed(problem));
            }
        };
        let thread = thread::Builder::new().name("elastic".into()).spawn(work);
        let thread = thread.map_err(|error| Problem::new(format!("no thread for the elastic pool: {error}")))?;
        let link = ElasticLink { events, foreseen, potential, refresh: None, is_stuck: false };
        Ok((Self { stop, thread: Some(thread), provisioner }, link))
    }
}

impl Drop for ElasticThread {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.provisioner.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ElasticRun {
    /// Starts the least number of nodes, with so much memory each, and lets the pool grow and
    /// shrink from then on. The pool file is made in `directory`.
    ///
    /// # Errors
    /// If a node cannot start: then nothing is left.
    pub fn start(
        spec: &ElasticRunSpec,
        directory: &Path,
        memory: ByteSize,
        space_wait: Duration,
    ) -> Result<(Self, ElasticLink), Problem> {
        let file = directory.join("pool");
        let limits = spec.limits;
        let owned = OwnedPoolSpec {
            is_open: spec.machines.is_some(),
            memory: Memory::Bytes(memory.0),
            slots: Some(0),
            nodes: limits.min,
            max_nodes: limits.max,
            partitions: PARTITIONS,
            space_wait,
            program: spec.program.clone(),
        };
        let owned = Arc::new(OwnedPool::start(&file, owned)?);
        let provisioner = match spec.machines.clone() {
            Some(commands) => Arc::new(CommandProvisioner::new(file.clone(), commands)?) as Arc<dyn Provisioner>,
            None => owned.clone(),
        };
        let io = pool::io_runtime()?;
        let client = connect(&file)?;
        let potential = memory.0.saturating_mul(u64::from(limits.max));
        let (driver, link) = ElasticThread::start((&file, spec), provisioner.clone(), None, potential)?;
        Ok((Self { file, client, io, driver: Some(driver), provisioner, owned }, link))
    }
}

impl Drop for ElasticRun {
    fn drop(&mut self) {
        drop(self.driver.take());
        // Nodes on other machines end only if they are told.
        let started = self.provisioner.started();
        if let Err(problem) = pool::stop(&self.file, None) {
            tracing::warn!("{problem}");
        }
        self.provisioner.release(&started);
        tracing::debug!(pool = %self.file.display(), owned = ?self.owned, "the pool of the run has ended");
    }
}

/// Connects from a thread of its own: the caller's may drive a runtime already.
fn connect(file: &Path) -> Result<Client, Problem> {
    let connect = || pool::runtime()?.block_on(pool::connect(file, RetryPolicy::default()));
    thread::scope(|scope| scope.spawn(connect).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Nodes, as a message names them.
pub fn named(nodes: &[u32]) -> String {
    let ids: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    format!("node{} {}", if nodes.len() == 1 { "" } else { "s" }, ids.join(", "))
}

/// An event as the user is told, after "the pool"; false if it is a warning.
pub fn describe(event: &ElasticEvent) -> (String, bool) {
    match event {
        ElasticEvent::Grows(why) | ElasticEvent::Shrinks(why) => (why.clone(), true),
        ElasticEvent::Joined(nodes) => (format!("has got {}", named(nodes)), true),
        ElasticEvent::Left(nodes) => (format!("has given up {}", named(nodes)), true),
        ElasticEvent::Stays(nodes) => (format!("keeps {}: it fills again", named(nodes)), true),
        ElasticEvent::Failed(problem) => (format!("no node could be added: {problem}"), false),
    }
}
