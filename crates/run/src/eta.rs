//! Estimate of a run's remaining time: for each tool, the median time so far, times the tasks to
//! come, times the slots that each takes; the sum is divided by the number of slots.
//!
//! The median ignores single tasks that hang or find everything cached. Waiting for data is not
//! predicted: the estimate assumes that all slots are always busy.

use flow::{Task, Workflow};
use std::collections::VecDeque;

/// Number of finished tasks before the first estimate; an earlier one would vary too much.
const TASKS_SEEN_MIN: usize = 3;

/// Number of the last tasks that a tool's median covers: recent ones predict the coming ones
/// better.
const TIMES_KEPT_MAX: usize = 63;

/// Statistics of one tool.
#[derive(Debug, Clone, Default)]
struct ToolTimes {
    /// Seconds that its last tasks took.
    times: VecDeque<f64>,
    /// Slots that each of its tasks takes.
    cpus: u32,
    /// Number of tasks that have not ended.
    left: u32,
}

/// Estimate from medians by tool. Tools without a finished task take the median of the other tools'
/// medians.
#[derive(Debug, Clone)]
pub struct EtaEstimator {
    tools: Vec<ToolTimes>,
}

impl EtaEstimator {
    /// Creates the estimate of a workflow of which nothing has run.
    pub fn new(workflow: &Workflow) -> Self {
        let known = |tool: &flow::Tool| ToolTimes { cpus: tool.resources.cpus.max(1), ..ToolTimes::default() };
        let mut estimator = Self { tools: workflow.tools.iter().map(known).collect() };
        workflow.tasks.iter().for_each(|task| estimator.added(task));
        estimator
    }

    /// Records that the workflow has one more task.
    pub fn added(&mut self, task: &Task) {
        self.tools[task.tool.0 as usize].left += 1;
    }

    /// Records that a task took `seconds`.
    pub fn finished(&mut self, task: &Task, seconds: f64) {
        let times = &mut self.tools[task.tool.0 as usize].times;
        if times.len() == TIMES_KEPT_MAX {
            times.pop_front();
        }
        times.push_back(seconds);
        self.skipped(task);
    }

    /// Records that a task will not run any more.
    pub fn skipped(&mut self, task: &Task) {
        let left = &mut self.tools[task.tool.0 as usize].left;
        *left = left.saturating_sub(1);
    }

    /// Estimated seconds to the end with `slots` busy; `None` before there is enough data.
    pub fn seconds_left(&self, slots: u32) -> Option<f64> {
        if self.tools.iter().map(|tool| tool.times.len()).sum::<usize>() < TASKS_SEEN_MIN {
            return None;
        }
        let medians: Vec<Option<f64>> = self.tools.iter().map(|tool| median(tool.times.iter().copied())).collect();
        let of_unseen = median(medians.iter().flatten().copied())?;
        let to_come = || self.tools.iter().zip(&medians).filter(|(tool, _)| tool.left > 0);
        let each = |median: &Option<f64>| median.unwrap_or(of_unseen);
        let work: f64 = to_come().map(|(tool, median)| each(median) * f64::from(tool.left * tool.cpus)).sum();
        // With any number of slots, the run takes at least as long as its longest task.
        let longest = to_come().map(|(_, median)| each(median)).fold(0.0, f64::max);
        Some((work / f64::from(slots.max(1))).max(longest))
    }
}

/// The median: for an even count, the mean of the two middle values.
fn median(times: impl Iterator<Item = f64>) -> Option<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match times.len() {
        0 => None,
        count if count % 2 == 1 => Some(times[middle]),
        _ => Some(f64::midpoint(times[middle - 1], times[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Tool as DeclaredTool, ToolId};

    fn task(tool: u32) -> Task {
        Task { tool: ToolId(tool), files: [].into(), configs: [].into(), after: [].into(), line: 0, placing: None }
    }

    fn tool(name: &str, cpus: u32) -> DeclaredTool {
        serde_json::from_value(serde_json::json!({"name": name, "command": ["x"], "resources": {"cpus": cpus}}))
            .unwrap()
    }

    /// Makes an estimate for a workflow with `(name, slots, tasks)` of each tool, after the tasks
    /// `(tool, seconds)` have ended.
    fn estimator(tools: &[(&str, u32, u32)], took: &[(u32, f64)]) -> EtaEstimator {
        let mut flow = Workflow::default();
        for ((name, cpus, count), number) in tools.iter().zip(0..) {
            flow.tools.push(tool(name, *cpus));
            flow.tasks.extend((0..*count).map(|_| task(number)));
        }
        let mut estimator = EtaEstimator::new(&flow);
        for (tool, seconds) in took {
            estimator.finished(&task(*tool), *seconds);
        }
        estimator
    }

    #[test]
    fn a_guess_weighs_each_tool_by_its_own_median() {
        let tools = [("fast", 1, 12), ("slow", 1, 4)];
        assert_eq!(estimator(&tools, &[(0, 1.0), (0, 1.0)]).seconds_left(2), None);
        let seen = estimator(&tools, &[(0, 1.0), (0, 1.0), (1, 9.0)]);
        assert_eq!(seen.seconds_left(2), Some(f64::midpoint(10.0, 27.0)));
        let with_one_that_hung = estimator(&tools, &[(0, 1.0), (0, 1000.0), (0, 1.0), (1, 9.0)]);
        assert_eq!(with_one_that_hung.seconds_left(2), Some(f64::midpoint(9.0, 27.0)));
    }

    #[test]
    fn tasks_of_many_slots_weigh_more_and_none_is_shorter_than_itself() {
        let wide = estimator(&[("wide", 2, 5)], &[(0, 4.0), (0, 4.0), (0, 4.0)]);
        assert_eq!(wide.seconds_left(2), Some(8.0));
        assert_eq!(wide.seconds_left(64), Some(4.0), "two at once, on however many slots");
    }

    #[test]
    fn what_failed_is_not_waited_for_and_unseen_tools_are_as_the_others() {
        let mut seen = estimator(&[("a", 1, 3), ("b", 1, 2)], &[(0, 2.0), (0, 2.0), (0, 2.0)]);
        assert_eq!(seen.seconds_left(1), Some(4.0));
        seen.skipped(&task(1));
        assert_eq!(seen.seconds_left(1), Some(2.0));
        seen.skipped(&task(1));
        assert_eq!(seen.seconds_left(1), Some(0.0));
    }
}
