//! The check: validates a workflow as a whole and derives its plan.
//!
//! [`check`] refuses a workflow that no run could execute. It returns a [`Plan`]: the writer and
//! the readers of each member, an order of the tasks, the file names of members, and the parsed
//! templates. Everything after the check relies on it. The check visits each task, member and
//! binding a constant number of times. [`Plan::grow`] adds to a workflow that was checked, and
//! visits what is new.

use crate::cycle;
use crate::diagnostics::{Diagnostics, ScriptSource};
use crate::expand::TaskCommand;
use crate::file_names::FileNames;
use crate::model::{DataId, Source, Task, TaskId, ToolId, Workflow};
use crate::readers::Readers;
use crate::template_compiler::CompiledTool;
use crate::tool::ParamKind;
use crate::validate;
use base::Problem;

/// The most members that all tasks read, each counted for each task that reads it. Each takes 8
/// bytes of the plan.
pub const READS_MAX: u64 = 64_000_000;

/// The writer of a member that no task writes.
const NO_WRITER: u32 = u32::MAX;

/// Everything that the check derives from a valid workflow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// For each member, the task that writes it, or `NO_WRITER`.
    writers: Vec<u32>,
    readers: Readers,
    /// All tasks, each after those it waits for.
    order: Vec<TaskId>,
    names: FileNames,
    /// The templates of each tool.
    tools: Vec<CompiledTool>,
}

/// The new parts of a workflow: elements, members and tasks from these numbers on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewParts {
    pub elements: usize,
    pub data: u32,
    pub tasks: u32,
}

/// Validates `workflow` and returns its plan, or else its problems. `script` is the text that the
/// lines of its tasks refer to, if there is one.
pub fn check(workflow: &Workflow, script: Option<ScriptSource<'_>>) -> Result<Plan, Vec<Problem>> {
    let mut diagnostics = Diagnostics::new(workflow, script);
    let tools = validate::tools(workflow, &mut diagnostics);
    diagnostics.fail_if_any()?;
    let all = NewParts::default();
    validate::elements(workflow, all, &mut diagnostics);
    diagnostics.fail_if_any()?;
    validate::tasks(workflow, all, &mut diagnostics);
    diagnostics.fail_if_any()?;
    let mut plan = Plan { tools, ..Plan::default() };
    plan.add_writers(workflow, all, &mut diagnostics);
    plan.add_readers(workflow, all, &mut diagnostics);
    plan.check_written(workflow, &mut diagnostics);
    diagnostics.fail_if_any()?;
    let order = cycle::order(workflow, &|id| plan.writer_of(id)).map_err(|cycle| {
        diagnostics.add(cycle.tasks.last().copied(), cycle.problem(workflow));
        diagnostics.take()
    })?;
    plan.add_names(workflow, all, &order, &mut diagnostics);
    diagnostics.fail_if_any()?;
    plan.order = order;
    Ok(plan)
}

fn writer_id(writer: u32) -> Option<TaskId> {
    (writer != NO_WRITER).then_some(TaskId(writer))
}

impl Plan {
    /// The task that writes member `id`; `None` for an input, and for a member that no task writes
    /// or reads.
    pub fn writer_of(&self, id: DataId) -> Option<TaskId> {
        writer_id(self.writers[id.0 as usize])
    }

