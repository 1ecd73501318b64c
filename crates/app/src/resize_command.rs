//! `tidemill pool grow` and `tidemill pool shrink`: nodes join and leave a pool that runs.

use crate::pool_args::{GrowArgs, ShrinkArgs};
use crate::pool_command::{self, INCOMPLETE};
use crate::{console, pins_command, run_command};
use base::Problem;
use pool::{LaunchTarget, Memory, PoolFile, PoolSpec, ResizeProgress, Resized, ShrinkTarget};
use run::named;
use std::time::{Duration, Instant};

/// Exit code of a change that was interrupted, and taken back.
const INTERRUPTED: u8 = 130;
/// Interval at which progress is shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Adds nodes to a pool.
pub fn grow(args: &GrowArgs) -> Result<u8, Problem> {
    let path = pool_command::file(&args.pool_arg)?;
    let program = std::env::current_exe()
        .map_err(|error| Problem::new(format!("this program's own path is unknown: {error}")))?;
    let target = match args.nodes {
        Some(nodes) => LaunchTarget::Local(nodes),
        None => LaunchTarget::Ssh { hosts: args.hosts.clone(), ssh: args.ssh.clone() },
    };
    let file = PoolFile::read(&path)?;
    let spec = PoolSpec {
        target,
        memory: Memory::typed(args.memory),
        slots: args.slots,
        port: None,
        metrics: args.metrics,
        max_nodes: Some(file.max_nodes),
        partitions: file.partitions,
        space_wait: run_command::space_wait()?,
        tls: true,
        program,
    };
    let Resized { nodes, cancelled, silent, .. } = pool::grow(&path, &spec, &mut shown_progress(args.quiet))?;
    let names = named(&nodes);
    if cancelled {
        console::say(&format!("interrupted: {names} left the pool again"));
        return Ok(INTERRUPTED);
    }
    for node in &silent {
        say_silent(*node, nodes.contains(node));
    }
    let all_answer = !nodes.iter().any(|node| silent.contains(node));
    let answering: Vec<u32> = nodes.into_iter().filter(|node| !silent.contains(node)).collect();
    if !args.quiet && !answering.is_empty() {
        let all = if silent.is_empty() { "each node" } else { "each node that answers" };
        console::say(&format!("{} joined the pool, and {all} has its share", named(&answering)));
    }
    Ok(if all_answer { 0 } else { INCOMPLETE })
}

/// Removes nodes from a pool.
pub fn shrink(args: &ShrinkArgs) -> Result<u8, Problem> {
    let path = pool_command::file(&args.pool_arg)?;
    let target = match (args.node, args.nodes) {
        (Some(node), _) => ShrinkTarget::Node(node),
        (None, count) => ShrinkTarget::Count(count.unwrap_or(1)),
    };
    let Resized { nodes, cancelled, ended, .. } =
        pool::shrink(&path, target, args.force, &mut shown_progress(args.quiet))?;
    let names = named(&nodes);
    for (node, ended) in &ended {
        pins_command::say_ended(*node, ended);
    }
    if cancelled {
        console::say(&format!("interrupted: of {names}, those stay that have not left, and get their share back"));
        return Ok(INTERRUPTED);
    }
    if !args.quiet {
        console::say(&format!("{names} left the pool; what they held is at the others"));
    }
    Ok(0)
}

/// Reports a node that does not answer, which may be one that has just joined.
fn say_silent(node: u32, is_new: bool) {
    if is_new {
        console::say(&format!(
            "error: node {node} has joined and does not answer: what it was to hold stays at the others"
        ));
        console::say(&format!(
            "  hint: if its process has ended, `tidemill pool shrink --node {node} --force` takes it out"
        ));
    } else {
        console::warn(&format!(
            "node {node} does not answer: what it holds stays there, and is unavailable until it does"
        ));
        console::say("  hint: `tidemill pool status` shows its host and its process");
    }
}

/// Prints how many partitions are left, once a second; and what a node waits for, when that
/// changes.
fn shown_progress(quiet: bool) -> impl FnMut(ResizeProgress) {
    let (mut next, mut before) = (Instant::now() + SHOW_INTERVAL, 0);
    let mut waiting_before = Vec::new();
    move |ResizeProgress { left, last_event, waiting, .. }| {
        if !quiet && waiting != waiting_before {
            for (node, listed) in &waiting {
                console::say(&match listed {
                    Ok(listed) => pins_command::waiting_line(*node, listed),
                    Err(why) => {
                        format!("node {node} holds no partitions and does not answer ({why}); `--force` takes it out")
                    }
                });
            }
            waiting_before = waiting;
        }
        if quiet || left == 0 || Instant::now() < next {
            return;
        }
        // If it does not go on, the managers say why.
        let why = last_event.filter(|_| left == before).map_or(String::new(), |event| format!("; {event}"));
        console::say(&format!("{left} partitions are still to move{why}"));
        (next, before) = (Instant::now() + SHOW_INTERVAL, left);
    }
}
