//! Runs that stand still: tasks could start, but none runs, since no worker is right for them.

use super::EventLoop;
use base::ByteSize;
use flow::TaskId;
use sched::{Demand, TaskExplanation, WaitReason};
use std::time::{Duration, Instant};

/// Time without a running task after which the user is told.
const STALL: Duration = Duration::from_secs(5);

/// The time since which nothing runs, or since the last look; and whether the user knows.
#[derive(Debug, Default)]
pub struct StallWatch {
    since: Option<Instant>,
    is_told: bool,
}

impl EventLoop<'_> {
    /// Warns once if the run waits for a worker that may never join.
    pub(super) fn warn_of_stall(&mut self) {
        let counts = self.scheduler.counts();
        if counts.running > 0 || counts.ready == 0 {
            self.stall = StallWatch::default();
            return;
        }
        let since = *self.stall.since.get_or_insert_with(Instant::now);
        if self.stall.is_told || since.elapsed() < STALL {
            return;
        }
        let mut tasks = (0..u32::try_from(self.context.flow.workflow().tasks.len()).unwrap_or(u32::MAX)).map(TaskId);
        let stuck = tasks.find_map(|task| Some((task, self.why_stuck(task)?)));
        // The look at all tasks is repeated at such intervals only.
        self.stall.since = Some(Instant::now());
        if let Some((task, why)) = stuck {
            self.stall.is_told = true;
            self.warn(format!("nothing runs: task {} {} {why}", task.0, self.tool_name(task)));
        }
    }

    /// The reason why a ready task may wait forever, if it may.
    fn why_stuck(&self, task: TaskId) -> Option<String> {
        match self.scheduler.explain(task, self.now_ms())? {
            TaskExplanation::Ready { reason: WaitReason::NoWorkerFits, demand, .. } => Some(too_large(demand)),
            TaskExplanation::Ready { reason: WaitReason::LocationMissing, .. } => {
                Some("may run at one location only, which has no worker; it waits for one to join".to_owned())
            }
            _ => None,
        }
    }
}

fn too_large(Demand { cpus, memory }: Demand) -> String {
    let plural = if cpus == 1 { "" } else { "s" };
    let memory = if memory > 0 { format!(" and {} of memory", ByteSize(memory)) } else { String::new() };
    format!(
        "needs {cpus} processor{plural}{memory}, more than any host that is left has; it waits for one to join \
         (lower `cpus` or `memory` of its tool if none will)"
    )
}
