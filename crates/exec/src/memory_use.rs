//! How much memory a process and its descendants hold, looked up while they run: in `/proc`, or in
//! their control group.
//!
//! `ru_maxrss` alone does not tell it: it is the largest of one process, files that it maps count, and for a child it begins with
//! what we ourselves ever held. What ends between two looks is missed; the first looks follow each other quickly, for short tasks.

use crate::memory_group::MemoryGroup;
use std::fs;
use std::time::{Duration, Instant};

/// The first look: what ends before has hardly begun.
const FIRST_LOOK: Duration = Duration::from_millis(4);

/// Looks are at most this far apart.
const LOOKS_APART_MAX: Duration = Duration::from_millis(250);

/// With a limit to keep they are at most this far apart: a program that fills memory at 10 GB/s is
/// seen 0.5 GB above it, and the look at a group is cheap.
const LIMITED_LOOKS_APART_MAX: Duration = Duration::from_millis(50);

/// Looks take at most this part of one processor, however many processes there are.
const COST_PART: u32 = 100;

/// More processes than this of one task are not looked at.
const PROCESSES_MAX: usize = 1024;

/// The most memory that was seen, and when to look again.
#[derive(Debug)]
pub struct MemoryUse {
    leader: i32,
    peak: Option<u64>,
    apart_max: Duration,
    apart: Duration,
    next: Instant,
}

impl MemoryUse {
    /// Of the process `leader` and its descendants, from now on; `limited` if a group keeps them to
    /// a limit.
    pub fn of(leader: i32, limited: bool) -> Self {
        let apart_max = if limited { LIMITED_LOOKS_APART_MAX } else { LOOKS_APART_MAX };
        Self { leader, peak: None, apart_max, apart: FIRST_LOOK, next: Instant::now() + FIRST_LOOK }
    }

    /// When to look again.
    pub fn next_look(&self) -> Instant {
        self.next
    }

    /// Looks once: the bytes that are held now, if a process is there to look at. `group` is that
    /// of the processes, if they have one.
    pub fn look(&mut self, group: Option<&MemoryGroup>) -> Option<u64> {
        let began = Instant::now();
        let now = group.map_or_else(|| held_below(self.leader), MemoryGroup::held);
        self.peak = self.peak.max(now);
        self.apart = (self.apart * 2).min(self.apart_max);
        self.next = Instant::now() + self.apart.max(began.elapsed() * COST_PART);
        now
    }

    /// The most bytes that were held at one look; none if there was none.
    pub fn peak(&self) -> Option<u64> {
        self.peak
    }
}

/// Bytes of their own (not files, not memory that they share by name) of a process and its descendants.
fn held_below(leader: i32) -> Option<u64> {
    let (mut pids, mut sum, mut seen) = (vec![leader], None, 0);
    while let Some(pid) = pids.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            break;
        }
        // One that ends meanwhile holds nothing.
        let Some(bytes) = held_by(pid) else { continue };
        sum = Some(sum.unwrap_or(0) + bytes);
        pids.extend(children(pid));
    }
    sum
}

/// A zombie and a thread of the kernel have no such line.
fn held_by(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The children of all threads of a process; none where the kernel was built without these lists.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_and_keep_the_most_that_was_seen() {
        let own = i32::try_from(std::process::id()).expect("a number");
        let mut memory = MemoryUse::of(own, false);
        let many = vec![1_u8; 32 << 20];
        let with = memory.look(None).expect("we are there");
        assert!(with > 32 << 20 && many[5] == 1);
        drop(many);
        for _ in 0..8 {
            memory.look(None);
        }
        assert!(memory.peak() >= Some(with));
        assert!(memory.next_look() > Instant::now() && memory.apart == LOOKS_APART_MAX);
    }

    #[test]
    fn memory_of_all_processes_of_a_tool_is_seen_while_they_run() {
        use std::process::{Command, Stdio};
        // Each `tail` holds 40 MB and waits for a reader that never reads.
        let hold = "head -c 40000000 /dev/zero | tail -c 40000000";
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("({hold}) & {hold}; wait")).stdout(Stdio::piped());
        let mut tool = shell.spawn().expect("started");
        let mut memory = MemoryUse::of(i32::try_from(tool.id()).expect("a number"), false);
        while memory.look(None).is_some_and(|held| held < 78_000_000) {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(tool.stdout.take());
        tool.wait().expect("ended");
        assert!(memory.peak() > Some(78_000_000));
    }

    #[test]
    fn of_what_is_not_there_nothing_is_told() {
        assert_eq!(MemoryUse::of(i32::MAX, false).look(None), None);
    }
}
