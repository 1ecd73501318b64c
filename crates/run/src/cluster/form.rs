//! Forms the pool of a run on a cluster: one node on each host that has workers when the run begins,
//! and a first node beside the run, which holds the root.
//!
//! ```text
//! carrier -> hosts -> agents (set up) -> pool::start_linked -> agents (start) -> FormedCluster
//! ```

use super::agent_link::{AgentLink, bootstrap_channel};
use super::dask_carrier::{Carrier, CarrierHandle, ClusterHost, FromCarrier, ToCarrier};
use super::host_inputs;
use super::messages::{AgentReady, AgentSetup, AgentStart, AgentTool, HostInput, ToAgent, agent_name, line};
use super::tool_trees::ToolTrees;
use crate::checked_workflow::CheckedWorkflow;
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::event::RunEvent;
use crate::layout;
use crate::order::here_token;
use crate::spec::{ClusterSpec, ClusterTarget, RunSpec};
use crate::storage_choice::library_obstacle;
use base::Problem;
use client::RetryPolicy;
use flow::{DataId, TaskId, ToolId};
use mount::{PoolRegistration, RuntimeDir};
use placement::NodeId;
use pool::{BootstrapLink, LaunchTarget, LinkedHost, Memory, PoolSpec};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use vfs::Vfs;

/// Memory of the first node: it holds directories and the list of inputs, not the data of tasks.
const FIRST_NODE_BYTES: u64 = 256 << 20;
/// Time without another host after which the hosts that are there are all, if the user gave no
/// number of workers.
const SETTLE: Duration = Duration::from_millis(500);

/// A cluster with a pool, ready for tasks.
#[derive(Debug)]
pub struct FormedCluster {
    /// The process that passes lines.
    pub carrier: Carrier,
    /// The pool.
    pub pool: Vfs,
    /// The hosts that run tasks.
    pub hosts: Vec<FormedHost>,
    /// What the agent of a host that joins later is told.
    pub joining: JoiningHosts,
    /// The agent of the first node.
    pub first: FirstAgent,
    /// The first node.
    pub first_node: NodeId,
    /// The run's own directory, with the pool file.
    pub registration: PoolRegistration,
}

/// A host that runs tasks.
#[derive(Debug, Clone)]
pub struct FormedHost {
    /// The host, with its workers.
    pub host: ClusterHost,
    /// Number of its agent.
    pub number: u32,
    /// Number of its node; `None` if it joined later and only computes.
    pub node: Option<u32>,
    /// What its agent told.
    pub ready: AgentReady,
}

/// What hosts that join later need.
#[derive(Debug, Clone)]
pub struct JoiningHosts {
    /// Id of the run.
    pub run_id: String,
    /// Number of the next agent.
    pub next: u32,
    /// Time after which an agent ends by itself.
    pub orphan_wait: Duration,
    /// What agents are told when the pool runs.
    pub start: AgentStart,
}

/// The agent of the first node, a child of this process.
#[derive(Debug)]
pub struct FirstAgent {
    stream: UnixStream,
    child: Child,
}

impl FirstAgent {
    /// Sends a message; an error means that the agent is gone.
    pub async fn send(&mut self, message: &ToAgent) -> std::io::Result<()> {
        self.stream.write_all(format!("{}\n", line(message)).as_bytes()).await
    }

    /// Sends a message if that needs no waiting.
    pub fn try_send(&mut self, message: &ToAgent) -> std::io::Result<()> {
        self.stream.try_write(format!("{}\n", line(message)).as_bytes()).map(drop)
    }

    /// Returns whether the agent has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the agent has ended.
    pub async fn ended(&mut self) {
        let _ = self.child.wait().await;
    }
}

/// What this machine has of the tools that a run calls.
#[derive(Debug, Clone)]
pub struct OwnTools {
    /// Paths of their programs, as far as they are installed.
    pub programs: HashMap<ToolId, PathBuf>,
    /// Their files.
    pub trees: ToolTrees,
}

