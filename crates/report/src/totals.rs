//! The totals of a run, computed in one place so that run.json and the page cannot differ.

use crate::{ReadBytes, RunReport, Seconds, Status, TaskRecord, TimeByCause, truncation};
use serde::{Deserialize, Serialize};

/// Sums over a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// The time from the start of the run to its end.
    pub makespan_s: Seconds,
    /// The number of tasks of the workflow.
    pub tasks: u32,
    /// The number of tasks that succeeded.
    pub tasks_done: u32,
    /// The number of tasks that failed, by themselves or because of another task.
    pub tasks_failed: u32,
    /// The number of tasks that failed by themselves.
    pub tasks_failed_root: u32,
    /// The number of tasks that were stopped, or never started, because the run ended.
    #[serde(default)]
    pub tasks_cancelled: u32,
    /// The wall-clock seconds of all attempts of all tasks.
    pub tool_s: Seconds,
    /// The processor seconds of all last attempts; none if unknown for every task.
    pub cpu_s: Option<Seconds>,
    /// The part of `slots` times `makespan_s` in which tasks ran, 0 to 1.
    pub slot_use: f64,
    /// The most bytes that the pool held.
    pub pool_peak_bytes: u64,
    /// The bytes of all members that tasks wrote.
    pub written_bytes: u64,
    /// The bytes of all inputs of all tasks that started: the bytes that they could read, not those
    /// that they did read.
    pub input_bytes: u64,
    /// The bytes of all members that were exported.
    pub exported_bytes: u64,
    /// The bytes of inputs by the place from which tasks had them; none on a single host, or if
    /// unknown for every task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadBytes>,
    /// The time of all tasks that ran, by cause; none on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<TimeByCause>,
}

impl RunReport {
    /// Completes the run: computes sizes, totals, totals by tool, ready times, time by cause,
    /// critical path and load, and truncates outputs. `makespan` is the length of the whole run.
    pub fn seal(&mut self, makespan: Seconds) {
        self.pool.close();
        if let Some(used) = &mut self.machine_use {
            used.close();
        }
        self.sum_sizes();
        self.fill_ready();
        self.fill_causes();
        self.totals = self.sum_up(makespan);
        self.critical_path = self.critical_path();
        self.by_tool = self.sum_by_tool(&self.critical_path);
        self.load = self.load(makespan);
        truncation::truncate_outputs(self);
    }

    fn sum_up(&self, makespan: Seconds) -> Totals {
        let count = |test: &dyn Fn(&TaskRecord) -> bool| {
            u32::try_from(self.tasks.iter().filter(|task| test(task)).count()).unwrap_or(u32::MAX)
        };
        let slot_s: f64 = self.tasks.iter().map(|task| f64::from(task.cpus) * wall(task)).sum();
        let offered_s = f64::from(self.settings.slots) * makespan.0;
        Totals {
            makespan_s: makespan,
            tasks: count(&|_| true),
            tasks_done: count(&|task| task.status == Status::Done),
            tasks_failed: count(&|task| task.status == Status::Failed),
            tasks_failed_root: count(&TaskRecord::is_root_failure),
            tasks_cancelled: count(&|task| task.status == Status::Cancelled),
            tool_s: Seconds::rounded(self.tasks.iter().map(wall).sum()),
            cpu_s: self.cpu(),
            // Tasks that wait for space lend their slots, so more tasks may run than there are
            // slots.
            slot_use: if offered_s > 0.0 { (slot_s / offered_s * 1e4).round().min(1e4) / 1e4 } else { 0.0 },
            pool_peak_bytes: self.pool.peak_bytes,
            written_bytes: self.data_bytes(|member| member.writer.is_some()),
            input_bytes: self.tasks.iter().filter(|task| task.start_s.is_some()).map(|task| task.input_bytes).sum(),
            exported_bytes: self.data_bytes(|member| member.exported.is_some()),
            reads: ReadBytes::sum(self.tasks.iter().filter_map(|task| task.reads)),
            causes: TimeByCause::sum(self.tasks.iter().filter_map(|task| task.causes)),
        }
    }

    fn cpu(&self) -> Option<Seconds> {
        let known: Vec<f64> = self.tasks.iter().filter_map(|task| Some(task.cpu_s?.0)).collect();
        (!known.is_empty()).then(|| Seconds::rounded(known.iter().sum()))
    }

    fn data_bytes(&self, counts: impl Fn(&crate::Member) -> bool) -> u64 {
        self.data.iter().filter(|member| counts(member)).filter_map(|member| member.bytes).sum()
    }
}

/// The wall-clock seconds of all attempts of `task`.
fn wall(task: &TaskRecord) -> f64 {
    task.spans().map(|(start, end)| end - start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, FailureReason, ReasonKind};

    fn task(status: Status, kind: ReasonKind, start: f64, end: f64) -> TaskRecord {
        let reason = (status != Status::Done).then(|| FailureReason { kind, ..FailureReason::default() });
        TaskRecord {
            status,
            reason,
            cpus: 1,
            start_s: Some(Seconds(start)),
            end_s: Some(Seconds(end)),
            ..TaskRecord::default()
        }
    }

    #[test]
    fn totals_count_failures_apart_from_what_followed_from_them() {
        let mut retried = task(Status::Done, ReasonKind::Exit, 2.0, 3.0);
        retried.earlier.push(Attempt { end_s: Seconds(1.0), ..Attempt::default() });
        let upstream =
            TaskRecord { start_s: None, end_s: None, ..task(Status::Failed, ReasonKind::Upstream, 0.0, 0.0) };
        let cancelled = task(Status::Cancelled, ReasonKind::Cancelled, 2.0, 2.0);
        let tasks = vec![retried, task(Status::Failed, ReasonKind::Exit, 0.0, 2.0), upstream, cancelled];
        let mut run = RunReport { tasks, ..RunReport::default() };
        run.settings.slots = 2;
        run.seal(Seconds(4.0));
        let totals = &run.totals;
        assert_eq!((totals.tasks, totals.tasks_done, totals.tasks_cancelled), (4, 1, 1));
        assert_eq!((totals.tasks_failed, totals.tasks_failed_root), (2, 1));
        assert_eq!((totals.tool_s, totals.slot_use, totals.cpu_s), (Seconds(4.0), 0.5, None));
    }
}
