//! A process group of ours: signalled as a whole, and known to be empty before we say that a task has ended.

use crate::keeper::Record;
use crate::launch::Usage;
use crate::sys;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// When we look whether killed processes are gone: after 1, 2, 4 .. 2,048 ms. Nearly all are gone at the first look; what
/// is there after the last one hangs in the kernel (a dead file system, mostly).
const LOOKS: u32 = 12;

/// A started process that leads its group. Dropped early, it kills the group.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    reaped: bool,
    _record: Option<Record>,
}

impl Group {
    /// The group that `leader`, our own child, leads, and its line in the keeper's list.
    pub fn led_by(leader: Pid, record: Option<Record>) -> Self {
        Self { leader, reaped: false, _record: record }
    }

    /// The number of the process that leads it.
    pub fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Sends a signal to all of it. Only while the leader is not reaped, so that the number cannot be another's.
    pub fn signal(&self, signal: Signal) {
        assert!(!self.reaped, "after its leader is reaped a group has no name");
        // The group may hold only processes that changed their user: nothing we could do about them.
        let _ = kill_process_group(self.leader, signal);
    }

    /// After the leader has ended: kills what is left of the group, reaps the leader and waits until nothing is alive.
    pub async fn finish(&mut self) -> io::Result<Option<(ExitStatus, Usage)>> {
        self.signal(Signal::KILL);
        let ended = sys::reap(self.leader)?;
        self.reaped = ended.is_some();
        for look in 0..LOOKS {
            if self.is_gone() {
                return Ok(ended);
            }
            tokio::time::sleep(Duration::from_millis(1 << look)).await;
        }
        tracing::warn!(
            group = self.leader.as_raw_nonzero(),
            "killed processes of a task do not end; going on without them"
        );
        Ok(ended)
    }

    fn is_gone(&self) -> bool {
        test_kill_process_group(self.leader).is_err() || alive_in(self.leader).is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = sys::reap(self.leader);
        }
    }
}

/// The processes of a group that are not zombies, from `/proc`. Costs a millisecond: for the rare group with leftovers.
pub fn alive_in(group: Pid) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| is_alive_in(*pid, group)).collect()
}

fn is_alive_in(pid: i32, group: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // `pid (name) state parent group ...`: the name may hold blanks and parentheses, so read from its end.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let (state, its_group) = (fields.next(), fields.nth(1));
    let ended = matches!(state, Some("Z" | "X"));
    !ended && its_group.and_then(|group| group.parse().ok()) == Some(group.as_raw_nonzero().get())
}