/// Forms the cluster. If that fails or is given up, agents that serve already are told to end, and
/// those that start end with the carrier.
pub async fn form(
    spec: &RunSpec,
    cluster: &ClusterSpec,
    own: &OwnTools,
    (on_event, emergency_cleanup): (&mut dyn FnMut(&RunEvent), &EmergencyCleanup),
) -> Result<FormedCluster, Vec<Problem>> {
    let one = |problem| vec![problem];
    let trees = own.trees.clone();
    let trees = tokio::task::spawn_blocking(move || trees.hashed());
    let runtime = RuntimeDir::of_user().map_err(|error| one(error.into()))?;
    crate::environment::remove_stale_runs(&runtime).map_err(one)?;
    let mut registration = runtime.register(&spec.run_id).map_err(|error| one(error.into()))?;
    let pool_file = crate::environment::door(&mut registration).map_err(one)?.join("pool");
    let mut carrier = Carrier::start(&cluster.python, &cluster.target).map_err(one)?;
    let mut cleanup = CleanupList::new(registration.rollback(), &spec.run_id);
    cleanup.carrier = Some(carrier.handle.clone());
    emergency_cleanup.arm(Some(cleanup.clone()));
    let address = open(&mut carrier, spec, cluster).await.map_err(one)?;
    let (hosts, refused) = wait_for_hosts(&mut carrier, cluster).await.map_err(one)?;
    for problem in refused {
        on_event(&RunEvent::Warning(problem.to_string()));
    }
    let agents = set_up_agents(&carrier.handle, spec, cluster, &hosts).await?;
    let (mut agents, first) = start_pool(agents, &pool_file, spec, cluster, (&hosts, address)).await.map_err(one)?;
    let trees = trees.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map_err(one)?;
    let own = OwnTools { trees, programs: own.programs.clone() };
    let start = agent_start(spec, cluster, &own, &pool_file).map_err(one)?;
    let pool = Vfs::new(pool::connect(&pool_file, RetryPolicy::default()).await.map_err(one)?);
    let first_node = NodeId(u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX));
    own.trees.put(&pool, first_node).await.map_err(one)?;
    let (ready, problems) = start_agents(&mut agents, (&hosts, &carrier.handle), &start).await;
    if ready.is_empty() {
        return Err(problems);
    }
    for problem in problems {
        on_event(&RunEvent::Warning(format!("{problem}; this host gets no tasks")));
    }
    let (first, socket) = start_first(first, &start).await.map_err(one)?;
    cleanup.agents.push(socket);
    emergency_cleanup.arm(Some(cleanup));
    let formed = ready.into_iter().map(|(index, ready)| FormedHost {
        host: hosts[index].clone(),
        number: u32::try_from(index + 1).unwrap_or(u32::MAX),
        node: u32::try_from(index + 1).ok(),
        ready,
    });
    let formed: Vec<FormedHost> = formed.collect();
    let next = first_node.0 + 1;
    let joining = JoiningHosts { run_id: spec.run_id.clone(), next, orphan_wait: cluster.orphan_wait, start };
    Ok(FormedCluster { carrier, pool, hosts: formed, joining, first, first_node, registration })
}

/// Connects to the Dask scheduler, or starts a cluster; returns the address at which the cluster
/// reaches this machine.
async fn open(carrier: &mut Carrier, spec: &RunSpec, cluster: &ClusterSpec) -> Result<String, Problem> {
    let (address, started) = match cluster.target.clone() {
        ClusterTarget::Scheduler(address) => (Some(address), None),
        ClusterTarget::Start(started) => (None, Some(started)),
    };
    carrier.open(ToCarrier::Open {
        address,
        cluster: started,
        run: spec.run_id.clone(),
        binary: cluster.program.clone(),
        wait: cluster.wait.as_secs_f64(),
    });
    loop {
        match carrier.messages.recv().await {
            Some(FromCarrier::Opened { address, .. }) => return Ok(address),
            Some(FromCarrier::Failed { message, hint }) => return Err(failed(message, hint)),
            Some(FromCarrier::Gone(why)) => return Err(carrier_gone(&why)),
            Some(_) => {}
            None => return Err(carrier_gone("it closed its output")),
        }
    }
}

