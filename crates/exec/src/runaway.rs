//! Tools' children that left their process group (daemons), found by what every child inherits: the environment.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// How often we look: a process may start another one while we read, but not for long when each is killed.
const PASSES_MAX: u32 = 10;

/// Kills every process that has `mark`, a whole `NAME=VALUE`, in the environment that it was started with; returns how many.
/// Give each run's tasks a mark of their own, and call this when the run has ended, before its mount goes. Only processes
/// of our own user are seen. It reads all of `/proc`: some milliseconds.
pub fn sweep(mark: &str) -> usize {
    assert!(
        mark.split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty()),
        "a mark names a run"
    );
    let mut killed = 0;
    for _ in 0..PASSES_MAX {
        let found: Vec<Pid> = marked(mark).collect();
        if found.is_empty() {
            break;
        }
        killed += found.into_iter().filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count();
    }
    killed
}

/// Zombies have no environment, so what was killed is soon not found again.
fn marked(mark: &str) -> impl Iterator<Item = Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let ourselves = rustix::process::getpid();
    pids.filter(move |pid| *pid != ourselves && has(*pid, mark))
}

fn has(pid: Pid, mark: &str) -> bool {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}
