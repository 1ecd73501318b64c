//! `tidemill pool` and `tidemill node`: pools of several nodes.

use crate::args::{NodeArgs, PoolArg, PoolCommand, StartArgs, StatusArgs};
use crate::{console, elastic_command, node_log, output, pins_command, pool_top, resize_command, run_command, signals};
use base::{ByteSize, Problem, printable};
use mount::{MountError, RuntimeDir};
use pool::{
    BootstrapError, ClusterStatus, ElasticReport, HostEnv, LaunchTarget, Memory, NodeEntry, NodePhase, NodeSelector,
    NodeState, NodeStatus, PoolFile, PoolSpec, StopResult,
};
use run::PoolSize;
use rustix::process::DumpableBehavior;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit code if a node could not be ended, or some nodes do not answer.
pub const INCOMPLETE: u8 = 1;

/// Starts, ends or shows a pool.
pub fn pool(command: PoolCommand) -> Result<u8, Vec<Problem>> {
    let done = match command {
        PoolCommand::Start(args) => start(&args),
        PoolCommand::Stop(pool_arg) => stop(&pool_arg),
        PoolCommand::Status(args) => status(&args),
        PoolCommand::Grow(args) => resize_command::grow(&args),
        PoolCommand::Shrink(args) => resize_command::shrink(&args),
        PoolCommand::Join(args) => elastic_command::join(&args),
        PoolCommand::Policy(args) => elastic_command::policy(&args),
        PoolCommand::Events(pool_arg) => events(&pool_arg),
        PoolCommand::Pins(args) => pins_command::pins(&args),
        PoolCommand::Top(args) => pool_top::top(&args),
    };
    done.map_err(|problem| vec![problem])
}

/// The path of the pool file: the given one, or the default of this user.
pub fn file(pool_arg: &PoolArg) -> Result<PathBuf, Problem> {
    match pool_arg.pool.as_ref().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            std::path::absolute(path).map_err(|error| Problem::new(format!("--pool {}: {error}", path.display())))
        }
        None => Ok(RuntimeDir::of_user().map_err(mount_problem)?.path().join(PoolFile::DEFAULT_NAME)),
    }
}

fn mount_problem(error: MountError) -> Problem {
    error.into()
}

fn start(args: &StartArgs) -> Result<u8, Problem> {
    let path = file(&args.pool_arg)?;
    let program = std::env::current_exe()
        .map_err(|error| Problem::new(format!("this program's own path is unknown: {error}")))?;
    let wanted = PoolSpec {
        target: launch_target(args)?,
        memory: Memory::typed(args.memory),
        slots: args.slots,
        port: args.port,
        metrics: args.metrics,
        max_nodes: args.max_nodes,
        partitions: args.partitions,
        space_wait: run_command::space_wait()?,
        tls: !args.no_tls,
        program,
    };
    let started = pool::start(&path, &wanted)?;
    if !args.quiet {
        if started.replaced {
            console::warn(&format!("the pool of {} does not run any more: its file is replaced", path.display()));
        }
        let (nodes, memory) = (started.file.nodes.len(), started.file.nodes.iter().map(|node| node.memory).sum());
        let (plural, memory) = (if nodes == 1 { "" } else { "s" }, ByteSize(memory));
        console::say(&format!("a pool of {nodes} node{plural} with {memory} runs; its file is {}", path.display()));
    }
    Ok(0)
}

/// The launch targets of the nodes.
fn launch_target(args: &StartArgs) -> Result<LaunchTarget, Problem> {
    if !args.hosts.is_empty() {
        return Ok(LaunchTarget::Ssh { hosts: args.hosts.clone(), ssh: args.ssh.clone() });
    }
    match (args.nodes, std::env::var("SLURM_JOB_NUM_NODES")) {
        (Some(nodes), _) => Ok(LaunchTarget::Local(nodes)),
        (None, Err(_)) => Ok(LaunchTarget::Local(1)),
        (None, Ok(hosts)) => {
            let wrong = |_| Problem::new(format!("SLURM_JOB_NUM_NODES={hosts}: not a number of hosts"));
            Ok(LaunchTarget::Slurm { hosts: hosts.parse().map_err(wrong)?, srun: "srun".to_owned() })
        }
    }
}

