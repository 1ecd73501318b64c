//! `tidemill pool join` and `tidemill pool policy`: pools that grow and shrink without being asked.

use crate::pool_args::{ElasticArgs, JoinArgs, MachineArgs, PolicyArgs};
use crate::{console, pool_command, run_command, signals};
use base::Problem;
use pool::{
    CommandProvisioner, ElasticDriver, ElasticEvent, ElasticPolicy, ElasticSpec, InvalidScaleRule, JoinSpec,
    LaunchTarget, LocalProvisioner, MachineCommands, Memory, NodeLimits, PoolFile, PoolSpec, Provisioner,
};
use run::{ElasticRunSpec, named};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Has this machine join a pool; returns when its node has ended.
pub fn join(args: &JoinArgs) -> Result<u8, Problem> {
    let path = pool_command::file(&args.pool_arg)?;
    let spec = JoinSpec {
        address: args.address.clone(),
        memory: Memory::typed(args.memory),
        slots: args.slots,
        name: args.name.clone(),
        space_wait: run_command::space_wait()?,
        orphan_wait: Duration::from_secs(args.orphan_wait),
        program: own_program()?,
    };
    let (leave, asked) = watch::channel(false);
    let received =
        signals::watch(move || set(&leave), || ()).map_err(|error| Problem::new(format!("cannot start: {error}")))?;
    let mut node = pool::join(&path, &spec)?;
    if !args.quiet {
        console::say(&format!("node {} joined the pool of {}; it leaves with this command", node.id, path.display()));
    }
    let has_left = node.wait(asked)?;
    if !args.quiet && has_left {
        console::say(&format!("node {} left the pool", node.id));
    }
    Ok(received.exit_code().unwrap_or(u8::from(!has_left)))
}

/// Lets a pool grow and shrink by itself; returns when it is asked to end.
pub fn policy(args: &PolicyArgs) -> Result<u8, Problem> {
    let path = pool_command::file(&args.pool_arg)?;
    let file = PoolFile::read(&path)?;
    let limits = match &args.nodes {
        Some(text) => node_limits("--nodes", text)?,
        None => NodeLimits { min: u32::try_from(file.nodes.len()).unwrap_or(u32::MAX).max(1), max: file.max_nodes },
    };
    if limits.max > file.max_nodes {
        return Err(Problem::new(format!("the pool may have {} nodes, not {}", file.max_nodes, limits.max))
            .hint("a pool is made for a number of nodes: `tidemill pool start --max-nodes M`"));
    }
    let policy = elastic_policy(&args.policy)?;
    let policy = args.hold.map_or(policy.clone(), |hold| policy.with_hold(Duration::from_secs(hold)));
    let spec = ElasticSpec { text: args.policy.clone(), policy, limits };
    let provisioner = match machine_commands(&args.machines) {
        Some(commands) => Arc::new(CommandProvisioner::new(path.clone(), commands)?) as Arc<dyn Provisioner>,
        None => Arc::new(local_provisioner(&path, &file, args)?),
    };
    let (stop, end) = watch::channel(false);
    let received =
        signals::watch(move || set(&stop), || ()).map_err(|error| Problem::new(format!("cannot start: {error}")))?;
    if !args.quiet {
        let (policy, NodeLimits { min, max }) = (&args.policy, limits);
        console::say(&format!(
            "the pool of {} grows and shrinks by {policy}, {min} to {max} nodes, until this command ends",
            path.display()
        ));
    }
    let mut show = |event: ElasticEvent| show(&event, args.quiet);
    ElasticDriver::new(path, spec, provisioner, Box::new(|| None)).run(end, &mut show)?;
    Ok(received.exit_code().unwrap_or(0))
}

