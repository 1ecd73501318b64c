//! Forms the pool of a run on a cluster: one node on each host that has workers when the run
//! begins, and a first node beside the run, which holds the root.
//!
//! ```text
//! carrier -> hosts -> agents (set up) -> pool::start_linked -> agents (start) -> FormedCluster
//! ```

use super::agent_link::{AgentLink, bootstrap_channel};
use super::dask_carrier::{Carrier, CarrierHandle, ClusterHost, FromCarrier, ToCarrier};
use super::first_agent::FirstAgent;
use super::former_agents::FormerAgents;
use super::host_inputs;
use super::messages::{AgentReady, AgentSetup, AgentStart, AgentTool, HostInput, agent_name};
use super::tool_trees::ToolTrees;
use crate::checked_workflow::CheckedWorkflow;
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::event::RunEvent;
use crate::host_runner::AttemptKey;
use crate::layout;
use crate::order::here_token;
use crate::spec::{ClusterSpec, ClusterTarget, RunSpec};
use crate::storage_choice::library_obstacle;
use base::Problem;
use client::RetryPolicy;
use flow::{DataId, ToolId};
use mount::{PoolRegistration, RuntimeDir};
use placement::NodeId;
use pool::{BootstrapLink, LaunchTarget, LinkedHost, Memory, PoolSpec};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use vfs::Vfs;

/// Memory of the first node: it holds directories and the list of inputs, not the data of tasks.
const FIRST_NODE_BYTES: u64 = 256 << 20;
/// Time without another host after which the hosts that are there are all, if the user gave no
/// number of workers.
const SETTLE: Duration = Duration::from_millis(500);

/// The state before a pool is formed.
#[derive(Debug, Default)]
pub struct BeforePool {
    /// True if the run had another pool before.
    pub anew: bool,
    /// The open way to the cluster; `None` if it is yet to be opened.
    pub link: Option<DaskLink>,
    /// Agents of the other pool.
    pub agents: FormerAgents,
    /// Files that stand in for data, beside the inputs.
    pub files: Vec<(DataId, PathBuf)>,
}

/// The way to a Dask cluster.
#[derive(Debug)]
pub struct DaskLink {
    /// The process that passes lines.
    pub carrier: Carrier,
    /// Address at which the cluster reaches this machine.
    pub address: String,
    /// The hosts that have workers, as far as the carrier has told.
    pub hosts: Vec<ClusterHost>,
    /// Number of workers that a cluster of the run's own is to have.
    pub wanted: u32,
    /// True if the carrier has ended, or cannot go on.
    pub is_gone: bool,
}

impl DaskLink {
    /// Starts the carrier, which has no connection yet.
    fn start(cluster: &ClusterSpec) -> Result<Self, Problem> {
        let carrier = Carrier::start(&cluster.python, &cluster.target)?;
        let wanted = cluster.workers.unwrap_or(0);
        Ok(Self { carrier, address: String::new(), hosts: Vec::new(), wanted, is_gone: false })
    }

    /// Connects to the Dask scheduler, or starts a cluster.
    async fn open(&mut self, spec: &RunSpec, cluster: &ClusterSpec) -> Result<(), Problem> {
        let (address, started) = match cluster.target.clone() {
            ClusterTarget::Scheduler(address) => (Some(address), None),
            ClusterTarget::Start(started) => (None, Some(started)),
        };
        self.carrier.open(ToCarrier::Open {
            address,
            cluster: started,
            run: spec.run_id.clone(),
            binary: cluster.program.clone(),
            wait: cluster.wait.as_secs_f64(),
        });
        while !matches!(self.next().await?, FromCarrier::Opened { .. }) {}
        Ok(())
    }

