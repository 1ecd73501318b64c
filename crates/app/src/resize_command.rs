//! `tidemill pool grow` and `tidemill pool shrink`: nodes join and leave a pool that runs.

use crate::args::{GrowArgs, ShrinkArgs};
use crate::elastic_command::named;
use crate::{console, pool_command, run_command};
use base::Problem;
use pool::{LaunchTarget, Memory, PoolFile, PoolSpec, ResizeProgress, Resized, ShrinkTarget};
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
        metrics: None,
        max_nodes: Some(file.max_nodes),
        partitions: file.partitions,
        space_wait: run_command::space_wait()?,
        tls: true,
        program,
    };
    let Resized { nodes, cancelled } = pool::grow(&path, &spec, &mut shown_progress(args.quiet))?;
    let names = named(&nodes);
    if cancelled {
        console::say(&format!("interrupted: {names} left the pool again"));
        return Ok(INTERRUPTED);
    }
    if !args.quiet {
        console::say(&format!("{names} joined the pool, and each node has its share"));
    }
    Ok(0)
}

/// Removes nodes from a pool.
pub fn shrink(args: &ShrinkArgs) -> Result<u8, Problem> {
    let path = pool_command::file(&args.pool_arg)?;
    let target = match (args.node, args.nodes) {
        (Some(node), _) => ShrinkTarget::Node(node),
        (None, count) => ShrinkTarget::Count(count.unwrap_or(1)),
    };
    let Resized { nodes, cancelled } = pool::shrink(&path, target, &mut shown_progress(args.quiet))?;
    let names = named(&nodes);
    if cancelled {
        console::say(&format!("interrupted: of {names}, those stay that have not left, and get their share back"));
        return Ok(INTERRUPTED);
    }
    if !args.quiet {
        console::say(&format!("{names} left the pool; what they held is at the others"));
    }
    Ok(0)
}

/// Prints how many partitions are left, once a second.
fn shown_progress(quiet: bool) -> impl FnMut(ResizeProgress) {
    let (mut next, mut before) = (Instant::now() + SHOW_INTERVAL, 0);
    move |ResizeProgress { left, last_event, .. }| {
        if quiet || left == 0 || Instant::now() < next {
            return;
        }
        // If it does not go on, the managers say why.
        let why = last_event.filter(|_| left == before).map_or(String::new(), |event| format!("; {event}"));
        console::say(&format!("{left} partitions are still to move{why}"));
        (next, before) = (Instant::now() + SHOW_INTERVAL, left);
    }
}
