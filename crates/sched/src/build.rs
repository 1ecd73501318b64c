//! A scheduler from a whole workflow.

use crate::room::Machine;
use crate::scheduler::Scheduler;
use crate::words::{Options, Refused, TaskSpec};
use flow::{DataId, ParamKind, Source, Task, TaskId, Workflow};

impl Scheduler {
    /// A scheduler that holds all tasks of a checked workflow; `Event::Begin` closes it and starts the first tasks. Data
    /// for which `kept` says true is never dropped, nor is what nobody reads. Tasks that can never run on this machine
    /// are returned instead, all of them, in order.
    pub fn from_workflow(
        workflow: &Workflow,
        machine: Machine,
        options: Options,
        kept: impl Fn(DataId) -> bool,
    ) -> Result<Self, Vec<(TaskId, Refused)>> {
        let mut scheduler = Self::new(machine, options);
        scheduler.reserve(workflow.tasks.len(), workflow.data_count() as usize);
        scheduler.give_inputs(workflow);
        (0..workflow.data_count()).map(DataId).filter(|data| kept(*data)).for_each(|data| scheduler.keep(data));
        let refused = scheduler.add_all(workflow);
        scheduler.whole();
        if refused.is_empty() { Ok(scheduler) } else { Err(refused) }
    }

    fn give_inputs(&mut self, workflow: &Workflow) {
        let given = workflow.elements.iter().filter(|element| matches!(element.source, Source::Input(_)));
        for element in given {
            (element.first.0..element.first.0 + element.count).for_each(|data| self.give(DataId(data)));
        }
    }

    fn add_all(&mut self, workflow: &Workflow) -> Vec<(TaskId, Refused)> {
        let mut refused = Vec::new();
        let mut spec = TaskSpec::new(TaskId(0));
        for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
            fill(&mut spec, id, task, workflow);
            if let Err(why) = self.add(&spec, 0) {
                refused.push((id, why));
            }
        }
        refused
    }
}

/// Says the task in the scheduler's words, into a spec that is used again and again.
fn fill(spec: &mut TaskSpec, id: TaskId, task: &Task, workflow: &Workflow) {
    let tool = workflow.tool_of(task);
    spec.id = id;
    spec.cpus = tool.resources.cpus;
    spec.memory = tool.resources.memory;
    spec.retries = tool.retries;
    spec.inputs.clear();
    spec.outputs.clear();
    spec.after.clear();
    spec.after.extend_from_slice(&task.after);
    for file in &task.files {
        match tool.params[usize::from(file.param)].kind {
            ParamKind::Input { .. } => spec.inputs.extend(file.data.iter()),
            ParamKind::Output { .. } => spec.outputs.extend(file.data.iter()),
            ParamKind::Config { .. } => unreachable!("`check` lets files be bound to file parameters only"),
        }
    }
}