    /// Waits for the next message; hosts that have changed are taken.
    ///
    /// # Errors
    /// The carrier cannot go on, or has ended.
    pub async fn next(&mut self) -> Result<FromCarrier, Problem> {
        let message = self.carrier.messages.recv().await;
        let message = message.unwrap_or_else(|| FromCarrier::Gone("it closed its output".to_owned()));
        self.is_gone = matches!(message, FromCarrier::Failed { .. } | FromCarrier::Gone(_));
        match message {
            FromCarrier::Failed { message, hint } => {
                let problem = Problem::new(message);
                return Err(hint.map_or(problem.clone(), |hint| problem.hint(hint)));
            }
            FromCarrier::Gone(why) => return Err(Problem::new(format!("the connection to Dask has ended: {why}"))),
            FromCarrier::Hosts(ref hosts) => self.hosts.clone_from(hosts),
            FromCarrier::Opened { ref address } => self.address.clone_from(address),
            FromCarrier::Cut { .. } => self.hosts.clear(),
            _ => {}
        }
        Ok(message)
    }
}

/// A cluster with a pool, ready for tasks.
#[derive(Debug)]
pub struct FormedCluster {
    /// The way to the cluster.
    pub link: DaskLink,
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
    /// Lines that agents have sent already, by the names of their hosts.
    pub heard: Vec<(String, Vec<String>)>,
}

impl FormedCluster {
    /// The pool file, if hosts that join later get nodes.
    pub fn pool_file(&self) -> Option<PathBuf> {
        self.joining.node.as_ref().map(|node| node.pool_file.clone())
    }
}

/// A host that runs tasks.
#[derive(Debug, Clone)]
pub struct FormedHost {
    /// The host, with its workers.
    pub host: ClusterHost,
    /// Number of its node; `None` if it joined later and only computes.
    pub node: Option<u32>,
    /// What its agent told.
    pub ready: AgentReady,
    /// Attempts that it ran for an earlier process of the run.
    pub runs: Vec<AttemptKey>,
}

/// What hosts that join later need.
#[derive(Debug, Clone)]
pub struct JoiningHosts {
    /// The first part of the names of agents.
    pub names: String,
    /// Number of the next agent.
    pub next: u32,
    /// Time after which an agent ends by itself.
    pub orphan_wait: Duration,
    /// What agents are told when the pool runs.
    pub start: AgentStart,
    /// The nodes with which they join a pool that grows; `None` if they only compute.
    pub node: Option<JoiningNode>,
}

/// The node of a host that joins later.
#[derive(Debug, Clone)]
pub struct JoiningNode {
    /// The pool file.
    pub pool_file: PathBuf,
    /// Memory of the node.
    pub memory: Memory,
    /// Time that a request waits for space.
    pub space_wait: Duration,
}

