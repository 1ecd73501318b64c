//! The plan grows while the loop runs: what is new becomes part of the workflow, the report, the
//! pool and the scheduler.

use super::{EventLoop, ExportPlan};
use crate::checked_workflow::CheckedWorkflow;
use crate::event::RunEvent;
use crate::plan_source::{PlanGrowth, PlanHost, PlanSource, PlanStep, PlanView};
use crate::preflight;
use crate::resume::{FormerResults, StandIn};
use crate::run_journal::host_name;
use base::Problem;
use flow::{DataId, TaskId};
use journal::JournalRecord;
use sched::SchedulerEvent;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashSet};
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
    /// The hosts at the beginning.
    pub hosts: Vec<PlanHost>,
    /// Results of earlier tasks that stand in for those that do the same.
    pub former: Option<FormerResults>,
}

/// A plan in a pool that is lost; it goes on in another one.
#[derive(Debug, Default)]
pub struct OngoingPlan {
    /// The source; `None` if no more tasks come.
    pub grower: Option<PlanGrower>,
    /// Members to export.
    pub exports: ExportPlan,
    /// Members that no later task reads.
    pub sealed: Vec<DataId>,
    /// Members that the source wants to read.
    pub reads: HashSet<DataId>,
}

/// The next step of a source; pending without one.
pub fn poll_step(grower: &mut Option<PlanGrower>, flow: &CheckedWorkflow, context: &mut Context) -> Poll<PlanStep> {
    let Some(grower) = grower else { return Poll::Pending };
    let notes = grower.former.as_ref().map_or(&[][..], |former| &former.notes);
    grower.source.poll_step(&PlanView { flow, hosts: &grower.hosts, notes }, context)
}

impl EventLoop<'_> {
    /// Returns whether the plan grows, and few tasks are ready.
    pub(super) fn wants_tasks(&self) -> bool {
        let enough = READY_MIN.max(self.recorder.run.settings.slots.saturating_mul(READY_PER_SLOT));
        let has_hosts = self.context.grower.as_ref().is_some_and(|grower| !grower.hosts.is_empty());
        has_hosts && self.scheduler.counts().ready < enough
    }

    /// Goes on with a plan that grew in a pool that is lost.
    pub fn go_on(&mut self, plan: OngoingPlan) {
        let OngoingPlan { grower, exports, sealed, reads } = plan;
        (self.context.grower, self.exports, self.sealed, self.reads) = (grower, exports, sealed, reads);
    }

    /// Tells the scheduler of another pool about a plan that grew before.
    pub(super) fn begin_ongoing(&mut self) {
        for data in self.sealed.clone() {
            self.sealed.push(data);
            self.send_event(SchedulerEvent::Sealed(data));
        }
        for data in std::mem::take(&mut self.reads) {
            self.read(data);
        }
        if self.context.flow.grows() && self.context.grower.is_none() {
            self.send_event(SchedulerEvent::Close);
        }
    }

    /// Tells the source of the plan the hosts that are there.
    pub(super) fn learn_hosts(&mut self) {
        let Some(grower) = self.context.grower.as_mut().filter(|grower| grower.hosts.is_empty()) else { return };
        grower.hosts = self.recorder.hosts();
        if grower.hosts.is_empty() && !grower.on_cluster {
            let slots = self.recorder.run.settings.slots;
            grower.hosts = vec![PlanHost { worker: 0, name: host_name(), slots }];
        }
    }

    pub(super) async fn on_step(&mut self, step: PlanStep) {
        match step {
            PlanStep::Grow(growth) => {
                if let Err(problem) = self.grow(growth).await {
                    self.fail_growth(&problem);
                }
            }
            PlanStep::Read(data) => self.read(data),
            PlanStep::Print(text) => (self.on_event)(&RunEvent::Printed(text)),
            PlanStep::Warn(text) => self.warn(text),
            PlanStep::Remember(text) => self.recorder.journal.write(JournalRecord::Noted { text }),
            PlanStep::Complete => self.end_growth(),
            PlanStep::Failed(problem) => self.fail_growth(&problem),
        }
    }

    /// No more tasks are added.
    pub(super) fn end_growth(&mut self) {
        if let Some(grower) = self.context.grower.take() {
            if let Some(former) = grower.former.filter(|former| former.count > 0) {
                (self.on_event)(&RunEvent::Reused { from: former.run, tasks: former.count });
            }
            self.recorder.run.plan_elements(self.context.flow.workflow());
            self.send_event(SchedulerEvent::Close);
        }
    }

    fn fail_growth(&mut self, problem: &Problem) {
        let text = problem.to_string();
        (self.on_event)(&RunEvent::Problem(text.clone()));
        self.recorder.give_up(text);
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
        let data_dir = self.context.grower.as_ref().map(|grower| grower.data_dir.clone()).unwrap_or_default();
        self.recorder.added_inputs(&flow, &data_dir, &inputs);
        let taken = self.take_former(&flow, (data, tasks)).await?;
        let now_ms = self.now_ms();
        let mut commands = std::mem::take(&mut self.commands);
        let bytes = |data| preflight::bytes_of_input(&flow, &data_dir, data);
        let exists = |data| taken.get(&flow.writer_of(data)?)?.restored(data);
        let before = (|task: TaskId| taken.contains_key(&task), exists);
        self.scheduler.grow(flow.workflow(), (elements, tasks), bytes, before, now_ms, &mut commands);
        self.execute_all(commands);
        for stand_in in taken.values() {
            self.stand_in(stand_in);
        }
        for data in sealed {
            self.seal(data);
        }
        Ok(())
    }

    /// The new tasks for which earlier ones stand in. Files that have their outputs are bound.
    async fn take_former(
        &mut self,
        flow: &CheckedWorkflow,
        new: (u32, usize),
    ) -> Result<BTreeMap<TaskId, StandIn>, Problem> {
        let former = self.context.grower.as_mut().and_then(|grower| grower.former.as_mut());
        let taken = former.map(|former| former.take(flow, new, &self.exports)).unwrap_or_default();
        if let Some(files) = &mut self.context.files {
            let exported = taken.iter().flat_map(|taken| &taken.files);
            let bound = files.bind_exported(exported.map(|(data, export)| (*data, PathBuf::from(&export.path)))).await;
            bound.map_err(|error| Problem::new(format!("a former result cannot be shown to tasks: {error}")))?;
        }
        Ok(taken.into_iter().map(|taken| (taken.task, taken)).collect())
    }

    /// An earlier task stands in for a new one, which is done.
    fn stand_in(&mut self, stand_in: &StandIn) {
        let StandIn { task, bytes, in_place, files } = stand_in;
        let flow = self.context.flow.clone();
        self.eta.skipped(flow.task(*task));
        let former = self.context.grower.as_ref().and_then(|grower| grower.former.as_ref());
        let run = former.map(|former| former.run.clone()).unwrap_or_default();
        self.recorder.stand_in((&flow, *task), &run, bytes, in_place);
        for data in files.keys().filter(|data| !in_place.contains_key(data)) {
            self.export(*data);
        }
        self.tell_source(*task, true);
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
                let found = preflight::find_program(flow, task.tool);
                program.insert(found.map_err(|mut problem| {
                    if task.line > 0 {
                        problem.message = format!("line {}: {}", task.line, problem.message);
                    }
                    problem
                })?);
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