fn failed(message: String, hint: Option<String>) -> Problem {
    let problem = Problem::new(message);
    hint.map_or(problem.clone(), |hint| problem.hint(hint))
}

fn carrier_gone(why: &str) -> Problem {
    Problem::new(format!("the connection to Dask has ended: {why}"))
}

/// Waits until there are enough workers. Returns the usable hosts, and what is wrong with the
/// others.
async fn wait_for_hosts(
    carrier: &mut Carrier,
    cluster: &ClusterSpec,
) -> Result<(Vec<ClusterHost>, Vec<Problem>), Problem> {
    let until = Instant::now() + cluster.wait;
    let mut hosts: Vec<ClusterHost> = Vec::new();
    loop {
        let workers: u32 = hosts.iter().map(|host| host.workers).sum();
        let deadline = match cluster.workers {
            Some(wanted) if workers >= wanted => break,
            None if workers > 0 => (Instant::now() + SETTLE).min(until),
            _ => until,
        };
        match timeout_at(deadline, carrier.messages.recv()).await {
            Ok(Some(FromCarrier::Hosts(now))) => hosts = now,
            Ok(Some(FromCarrier::Failed { message, hint })) => return Err(failed(message, hint)),
            Ok(Some(FromCarrier::Gone(why))) => return Err(carrier_gone(&why)),
            Ok(Some(_)) => {}
            Ok(None) => return Err(carrier_gone("it closed its output")),
            Err(_) if cluster.workers.is_none() && workers > 0 => break,
            Err(_) => {
                let (wanted, seconds) = (cluster.workers.unwrap_or(1), cluster.wait.as_secs());
                return Err(Problem::new(format!(
                    "the Dask cluster has {workers} workers after {seconds} s, and {wanted} are wanted"
                ))
                .hint(cluster.target.hint_of_few_workers()));
            }
        }
    }
    let own = format!("tidemill {}", env!("CARGO_PKG_VERSION"));
    let (usable, others): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| host.version.as_ref() == Some(&own));
    let mut refused: Vec<Problem> = others.iter().map(|host| unusable(host, &own)).collect();
    if usable.is_empty() {
        return Err(refused.swap_remove(0));
    }
    Ok((usable, refused))
}

fn unusable(host: &ClusterHost, own: &str) -> Problem {
    let name = &host.host;
    match (&host.version, &host.binary) {
        (Some(version), _) => Problem::new(format!("the workers at {name} have {version}, this is {own}")),
        (None, Some(binary)) => Problem::new(format!("{} of the workers at {name} does not start", binary.display())),
        (None, None) => Problem::new(format!("the workers at {name} have no tidemill")),
    }
    .hint("install this version there, in PATH or where TIDEMILL says")
}

/// An agent that was set up, with the index of its host and the processors that it may use.
type SetUpAgent = (usize, AgentLink, u32);

/// Starts and sets up the agents of all hosts, at once. A host that cannot is an error: the pool
/// would have another shape than the user expects.
async fn set_up_agents(
    carrier: &CarrierHandle,
    spec: &RunSpec,
    cluster: &ClusterSpec,
    hosts: &[ClusterHost],
) -> Result<Vec<SetUpAgent>, Vec<Problem>> {
    let mut starting = JoinSet::new();
    for (index, host) in hosts.iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let setup = agent_setup(&spec.run_id, number, Some(number), cluster.orphan_wait);
        let (carrier, host) = (carrier.clone(), host.host.clone());
        starting.spawn(async move {
            let mut link = AgentLink::start_at(&carrier, &host).await?;
            let processors = link.set_up(&setup).await?;
            Ok((index, link, processors))
        });
    }
    let (mut agents, mut problems) = (Vec::new(), Vec::new());
    while let Some(started) = starting.join_next().await {
        match started.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
            Ok(agent) => agents.push(agent),
            Err(problem) => problems.push(problem),
        }
    }
    agents.sort_by_key(|(index, ..)| *index);
    if problems.is_empty() { Ok(agents) } else { Err(problems) }
}

