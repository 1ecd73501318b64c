//! Samples the memory of a process and its descendants while they run, from `/proc` or from their
//! control group.
//!
//! `ru_maxrss` is not sufficient: it is the maximum of one process, includes mapped files, and for
//! a child starts with our own maximum. A process that ends between two samples is missed. The
//! first samples are close together, for short tasks.

use crate::memory_group::MemoryGroup;
use std::fs;
use std::time::{Duration, Instant};

/// Time of the first sample: a process that ends earlier has hardly begun.
const FIRST_SAMPLE: Duration = Duration::from_millis(4);

/// Maximum interval of samples.
const SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Maximum interval with a limit: a program that fills memory at 10 GB/s is detected 0.5 GB above
/// its limit. Sampling a control group is cheap.
const LIMITED_SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(50);

/// The inverse of the share of one processor that sampling may use, for any number of processes.
const COST_SHARE: u32 = 100;

/// Maximum number of processes sampled per task.
const PROCESSES_MAX: usize = 1024;

/// The maximum seen, and the sampling schedule.
#[derive(Debug)]
pub struct MemorySampler {
    leader: i32,
    peak: Option<u64>,
    interval_max: Duration,
    interval: Duration,
    next: Instant,
}

impl MemorySampler {
    /// Starts sampling the process `leader` and its descendants. `limited` is true if a control
    /// group limits them.
    pub fn new(leader: i32, limited: bool) -> Self {
        let interval_max = if limited { LIMITED_SAMPLE_INTERVAL_MAX } else { SAMPLE_INTERVAL_MAX };
        Self { leader, peak: None, interval_max, interval: FIRST_SAMPLE, next: Instant::now() + FIRST_SAMPLE }
    }

    /// Time of the next sample.
    pub fn next_sample(&self) -> Instant {
        self.next
    }

    /// Takes a sample. Returns the bytes held now, or `None` if no process is left. `group` is the
    /// control group of the processes, if any.
    pub fn sample(&mut self, group: Option<&MemoryGroup>) -> Option<u64> {
        let began = Instant::now();
        let now = group.map_or_else(|| tree_bytes(self.leader), MemoryGroup::held);
        self.peak = self.peak.max(now);
        self.interval = (self.interval * 2).min(self.interval_max);
        self.next = Instant::now() + self.interval.max(began.elapsed() * COST_SHARE);
        now
    }

    /// The maximum of all samples in bytes; `None` without samples.
    pub fn peak(&self) -> Option<u64> {
        self.peak
    }
}

/// Bytes of anonymous memory of a process and its descendants (no files, no shared memory).
fn tree_bytes(leader: i32) -> Option<u64> {
    let (mut pids, mut sum, mut seen) = (vec![leader], None, 0);
    while let Some(pid) = pids.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            break;
        }
        // Skip a process that has ended meanwhile.
        let Some(bytes) = process_bytes(pid) else { continue };
        sum = Some(sum.unwrap_or(0) + bytes);
        pids.extend(children(pid));
    }
    sum
}

/// Bytes of anonymous memory of a process; `None` for zombies and kernel threads.
fn process_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Children of all threads of a process; none if the kernel was built without these lists.
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
        let mut memory = MemorySampler::new(own, false);
        let many = vec![1_u8; 32 << 20];
        let with = memory.sample(None).expect("we are there");
        assert!(with > 32 << 20 && many[5] == 1);
        drop(many);
        for _ in 0..8 {
            memory.sample(None);
        }
        assert!(memory.peak() >= Some(with));
        assert!(memory.next_sample() > Instant::now() && memory.interval == SAMPLE_INTERVAL_MAX);
    }

    #[test]
    fn memory_of_all_processes_of_a_tool_is_seen_while_they_run() {
        use std::process::{Command, Stdio};
        // Each `tail` holds 40 MB and waits for a reader that never reads.
        let hold = "head -c 40000000 /dev/zero | tail -c 40000000";
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("({hold}) & {hold}; wait")).stdout(Stdio::piped());
        let mut tool = shell.spawn().expect("started");
        let mut memory = MemorySampler::new(i32::try_from(tool.id()).expect("a number"), false);
        while memory.sample(None).is_some_and(|held| held < 78_000_000) {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(tool.stdout.take());
        tool.wait().expect("ended");
        assert!(memory.peak() > Some(78_000_000));
    }

    #[test]
    fn of_what_is_not_there_nothing_is_told() {
        assert_eq!(MemorySampler::new(i32::MAX, false).sample(None), None);
    }
}