fn stop(pool_arg: &PoolArg) -> Result<u8, Problem> {
    let path = file(pool_arg)?;
    let runtime = RuntimeDir::of_user().map_err(mount_problem)?;
    let stopped = pool::stop(&path, Some(runtime.path()))?;
    // Remove directories of nodes that died.
    run::remove_stale_runs(&runtime)?;
    let mut code = 0;
    for (node, how) in &stopped {
        let (id, host, pid) = (node.id, &node.host, node.pid());
        match how {
            StopResult::Ended => {}
            StopResult::AlreadyEnded => console::say(&format!("node {id} at {host} had already ended")),
            StopResult::Killed => {
                console::say(&format!("node {id} at {host} did not answer: its process {pid} was ended"));
            }
            StopResult::Unknown(why) => {
                code = INCOMPLETE;
                console::say(&format!("error: node {id} at {host} does not answer: {why}"));
                console::say(&format!(
                    "  hint: if that host runs, look there for process {pid}; {} was kept",
                    path.display()
                ));
            }
        }
    }
    Ok(code)
}

fn status(args: &StatusArgs) -> Result<u8, Problem> {
    let path = file(&args.pool_arg)?;
    let file = PoolFile::read(&path)?;
    let present = pool::query_status(&path, &file)?;
    let managed = pool::cluster_status(&path).map_err(|problem| problem.message);
    let text = if args.json {
        let mut shown = as_json(&path, &file, &present);
        shown["managers"] = managers_as_json(&managed);
        format!("{shown}\n")
    } else {
        let lines = present.iter().map(as_line).chain([summary(&path, &present)]);
        let lines = lines.chain(managers_line(&managed));
        lines.map(|line| format!("{}\n", printable::line(&line))).collect::<Vec<_>>().concat()
    };
    let all_up = present.iter().all(|node| matches!(node.state, NodeState::Up(_)));
    Ok(output::print_all(&text).max(if all_up { 0 } else { INCOMPLETE }))
}