/// The setup of the agent with a number.
pub fn agent_setup(run_id: &str, number: u32, node: Option<u32>, orphan_wait: Duration) -> AgentSetup {
    AgentSetup { version: env!("CARGO_PKG_VERSION").to_owned(), name: agent_name(run_id, number), node, orphan_wait }
}

/// Starts the pool on the agents' nodes and on a first one beside the run. Returns the agents, and
/// that of the first node.
async fn start_pool(
    agents: Vec<SetUpAgent>,
    pool_file: &Path,
    spec: &RunSpec,
    cluster: &ClusterSpec,
    (hosts, address): (&[ClusterHost], String),
) -> Result<(Vec<(usize, AgentLink)>, AgentLink), Problem> {
    let mut first = AgentLink::start_here(&cluster.program)?;
    // The last number: a client takes the lowest one on its host for its own node.
    let number = u32::try_from(agents.len() + 1).unwrap_or(u32::MAX);
    first.set_up(&agent_setup(&spec.run_id, number, Some(number), cluster.orphan_wait)).await?;
    let memory = Memory::typed(spec.memory);
    let linked = |(index, _, processors): &SetUpAgent| LinkedHost {
        address: hosts[*index].host.clone(),
        memory,
        slots: *processors,
    };
    let mut targets: Vec<LinkedHost> = agents.iter().map(linked).collect();
    targets.push(LinkedHost { address, memory: Memory::Bytes(FIRST_NODE_BYTES), slots: 0 });
    let pool_spec = PoolSpec {
        target: LaunchTarget::Linked(targets),
        memory,
        slots: None,
        port: None,
        max_nodes: None,
        partitions: PARTITIONS,
        space_wait: spec.space_wait,
        tls: true,
        program: cluster.program.clone(),
    };
    let mut bootstraps = JoinSet::new();
    let mut links: Vec<BootstrapLink> = Vec::new();
    for (index, mut link) in agents.into_iter().map(|(index, link, _)| (index, link)).chain([(usize::MAX, first)]) {
        let (node, starter) =
            bootstrap_channel().map_err(|error| Problem::new(format!("no connection to the agents: {error}")))?;
        links.push(node);
        bootstraps.spawn(async move { link.bootstrap(starter).await.map(|()| (index, link)) });
    }
    let path = pool_file.to_owned();
    let starting = tokio::task::spawn_blocking(move || pool::start_linked(&path, &pool_spec, links));
    let (mut agents, mut refused) = (Vec::new(), None);
    while let Some(done) = bootstraps.join_next().await {
        match done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
            Ok(agent) => agents.push(agent),
            Err(problem) => refused = refused.or(Some(problem)),
        }
    }
    let started = starting.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    if let Err(problem) = started {
        return Err(if problem.message.contains("ended before") { refused.unwrap_or(problem) } else { problem });
    }
    agents.sort_by_key(|(index, _)| *index);
    let (_, first) = agents.pop().expect("the first node is one of them");
    Ok((agents, first))
}

/// Number of partitions of a run's pool.
const PARTITIONS: u32 = 4096;

/// What agents are told when the pool runs.
fn agent_start(spec: &RunSpec, cluster: &ClusterSpec, own: &OwnTools, pool_file: &Path) -> Result<AgentStart, Problem> {
    let pool = std::fs::read_to_string(pool_file)
        .map_err(|error| Problem::new(format!("{}: {error}", pool_file.display())))?;
    Ok(AgentStart {
        pool,
        tools: tools(&spec.flow, own),
        trees: own.trees.for_agents(),
        storage: spec.storage,
        passthrough: spec.passthrough,
        keep: spec.keep,
        leave_failed: spec.keep_failed.is_some(),
        grace: spec.grace,
        inputs: if spec.stage_in { Vec::new() } else { inputs(spec)? },
        environment: cluster.environment.clone(),
        only_stores: false,
    })
}

