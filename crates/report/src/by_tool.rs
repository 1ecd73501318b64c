//! Totals of each tool: how often it ran, how long it took, and the resources it used.

use crate::{CriticalPath, RunReport, Seconds, Status, TaskRecord, TimeByCause};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Sums and extremes over the tasks of one tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTotals {
    /// The name of the tool.
    pub tool: String,
    /// The number of tasks that call it.
    pub tasks: u32,
    /// The number of its tasks that succeeded.
    pub done: u32,
    /// The number of its tasks that failed, by themselves or because of another task.
    pub failed: u32,
    /// The number of its tasks that the end of the run stopped or kept from starting.
    pub cancelled: u32,
    /// The number of times that it was started.
    pub runs: u32,
    /// The number of starts that were attempts after a failed one.
    pub retries: u32,
    /// The shortest wall-clock time of the last attempts of tasks that succeeded; none if no task
    /// did.
    pub shortest_s: Option<Seconds>,
    /// The median of those times; the lower of the two middle ones if their number is even.
    pub median_s: Option<Seconds>,
    /// The longest of those times.
    pub longest_s: Option<Seconds>,
    /// The time of all its runs together.
    pub ran_s: Seconds,
    /// The time during which its tasks had all inputs and were not started yet.
    pub waited_s: Seconds,
    /// The part of `ran_s` that lies on the critical path.
    pub critical_s: Seconds,
    /// The processor time of all runs, divided by the time of the slots they took. If it is above
    /// 1, the tool ran more threads than it has slots.
    pub cpu_use: Option<f64>,
    /// The most memory that any run held, in bytes (`TaskRecord::peak_memory_bytes`, or
    /// `max_rss_bytes` if that is unknown).
    pub peak_memory_bytes: Option<u64>,
    /// The bytes of the inputs of tasks that started.
    pub input_bytes: u64,
    /// The bytes of all outputs that its tasks wrote.
    pub output_bytes: u64,
    /// The time of its tasks that ran, by cause; none on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<TimeByCause>,
}

/// The running sums of a tool.
#[derive(Default)]
struct ToolSums {
    totals: ToolTotals,
    lengths: Vec<f64>,
    cpu_s: f64,
    slot_s: f64,
}

impl RunReport {
    /// The totals of the tools that tasks call, in the order of their first tasks.
    pub(crate) fn sum_by_tool(&self, path: &CriticalPath) -> Vec<ToolTotals> {
        let mut positions: HashMap<&str, usize> = HashMap::new();
        let mut sums: Vec<ToolSums> = Vec::new();
        for task in &self.tasks {
            let place = *positions.entry(&task.tool).or_insert(sums.len());
            if place == sums.len() {
                sums.push(ToolSums::new(&task.tool));
            }
            sums[place].add(task);
        }
        let mut totals: Vec<ToolTotals> = sums.into_iter().map(ToolSums::finish).collect();
        for (task, seconds) in &path.lengths {
            let tool = &mut totals[positions[self.tasks[*task as usize].tool.as_str()]];
            tool.critical_s = Seconds::rounded(tool.critical_s.0 + seconds);
        }
        totals
    }
}

impl ToolSums {
    fn new(tool: &str) -> Self {
        Self { totals: ToolTotals { tool: tool.to_owned(), ..ToolTotals::default() }, ..Self::default() }
    }

    fn add(&mut self, task: &TaskRecord) {
        let totals = &mut self.totals;
        totals.tasks += 1;
        match task.status {
            Status::Done => totals.done += 1,
            Status::Failed => totals.failed += 1,
            Status::Cancelled => totals.cancelled += 1,
        }
        totals.runs += task.attempts;
        totals.retries += u32::try_from(task.earlier.len()).unwrap_or(u32::MAX);
        totals.ran_s.0 += task.spans().map(|(start, end)| end - start).sum::<f64>();
        totals.waited_s.0 += task.waited_s.map_or(0.0, |waited| waited.0);
        totals.output_bytes += task.output_bytes;
        totals.causes = TimeByCause::sum(totals.causes.into_iter().chain(task.causes));
        let last = task.start_s.zip(task.end_s);
        if last.is_some() {
            totals.input_bytes += task.input_bytes;
        }
        self.lengths.extend(last.filter(|_| task.status == Status::Done).map(|(start, end)| end.0 - start.0));
        self.add_use(task);
    }

