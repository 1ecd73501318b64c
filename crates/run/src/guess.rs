//! How long a run may still take: each tool's mean so far, times its tasks to come, over the slots.

use flow::{Task, Workflow};

/// Before so many tasks are done, a guess would jump too much to be shown.
const TASKS_SEEN_MIN: u32 = 3;

/// What is known of each tool.
#[derive(Debug, Clone, Copy, Default)]
struct Tool {
    done: u32,
    seconds: f64,
    left: u32,
}

/// Means by tool; tools that have not been seen take the mean of all.
#[derive(Debug, Clone)]
pub struct Guess {
    tools: Vec<Tool>,
}

impl Guess {
    /// Nothing has run.
    pub fn new(workflow: &Workflow) -> Self {
        let mut tools = vec![Tool::default(); workflow.tools.len()];
        for task in &workflow.tasks {
            tools[task.tool.0 as usize].left += 1;
        }
        Self { tools }
    }

    /// A task took `seconds`.
    pub fn done(&mut self, task: &Task, seconds: f64) {
        let tool = &mut self.tools[task.tool.0 as usize];
        tool.done += 1;
        tool.seconds += seconds;
        tool.left = tool.left.saturating_sub(1);
    }

    /// Seconds until all is done with `slots` busy; none before there is something to guess from.
    pub fn seconds_left(&self, slots: u32) -> Option<f64> {
        let done: u32 = self.tools.iter().map(|tool| tool.done).sum();
        if done < TASKS_SEEN_MIN {
            return None;
        }
        let mean_of_all = self.tools.iter().map(|tool| tool.seconds).sum::<f64>() / f64::from(done);
        let mean = |tool: &Tool| if tool.done > 0 { tool.seconds / f64::from(tool.done) } else { mean_of_all };
        let work: f64 = self.tools.iter().map(|tool| mean(tool) * f64::from(tool.left)).sum();
        Some(work / f64::from(slots.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Tool as Declared, ToolId};

    fn task(tool: u32) -> Task {
        Task { tool: ToolId(tool), files: [].into(), configs: [].into(), after: [].into(), line: 0 }
    }

    fn tool(name: &str) -> Declared {
        serde_json::from_value(serde_json::json!({"name": name, "command": ["x"]})).unwrap()
    }

    #[test]
    fn a_guess_weighs_each_tool_by_its_own_mean() {
        let mut flow = Workflow { tools: vec![tool("fast"), tool("slow")], ..Workflow::default() };
        flow.tasks = vec![task(0), task(0), task(1), task(1)];
        let mut guess = Guess::new(&flow);
        assert_eq!(guess.seconds_left(2), None);
        for (tool, seconds) in [(0, 1.0), (0, 1.0), (1, 9.0)] {
            guess.done(&task(tool), seconds);
        }
        assert_eq!(guess.seconds_left(2), Some(4.5));
    }
}
