//! Builds a scheduler from a whole workflow.

use crate::messages::{
    AddError, DataTarget, Location, LocationTarget, SchedulerCommand, SchedulerEvent, SchedulerOptions, TaskSpec,
};
use crate::resources::{MachineCapacity, SlotId, WorkerId};
use crate::scheduler::{RestoredData, Scheduler};
use flow::{DataId, Element, ParamKind, PlacingTarget, Source, Task, TaskId, TaskPlacing, Workflow};

impl Scheduler {
    /// A scheduler with all tasks of a checked workflow; `SchedulerEvent::Begin` closes it, unless
    /// the options say that it grows, and starts the first tasks. `bytes` returns the sizes of the
    /// workflow's inputs. Data for which `kept` returns true is never dropped, and neither is data
    /// that no task reads. If tasks can never run on this machine, returns all of them instead, in
    /// order.
    pub fn from_workflow(
        workflow: &Workflow,
        machine: MachineCapacity,
        options: SchedulerOptions,
        kept: impl Fn(DataId) -> bool,
        bytes: impl Fn(DataId) -> u64,
    ) -> Result<Self, Vec<(TaskId, AddError)>> {
        let mut scheduler = Self::new(machine, options);
        let refused = scheduler.fill(workflow, kept, bytes);
        if refused.is_empty() { Ok(scheduler) } else { Err(refused) }
    }

    /// Like [`Self::from_workflow`], for workers that join later. The caller has checked that tasks
    /// can run on one of them.
    pub fn without_workers_for(
        workflow: &Workflow,
        options: SchedulerOptions,
        kept: impl Fn(DataId) -> bool,
        bytes: impl Fn(DataId) -> u64,
    ) -> Self {
        let mut scheduler = Self::without_workers(options);
        scheduler.fill(workflow, kept, bytes);
        scheduler
    }

    /// Adds a whole workflow. Returns the tasks that can never run.
    fn fill(
        &mut self,
        workflow: &Workflow,
        kept: impl Fn(DataId) -> bool,
        bytes: impl Fn(DataId) -> u64,
    ) -> Vec<(TaskId, AddError)> {
        self.reserve(workflow.tasks.len(), workflow.data_count() as usize);
        self.add_inputs(&workflow.elements, bytes);
        (0..workflow.data_count()).map(DataId).filter(|data| kept(*data)).for_each(|data| self.keep(data));
        let refused = self.add_all(workflow);
        if !self.grows() {
            self.mark_complete();
        }
        refused
    }

    /// Adds what a workflow has from these elements and tasks on. Tasks that can never run are
    /// rejected, each by a command. `done` returns whether a task is done already, and `exists`
    /// what exists of the outputs of such tasks.
    pub fn grow(
        &mut self,
        workflow: &Workflow,
        (elements, tasks): (usize, usize),
        bytes: impl Fn(DataId) -> u64,
        (done, exists): (impl Fn(TaskId) -> bool, impl Fn(DataId) -> Option<RestoredData>),
        now_ms: u64,
        commands: &mut Vec<SchedulerCommand>,
    ) {
        self.add_inputs(&workflow.elements[elements..], bytes);
        for (id, task) in (0..).map(TaskId).zip(&workflow.tasks).skip(tasks) {
            let mut spec = TaskSpec::new(id);
            fill(&mut spec, id, task, workflow);
            if !done(id) {
                self.on(SchedulerEvent::Add(Box::new(spec)), now_ms, commands);
            } else if let Err(reason) = self.add_done(&spec, &exists) {
                commands.push(SchedulerCommand::Rejected { task: id, reason });
            }
        }
    }

    fn add_inputs(&mut self, elements: &[Element], bytes: impl Fn(DataId) -> u64) {
        let given = elements.iter().filter(|element| matches!(element.source, Source::Input(_)));
        for element in given {
            for data in (element.first.0..element.first.0 + element.count).map(DataId) {
                self.add_existing(data);
                self.set_size(data, bytes(data));
            }
        }
    }

    fn add_all(&mut self, workflow: &Workflow) -> Vec<(TaskId, AddError)> {
        let mut refused = Vec::new();
        let mut spec = TaskSpec::new(TaskId(0));
        for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
            fill(&mut spec, id, task, workflow);
            if let Err(reason) = self.add(&spec, 0) {
                refused.push((id, reason));
            }
        }
        refused
    }
}

/// The scheduler's specs of all tasks of a workflow.
pub fn task_specs(workflow: &Workflow) -> Vec<TaskSpec> {
    let spec = |(id, task)| {
        let mut spec = TaskSpec::new(id);
        fill(&mut spec, id, task, workflow);
        spec
    };
    (0..).map(TaskId).zip(&workflow.tasks).map(spec).collect()
}

