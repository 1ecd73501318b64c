//! The faults that the check collects, and how they name tasks and places.

use crate::model::{TaskId, Workflow};
use base::{Place, Problem};

/// So many faults are shown; a wrong workflow of 100,000 tasks has one mistake and as many faults.
const SHOWN_MAX: usize = 10;

/// The text that the lines of a workflow's tasks belong to.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// The file as the user named it.
    pub file: &'a str,
    /// Its text.
    pub source: &'a str,
}

/// Faults of one workflow.
pub(crate) struct Faults<'a> {
    workflow: &'a Workflow,
    script: Option<Script<'a>>,
    found: Vec<Problem>,
}

impl<'a> Faults<'a> {
    pub fn new(workflow: &'a Workflow, script: Option<Script<'a>>) -> Self {
        Self { workflow, script, found: Vec::new() }
    }

    /// Notes a fault, at the line of `task` where that is known.
    pub fn add(&mut self, task: Option<TaskId>, problem: Problem) {
        let line = task.map_or(0, |task| self.line(task));
        let place = match self.script {
            Some(Script { file, source }) if line > 0 => Some(Place::at_line(file, source, (line, 0))),
            Some(Script { file, .. }) => Some(Place::file(file)),
            None => None,
        };
        self.found.push(match place {
            Some(place) => problem.at(place),
            None => problem,
        });
    }

    /// Whether more would not help anybody.
    pub fn are_many(&self) -> bool {
        self.found.len() >= SHOWN_MAX
    }

    /// The faults so far as an error, if there are any.
    pub fn settle(&mut self) -> Result<(), Vec<Problem>> {
        if self.found.is_empty() { Ok(()) } else { Err(self.take()) }
    }

    pub fn take(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.found)
    }

    /// ``task 12 (`C45`) ``: a task as messages name it.
    pub fn task(&self, task: TaskId) -> String {
        match self.tool(task) {
            Some(tool) => format!("task {} (`{tool}`)", task.0),
            None => format!("task {}", task.0),
        }
    }

    /// The same with its line, where two tasks are named in one message.
    pub fn task_at(&self, task: TaskId) -> String {
        match (self.tool(task), self.line(task)) {
            (Some(tool), line) if line > 0 => format!("task {} (`{tool}`, line {line})", task.0),
            _ => self.task(task),
        }
    }

    /// The name of the tool that `task` calls, if there is such a task and such a tool.
    fn tool(&self, task: TaskId) -> Option<&'a str> {
        let task = self.workflow.tasks.get(task.0 as usize)?;
        self.workflow.tools.get(task.tool.0 as usize).map(|tool| tool.name.as_str())
    }

    fn line(&self, task: TaskId) -> u32 {
        self.workflow.tasks.get(task.0 as usize).map_or(0, |task| task.line)
    }
}