    /// The tasks that read member `id`, in ascending order; a task that binds it twice occurs
    /// twice.
    pub fn readers(&self, id: DataId) -> impl Iterator<Item = TaskId> + '_ {
        self.readers.of(id)
    }

    /// Returns whether no task reads member `id`.
    pub fn is_unread(&self, id: DataId) -> bool {
        self.readers.is_unread(id)
    }

    /// All tasks, each after those it waits for.
    pub fn order(&self) -> &[TaskId] {
        &self.order
    }

    /// The file name of member `id`: that of the input file, or the name that its writer's tool
    /// gives it.
    pub fn file_name(&self, id: DataId) -> &str {
        self.names.get(id)
    }

    /// The path of member `id` within the directory of the task that writes it, such as `model.bin`
    /// or `parts/part_03.csv`. For an input, its file name.
    pub fn path_in_task(&self, workflow: &Workflow, id: DataId) -> String {
        let name = self.file_name(id);
        let task = self.writer_of(id).map(|task| &workflow.tasks[task.0 as usize]);
        match task.and_then(|task| output_directory(workflow, task, id)) {
            Some(directory) => format!("{directory}/{name}"),
            None => name.to_owned(),
        }
    }

    /// The members that tasks write and no task reads: the results of the workflow.
    pub fn results<'a>(&'a self, workflow: &Workflow) -> impl Iterator<Item = DataId> + use<'a> {
        let written = |id: &DataId| self.writer_of(*id).is_some() && self.is_unread(*id);
        (0..workflow.data_count()).map(DataId).filter(written)
    }

    /// The input members that at least one task reads.
    pub fn inputs<'a>(&'a self, workflow: &Workflow) -> impl Iterator<Item = DataId> + use<'a> {
        let read = |id: &DataId| self.writer_of(*id).is_none() && !self.is_unread(*id);
        (0..workflow.data_count()).map(DataId).filter(read)
    }

    /// The command of `task`. `task_dir` is the absolute path of its directory; `path_of` returns
    /// the path of each member (for the task's own outputs: `task_dir` and [`Plan::path_in_task`]).
    pub fn command(
        &self,
        workflow: &Workflow,
        task: TaskId,
        task_dir: &str,
        path_of: &dyn Fn(DataId) -> String,
    ) -> TaskCommand {
        self.command_from(workflow, task, (&workflow.tool_of(&workflow.tasks[task.0 as usize]).here, task_dir), path_of)
    }

    /// Like [`Self::command`], with `here` as the directory of the tool file.
    pub fn command_from(
        &self,
        workflow: &Workflow,
        task: TaskId,
        (here, task_dir): (&str, &str),
        path_of: &dyn Fn(DataId) -> String,
    ) -> TaskCommand {
        crate::expand::expand(self, workflow, task, (here, task_dir), path_of)
    }

    /// The program of a tool: an absolute path if its command names one with a `/`, otherwise a
    /// name. `here` is the directory of the tool file.
    pub fn program(&self, workflow: &Workflow, tool: ToolId, here: &str) -> String {
        crate::expand::expand_program(self, workflow, tool, here)
    }

    pub(crate) fn compiled(&self, task: &Task) -> &CompiledTool {
        &self.tools[task.tool.0 as usize]
    }
}

/// The directory of output `id` within the directory of `task`; `None` if the output is in that
/// directory itself.
fn output_directory<'a>(workflow: &'a Workflow, task: &Task, id: DataId) -> Option<&'a str> {
    let params = &workflow.tool_of(task).params;
    let binding = task.files.iter().find(|binding| {
        let param = &params[usize::from(binding.param)];
        matches!(param.kind, ParamKind::Output { .. }) && binding.data.contains(id)
    })?;
    let param = &params[usize::from(binding.param)];
    param.kind.is_dir().then_some(param.name.as_str())
}

impl Plan {
    /// Records what new tasks write; a second writer of a member is a problem.
    pub(crate) fn add_writers(&mut self, workflow: &Workflow, new: NewParts, diagnostics: &mut Diagnostics<'_>) {
        self.writers.resize(workflow.data_count() as usize, NO_WRITER);
        for (task, id) in bound(workflow, new, is_output) {
            let writer = &mut self.writers[id.0 as usize];
            let data = workflow.data_name(id);
            if matches!(workflow.element_of(id).source, Source::Input(_)) {
                let message = format!("{} writes `{data}`, which is an input of the workflow", diagnostics.task(task));
                diagnostics.add(Some(task), Problem::new(message).hint("write to an element made by Data.define"));
            } else if let Some(other) = writer_id(*writer) {
                let (one, another) = (diagnostics.task_at(other), diagnostics.task_at(task));
                diagnostics.add(Some(task), Problem::new(format!("two tasks write `{data}`: {one} and {another}")));
            } else {
                *writer = task.0;
            }
            if diagnostics.is_full() {
                break;
            }
        }
    }