/// Returns the line about the managers; `None` if there is nothing to say.
fn managers_line(managed: &Result<ClusterStatus, String>) -> Option<String> {
    let status = match managed {
        Ok(status) => status,
        Err(why) => return Some(format!("the pool cannot grow or shrink now: {why}")),
    };
    let moves = status.state.moves().count();
    let drained: Vec<String> = nodes_in(status, NodePhase::Draining).map(|node| node.to_string()).collect();
    let leaving = if drained.is_empty() { String::new() } else { format!("; leaving: node {}", drained.join(", ")) };
    let epoch = status.map_version();
    let changes = (moves > 0 || !drained.is_empty())
        .then(|| format!("epoch {epoch}, partitions that move now: {moves}{leaving}"));
    let elastic = status.elastic.as_ref().map(|elastic| {
        let ElasticReport { policy, min, max, .. } = elastic;
        format!("the pool grows and shrinks by itself: {policy}, {min} to {max} nodes")
    });
    let lines: Vec<String> = changes.into_iter().chain(elastic).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn nodes_in(status: &ClusterStatus, phase: NodePhase) -> impl Iterator<Item = u32> {
    status.state.nodes().iter().filter(move |(_, node)| node.phase == phase).map(|(id, _)| id.0)
}

fn managers_as_json(managed: &Result<ClusterStatus, String>) -> Value {
    let status = match managed {
        Ok(status) => status,
        Err(why) => return json!({ "leader": null, "reason": why }),
    };
    let moves: Vec<Value> =
        status.state.moves().map(|step| json!([step.partition.0, step.from.0, step.to.0])).collect();
    let draining: Vec<u32> = nodes_in(status, NodePhase::Draining).collect();
    let pins: Map<String, Value> =
        status.usage.iter().map(|(node, usage)| (node.to_string(), usage.pins.into())).collect();
    json!({
        "leader": status.leader.0, "members": status.members.iter().map(|node| node.0).collect::<Vec<_>>(),
        "epoch": status.map_version(), "moves": moves, "draining": draining, "pins": pins,
        "elastic": status.elastic.as_ref().map(|elastic| {
            json!({ "policy": elastic.policy, "min": elastic.min, "max": elastic.max })
        }),
        "silent": status.silent.iter().map(|node| node.0).collect::<Vec<_>>(),
    })
}

/// Prints what the managers have decided, the oldest first.
fn events(pool_arg: &PoolArg) -> Result<u8, Problem> {
    let status = pool::cluster_status(&file(pool_arg)?)?;
    let lines = status
        .events
        .iter()
        .map(|(time, event)| format!("{} {}\n", report::rfc3339_utc(time * 1000), printable::line(event)));
    Ok(output::print_all(&lines.collect::<String>()))
}

fn as_line(node: &NodeStatus) -> String {
    let NodeEntry { id, host, addresses, slots, memory, .. } = &node.entry;
    let address = addresses.last().map(ToString::to_string).unwrap_or_default();
    match &node.state {
        NodeState::Up(up) => {
            let (used, memory, files) = (ByteSize(up.usage.used), ByteSize(*memory), up.usage.files);
            let share = up.partitions;
            format!(
                "node {id} at {host}, {address}: {used} of {memory} used, {files} files, {share} partitions, {slots} slots"
            )
        }
        NodeState::Down(why) => format!("node {id} at {host}, {address}: does not answer: {why}"),
    }
}

/// Totals of all nodes that answer.
#[derive(Debug, Default)]
struct StatusTotals {
    up: usize,
    used: u64,
    memory: u64,
    files: u64,
    waiting: u64,
    slots: u64,
}

impl StatusTotals {
    fn new(present: &[NodeStatus]) -> Self {
        present.iter().fold(Self::default(), |sum, node| match &node.state {
            NodeState::Down(_) => sum,
            NodeState::Up(up) => Self {
                up: sum.up + 1,
                used: sum.used + up.usage.used,
                memory: sum.memory + node.entry.memory,
                files: sum.files + up.usage.files,
                waiting: sum.waiting + up.usage.waiting,
                slots: sum.slots + u64::from(node.entry.slots),
            },
        })
    }
}

fn summary(path: &Path, present: &[NodeStatus]) -> String {
    let StatusTotals { up, used, memory, files, waiting, slots } = StatusTotals::new(present);
    let (all, plural) = (present.len(), if present.len() == 1 { "" } else { "s" });
    let (used, memory) = (ByteSize(used), ByteSize(memory));
    let waiting = if waiting == 0 { String::new() } else { format!(", {waiting} requests wait for space") };
    let of = path.display();
    format!("{up} of {all} node{plural} of {of} up: {used} of {memory} used, {files} files, {slots} slots{waiting}")
}

fn as_json(path: &Path, file: &PoolFile, present: &[NodeStatus]) -> Value {
    let nodes: Vec<Value> = present.iter().map(node_as_json).collect();
    let started = report::rfc3339_utc(file.started * 1000);
    let StatusTotals { up, used, memory, files, waiting, slots } = StatusTotals::new(present);
    json!({
        "pool": path, "started": started, "partitions": file.partitions, "max_nodes": file.max_nodes, "nodes": nodes,
        "up": up, "used": used, "memory": memory, "files": files, "slots": slots, "waiting": waiting,
    })
}

fn node_as_json(node: &NodeStatus) -> Value {
    let entry = &node.entry;
    let addresses: Vec<String> = entry.addresses.iter().map(ToString::to_string).collect();
    let mut shown = json!({
        "id": entry.id, "host": entry.host, "pid": entry.pid(), "addresses": addresses, "memory": entry.memory,
        "slots": entry.slots, "log": entry.log,
    });
    let more = match &node.state {
        NodeState::Up(up) => json!({
            "state": "up", "used": up.usage.used, "files": up.usage.files, "waiting": up.usage.waiting,
            "partitions": up.partitions, "workers": up.workers,
        }),
        NodeState::Down(why) => json!({ "state": "down", "reason": why }),
    };
    if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
        shown.extend(entry.metrics.map(|address| ("metrics".to_owned(), address.to_string().into())));
        shown.extend(more);
    }
    shown
}

