//! A process group of a task, signalled as a whole; a task has ended when its group is empty.

use crate::launch::ResourceUsage;
use crate::reaper::ReaperEntry;
use crate::sys;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Checks for live processes after a kill: after waits of 1, 2, 4 .. 2,048 ms. Nearly all are gone
/// at the first check; a process that is alive after the last one hangs in the kernel (mostly on a
/// dead file system).
const CHECKS_MAX: u32 = 12;

/// The process group of a started process, its leader. Dropping it before the end kills the group.
#[derive(Debug)]
pub struct ProcessGroup {
    leader: Pid,
    reaped: bool,
    _entry: Option<ReaperEntry>,
}

impl ProcessGroup {
    /// Wraps the group that our child `leader` leads, with its entry in the reaper's list.
    pub fn new(leader: Pid, entry: Option<ReaperEntry>) -> Self {
        Self { leader, reaped: false, _entry: entry }
    }

    /// The process id of the leader.
    pub fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Sends a signal to the group. To be called only before the leader is reaped, because the id
    /// may be reused afterwards.
    pub fn signal(&self, signal: Signal) {
        assert!(!self.reaped, "after its leader is reaped a group has no name");
        // Fails if all processes of the group have changed their user; they cannot be signalled.
        let _ = kill_process_group(self.leader, signal);
    }

    /// To be called after the leader has ended: kills the rest of the group, reaps the leader and
    /// waits until no process is alive.
    pub async fn finish(&mut self) -> io::Result<Option<(ExitStatus, ResourceUsage)>> {
        self.signal(Signal::KILL);
        let ended = sys::reap(self.leader)?;
        self.reaped = ended.is_some();
        for check in 0..CHECKS_MAX {
            if self.has_ended() {
                return Ok(ended);
            }
            tokio::time::sleep(Duration::from_millis(1 << check)).await;
        }
        tracing::warn!(
            group = self.leader.as_raw_nonzero(),
            "killed processes of a task do not end; the run continues without waiting for them"
        );
        Ok(ended)
    }

    fn has_ended(&self) -> bool {
        test_kill_process_group(self.leader).is_err() || alive_in(self.leader).is_empty()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = sys::reap(self.leader);
        }
    }
}

/// Returns the processes of a group that are not zombies, from `/proc`. Takes a millisecond; called
/// only for the rare group with leftovers.
pub fn alive_in(group: Pid) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| is_alive_in(*pid, group)).collect()
}

fn is_alive_in(pid: i32, group: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // `pid (name) state parent group ...`: the name may contain blanks and parentheses, so search
    // from the right for its end.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let (state, its_group) = (fields.next(), fields.nth(1));
    let ended = matches!(state, Some("Z" | "X"));
    !ended && its_group.and_then(|group| group.parse().ok()) == Some(group.as_raw_nonzero().get())
}