impl JoiningNode {
    /// The node of hosts that join the run's pool, if that grows.
    fn of_run(spec: &RunSpec, pool_file: PathBuf) -> Option<Self> {
        let (memory, space_wait) = (Memory::typed(spec.memory), spec.space_wait);
        spec.elastic.as_ref().map(|_| Self { pool_file, memory, space_wait })
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

/// Forms the cluster. If that fails or is given up, agents that serve already are told to end when
/// the link is dropped, and those that start end with the carrier.
pub async fn form(
    spec: &RunSpec,
    cluster: &ClusterSpec,
    own: &OwnTools,
    before: &mut BeforePool,
    (on_event, emergency_cleanup): (&mut dyn FnMut(&RunEvent), &EmergencyCleanup),
) -> Result<FormedCluster, Vec<Problem>> {
    let one = |problem| vec![problem];
    let trees = own.trees.clone();
    let trees = tokio::task::spawn_blocking(move || trees.hashed());
    let runtime = RuntimeDir::of_user().map_err(|error| one(error.into()))?;
    crate::environment::remove_stale_runs(&runtime).map_err(one)?;
    let mut registration = runtime.register(&spec.run_id).map_err(|error| one(error.into()))?;
    let pool_file = crate::environment::door(&mut registration).map_err(one)?.join("pool");
    let (former, files) = (std::mem::take(&mut before.agents), std::mem::take(&mut before.files));
    let anew = before.anew;
    let mut cleanup = CleanupList::new(registration.rollback(), &spec.run_id);
    let link = open_link(before, (spec, cluster), (&mut cleanup, emergency_cleanup)).await.map_err(one)?;
    former.end(link).await.map_err(one)?;
    let (hosts, refused) = usable(&link.hosts).map_err(one)?;
    refused.iter().map(ToString::to_string).for_each(|text| on_event(&RunEvent::Warning(text)));
    let (launched, problems) = launch_agents(&link.carrier.handle, hosts).await;
    if launched.is_empty() || !(anew || problems.is_empty()) {
        // The pool would have another shape than the user expects.
        return Err(problems);
    }
    problems.iter().map(without_tasks).for_each(|text| on_event(&RunEvent::Warning(text)));
    let (hosts, agents): (Vec<ClusterHost>, Vec<AgentLink>) = launched.into_iter().unzip();
    let names = agent_names(spec, anew);
    let agents = set_up_agents(agents, &names, cluster).await?;
    let address = link.address.clone();
    let started = start_pool(agents, &pool_file, spec, cluster, (&hosts, address, &names)).await;
    let (agents, first) = started.map_err(one)?;
    let trees = trees.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map_err(one)?;
    let own = OwnTools { trees, programs: own.programs.clone() };
    let start = agent_start(spec, cluster, &own, (&pool_file, files)).map_err(one)?;
    let pool = Vfs::new(pool::connect(&pool_file, RetryPolicy::default()).await.map_err(one)?);
    let first_node = NodeId(u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX));
    own.trees.put(&pool, first_node).await.map_err(one)?;
    let (ready, problems) = start_agents(agents, (&hosts, &link.carrier.handle), &start).await;
    if ready.is_empty() {
        return Err(problems);
    }
    problems.iter().map(without_tasks).for_each(|text| on_event(&RunEvent::Warning(text)));
    let first = FirstAgent::start(first, &start).await.map_err(one)?;
    cleanup.agents.push(first.socket.clone());
    emergency_cleanup.arm(Some(cleanup));
    let formed = ready.into_iter().map(|(index, ready)| FormedHost {
        host: hosts[index].clone(),
        node: u32::try_from(index + 1).ok(),
        ready,
        runs: Vec::new(),
    });
    let formed: Vec<FormedHost> = formed.collect();
    let next = first_node.0 + 1;
    let link = before.link.take().expect("it was just used");
    let node = JoiningNode::of_run(spec, pool_file);
    let joining = JoiningHosts { names, next, orphan_wait: cluster.orphan_wait, start, node };
    Ok(FormedCluster { link, pool, hosts: formed, joining, first, first_node, registration, heard: Vec::new() })
}

/// The first part of the names of agents: another one for each pool of a run.
pub fn agent_names(spec: &RunSpec, anew: bool) -> String {
    if anew { format!("{}-{:x}", spec.run_id, journal::unix_ms()) } else { spec.run_id.clone() }
}

/// Opens the way to the cluster, unless it is open, and waits for its workers.
pub async fn open_link<'a>(
    before: &'a mut BeforePool,
    (spec, cluster): (&RunSpec, &ClusterSpec),
    (cleanup, emergency_cleanup): (&mut CleanupList, &EmergencyCleanup),
) -> Result<&'a mut DaskLink, Problem> {
    // Workers that a pool had which is lost may be gone with it.
    let wanted = cluster.workers.filter(|_| before.link.is_none());
    before.link.take_if(|link| link.is_gone);
    let link = match &mut before.link {
        Some(link) => link,
        link => link.insert(DaskLink::start(cluster)?),
    };
    cleanup.carrier = Some(link.carrier.handle.clone());
    emergency_cleanup.arm(Some(cleanup.clone()));
    if link.address.is_empty() {
        link.open(spec, cluster).await?;
    }
    wait_for_hosts(link, cluster, wanted).await?;
    Ok(link)
}

fn without_tasks(problem: &Problem) -> String {
    format!("{problem}; this host gets no tasks")
}

/// Waits until there are enough workers.
async fn wait_for_hosts(link: &mut DaskLink, cluster: &ClusterSpec, wanted: Option<u32>) -> Result<(), Problem> {
    let until = Instant::now() + cluster.wait;
    loop {
        let workers: u32 = link.hosts.iter().map(|host| host.workers).sum();
        let deadline = match wanted {
            Some(wanted) if workers >= wanted => return Ok(()),
            None if workers > 0 => (Instant::now() + SETTLE).min(until),
            _ => until,
        };
        match timeout_at(deadline, link.next()).await {
            Ok(message) => drop(message?),
            Err(_) if wanted.is_none() && workers > 0 => return Ok(()),
            Err(_) => {
                let (wanted, seconds) = (wanted.unwrap_or(1), cluster.wait.as_secs());
                return Err(Problem::new(format!(
                    "the Dask cluster has {workers} workers after {seconds} s, and {wanted} are wanted"
                ))
                .hint(cluster.target.hint_of_few_workers()));
            }
        }
    }
}