/// Runs a node of a pool. Its starter is at the other end of standard input and output. The node
/// serves until it is asked to end.
pub fn node(args: &NodeArgs) -> Result<u8, Vec<Problem>> {
    let done = if args.detach { detach(args) } else { run_node(args) };
    done.map_err(|problem| vec![problem])
}

fn run_node(args: &NodeArgs) -> Result<u8, Problem> {
    let cannot = |error| Problem::new(format!("cannot start: {error}"));
    // A node must survive the terminal or connection of its starter.
    let _ = rustix::process::setsid();
    if args.with_parent {
        let parent = rustix::process::getppid();
        let ending = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(ending).map_err(|error| cannot(error.into()))?;
        // The parent may have ended before this call.
        if rustix::process::getppid() != parent {
            return Err(Problem::new("the process that started this node has ended"));
        }
    }
    let selector = match args.id {
        Some(id) => NodeSelector::Id(id),
        None => NodeSelector::Rank(rank()?),
    };
    let runtime = RuntimeDir::of_user().map_err(mount_problem)?;
    run::remove_stale_runs(&runtime)?;
    let mut registration = runtime.register(&format!("node-{}", std::process::id())).map_err(mount_problem)?;
    let directory = run::door(&mut registration)?;
    // A node of a run leaves nothing, also if it is killed.
    let log = if args.with_parent {
        directory.join("log")
    } else {
        runtime.path().join(format!("{}.log", registration.name()))
    };
    let memory = |requested, nodes| {
        let PoolSize { size, lowered } = run::MemoryBudget::read().shared_by(nodes).pool(requested)?;
        if let Some(line) = lowered {
            tracing::warn!("{line}");
        }
        Ok(size)
    };
    let host_env = HostEnv { directory: &directory, log: &log, pool: &args.pool, memory: &memory };
    let node = match pool::run_node(selector, &host_env, std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(node) => node,
        Err(BootstrapError::Reported) => return Ok(2),
        Err(BootstrapError::Unreported(problem)) => return Err(problem),
    };
    // The memory of this process holds the token: deny other processes of this user access to it.
    // Not earlier, since making the pool's memory may take a user namespace.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| cannot(error.into()))?;
    node_log::bound(&log);
    let (first, rollback) = (node.stopper(), registration.rollback());
    let received = signals::watch(first, move || rollback.run()).map_err(cannot)?;
    node.wait();
    drop(registration);
    if !args.with_parent {
        std::fs::remove_file(&log).map_err(|error| Problem::new(format!("{}: {error}", log.display())))?;
    }
    Ok(received.exit_code().unwrap_or(0))
}

/// The rank of this task in its Slurm step.
fn rank() -> Result<usize, Problem> {
    let text = std::env::var("SLURM_PROCID").unwrap_or_default();
    let no_rank =
        |_| Problem::new(format!("SLURM_PROCID={text}: not a rank")).hint("--slurm is for what `srun` starts");
    text.parse().map_err(no_rank)
}

/// Starts the node as a separate process and passes on its messages until it detaches from its
/// starter. A process that waits for this one (`sshd`) can end then.
fn detach(args: &NodeArgs) -> Result<u8, Problem> {
    let cannot = |error| Problem::new(format!("the node cannot be started: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.arg("node").arg("--pool").arg(&args.pool);
    match args.id {
        Some(id) => command.args(["--id", &id.to_string()]),
        None => command.arg("--slurm"),
    };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let (mut line, mut out) = (Vec::new(), std::io::stdout().lock());
    while lines.read_until(b'\n', &mut line).map_err(cannot)? > 0 {
        // Ignore errors: if the starter is gone, the node ends too.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        line.clear();
    }
    // The node has closed its output: it either goes on, or has ended with a reason on standard
    // error.
    let ended = child.try_wait().map_err(cannot)?;
    Ok(ended.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok()).unwrap_or(0))
}

#[cfg(test)]
#[path = "pool_command_test.rs"]
mod pool_command_test;
