//! Decides which tasks of a resumed run are not run again: those that are done and whose outputs
//! are where they belong, or needed by no task that runs.

use crate::checked_workflow::CheckedWorkflow;
use crate::event_loop::ExportPlan;
use crate::layout::AttemptPlace;
use crate::run_journal::host_name;
use flow::{DataId, TaskId};
use journal::JournalRecord;
use sched::{PlaceId, RestoredData, Scheduler};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// A datum that a task of the earlier process wrote and that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingData {
    /// Its bytes.
    pub bytes: u64,
    /// The place in the pool where it is; `None` if it is not in the pool.
    pub place: Option<PlaceId>,
    /// The exported file that holds it; `None` if it is in the pool only.
    pub file: Option<PathBuf>,
}

/// What a resumed run does not do again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Tasks that are not run again, in topological order.
    pub tasks: Vec<TaskId>,
    /// Tasks that were done and run again.
    pub again: Vec<TaskId>,
    /// Data of settled tasks that exists and that a task reads which runs.
    pub needed: HashMap<DataId, ExistingData>,
    /// Members that exist in the pool and are yet to be exported.
    pub unexported: Vec<DataId>,
    /// Number of the last attempt of each task before, by the task's number; empty if there were
    /// none.
    pub attempts: Vec<u32>,
    /// The attempts that wrote data which exists in a pool of several nodes.
    pub writers: HashMap<TaskId, AttemptPlace>,
    /// The attempts that may run there still.
    pub running: HashMap<TaskId, AttemptPlace>,
}

impl Settled {
    /// The records with which the journal goes on.
    pub fn records(&self) -> impl Iterator<Item = JournalRecord> + '_ {
        let (process, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        let resumed = JournalRecord::Resumed { process, host: host_name(), version };
        std::iter::once(resumed).chain(self.again.iter().map(|task| JournalRecord::Again { task: *task }))
    }

    /// Tells a scheduler that has not begun.
    pub fn restore(&self, scheduler: &mut Scheduler) {
        for (task, attempts) in (0..).map(TaskId).zip(&self.attempts) {
            scheduler.restore_attempts(task, *attempts);
        }
        scheduler.restore(&self.tasks, |data| self.restored(data));
    }

    /// The files that stand in for data that is not in the pool.
    pub fn files(&self) -> impl Iterator<Item = (DataId, PathBuf)> + '_ {
        let outside = self.needed.iter().filter(|(_, existing)| existing.place.is_none());
        outside.filter_map(|(data, existing)| Some((*data, existing.file.clone()?)))
    }

    /// What the scheduler has to know of a datum: files take no memory of the pool, and stay.
    fn restored(&self, data: DataId) -> Option<RestoredData> {
        let ExistingData { bytes, place, file } = self.needed.get(&data)?;
        Some(RestoredData { bytes: *bytes, place: *place, kept: file.is_some() && place.is_none() })
    }
}