    /// Adds the resources that the runs of `task` used, if they are known.
    fn add_use(&mut self, task: &TaskRecord) {
        let earlier = task.earlier.iter().map(|attempt| (attempt.cpu_s, attempt.peak_memory_bytes));
        let last = (task.cpu_s, task.peak_memory_bytes.or(task.max_rss_bytes));
        for ((start, end), (cpu, memory)) in task.spans().zip(earlier.chain([last])) {
            self.totals.peak_memory_bytes = self.totals.peak_memory_bytes.max(memory);
            if let Some(cpu) = cpu {
                self.cpu_s += cpu.0;
                self.slot_s += (end - start) * f64::from(task.cpus.max(1));
            }
        }
    }

    fn finish(mut self) -> ToolTotals {
        self.lengths.sort_by(f64::total_cmp);
        let lengths = &self.lengths;
        let at = |place: usize| lengths.get(place).copied().map(Seconds::rounded);
        let last = lengths.len().saturating_sub(1);
        let ToolTotals { ran_s, waited_s, .. } = self.totals;
        ToolTotals {
            shortest_s: at(0),
            median_s: at(last / 2),
            longest_s: at(last),
            ran_s: Seconds::rounded(ran_s.0),
            waited_s: Seconds::rounded(waited_s.0),
            cpu_use: (self.slot_s > 0.0).then(|| (self.cpu_s / self.slot_s * 1e4).round() / 1e4),
            ..self.totals
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;

    fn task(tool: &str, start: f64, end: f64) -> TaskRecord {
        let at = |time| Some(Seconds(time));
        let (start_s, end_s) = (at(start), at(end));
        TaskRecord {
            tool: tool.into(),
            status: Status::Done,
            attempts: 1,
            cpus: 1,
            start_s,
            end_s,
            ..TaskRecord::default()
        }
    }

    #[test]
    fn a_tool_has_the_sums_and_the_extremes_of_its_tasks() {
        let attempt = Attempt { end_s: Seconds(0.5), cpu_s: Some(Seconds(0.15)), ..Attempt::default() };
        let attempt = Attempt { peak_memory_bytes: Some(11), ..attempt };
        let sort = TaskRecord {
            attempts: 2,
            earlier: vec![attempt],
            cpu_s: Some(Seconds(1.0)),
            max_rss_bytes: Some(7),
            input_bytes: 10,
            waited_s: Some(Seconds(0.25)),
            ..task("sort", 1.0, 2.0)
        };
        let wide =
            TaskRecord { cpus: 2, cpu_s: Some(Seconds(2.0)), peak_memory_bytes: Some(9), ..task("sort", 2.0, 4.0) };
        let failed = TaskRecord { status: Status::Failed, output_bytes: 3, ..task("sort", 4.0, 14.0) };
        let never = TaskRecord { tool: "sort".into(), input_bytes: 99, ..TaskRecord::default() };
        let tasks = vec![sort, task("cut", 0.0, 8.0), wide, failed, never, task("sort", 0.0, 3.0)];
        let totals = RunReport { tasks, ..RunReport::default() }.sum_by_tool(&CriticalPath::default());
        let names: Vec<&str> = totals.iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(names, ["sort", "cut"]);
        let sort = &totals[0];
        assert_eq!((sort.tasks, sort.done, sort.failed, sort.cancelled), (5, 3, 1, 1));
        assert_eq!((sort.runs, sort.retries, sort.waited_s), (5, 1, Seconds(0.25)));
        let [least, median, most] = [sort.shortest_s, sort.median_s, sort.longest_s].map(|time| time.unwrap().0);
        assert_eq!((least, median, most, sort.ran_s.0), (1.0, 2.0, 3.0, 16.5));
        assert_eq!((sort.cpu_use, sort.peak_memory_bytes), (Some(0.5727), Some(11)));
        assert_eq!((sort.input_bytes, sort.output_bytes), (10, 3));
    }
}
