//! The check: validates a workflow as a whole and derives its plan.
//!
//! [`check`] refuses a workflow that no run could execute. It returns a [`Plan`]: the writer and
//! the readers of each member, an order of the tasks, the file names of members, and the parsed
//! templates. Everything after the check relies on it. The check visits each task, member and
//! binding a constant number of times.

use crate::cycle;
use crate::diagnostics::{Diagnostics, ScriptSource};
use crate::expand::TaskCommand;
use crate::file_names::FileNames;
use crate::model::{DataId, Source, Task, TaskId, Workflow};
use crate::template_compiler::CompiledTool;
use crate::tool::ParamKind;
use crate::validate;
use base::Problem;

/// The most members that all tasks read, each counted for each task that reads it. Each takes 4
/// bytes of the plan.
pub const READS_MAX: u64 = 64_000_000;

/// The writer of a member that no task writes.
const NO_WRITER: u32 = u32::MAX;

/// Everything that the check derives from a valid workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// For each member, the task that writes it, or `NO_WRITER`.
    writers: Vec<u32>,
    /// For each member, the start of its readers in `readers`; one more at the end.
    reader_starts: Vec<u32>,
    readers: Vec<TaskId>,
    /// All tasks, each after those it waits for.
    order: Vec<TaskId>,
    names: FileNames,
    /// The templates of each tool.
    tools: Vec<CompiledTool>,
}

/// Validates `workflow` and returns its plan, or else its problems. `script` is the text that the
/// lines of its tasks refer to, if there is one.
pub fn check(workflow: &Workflow, script: Option<ScriptSource<'_>>) -> Result<Plan, Vec<Problem>> {
    let mut diagnostics = Diagnostics::new(workflow, script);
    let tools = validate::tools(workflow, &mut diagnostics);
    diagnostics.fail_if_any()?;
    validate::elements(workflow, &mut diagnostics);
    diagnostics.fail_if_any()?;
    validate::tasks(workflow, &mut diagnostics);
    diagnostics.fail_if_any()?;
    let writers = writers(workflow, &mut diagnostics);
    let (reader_starts, readers) = readers(workflow, &mut diagnostics);
    check_written(workflow, &writers, (&reader_starts, &readers), &mut diagnostics);
    diagnostics.fail_if_any()?;
    let order = cycle::order(workflow, &|id| writer_id(writers[id.0 as usize])).map_err(|cycle| {
        diagnostics.add(cycle.tasks.last().copied(), cycle.problem(workflow));
        diagnostics.take()
    })?;
    let names = FileNames::new(workflow, &tools, &order, &mut diagnostics);
    diagnostics.fail_if_any()?;
    Ok(Plan { writers, reader_starts, readers, order, names, tools })
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
    pub fn readers(&self, id: DataId) -> &[TaskId] {
        let at = id.0 as usize;
        &self.readers[self.reader_starts[at] as usize..self.reader_starts[at + 1] as usize]
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
        let written = |id: &DataId| self.writer_of(*id).is_some() && self.readers(*id).is_empty();
        (0..workflow.data_count()).map(DataId).filter(written)
    }

    /// The input members that at least one task reads.
    pub fn inputs<'a>(&'a self, workflow: &Workflow) -> impl Iterator<Item = DataId> + use<'a> {
        let read = |id: &DataId| self.writer_of(*id).is_none() && !self.readers(*id).is_empty();
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

/// The writer of each member; a second writer is a problem.
fn writers(workflow: &Workflow, diagnostics: &mut Diagnostics<'_>) -> Vec<u32> {
    let mut writers = vec![NO_WRITER; workflow.data_count() as usize];
    for (task, id) in bound(workflow, |kind| matches!(kind, ParamKind::Output { .. })) {
        let writer = &mut writers[id.0 as usize];
        let data = workflow.data_name(id);
        if matches!(workflow.element_of(id).source, Source::Input(_)) {
            let message = format!("{} writes `{data}`, which is an input of the workflow", diagnostics.task(task));
            diagnostics.add(Some(task), Problem::new(message).hint("write to an element made by Data.define"));
        } else if let Some(other) = writer_id(*writer) {
            let message =
                format!("two tasks write `{data}`: {} and {}", diagnostics.task_at(other), diagnostics.task_at(task));
            diagnostics.add(Some(task), Problem::new(message));
        } else {
            *writer = task.0;
        }
        if diagnostics.is_full() {
            break;
        }
    }
    writers
}

/// The readers of each member: the start index of each member, and all readers.
fn readers(workflow: &Workflow, diagnostics: &mut Diagnostics<'_>) -> (Vec<u32>, Vec<TaskId>) {
    let is_input = |kind: &ParamKind| matches!(kind, ParamKind::Input { .. });
    let mut starts = vec![0u32; workflow.data_count() as usize + 1];
    let reads: u64 = bindings(workflow, is_input).map(|(_, binding)| binding.data.len() as u64).sum();
    if reads > READS_MAX {
        diagnostics.add(None, Problem::new(format!("tasks read {reads} members in all, more than {READS_MAX}")));
        return (starts, Vec::new());
    }
    for (_, id) in bound(workflow, is_input) {
        starts[id.0 as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut readers = vec![TaskId(0); starts.last().map_or(0, |all| *all as usize)];
    let mut next = starts.clone();
    for (task, id) in bound(workflow, is_input) {
        let at = &mut next[id.0 as usize];
        readers[*at as usize] = task;
        *at += 1;
    }
    (starts, readers)
}

/// Checks that each member that is read is an input or is written by a task.
fn check_written(
    workflow: &Workflow,
    writers: &[u32],
    readers: (&[u32], &[TaskId]),
    diagnostics: &mut Diagnostics<'_>,
) {
    let (starts, readers) = readers;
    for element in workflow.elements.iter().filter(|element| element.source == Source::Defined) {
        for id in element.members() {
            let at = id.0 as usize;
            if diagnostics.is_full() {
                return;
            }
            if writer_id(writers[at]).is_some() || starts.get(at) == starts.get(at + 1) {
                continue;
            }
            let reader = readers[starts[at] as usize];
            let message =
                format!("{} reads `{}`, and no task writes it", diagnostics.task(reader), workflow.data_name(id));
            diagnostics.add(Some(reader), Problem::new(message));
        }
    }
}

/// The members bound to parameters of a kind, with their tasks, in the order of the tasks.
fn bound<'a>(
    workflow: &'a Workflow,
    kind: impl Fn(&ParamKind) -> bool + 'a,
) -> impl Iterator<Item = (TaskId, DataId)> + 'a {
    bindings(workflow, kind).flat_map(|(task, binding)| binding.data.iter().map(move |id| (task, id)))
}

fn bindings<'a>(
    workflow: &'a Workflow,
    kind: impl Fn(&ParamKind) -> bool + 'a,
) -> impl Iterator<Item = (TaskId, &'a crate::FileBinding)> + 'a {
    let tasks = (0..).map(TaskId).zip(&workflow.tasks);
    let all = tasks.flat_map(|(number, task)| task.files.iter().map(move |binding| (number, task, binding)));
    all.filter(move |(_, task, binding)| kind(&workflow.tool_of(task).params[usize::from(binding.param)].kind))
        .map(|(number, _, binding)| (number, binding))
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