/// The hosts that can have an agent, and what is wrong with the others.
fn usable(hosts: &[ClusterHost]) -> Result<(Vec<ClusterHost>, Vec<Problem>), Problem> {
    let own = format!("tidemill {}", env!("CARGO_PKG_VERSION"));
    let is_usable = |host: &ClusterHost| host.version.as_ref() == Some(&own);
    let (usable, others): (Vec<_>, Vec<_>) = hosts.iter().cloned().partition(is_usable);
    let refused: Vec<Problem> = others.iter().map(|host| unusable(host, &own)).collect();
    if usable.is_empty() {
        return Err(refused.into_iter().next().unwrap_or_else(|| Problem::new("no Dask worker is left")));
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

/// Starts an agent at each of these hosts, at once. Returns those that have started, and what is
/// wrong with the other hosts.
async fn launch_agents(
    carrier: &CarrierHandle,
    hosts: Vec<ClusterHost>,
) -> (Vec<(ClusterHost, AgentLink)>, Vec<Problem>) {
    let launch = |host: ClusterHost| {
        let carrier = carrier.clone();
        async move { AgentLink::start_at(&carrier, &host.host).await.map(|link| (host, link)) }
    };
    let (mut started, problems) = all_of(hosts.into_iter().map(launch)).await;
    started.sort_by(|(a, _), (b, _)| a.host.cmp(&b.host));
    (started, problems)
}

/// Sets agents up, at once. One that cannot be is an error: nodes are numbered by then.
async fn set_up_agents(
    agents: Vec<AgentLink>,
    names: &str,
    cluster: &ClusterSpec,
) -> Result<Vec<SetUpAgent>, Vec<Problem>> {
    let set_up = |(index, mut link): (usize, AgentLink)| {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let setup = agent_setup(names, number, Some(number), cluster.orphan_wait);
        async move { link.set_up(&setup).await.map(|processors| (index, link, processors)) }
    };
    let (mut agents, problems) = all_of(agents.into_iter().enumerate().map(set_up)).await;
    agents.sort_by_key(|(index, ..)| *index);
    if problems.is_empty() { Ok(agents) } else { Err(problems) }
}

/// Does all of this at once; returns the results and the problems as they came.
async fn all_of<T: Send + 'static>(
    works: impl Iterator<Item = impl Future<Output = Result<T, Problem>> + Send + 'static>,
) -> (Vec<T>, Vec<Problem>) {
    let mut works: JoinSet<_> = works.collect();
    let (mut done, mut problems) = (Vec::new(), Vec::new());
    while let Some(ended) = works.join_next().await {
        match ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
            Ok(result) => done.push(result),
            Err(problem) => problems.push(problem),
        }
    }
    (done, problems)
}

/// The setup of the agent with a number.
pub fn agent_setup(names: &str, number: u32, node: Option<u32>, orphan_wait: Duration) -> AgentSetup {
    AgentSetup { version: env!("CARGO_PKG_VERSION").to_owned(), name: agent_name(names, number), node, orphan_wait }
}

