//! Short tasks are sent ahead to busy workers, so that these need not wait for the next message
//! after each end (`HyperQueue` calls that prefilling).
//!
//! A worker gets as much work ahead as it does in [`AHEAD_MS`], by the median time that the tool's
//! programs take. The policy chooses the task as if the worker had a free processor. Nothing is
//! sent ahead while the pool is crowded: a task that waits for space would hold up those behind it.

use super::Scheduler;
use super::cluster::StartKind;
use crate::locations::ToolDurations;
use crate::policy::{Assignment, StartReason};
use crate::resources::WorkerId;
use flow::{TaskId, ToolId};
use std::collections::HashSet;

/// The work in ms that each processor of a worker gets ahead, and the most tasks. A message takes
/// some ten ms, which is felt between tasks that take less than half a second.
const AHEAD_MS: u64 = 500;
const AHEAD_MAX: u32 = 32;

/// The number of tasks of a tool that must have ended before its median counts.
const ENDED_MIN: usize = 8;

/// The number of workers that are tried. It bounds the work for each event.
const LOOK_AHEAD: usize = 4;

/// The tools whose programs are short.
#[derive(Debug, Default)]
pub struct ShortTools {
    times: ToolDurations,
    short: HashSet<ToolId>,
}

impl ShortTools {
    fn add(&mut self, tool: ToolId, ms: u64) {
        self.times.add(tool, ms);
        if self.times.count(tool) >= ENDED_MIN && self.room(tool, 1) > 0 {
            self.short.insert(tool);
        } else {
            self.short.remove(&tool);
        }
    }

    /// The number of tasks of a tool that may wait at a worker with this many processors.
    fn room(&self, tool: ToolId, slots: u32) -> u32 {
        let most = self.times.median_ms(tool).map_or(0, |median| AHEAD_MS / median.max(1));
        u32::try_from(most).unwrap_or(AHEAD_MAX).min(AHEAD_MAX) * slots
    }
}

impl Scheduler {
    /// Records how long the program of an attempt ran, in ms, without what its start and messages
    /// took. Call it before the event of its end.
    pub fn record_run_time(&mut self, task: TaskId, ms: u64) {
        if self.options.sends_ahead {
            self.short_tools.add(self.tool(task), ms);
        }
    }

    /// A short task for a busy worker, if one may be sent ahead.
    pub(super) fn choose_ahead(&mut self, now_ms: u64) -> Option<(Assignment, StartKind)> {
        if self.short_tools.short.is_empty() || self.counts.ready == 0 || self.space.is_crowded() {
            return None;
        }
        let workers = self.workers.fewest_ahead(LOOK_AHEAD);
        workers.into_iter().find_map(|worker| self.choose_ahead_for(worker, now_ms))
    }

    fn choose_ahead_for(&mut self, worker: WorkerId, now_ms: u64) -> Option<(Assignment, StartKind)> {
        self.workers.offer(worker);
        self.policy.on_free(worker, &self.workers);
        let chosen = self.choose(now_ms).filter(|(chosen, kind)| *kind == StartKind::Policy && chosen.worker == worker);
        self.workers.withdraw(worker);
        let (chosen, _) = chosen?;
        let (row, resources) = (self.table.row(chosen.task)?, self.workers.resources(worker)?);
        let (demand, tool, slots) = (row.demand, row.tool, resources.machine().slots);
        let has_room = resources.ahead() < self.short_tools.room(tool, slots);
        let may = demand.cpus == 1 && has_room && self.short_tools.short.contains(&tool);
        may.then_some((Assignment { reason: StartReason::SentAhead, ..chosen }, StartKind::Ahead))
    }
}
