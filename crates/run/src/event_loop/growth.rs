//! The plan grows while the loop runs: what is new becomes part of the workflow, the report, the
//! pool and the scheduler.

use super::EventLoop;
use crate::checked_workflow::CheckedWorkflow;
use crate::plan_source::{PlanGrowth, PlanSource, PlanStep};
use crate::preflight;
use base::Problem;
use flow::{DataId, TaskId};
use sched::SchedulerEvent;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Tasks that are ready for each slot before the source is not asked for more.
const READY_PER_SLOT: u32 = 4;
/// Tasks that are ready in any case before the source is not asked for more.
const READY_MIN: u32 = 64;

/// The source of the plan, and what its steps need.
#[derive(Debug)]
pub struct PlanGrower {
    /// The source.
    pub source: Box<dyn PlanSource>,
    /// Directory that relative input paths start from.
    pub data_dir: PathBuf,
    /// Asks for no more tasks after the first failed one.
    pub fail_fast: bool,
    /// True if programs are on other hosts.
    pub on_cluster: bool,
}

/// The next step of a source; pending without one.
pub fn poll_step(grower: &mut Option<PlanGrower>, flow: &CheckedWorkflow, context: &mut Context) -> Poll<PlanStep> {
    grower.as_mut().map_or(Poll::Pending, |grower| grower.source.poll_step(flow, context))
}

impl EventLoop<'_> {
    /// Returns whether the plan grows, and few tasks are ready.
    pub(super) fn wants_tasks(&self) -> bool {
        let enough = READY_MIN.max(self.recorder.run.settings.slots.saturating_mul(READY_PER_SLOT));
        self.context.grower.is_some() && self.scheduler.counts().ready < enough
    }

    pub(super) async fn on_step(&mut self, step: PlanStep) {
        match step {
            PlanStep::Grow(growth) => {
                if let Err(problem) = self.grow(growth).await {
                    self.fail_growth(&problem);
                }
            }
            PlanStep::Complete => self.end_growth(),
            PlanStep::Failed(problem) => self.fail_growth(&problem),
        }
    }

    /// No more tasks are added.
    pub(super) fn end_growth(&mut self) {
        if self.context.grower.take().is_some() {
            self.recorder.run.plan_elements(self.context.flow.workflow());
            self.send_event(SchedulerEvent::Close);
        }
    }

    fn fail_growth(&mut self, problem: &Problem) {
        let text = problem.to_string();
        self.recorder.problem(text.clone());
        self.warn(text);
        self.cancel.cancel();
    }

    /// Tells the source that a task has ended.
    pub(super) fn tell_source(&mut self, task: TaskId, is_done: bool) {
        let Some(grower) = &mut self.context.grower else { return };
        grower.source.task_ended(task, is_done);
        if !is_done && grower.fail_fast {
            self.end_growth();
        }
    }

    async fn grow(&mut self, growth: PlanGrowth) -> Result<(), Problem> {
        let PlanGrowth { parts, exports, sealed } = growth;
        let workflow = self.context.flow.workflow();
        let (elements, tasks, data) = (workflow.elements.len(), workflow.tasks.len(), workflow.data_count());
        self.change_flow(|flow| flow.grow(parts).map_err(|mut problems| problems.swap_remove(0)))?;
        let flow = self.context.flow.clone();
        self.recorder.grew(flow.workflow(), (elements, tasks));
        self.find_programs(tasks)?;
        let inputs: Vec<DataId> = (data..flow.workflow().data_count())
            .map(DataId)
            .filter(|id| flow.workflow().input_path(*id).is_some())
            .collect();
        if let Some(files) = &mut self.context.files {
            let provided = files.provide(&inputs).await;
            provided.map_err(|error| Problem::new(format!("an input cannot be shown to tasks: {error}")))?;
        }
        flow.workflow().tasks[tasks..].iter().for_each(|task| self.eta.added(task));
        self.exports.places.extend(exports);
        let now_ms = self.now_ms();
        let mut commands = std::mem::take(&mut self.commands);
        let data_dir = self.context.grower.as_ref().map(|grower| grower.data_dir.clone()).unwrap_or_default();
        let bytes = |data| preflight::bytes_of_input(&flow, &data_dir, data);
        self.scheduler.grow(flow.workflow(), (elements, tasks), bytes, now_ms, &mut commands);
        self.execute_all(commands);
        for data in sealed {
            self.seal(data);
        }
        Ok(())
    }

    /// Changes the workflow. Nobody else may hold it meanwhile, or it would be copied.
    fn change_flow<T>(&mut self, change: impl FnOnce(&mut CheckedWorkflow) -> T) -> T {
        if let Some(files) = &mut self.context.files {
            files.set_flow(Arc::default());
        }
        let changed = change(Arc::make_mut(&mut self.context.flow));
        if let Some(files) = &mut self.context.files {
            files.set_flow(self.context.flow.clone());
        }
        changed
    }

    /// Finds the programs of tools that are called for the first time, from task `tasks` on.
    fn find_programs(&mut self, tasks: usize) -> Result<(), Problem> {
        if self.context.grower.as_ref().is_none_or(|grower| grower.on_cluster) {
            return Ok(());
        }
        let flow = &self.context.flow;
        for task in &flow.workflow().tasks[tasks..] {
            if let Entry::Vacant(program) = self.context.programs.entry(task.tool) {
                program.insert(preflight::find_program(flow, task.tool)?);
            }
        }
        Ok(())
    }

    /// No later task reads a member.
    fn seal(&mut self, data: DataId) {
        if self.context.flow.is_unread(data) && !self.context.keep {
            self.exports.finals.insert(data);
            let is_leaving = self.leaving.get(&data).copied();
            if is_leaving.map_or_else(|| self.recorder.is_in_pool(data), |goes| !goes) {
                self.drop_member(data);
            }
        }
        self.send_event(SchedulerEvent::Sealed(data));
    }
}