/// Fills `spec` with the task. The caller reuses one spec for all tasks to avoid allocations.
fn fill(spec: &mut TaskSpec, id: TaskId, task: &Task, workflow: &Workflow) {
    let tool = workflow.tool_of(task);
    spec.id = id;
    spec.tool = task.tool;
    spec.cpus = tool.resources.cpus;
    spec.memory = tool.resources.memory;
    spec.retries = tool.retries;
    spec.inputs.clear();
    spec.outputs.clear();
    spec.after.clear();
    spec.after.extend_from_slice(&task.after);
    (spec.priority, spec.location, spec.beside) = (0, None, None);
    if let Some(TaskPlacing { priority, location, is_hard }) = task.placing.as_deref().copied() {
        spec.priority = priority;
        let at = |at| Some(Location { at, hard: is_hard });
        match location {
            None => {}
            Some(PlacingTarget::Worker(worker)) => spec.location = at(LocationTarget::Worker(WorkerId(worker))),
            Some(PlacingTarget::Slot(worker, slot)) => {
                spec.location = at(LocationTarget::Slot(WorkerId(worker), SlotId(slot)));
            }
            Some(PlacingTarget::Data(data)) => spec.beside = Some(DataTarget { data, hard: is_hard }),
        }
    }
    for file in &task.files {
        match tool.params[usize::from(file.param)].kind {
            ParamKind::Input { .. } => spec.inputs.extend(file.data.iter()),
            ParamKind::Output { .. } => spec.outputs.extend(file.data.iter()),
            ParamKind::Config { .. } => unreachable!("`check` lets files be bound to file parameters only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttemptId, SchedulerCommand, SchedulerEvent, SlotId, WorkerId};
    use flow::{ConfigType, DataRefs, Element, FileBinding, Param, Resources, Tool, ToolId};

    fn tool(cpus: u32) -> Tool {
        let input = ParamKind::Input { array: None, optional: false, implicit: false };
        let output = ParamKind::Output { array: None, file: None, extension: String::new(), implicit: false };
        let config = ParamKind::Config { of: ConfigType::Integer, default: None };
        let param = |name: &str, kind| Param { name: name.into(), kind };
        tool_of(Resources { cpus, memory: 0 }, vec![param("n", config), param("i", input), param("o", output)])
    }

    fn tool_of(resources: Resources, params: Vec<Param>) -> Tool {
        Tool { resources, ..Tool::new("T", vec![], params) }
    }

    fn bound(param: u16, data: u32) -> FileBinding {
        FileBinding { param, data: DataRefs::One(DataId(data)) }
    }

    /// A chain of `length` tasks: task `i` reads data `i` and writes data `i + 1`; datum 0 is an
    /// input.
    fn chain(length: u32, cpus: u32) -> Workflow {
        let element = |name: &str, first: u32, count: u32, source| Element {
            name: name.into(),
            shape: vec![count],
            first: DataId(first),
            count,
            source,
            file: None,
        };
        let task = |at: u32| Task {
            tool: ToolId(0),
            files: [bound(1, at), bound(2, at + 1)].into(),
            configs: [].into(),
            after: [].into(),
            line: 0,
            placing: None,
        };
        Workflow {
            name: "chain".into(),
            tools: vec![tool(cpus)],
            elements: vec![
                element("In", 0, 1, Source::Input(vec!["in".into()])),
                element("D", 1, length, Source::Defined),
            ],
            tasks: (0..length).map(task).collect(),
        }
    }

    const MACHINE: MachineCapacity = MachineCapacity { slots: 1, memory: 0 };

    #[test]
    fn a_workflow_starts_at_begin_with_what_its_inputs_allow() {
        let made = Scheduler::from_workflow(
            &chain(2, 1),
            MACHINE,
            SchedulerOptions::default(),
            |data| data == DataId(0),
            |_| 0,
        );
        let mut scheduler = made.expect("it fits");
        let mut commands = vec![];
        scheduler.on(SchedulerEvent::Begin, 0, &mut commands);
        for task in [TaskId(0), TaskId(1)] {
            scheduler.on(SchedulerEvent::Done(AttemptId { task, attempt: 1 }), 1, &mut commands);
        }
        let start = |task| SchedulerCommand::Start {
            task: TaskId(task),
            worker: WorkerId(0),
            slot: SlotId(0),
            attempt: 1,
            ahead: false,
        };
        let dropped = SchedulerCommand::Drop { data: DataId(1) };
        assert_eq!(commands, [start(0), start(1), dropped, SchedulerCommand::Ended { done: 2, failed: 0 }]);
    }

    #[test]
    fn all_tasks_that_cannot_run_here_are_reported() {
        let refused =
            Scheduler::from_workflow(&chain(3, 2), MACHINE, SchedulerOptions::default(), |_| false, |_| 0).map(|_| ());
        let rejected: Vec<_> = refused.expect_err("too wide").into_iter().map(|(task, _)| task.0).collect();
        assert_eq!(rejected, [0, 1, 2]);
    }
}
