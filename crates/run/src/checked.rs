//! A workflow together with the plan that its check made.

use base::Problem;
use flow::{Command, ConfigBinding, DataId, ParamKind, Plan, Script, Task, TaskId, Workflow};

/// A workflow that was proved whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    workflow: Workflow,
    plan: Plan,
}

impl Checked {
    /// Checks the workflow; `script` is the text that its lines belong to, if there is one.
    pub fn new(workflow: Workflow, script: Option<Script<'_>>) -> Result<Self, Vec<Problem>> {
        let plan = flow::check(&workflow, script)?;
        Ok(Self { workflow, plan })
    }

    /// The workflow.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// A task of it.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.workflow.tasks[id.0 as usize]
    }

    /// The tool of a task.
    pub fn tool_of(&self, id: TaskId) -> &flow::Tool {
        self.workflow.tool_of(self.task(id))
    }

    /// The task that writes a member; none for inputs.
    pub fn writer_of(&self, id: DataId) -> Option<TaskId> {
        self.plan.writer_of(id)
    }

    /// The tasks that read a member.
    pub fn readers(&self, id: DataId) -> &[TaskId] {
        self.plan.readers(id)
    }

    /// The members that a task reads, in the order of its tool's parameters.
    pub fn inputs(&self, id: TaskId) -> impl Iterator<Item = DataId> + '_ {
        self.bound(id, false)
    }

    /// The members that a task writes.
    pub fn outputs(&self, id: TaskId) -> impl Iterator<Item = DataId> + '_ {
        self.bound(id, true)
    }

    fn bound(&self, id: TaskId, outputs: bool) -> impl Iterator<Item = DataId> + '_ {
        let tool = self.tool_of(id);
        let of_kind =
            move |param: u16| matches!(tool.params[usize::from(param)].kind, ParamKind::Output { .. }) == outputs;
        self.task(id).files.iter().filter(move |file| of_kind(file.param)).flat_map(|file| file.data.iter())
    }

    /// Every task, after all those it waits for.
    pub fn order(&self) -> &[TaskId] {
        self.plan.order()
    }

    /// The members that a task writes, for people; of many the first and how many more.
    pub fn told_outputs(&self, id: TaskId) -> String {
        const TOLD_MAX: usize = 3;
        let names: Vec<String> = self.outputs(id).take(TOLD_MAX).map(|data| self.workflow.data_name(data)).collect();
        let more = self.outputs(id).skip(TOLD_MAX).count();
        if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
    }

    /// The values that the call of a task gives, for people, within a bound.
    pub fn told_values(&self, id: TaskId) -> String {
        const CHARS_MAX: usize = 200;
        let tool = self.tool_of(id);
        let told = |bound: &ConfigBinding| {
            let value = serde_json::to_string(&bound.value).unwrap_or_default();
            format!("{} = {value}", tool.params[usize::from(bound.param)].name)
        };
        let text = self.task(id).configs.iter().map(told).collect::<Vec<_>>().join(", ");
        match text.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    /// The file name of a member.
    pub fn file_name(&self, id: DataId) -> &str {
        self.plan.file_name(id)
    }

    /// Where a member lies in the folder of the task that writes it.
    pub fn place_in_task(&self, id: DataId) -> String {
        self.plan.path_in_task(&self.workflow, id)
    }

    /// The command of a task that runs in `dir`, with members where `path_of` says.
    pub fn command(&self, id: TaskId, dir: &str, path_of: &dyn Fn(DataId) -> String) -> Command {
        self.plan.command(&self.workflow, id, dir, path_of)
    }
}
