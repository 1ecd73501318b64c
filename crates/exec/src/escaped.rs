//! Finds child processes that left their process group (daemons) by an inherited environment
//! variable.

use rustix::process::{Pid, Signal, kill_process};
use std::{fs, time::Duration};

/// Maximum number of scans: a process may start another during a scan, but not for long when each
/// is killed.
const PASSES_MAX: u32 = 10;

/// Pause before the scan that confirms that none is left: a process has no environment for a moment
/// while it replaces its program.
const EXEC_PAUSE: Duration = Duration::from_millis(2);

/// Kills every process that was started with the variable `env_var`, a whole `NAME=VALUE`, in its
/// environment. Returns how many. The tasks of each run need a variable of their own; call this
/// after the run, before its mount is removed. Sees only processes of our own user. Reads all of
/// `/proc`, which takes some milliseconds.
pub fn kill_by_env_var(env_var: &str) -> usize {
    assert!(
        env_var.split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty()),
        "a variable names a run"
    );
    let (mut killed, mut was_empty) = (0, false);
    for _ in 0..PASSES_MAX {
        let found: Vec<Pid> = processes_with_env_var(env_var).collect();
        if found.is_empty() && was_empty {
            break;
        }
        was_empty = found.is_empty();
        if was_empty {
            std::thread::sleep(EXEC_PAUSE);
        }
        killed += found.into_iter().filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count();
    }
    killed
}

/// Returns the processes with the variable. Zombies have no environment, so killed processes soon
/// vanish.
fn processes_with_env_var(env_var: &str) -> impl Iterator<Item = Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let ourselves = rustix::process::getpid();
    pids.filter(move |pid| *pid != ourselves && has_env_var(*pid, env_var))
}

fn has_env_var(pid: Pid, env_var: &str) -> bool {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| variable == env_var.as_bytes())
}
