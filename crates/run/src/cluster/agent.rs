//! Agent: runs attempts on one host of a cluster, and holds the host's node of the pool.
//!
//! ```text
//!  standard input and output -> Dialogue -> AgentHost (registration, node, access to the pool)
//!  socket -> connections of workers -> AgentService -> HostRunner -> outcomes to a worker
//! ```
//!
//! An agent outlives the workers that started it. It ends when the run says so, or when nothing of
//! the run has come for a long time. Its node is its child and ends with it.

use super::agent_service::AgentService;
use super::host_inputs;
use super::host_tools::HostTools;
use super::input_copies::InputCopies;
use super::mailbox::Mailbox;
use super::messages::{AgentAnswer, AgentReady, AgentSetup, AgentStart, AgentTree, line};
use crate::attempt::HostContext;
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::environment::{
    RUN_VARIABLE, StorageSetup, TaskRoots, door, remove_stale_runs, run_env_var, tools_directory,
};
use crate::host_runner::HostRunner;
use crate::memory::MemoryBudget;
use crate::memory_limits::{self, MemoryLimits};
use crate::storage_choice::{StorageChoice, ToolProgram, ToolSupport, choose};
use crate::usage_refresh::{NodeUsages, keep_usage};
use base::Problem;
use client::RetryPolicy;
use exec::MemoryGroups;
use flow::DataId;
use mount::{Mount, MountOptions, PoolRegistration, RuntimeDir};
use placement::NodeId;
use report::AccessMode;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// Time that the node gets to end after SIGTERM.
const NODE_END_WAIT: Duration = Duration::from_secs(20);

/// Becomes the agent that the starter at the other end of standard input and output asks for.
/// Serves until the run or `cancel` ends it.
pub fn run_agent(emergency_cleanup: &EmergencyCleanup, cancel: &CancellationToken) -> Result<(), Problem> {
    let mut dialogue = Dialogue { input: io::stdin().lock(), output: io::stdout().lock() };
    let served = prepare(&mut dialogue, emergency_cleanup);
    let (mut host, service) = match served {
        Ok(prepared) => prepared,
        Err(problem) => {
            // The starter reports it. If it is gone, nobody is interested.
            dialogue.answer(&AgentAnswer::from(problem)).ok();
            return Ok(());
        }
    };
    drop(dialogue);
    pool::detach(&host.log)?;
    let runtime = host.runtime.take().expect("it was made with the host");
    let mut service = service;
    let node = host.node.as_mut();
    runtime.block_on(service.serve(cancel.clone(), node.map(|node| &mut node.child)));
    host.close();
    runtime.block_on(service.tell_over());
    emergency_cleanup.arm(None);
    Ok(())
}

/// The starter's end of the conversation.
struct Dialogue<I, O> {
    input: I,
    output: O,
}

impl<I: BufRead, O: Write> Dialogue<I, O> {
    fn ask<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let text = self.line()?.ok_or_else(|| Problem::new("the run that started this agent has ended"))?;
        serde_json::from_str(&text).map_err(|error| {
            Problem::new(format!("this is not a message of a run: {error}"))
                .hint("`tidemill run --on` starts agents; this command is for it")
        })
    }

    fn line(&mut self) -> Result<Option<String>, Problem> {
        let mut text = String::new();
        match self.input.read_line(&mut text) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(text)),
            Err(error) => Err(Problem::new(format!("standard input: {error}"))),
        }
    }

    fn answer(&mut self, answer: &AgentAnswer) -> io::Result<()> {
        self.pass_on(&line(answer))
    }

    fn pass_on(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{}", text.trim_end())?;
        self.output.flush()
    }
}

/// What an agent has on its host. Its parts are removed in the order of the fields.
#[derive(Debug)]
struct AgentHost {
    mount: Option<Mount>,
    node: Option<NodeChild>,
    registration: PoolRegistration,
    log: PathBuf,
    runtime: Option<tokio::runtime::Runtime>,
}