    /// Records what new tasks read.
    pub(crate) fn add_readers(&mut self, workflow: &Workflow, new: NewParts, diagnostics: &mut Diagnostics<'_>) {
        let added: usize = bindings(workflow, new, is_input).map(|(_, binding)| binding.data.len()).sum();
        let reads = self.readers.count() + added;
        if reads as u64 > READS_MAX {
            diagnostics.add(None, Problem::new(format!("tasks read {reads} members in all, more than {READS_MAX}")));
            return;
        }
        self.readers.reserve(workflow.data_count() as usize, added);
        for (task, id) in bound(workflow, new, is_input) {
            self.readers.add(id, task);
        }
    }

    /// Names the members that new tasks write, and new inputs. `order` are the new tasks, each
    /// after those that it waits for.
    pub(crate) fn add_names(
        &mut self,
        workflow: &Workflow,
        new: NewParts,
        order: &[TaskId],
        diagnostics: &mut Diagnostics<'_>,
    ) {
        self.names.add((workflow, new), &self.tools, order, diagnostics);
    }

    /// Records new tasks, each after those that it waits for.
    pub(crate) fn add_to_order(&mut self, tasks: Vec<TaskId>) {
        self.order.extend(tasks);
    }

    /// Forgets new parts that are not valid, of which readers are not recorded.
    pub(crate) fn forget(&mut self, new: NewParts) {
        self.writers.truncate(new.data as usize);
        self.writers.iter_mut().filter(|writer| **writer >= new.tasks).for_each(|writer| *writer = NO_WRITER);
        self.names.truncate(new.data);
    }

    /// Checks that each member that is read is an input or is written by a task.
    fn check_written(&self, workflow: &Workflow, diagnostics: &mut Diagnostics<'_>) {
        for element in workflow.elements.iter().filter(|element| element.source == Source::Defined) {
            for id in element.members() {
                if diagnostics.is_full() {
                    return;
                }
                if let (None, Some(reader)) = (self.writer_of(id), self.readers(id).next()) {
                    diagnostics.unwritten(reader, id);
                }
            }
        }
    }
}

pub(crate) fn is_input(kind: &ParamKind) -> bool {
    matches!(kind, ParamKind::Input { .. })
}

pub(crate) fn is_output(kind: &ParamKind) -> bool {
    matches!(kind, ParamKind::Output { .. })
}

/// The members bound to parameters of a kind, with their tasks, in the order of the tasks.
pub(crate) fn bound<'a>(
    workflow: &'a Workflow,
    new: NewParts,
    kind: impl Fn(&ParamKind) -> bool + 'a,
) -> impl Iterator<Item = (TaskId, DataId)> + 'a {
    bindings(workflow, new, kind).flat_map(|(task, binding)| binding.data.iter().map(move |id| (task, id)))
}

fn bindings<'a>(
    workflow: &'a Workflow,
    new: NewParts,
    kind: impl Fn(&ParamKind) -> bool + 'a,
) -> impl Iterator<Item = (TaskId, &'a crate::FileBinding)> + 'a {
    let tasks = (new.tasks..).map(TaskId).zip(&workflow.tasks[new.tasks as usize..]);
    let all = tasks.flat_map(|(number, task)| task.files.iter().map(move |binding| (number, task, binding)));
    all.filter(move |(_, task, binding)| kind(&workflow.tool_of(task).params[usize::from(binding.param)].kind))
        .map(|(number, _, binding)| (number, binding))
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