/// The pool of a run that grows and shrinks by itself; `None` without `--elastic`.
pub fn of_run(args: &ElasticArgs) -> Result<Option<ElasticRunSpec>, Problem> {
    let Some(limits) = &args.elastic else {
        return match &args.machines.start_command {
            Some(_) => Err(Problem::new("--start-command is for a pool that grows").hint("add --elastic MIN:MAX")),
            None => Ok(None),
        };
    };
    let machines = machine_commands(&args.machines);
    if let Some(commands) = &machines {
        commands.check()?;
    }
    Ok(Some(ElasticRunSpec {
        limits: node_limits("--elastic", limits)?,
        text: args.elastic_policy.clone(),
        policy: elastic_policy(&args.elastic_policy)?,
        machines,
        program: own_program()?,
    }))
}

/// New nodes are like the pool's last one, unless it is said otherwise.
fn local_provisioner(path: &Path, file: &PoolFile, args: &PolicyArgs) -> Result<LocalProvisioner, Problem> {
    let like = file.nodes.last().ok_or_else(|| Problem::new("the pool has no node"))?;
    let memory = args.memory.map_or(Memory::Bytes(like.memory), |memory| Memory::typed(Some(memory)));
    let slots = args.slots.unwrap_or(like.slots);
    let (space_wait, program) = (run_command::space_wait()?, own_program()?);
    let spec = PoolSpec {
        target: LaunchTarget::Local(1),
        memory,
        slots: Some(slots),
        port: None,
        metrics: None,
        max_nodes: Some(file.max_nodes),
        partitions: file.partitions,
        space_wait,
        tls: true,
        program,
    };
    Ok(LocalProvisioner::new(path.to_owned(), spec))
}

/// The commands of these flags, if there are some.
fn machine_commands(args: &MachineArgs) -> Option<MachineCommands> {
    let start = args.start_command.clone()?;
    Some(MachineCommands { start, stop: args.stop_command.clone(), time_out: Duration::from_secs(args.start_timeout) })
}

/// Reads a policy.
fn elastic_policy(text: &str) -> Result<ElasticPolicy, Problem> {
    text.parse().map_err(|error: InvalidScaleRule| Problem::new(error.to_string()))
}

/// Reads `MIN:MAX`.
fn node_limits(flag: &str, text: &str) -> Result<NodeLimits, Problem> {
    let wrong = |why: &str| {
        Problem::new(format!("{flag} {text}: {why}")).hint(format!("for example: {flag} 1:4, from one node to four"))
    };
    let (min, max) = text.split_once(':').ok_or_else(|| wrong("not MIN:MAX"))?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong("not two numbers"));
    let (min, max) = (number(min)?, number(max)?);
    if min == 0 {
        return Err(wrong("a pool has at least one node"));
    }
    if min > max {
        return Err(wrong("the most nodes are fewer than the least"));
    }
    Ok(NodeLimits { min, max })
}

fn set(flag: &watch::Sender<bool>) {
    flag.send_replace(true);
}

fn own_program() -> Result<PathBuf, Problem> {
    std::env::current_exe().map_err(|error| Problem::new(format!("this program's own path is unknown: {error}")))
}

fn show(event: &ElasticEvent, quiet: bool) {
    let text = match event {
        ElasticEvent::Failed(problem) => return console::warn(&format!("no node could be added: {problem}")),
        _ if quiet => return,
        ElasticEvent::Grows(why) | ElasticEvent::Shrinks(why) => why.clone(),
        ElasticEvent::Joined(nodes) => format!("{} joined the pool", named(nodes)),
        ElasticEvent::Left(nodes) => format!("{} left the pool", named(nodes)),
        ElasticEvent::Stays(nodes) => format!("{} stay: the pool fills again", named(nodes)),
    };
    console::say(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_two_numbers_of_nodes() {
        let limits = |text| node_limits("--elastic", text);
        assert_eq!(limits("1:4").unwrap(), NodeLimits { min: 1, max: 4 });
        for (wrong, why) in [
            ("4", "not MIN:MAX"),
            ("a:4", "not two numbers"),
            ("0:4", "at least one"),
            ("4:2", "fewer than the least"),
            ("1:-4", "not two numbers"),
        ] {
            let problem = limits(wrong).unwrap_err();
            assert!(problem.message.contains(why), "{problem}");
        }
    }
}