/// Starts the pool on the agents' nodes and on a first one beside the run. Returns the agents, and
/// that of the first node.
async fn start_pool(
    agents: Vec<SetUpAgent>,
    pool_file: &Path,
    spec: &RunSpec,
    cluster: &ClusterSpec,
    (hosts, address, names): (&[ClusterHost], String, &str),
) -> Result<(Vec<(usize, AgentLink)>, AgentLink), Problem> {
    let mut first = AgentLink::start_here(&cluster.program)?;
    // The last number: a client takes the lowest one on its host for its own node.
    let number = u32::try_from(agents.len() + 1).unwrap_or(u32::MAX);
    first.set_up(&agent_setup(names, number, Some(number), cluster.orphan_wait)).await?;
    let memory = Memory::typed(spec.memory);
    let linked = |(index, _, processors): &SetUpAgent| LinkedHost {
        address: hosts[*index].host.clone(),
        memory,
        slots: Some(*processors),
        name: None,
    };
    let mut targets: Vec<LinkedHost> = agents.iter().map(linked).collect();
    targets.push(LinkedHost { address, memory: Memory::Bytes(FIRST_NODE_BYTES), slots: Some(0), name: None });
    let pool_spec = PoolSpec {
        target: LaunchTarget::Linked(targets),
        memory,
        slots: None,
        port: None,
        metrics: None,
        max_nodes: spec.elastic.as_ref().map(|elastic| elastic.limits.max.max(number - 1) + 1),
        partitions: if spec.elastic.is_some() { ELASTIC_PARTITIONS } else { PARTITIONS },
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
/// The same for a pool that grows: enough for equal shares of some dozen nodes, and few enough to
/// move soon.
const ELASTIC_PARTITIONS: u32 = 1024;

/// What agents are told when the pool runs.
pub fn agent_start(
    spec: &RunSpec,
    cluster: &ClusterSpec,
    own: &OwnTools,
    (pool_file, files): (&Path, Vec<(DataId, PathBuf)>),
) -> Result<AgentStart, Problem> {
    let pool = std::fs::read_to_string(pool_file)
        .map_err(|error| Problem::new(format!("{}: {error}", pool_file.display())))?;
    Ok(AgentStart {
        pool,
        node: None,
        tools: tools(&spec.flow, own),
        trees: own.trees.for_agents(),
        storage: spec.storage,
        passthrough: spec.passthrough,
        keep: spec.keep,
        leave_failed: spec.keep_failed.is_some(),
        grace: spec.grace,
        inputs: inputs(spec, files)?,
        environment: cluster.environment.clone(),
        only_stores: false,
    })
}

/// The tools that are called.
fn tools(flow: &CheckedWorkflow, own: &OwnTools) -> Vec<AgentTool> {
    let workflow = flow.workflow();
    let tool = |id: ToolId| {
        let tool = &workflow.tools[id.0 as usize];
        let travelling = own.programs.get(&id).filter(|program| own.trees.has_program(tool, program));
        AgentTool {
            id,
            name: tool.name.clone(),
            program: flow.program(id, &here_token(&tool.here)),
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
    flow.called_tools().into_iter().map(tool).collect()
}

/// The inputs and the files that stand in for data, each once for each member.
fn inputs(spec: &RunSpec, mut files: Vec<(DataId, PathBuf)>) -> Result<Vec<HostInput>, Problem> {
    let path_of = |id| Some((id, spec.data_dir.join(layout::host_path(&spec.flow, id)?)));
    let data = (0..spec.flow.workflow().data_count()).map(DataId);
    files.extend(data.filter(|_| !spec.stage_in).filter_map(path_of));
    let describe = |(id, path): (DataId, PathBuf)| {
        let described = host_inputs::describe(id, &path);
        described.map_err(|error| Problem::new(format!("{}: {error}", path.display())))
    };
    files.into_iter().map(describe).collect()
}

/// Lets all agents serve, at once, and attaches the workers of their hosts. Returns those that do,
/// by the index of their host, and what is wrong with the others.
async fn start_agents(
    agents: Vec<(usize, AgentLink)>,
    (hosts, carrier): (&[ClusterHost], &CarrierHandle),
    start: &AgentStart,
) -> (Vec<(usize, AgentReady)>, Vec<Problem>) {
    let serve = |(index, mut link): (usize, AgentLink)| {
        let (start, carrier, host) = (start.clone(), carrier.clone(), hosts[index].host.clone());
        async move {
            let ready = link.start(&start).await?;
            carrier.send(ToCarrier::Attach { host, socket: ready.socket.clone() });
            Ok((index, ready))
        }
    };
    let (mut ready, problems) = all_of(agents.into_iter().map(serve)).await;
    ready.sort_by_key(|(index, _)| *index);
    (ready, problems)
}

/// Inputs that a host has itself.
pub fn same_inputs(ready: &AgentReady) -> HashSet<DataId> {
    ready.same_inputs.iter().copied().collect()
}