/// The tools that are called.
fn tools(flow: &CheckedWorkflow, own: &OwnTools) -> Vec<AgentTool> {
    let workflow = flow.workflow();
    let mut first: BTreeMap<ToolId, TaskId> = BTreeMap::new();
    for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
        first.entry(task.tool).or_insert(id);
    }
    let tool = |(id, task): (ToolId, TaskId)| {
        let tool = &workflow.tools[id.0 as usize];
        let travelling = own.programs.get(&id).filter(|program| own.trees.has_program(tool, program));
        AgentTool {
            id,
            name: tool.name.clone(),
            program: flow.command_from(task, (&here_token(&tool.here), ""), &|_| String::new()).program,
            tree: own.trees.of_tool(tool).map(str::to_owned),
            travels: travelling.is_some(),
            obstacle: travelling.and_then(|program| {
                let dirs = exec::search_dirs(&tool.path, Path::new(&tool.here), std::env::var_os("PATH").as_deref());
                library_obstacle(program, &dirs)
            }),
            path: tool.path.clone(),
            here: tool.here.clone().into(),
            has_files: tool.needs_workdir(),
            memory: tool.resources.memory,
        }
    };
    first.into_iter().map(tool).collect()
}

/// The inputs, each file once for each member that names it.
fn inputs(spec: &RunSpec) -> Result<Vec<HostInput>, Problem> {
    let workflow = spec.flow.workflow();
    let mut found = Vec::new();
    for id in (0..workflow.data_count()).map(DataId) {
        let Some(path) = layout::host_path(&spec.flow, id).map(|path| spec.data_dir.join(path)) else { continue };
        let described = host_inputs::describe(id, &path);
        found.push(described.map_err(|error| Problem::new(format!("{}: {error}", path.display())))?);
    }
    Ok(found)
}

/// Lets all agents serve, at once, and attaches the workers of their hosts. Returns those that do,
/// by the index of their host, and what is wrong with the others.
async fn start_agents(
    agents: &mut Vec<(usize, AgentLink)>,
    (hosts, carrier): (&[ClusterHost], &CarrierHandle),
    start: &AgentStart,
) -> (Vec<(usize, AgentReady)>, Vec<Problem>) {
    let mut starting = JoinSet::new();
    for (index, mut link) in agents.drain(..) {
        let start = start.clone();
        starting.spawn(async move { link.start(&start).await.map(|ready| (index, ready)) });
    }
    let (mut ready, mut problems) = (Vec::new(), Vec::new());
    while let Some(started) = starting.join_next().await {
        match started.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
            Ok((index, agent)) => {
                let (host, socket) = (hosts[index].host.clone(), agent.socket.clone());
                carrier.send(ToCarrier::Attach { host, socket });
                ready.push((index, agent));
            }
            Err(problem) => problems.push(problem),
        }
    }
    ready.sort_by_key(|(index, _)| *index);
    (ready, problems)
}

/// Lets the agent of the first node serve, and connects to it. Returns the path of its socket too.
async fn start_first(first: AgentLink, start: &AgentStart) -> Result<(FirstAgent, PathBuf), Problem> {
    let only_stores =
        AgentStart { only_stores: true, tools: Vec::new(), trees: Vec::new(), inputs: Vec::new(), ..start.clone() };
    let (ready, child) = first.start_child(&only_stores).await?;
    let stream = UnixStream::connect(&ready.socket).await;
    let stream = stream.map_err(|error| Problem::new(format!("{}: {error}", ready.socket.display())))?;
    Ok((FirstAgent { stream, child }, ready.socket))
}

/// Inputs that a host has itself.
pub fn same_inputs(ready: &AgentReady) -> HashSet<DataId> {
    ready.same_inputs.iter().copied().collect()
}
