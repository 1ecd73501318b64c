//! Growth: elements and tasks that are added to a workflow that was checked.

use crate::diagnostics::Diagnostics;
use crate::model::{Element, Source, Task, TaskId, Workflow};
use crate::plan::{NewParts, Plan, bound, is_input};
use crate::validate;
use base::Problem;

/// Elements and tasks with which a workflow goes on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkflowGrowth {
    /// Elements. Their ids follow those of the workflow, and their names are new.
    pub elements: Vec<Element>,
    /// Tasks. Each comes after those that it waits for.
    pub tasks: Vec<Task>,
}

impl Plan {
    /// Adds elements and tasks to a workflow that has this plan. Takes time for what is new only.
    ///
    /// # Errors
    /// The problems, if they do not fit the workflow; then neither it nor the plan changes. Names
    /// of elements are not compared with those that are there.
    pub fn grow(&mut self, workflow: &mut Workflow, growth: WorkflowGrowth) -> Result<(), Vec<Problem>> {
        let new = NewParts {
            elements: workflow.elements.len(),
            data: workflow.data_count(),
            tasks: u32::try_from(workflow.tasks.len()).unwrap_or(u32::MAX),
        };
        workflow.elements.extend(growth.elements);
        workflow.tasks.extend(growth.tasks);
        let grown = self.add_parts(workflow, new);
        if grown.is_err() {
            workflow.elements.truncate(new.elements);
            workflow.tasks.truncate(new.tasks as usize);
            self.forget(new);
        }
        grown
    }

    fn add_parts(&mut self, workflow: &Workflow, new: NewParts) -> Result<(), Vec<Problem>> {
        let diagnostics = &mut Diagnostics::new(workflow, None);
        validate::elements(workflow, new, diagnostics);
        diagnostics.fail_if_any()?;
        validate::tasks(workflow, new, diagnostics);
        diagnostics.fail_if_any()?;
        self.add_writers(workflow, new, diagnostics);
        self.check_order(workflow, new, diagnostics);
        diagnostics.fail_if_any()?;
        let tasks: Vec<TaskId> = (0..).map(TaskId).take(workflow.tasks.len()).skip(new.tasks as usize).collect();
        self.add_names(workflow, new, &tasks, diagnostics);
        diagnostics.fail_if_any()?;
        self.add_readers(workflow, new, diagnostics);
        diagnostics.fail_if_any()?;
        self.add_to_order(tasks);
        Ok(())
    }

    /// Checks that each new task comes after those that it waits for.
    fn check_order(&self, workflow: &Workflow, new: NewParts, diagnostics: &mut Diagnostics<'_>) {
        for (task, id) in bound(workflow, new, is_input) {
            let is_there = self.writer_of(id).is_some_and(|writer| writer < task);
            if !is_there && workflow.element_of(id).source == Source::Defined {
                diagnostics.unwritten(task, id);
            }
            if diagnostics.is_full() {
                return;
            }
        }
        for (number, task) in (0..).map(TaskId).zip(&workflow.tasks).skip(new.tasks as usize) {
            if let Some(later) = task.after.iter().find(|other| **other >= number) {
                let message = format!("{} comes after {}, which is not before it", diagnostics.task(number), later.0);
                diagnostics.add(Some(number), Problem::new(message));
            }
        }
    }
}

#[cfg(test)]
#[path = "growth_test.rs"]
mod tests;