fn prepare<I: BufRead, O: Write>(
    dialogue: &mut Dialogue<I, O>,
    emergency_cleanup: &EmergencyCleanup,
) -> Result<(AgentHost, AgentService), Problem> {
    let setup: AgentSetup = dialogue.ask()?;
    let own = env!("CARGO_PKG_VERSION");
    if setup.version != own {
        return Err(Problem::new(format!("the run is Tidemill {}, this host has {own}", setup.version))
            .hint("install one version on all hosts"));
    }
    let runtime_dir = RuntimeDir::of_user()?;
    remove_stale_runs(&runtime_dir)?;
    let mut registration = runtime_dir.register(&setup.name)?;
    emergency_cleanup.arm(Some(CleanupList::new(registration.rollback(), &setup.name)));
    let directory = door(&mut registration)?;
    let pool_file = directory.join("pool");
    let processors = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    dialogue.answer(&AgentAnswer::Greeting { processors }).map_err(starter_gone)?;
    let node = match setup.node {
        Some(id) => Some(bootstrap_node(dialogue, id, &pool_file)?),
        None => None,
    };
    let start: AgentStart = dialogue.ask()?;
    write_private(&pool_file, &start.pool)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(format!("cannot start: {error}")))?;
    // It goes with the directory, also if this process is killed.
    let log = directory.join("log");
    let mut host = AgentHost { mount: None, node, registration, log, runtime: Some(runtime) };
    let (service, ready) = host.start(&setup, &start, &pool_file, &directory)?;
    dialogue.answer(&AgentAnswer::Ready(ready)).map_err(starter_gone)?;
    Ok((host, service))
}

#[expect(clippy::needless_pass_by_value, reason = "where errors are mapped")]
fn starter_gone(error: io::Error) -> Problem {
    Problem::new(format!("the run that started this agent has ended: {error}"))
}

/// Starts the node as a child, and passes the lines of its bootstrap on until it detaches.
fn bootstrap_node<I: BufRead, O: Write>(
    dialogue: &mut Dialogue<I, O>,
    id: u32,
    pool_file: &Path,
) -> Result<NodeChild, Problem> {
    let mut node = NodeChild::spawn(id, pool_file)?;
    loop {
        let Some(text) = dialogue.line()? else { return Err(Problem::new("the run that started this node has ended")) };
        if let Some(answer) = node.exchange(&text)? {
            dialogue.pass_on(&answer).map_err(starter_gone)?;
        } else {
            dialogue.answer(&AgentAnswer::Detached).map_err(starter_gone)?;
            return Ok(node);
        }
    }
}

