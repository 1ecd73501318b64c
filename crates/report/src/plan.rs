//! The skeleton of a run, made from its workflow: tasks, data, and which tasks read and write which
//! data.
//!
//! In the skeleton no task has run and no member exists; the run fills in the rest. A task that is
//! not updated stays `cancelled`, which is correct if the run ends early.

use crate::{CriticalPath, Load, Machine, RunOutcome, RunSettings, WorkflowInfo};
use crate::{
    DataKind, DataRef, ElementInfo, FailureReason, Member, PoolUsage, Provenance, ReasonKind, RunReport, Status,
    TaskRecord, Totals,
};
use flow::{DataId, ParamKind, Source, Workflow};
use std::collections::HashMap;

impl Default for RunReport {
    fn default() -> Self {
        Self {
            tidemill_run: crate::FORMAT_VERSION,
            id: String::new(),
            workflow: WorkflowInfo::default(),
            version: String::new(),
            started: String::new(),
            ended: String::new(),
            outcome: RunOutcome::default(),
            exit_code: 0,
            problem: None,
            machine: Machine::default(),
            settings: RunSettings::default(),
            command_line: Vec::new(),
            directory: String::new(),
            sets: serde_json::Map::new(),
            totals: Totals::default(),
            warnings: Vec::new(),
            provenance: Provenance::default(),
            elements: Vec::new(),
            data: Vec::new(),
            pool: PoolUsage::default(),
            machine_use: None,
            nodes: Vec::new(),
            load: Load::default(),
            critical_path: CriticalPath::default(),
            by_tool: Vec::new(),
            tasks: Vec::new(),
        }
    }
}

impl RunReport {
    /// The skeleton of a run of `workflow`; all other fields have their defaults.
    pub fn plan(workflow: &Workflow) -> Self {
        let name = workflow.name.clone();
        let mut run = Self { workflow: WorkflowInfo { name, ..WorkflowInfo::default() }, ..Self::default() };
        run.grow(workflow);
        run.plan_elements(workflow);
        run
    }

    /// Adds the tasks and members that the workflow has and this report has not yet.
    pub fn grow(&mut self, workflow: &Workflow) {
        let data = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        self.data.extend((data..workflow.data_count()).map(|id| planned_member(workflow, DataId(id))));
        for (id, task) in (0..).zip(&workflow.tasks).skip(self.tasks.len()) {
            self.tasks.push(planned_task(workflow, id, task));
            let written = task.files.iter().filter(|file| is_output(workflow, task, file));
            for data in written.flat_map(|file| file.data.iter()) {
                self.data[data.0 as usize].writer = Some(id);
            }
        }
    }

    /// Describes the elements of a workflow that does not grow any more.
    pub fn plan_elements(&mut self, workflow: &Workflow) {
        let read = read_members(workflow);
        self.elements = workflow.elements.iter().map(|element| element_info(element, &read)).collect();
    }

    /// Computes the sizes of elements, and of tasks' inputs and outputs, from those of members.
    pub(crate) fn sum_sizes(&mut self) {
        let index = member_index(&self.data);
        let sizes: Vec<u64> = self.data.iter().map(|member| member.bytes.unwrap_or(0)).collect();
        let sum =
            |refs: &[DataRef]| refs.iter().map(|data| sizes[member_range(&index, data)].iter().sum::<u64>()).sum();
        for task in &mut self.tasks {
            task.input_bytes = sum(&task.inputs);
            task.output_bytes = sum(&task.outputs);
        }
        for element in &mut self.elements {
            element.bytes = sizes[element.first as usize..][..element.count as usize].iter().sum();
        }
    }
}

/// The index of each name in `RunReport::data`.
pub type MemberIndex<'a> = HashMap<&'a str, usize>;

pub fn member_index(data: &[Member]) -> MemberIndex<'_> {
    data.iter().enumerate().map(|(place, member)| (member.name.as_str(), place)).collect()
}

/// The indices in `RunReport::data` that `data` names.
pub fn member_range(index: &MemberIndex<'_>, data: &DataRef) -> std::ops::Range<usize> {
    let (from, count) = match data {
        DataRef::One(name) => (name, 1),
        DataRef::Run { from, count, .. } => (from, *count as usize),
    };
    index.get(from.as_str()).map_or(0..0, |place| *place..place + count)
}

fn planned_member(workflow: &Workflow, id: DataId) -> Member {
    let element = workflow.element_of(id);
    let path = match &element.source {
        Source::Input(paths) => paths.get((id.0 - element.first.0) as usize).map(ToString::to_string),
        Source::Defined => None,
    };
    Member { name: workflow.data_name(id), element: element.name.clone(), path, ..Member::default() }
}

fn planned_task(workflow: &Workflow, id: u32, task: &flow::Task) -> TaskRecord {
    let tool = workflow.tool_of(task);
    let refs = |of_outputs: bool| {
        let bound = task.files.iter().filter(|file| is_output(workflow, task, file) == of_outputs);
        bound.flat_map(|file| member_refs(workflow, &file.data.iter().collect::<Vec<_>>())).collect()
    };
    let text = "the run ended before it could start".to_owned();
    TaskRecord {
        id,
        tool: tool.name.clone(),
        status: Status::Cancelled,
        reason: Some(FailureReason { kind: ReasonKind::Cancelled, text, ..FailureReason::default() }),
        line: task.line,
        cpus: tool.resources.cpus,
        inputs: refs(false),
        outputs: refs(true),
        after: task.after.iter().map(|before| before.0).collect(),
        ..TaskRecord::default()
    }
}

fn is_output(workflow: &Workflow, task: &flow::Task, file: &flow::FileBinding) -> bool {
    matches!(workflow.tool_of(task).params[usize::from(file.param)].kind, ParamKind::Output { .. })
}

/// References to `ids`, with one reference for each run of consecutive ids.
fn member_refs(workflow: &Workflow, ids: &[DataId]) -> Vec<DataRef> {
    let runs = ids.chunk_by(|first, second| first.0.checked_add(1) == Some(second.0));
    runs.map(|run| match run {
        [one] => DataRef::One(workflow.data_name(*one)),
        [first, .., last] => DataRef::Run {
            from: workflow.data_name(*first),
            to: workflow.data_name(*last),
            count: u32::try_from(run.len()).expect("ids are below 2^32"),
        },
        [] => unreachable!("chunks are not empty"),
    })
    .collect()
}

/// For each member, whether a task reads it.
fn read_members(workflow: &Workflow) -> Vec<bool> {
    let mut read = vec![false; workflow.data_count() as usize];
    for task in &workflow.tasks {
        let inputs = task.files.iter().filter(|file| !is_output(workflow, task, file));
        inputs.flat_map(|file| file.data.iter()).for_each(|member| read[member.0 as usize] = true);
    }
    read
}

fn element_info(element: &flow::Element, read: &[bool]) -> ElementInfo {
    let members = &read[element.first.0 as usize..][..element.count as usize];
    let kind = match element.source {
        Source::Input(_) => DataKind::Input,
        Source::Defined if members.iter().all(|read| *read) => DataKind::Temporary,
        Source::Defined => DataKind::Output,
    };
    let (name, shape) = (element.name.clone(), element.shape.clone());
    ElementInfo { name, kind, shape, first: element.first.0, count: element.count, bytes: 0 }
}
