//! The problems that the check collects, with the names and positions of tasks.

use crate::model::{DataId, TaskId, Workflow};
use base::{Problem, SourceLocation};

/// The most problems that are reported. A wrong workflow of 100,000 tasks may have as many problems
/// from one mistake.
const SHOWN_MAX: usize = 10;

/// The text that the lines of a workflow's tasks refer to.
#[derive(Debug, Clone, Copy)]
pub struct ScriptSource<'a> {
    /// The file as the user named it.
    pub file: &'a str,
    /// The text of the file.
    pub source: &'a str,
}

/// The problems of one workflow.
pub(crate) struct Diagnostics<'a> {
    workflow: &'a Workflow,
    script: Option<ScriptSource<'a>>,
    found: Vec<Problem>,
}

impl<'a> Diagnostics<'a> {
    pub fn new(workflow: &'a Workflow, script: Option<ScriptSource<'a>>) -> Self {
        Self { workflow, script, found: Vec::new() }
    }

    /// Adds a problem, at the line of `task` if it is known.
    pub fn add(&mut self, task: Option<TaskId>, problem: Problem) {
        let line = task.map_or(0, |task| self.line(task));
        let location = match self.script {
            Some(ScriptSource { file, source }) if line > 0 => Some(SourceLocation::at_line(file, source, (line, 0))),
            Some(ScriptSource { file, .. }) => Some(SourceLocation::file(file)),
            None => None,
        };
        self.found.push(match location {
            Some(location) => problem.at(location),
            None => problem,
        });
    }

    /// Adds that a task reads a member that no task writes, at least none before it.
    pub fn unwritten(&mut self, reader: TaskId, data: DataId) {
        let name = self.workflow.data_name(data);
        let message = format!("{} reads `{name}`, and no task writes it", self.task(reader));
        self.add(Some(reader), Problem::new(message));
    }

    /// Returns whether enough problems were found to stop.
    pub fn is_full(&self) -> bool {
        self.found.len() >= SHOWN_MAX
    }

    /// Returns the problems so far as an error, if there are any.
    pub fn fail_if_any(&mut self) -> Result<(), Vec<Problem>> {
        if self.found.is_empty() { Ok(()) } else { Err(self.take()) }
    }

    pub fn take(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.found)
    }

    /// The name of a task in messages: ``task 12 (`C45`)``.
    pub fn task(&self, task: TaskId) -> String {
        match self.tool(task) {
            Some(tool) => format!("task {} (`{tool}`)", task.0),
            None => format!("task {}", task.0),
        }
    }

    /// As [`Self::task`], with the task's line, for messages that name two tasks.
    pub fn task_at(&self, task: TaskId) -> String {
        match (self.tool(task), self.line(task)) {
            (Some(tool), line) if line > 0 => format!("task {} (`{tool}`, line {line})", task.0),
            _ => self.task(task),
        }
    }

    /// The name of the tool that `task` calls, if both exist.
    fn tool(&self, task: TaskId) -> Option<&'a str> {
        let task = self.workflow.tasks.get(task.0 as usize)?;
        self.workflow.tools.get(task.tool.0 as usize).map(|tool| tool.name.as_str())
    }

    fn line(&self, task: TaskId) -> u32 {
        self.workflow.tasks.get(task.0 as usize).map_or(0, |task| task.line)
    }
}