/// Decides by lineage. A task runs if it is not done, if a member that it writes is to be exported
/// and neither is nor exists, or if a task that runs reads a member of it that does not exist.
/// `exported` are the members that are below the directory for outputs already.
pub fn settle(
    flow: &CheckedWorkflow,
    is_done: impl Fn(TaskId) -> bool,
    exports: &ExportPlan,
    exported: &HashSet<DataId>,
    existing: HashMap<DataId, ExistingData>,
) -> Settled {
    let mut runs: Vec<bool> = flow.order().iter().map(|_| false).collect();
    let mut pending: Vec<TaskId> = flow.order().iter().copied().filter(|task| !is_done(*task)).collect();
    let lost = exports.places.keys().filter(|data| !exported.contains(data) && !existing.contains_key(data));
    pending.extend(lost.filter_map(|data| flow.writer_of(*data)));
    while let Some(task) = pending.pop() {
        if std::mem::replace(&mut runs[task.0 as usize], true) {
            continue;
        }
        let lacking = flow.inputs(task).filter(|data| !existing.contains_key(data));
        pending.extend(lacking.filter_map(|data| flow.writer_of(data)));
    }
    let is_settled = |task: &TaskId| !runs[task.0 as usize];
    let of_settled = |data: &DataId| flow.writer_of(*data).as_ref().is_some_and(is_settled);
    let is_needed = |data: &DataId| flow.readers(*data).any(|reader| !is_settled(&reader));
    let mut unexported: Vec<DataId> =
        exports.places.keys().copied().filter(|data| of_settled(data) && !exported.contains(data)).collect();
    unexported.sort_unstable();
    let needs = |data: &DataId| of_settled(data) && (is_needed(data) || unexported.binary_search(data).is_ok());
    Settled {
        tasks: flow.order().iter().copied().filter(is_settled).collect(),
        again: flow.order().iter().copied().filter(|task| !is_settled(task) && is_done(*task)).collect(),
        needed: existing.into_iter().filter(|(data, _)| needs(data)).collect(),
        unexported,
        ..Settled::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Workflow;

    /// Four tasks in a row, and one that reads the second's output: 0 > 1 > 2 > 3, 1 > 4. Member
    /// `n + 1` is written by task `n`; member 0 is an input.
    fn checked() -> CheckedWorkflow {
        let tool = serde_json::json!({"name": "t", "command": ["t", "{i}", "{o}"], "params": [
            {"name": "i", "kind": {"input": {}}}, {"name": "o", "kind": {"output": {}}}]});
        let task = |from: &str, to: &str| serde_json::json!({"tool": "t", "files": {"i": from, "o": to}});
        let element = |name: &str| serde_json::json!({"name": name});
        let descriptor = serde_json::json!({
            "tidemill_flow": 1, "name": "f", "tools": [tool],
            "elements": [{"name": "In", "input": "in"}, element("A"), element("B"), element("C"), element("D"), element("E")],
            "tasks": [task("In", "A"), task("A", "B"), task("B", "C"), task("C", "D"), task("B", "E")]});
        let workflow: Workflow = flow::from_json(&descriptor.to_string(), "f").expect("well formed");
        CheckedWorkflow::new(workflow, None).expect("valid")
    }

    /// Settles the workflow, of which `done` tasks are done and `finals` are exported, members 4
    /// and 5 are to be exported, and `there` exists.
    fn settled(done: &[u32], finals: &[u32], there: &[u32]) -> Settled {
        let flow = checked();
        let place = |data: u32| (DataId(data), PathBuf::from(format!("/out/{data}")));
        let plan = ExportPlan { places: [4, 5].map(place).into(), finals: HashSet::new() };
        let datum = |file: u32| ExistingData { bytes: 1, place: None, file: Some(format!("/out/{file}").into()) };
        let existing = there.iter().map(|data| (DataId(*data), datum(*data))).collect();
        let exported = finals.iter().map(|data| DataId(*data)).collect();
        settle(&flow, |task| done.contains(&task.0), &plan, &exported, existing)
    }

    fn numbers(tasks: &[TaskId]) -> Vec<u32> {
        let mut numbers: Vec<u32> = tasks.iter().map(|task| task.0).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn what_is_done_and_exported_is_not_run_again_with_all_that_it_needed() {
        let all = settled(&[0, 1, 2, 3, 4], &[4, 5], &[]);
        assert_eq!((numbers(&all.tasks), numbers(&all.again)), (vec![0, 1, 2, 3, 4], vec![]));
        assert!(all.needed.is_empty() && all.unexported.is_empty());
    }

    #[test]
    fn lost_data_is_made_again_as_far_as_a_task_that_runs_needs_it() {
        let one_left = settled(&[0, 1, 2, 3], &[4], &[]);
        assert_eq!((numbers(&one_left.tasks), numbers(&one_left.again)), (vec![2, 3], vec![0, 1]));
        let output_gone = settled(&[0, 1, 2, 3, 4], &[5], &[]);
        assert_eq!((numbers(&output_gone.tasks), numbers(&output_gone.again)), (vec![4], vec![0, 1, 2, 3]));
    }

    #[test]
    fn data_that_exists_ends_the_lineage() {
        let exists = settled(&[0, 1, 2, 3], &[4], &[2]);
        assert_eq!((numbers(&exists.tasks), numbers(&exists.again)), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(exists.needed.keys().collect::<Vec<_>>(), [&DataId(2)]);
        assert!(exists.restored(DataId(2)).is_some_and(|data| data.kept));
        assert_eq!(exists.restored(DataId(1)), None);
    }

    #[test]
    fn a_member_that_exists_and_was_not_exported_is_exported_and_not_made_again() {
        let found = settled(&[0, 1, 2, 3, 4], &[5], &[4]);
        assert_eq!((numbers(&found.tasks).len(), found.unexported), (5, vec![DataId(4)]));
        assert!(found.needed.contains_key(&DataId(4)));
    }

    #[test]
    fn nothing_done_means_that_all_runs() {
        let none = settled(&[], &[], &[]);
        assert!(none.tasks.is_empty() && none.again.is_empty());
    }
}