/// A node that is a child of this process, and ends with it.
#[derive(Debug)]
struct NodeChild {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl NodeChild {
    fn spawn(id: u32, pool_file: &Path) -> Result<Self, Problem> {
        let cannot = |error: io::Error| Problem::new(format!("the node cannot be started: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command.arg("node").arg("--pool").arg(pool_file).args(["--id", &id.to_string(), "--with-parent"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Passes one line on and returns the answer; `None` if the node has detached.
    fn exchange(&mut self, text: &str) -> Result<Option<String>, Problem> {
        let gone = |error: io::Error| Problem::new(format!("the node has ended: {error}"));
        let input = self.input.as_mut().expect("it is open until the node detaches");
        input.write_all(text.as_bytes()).and_then(|()| input.flush()).map_err(gone)?;
        let mut answer = String::new();
        if self.output.read_line(&mut answer).map_err(gone)? > 0 {
            return Ok(Some(answer));
        }
        self.input = None;
        match self.child.try_wait() {
            Ok(Some(status)) => Err(Problem::new(format!("the node ended before it was ready: {status}"))),
            _ => Ok(None),
        }
    }

    /// Ends the node. The end of its input ends one that starts, which removes what it has then.
    fn end(&mut self) {
        if self.input.take().is_none() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = std::time::Instant::now() + NODE_END_WAIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if std::time::Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl AgentHost {
    /// Connects to the pool, and gives tasks access to it.
    fn start(
        &mut self,
        setup: &AgentSetup,
        start: &AgentStart,
        pool_file: &Path,
        directory: &Path,
    ) -> Result<(AgentService, AgentReady), Problem> {
        let io_runtime = pool::io_runtime()?;
        let runtime = self.runtime.as_ref().expect("it was made with the host");
        let (pool, usages) = runtime.block_on(connect(pool_file))?;
        let mut tools = HostTools::find(&start.tools)?;
        let support = tool_support(start, &tools);
        let mut choice = if start.only_stores { no_access() } else { choose(start.storage, &support)? };
        let mut setup_access = StorageSetup {
            storage: start.storage,
            passthrough: start.passthrough,
            choice: &mut choice,
            tools: &support,
            registration: &mut self.registration,
        };
        self.mount =
            setup_access.mount(&pool, MountOptions { runtime: Some(io_runtime), ..MountOptions::default() })?;
        let ram_disk = setup_access.ram_disk()?;
        let pool_file = (choice.mode == AccessMode::Preload).then(|| pool_file.to_owned());
        let roots = TaskRoots { is_mounted: self.mount.is_some(), pool_file, ram_disk };
        let _entered = runtime.enter();
        let workspace = if choice.mode == AccessMode::None {
            None
        } else {
            let workspace = roots.workspace(&pool, &self.registration, &choice, CancellationToken::new())?;
            Some(workspace.with_host_paths())
        };
        provide_trees(&mut tools, (&start.trees, &pool), &mut self.registration)?;
        let node = start.node.or(setup.node).filter(|_| workspace.is_some());
        let copies = node.map(|node| InputCopies::new(pool.clone(), NodeId(node), usages));
        let limits = MemoryBudget::read();
        let copies_max = limits.copies().0;
        let groups = self.memory_groups(start);
        let memory = groups.map(|groups| MemoryLimits::new(groups, &choice, pool.usage().capacity, copies_max));
        let context = HostContext {
            workspace,
            tools: Some(tools),
            copies,
            default_cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            grace: start.grace,
            memory,
            keep: start.keep,
            leave_failed: start.leave_failed,
            filled: AtomicU64::default(),
        };
        let socket = directory.join("agent");
        let listener = listen(&socket)?;
        let same: HashSet<DataId> =
            start.inputs.iter().filter(|input| host_inputs::is_same(input)).map(|input| input.data).collect();
        let same_inputs = same.iter().copied().collect();
        let (name, mode, line, memory) = (setup.name.clone(), choice.mode, choice.line, limits.free());
        let ready = AgentReady { name, socket, mode, line, same_inputs, memory };
        let fixed = start.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        let own = (RUN_VARIABLE.to_owned(), setup.name.clone());
        let (runner, variables) = (HostRunner::new(context, copies_max), fixed.chain([own]).collect());
        let service = AgentService::new(listener, runner, ready.clone(), variables, setup.orphan_wait);
        // The first node's agent is beside the run.
        let mailbox = (!start.only_stores).then(|| Mailbox::of_agent(pool, &setup.name));
        Ok((service.with_mailbox(mailbox), ready))
    }

    fn memory_groups(&mut self, start: &AgentStart) -> Option<Arc<MemoryGroups>> {
        let is_declared = start.tools.iter().any(|tool| tool.memory > 0);
        is_declared.then(|| memory_limits::make_groups(&mut self.registration)).flatten()
    }

    /// Unmounts, ends the node, and removes everything.
    fn close(mut self) {
        // A daemon that a tool left behind would keep the mount busy.
        exec::kill_by_env_var(&run_env_var(self.registration.name()));
        if let Some(mount) = self.mount.take()
            && let Err(error) = mount.unmount()
        {
            tracing::warn!("the mount could not be taken down cleanly: {error}");
        }
        if let Some(node) = &mut self.node {
            node.end();
        }
    }
}

impl Drop for NodeChild {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

async fn connect(pool_file: &Path) -> Result<(Vfs, NodeUsages), Problem> {
    let pool = Vfs::new(pool::connect(pool_file, RetryPolicy::default()).await?);
    let (usages, _) = keep_usage(pool.clone(), false).await;
    Ok((pool, usages))
}

fn listen(socket: &Path) -> Result<UnixListener, Problem> {
    UnixListener::bind(socket).map_err(|error| Problem::new(format!("{}: {error}", socket.display())))
}

/// Lets the files of tools come.
fn provide_trees(
    tools: &mut HostTools,
    (trees, pool): (&[AgentTree], &Vfs),
    registration: &mut PoolRegistration,
) -> Result<(), Problem> {
    for (number, tree) in trees.iter().enumerate() {
        tools.provide(tree, pool, tools_directory(registration, number)?);
    }
    Ok(())
}

fn tool_support(start: &AgentStart, tools: &HostTools) -> ToolSupport {
    let with_files = start.tools.iter().filter(|tool| tool.has_files).map(|tool| ToolProgram {
        id: tool.id,
        name: &tool.name,
        program: tools.program(tool.id),
        obstacle: tool.obstacle.as_deref(),
        path: &tool.path,
        here: &tool.here,
    });
    ToolSupport::of_programs(with_files)
}

fn no_access() -> StorageChoice {
    StorageChoice {
        mode: AccessMode::None,
        library: None,
        staged: std::collections::BTreeSet::new(),
        line: "it only stores".to_owned(),
    }
}

/// Writes a file that only this user may read.
fn write_private(path: &Path, text: &str) -> Result<(), Problem> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    written().map_err(|error| Problem::new(format!("{}: {error}", path.display())))
}
