//! A workflow together with the plan that its check made.

use base::Problem;
use flow::{
    ConfigBinding, DataId, ParamKind, Plan, ScriptSource, Task, TaskCommand, TaskId, ToolId, Workflow, WorkflowGrowth,
};
use std::collections::BTreeSet;

/// A workflow that passed the check, with its plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CheckedWorkflow {
    workflow: Workflow,
    plan: Plan,
    /// True if tasks may be added while the workflow runs.
    grows: bool,
}

impl CheckedWorkflow {
    /// Checks the workflow. `script` is the source text that the tasks' line numbers refer to, if
    /// any.
    pub fn new(workflow: Workflow, script: Option<ScriptSource<'_>>) -> Result<Self, Vec<Problem>> {
        let plan = flow::check(&workflow, script)?;
        Ok(Self { workflow, plan, grows: false })
    }

    /// Like [`Self::new`], for the beginning of a workflow that grows while it runs: its tools, and
    /// perhaps the first tasks.
    pub fn growing(workflow: Workflow, script: Option<ScriptSource<'_>>) -> Result<Self, Vec<Problem>> {
        Ok(Self { grows: true, ..Self::new(workflow, script)? })
    }

    /// True if tasks may be added while the workflow runs.
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// The tools that tasks call; all tools, if the workflow grows.
    pub fn called_tools(&self) -> BTreeSet<ToolId> {
        let all = (0..).map(ToolId).zip(&self.workflow.tools).map(|(id, _)| id);
        if self.grows { all.collect() } else { self.workflow.tasks.iter().map(|task| task.tool).collect() }
    }

    /// The program of a tool: an absolute path if its command names one with a `/`, else a name.
    /// `here` is the directory of the tool file.
    pub fn program(&self, tool: ToolId, here: &str) -> String {
        self.plan.program(&self.workflow, tool, here)
    }

    /// The workflow.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// The task `id`.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.workflow.tasks[id.0 as usize]
    }

    /// The tool of task `id`.
    pub fn tool_of(&self, id: TaskId) -> &flow::Tool {
        self.workflow.tool_of(self.task(id))
    }

    /// The task that writes a member; `None` for inputs.
    pub fn writer_of(&self, id: DataId) -> Option<TaskId> {
        self.plan.writer_of(id)
    }

    /// The tasks that read a member.
    pub fn readers(&self, id: DataId) -> impl Iterator<Item = TaskId> + '_ {
        self.plan.readers(id)
    }

    /// Returns whether no task reads a member.
    pub fn is_unread(&self, id: DataId) -> bool {
        self.plan.is_unread(id)
    }

    /// Adds elements and tasks. If they do not fit, returns the problems, and nothing changes.
    pub fn grow(&mut self, growth: WorkflowGrowth) -> Result<(), Vec<Problem>> {
        self.plan.grow(&mut self.workflow, growth)
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

    /// All tasks in topological order: each after those that it waits for.
    pub fn order(&self) -> &[TaskId] {
        self.plan.order()
    }

    /// Names the members that a task writes, for people: of many the first few and the number of
    /// the others.
    pub fn describe_outputs(&self, id: TaskId) -> String {
        const NAMED_MAX: usize = 3;
        let names: Vec<String> = self.outputs(id).take(NAMED_MAX).map(|data| self.workflow.data_name(data)).collect();
        let more = self.outputs(id).skip(NAMED_MAX).count();
        if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
    }

    /// Lists the config values of a task's call, for people; cut after 200 characters.
    pub fn describe_values(&self, id: TaskId) -> String {
        const CHARS_MAX: usize = 200;
        let tool = self.tool_of(id);
        let describe = |bound: &ConfigBinding| {
            let value = serde_json::to_string(&bound.value).unwrap_or_default();
            format!("{} = {value}", tool.params[usize::from(bound.param)].name)
        };
        let text = self.task(id).configs.iter().map(describe).collect::<Vec<_>>().join(", ");
        match text.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    /// File name of a member.
    pub fn file_name(&self, id: DataId) -> &str {
        self.plan.file_name(id)
    }

    /// Path of a member inside the directory of the task that writes it.
    pub fn place_in_task(&self, id: DataId) -> String {
        self.plan.path_in_task(&self.workflow, id)
    }

    /// The command of a task that runs in `dir`, with the path of each member from `path_of`.
    pub fn command(&self, id: TaskId, dir: &str, path_of: &dyn Fn(DataId) -> String) -> TaskCommand {
        self.plan.command(&self.workflow, id, dir, path_of)
    }

    /// Like [`Self::command`], with `here` as the directory of the tool file.
    pub fn command_from(
        &self,
        id: TaskId,
        (here, dir): (&str, &str),
        path_of: &dyn Fn(DataId) -> String,
    ) -> TaskCommand {
        self.plan.command_from(&self.workflow, id, (here, dir), path_of)
    }
}
