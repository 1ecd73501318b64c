//! Resume: a run goes on that an earlier process began and did not end.
//!
//! ```text
//! journal -> TakenOver::find: lock, checks -> JournalState
//!   existing data: exported files that are unchanged; data of a pool that lives
//!     -> settle(): tasks that are not run again -> Scheduler::restore, RunFiles::bind_existing
//! ```
//!
//! An embedded pool ends with its process, so of a run on one host only what was exported is left.
//! The same is left when the pool of a run on a cluster is lost ([`settle_anew`]). With `--reuse`,
//! results of another run stand in for tasks in the same way ([`Reuse`]).
//!
//! A caller with a pool that lives adds what is there to the existing data.

mod difference;
mod former;
mod reuse;
mod settle;

pub use former::{FormerResults, StandIn};
pub use reuse::Reuse;
pub use settle::{ExistingData, Settled, settle};

use crate::event_loop::ExportPlan;
use crate::layout::{self, AttemptPlace};
use crate::provenance;
use crate::run_journal::{identities, live_problem};
use crate::spec::RunSpec;
use crate::start::exports;
use base::Problem;
use flow::{DataId, TaskId, ToolId};
use journal::{
    ExportTrace, JOURNAL_FILE, JournalError, JournalRecord, JournalState, JournalWriter, TaskPhase, TaskTrace,
};
use placement::NodeId;
use report::{RunReport, Status};
use sched::PlaceId;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Upper bound of the changed inputs and programs that are listed.
const LISTED_MAX: usize = 10;

/// The state that a run takes over before it begins.
#[derive(Debug, Default)]
pub struct TakenOver {
    /// What is not done again.
    pub settled: Settled,
    /// The journal of the run that goes on, which is locked, and what happened so far; `None` for a
    /// new run.
    pub resumed: Option<(JournalWriter, JournalState)>,
    /// The run whose results are reused, if the user named one.
    pub reused: Option<Reuse>,
    /// Results that stand in for tasks of a plan that grows.
    pub former: Option<FormerResults>,
}

impl TakenOver {
    /// Takes over the run that was killed, or results of another one, if the user asked for that.
    ///
    /// # Errors
    /// That is not possible.
    pub fn find(spec: &RunSpec, programs: &HashMap<ToolId, PathBuf>) -> Result<Self, Vec<Problem>> {
        if let Some(directory) = &spec.resume {
            return Self::resume(spec, directory, programs);
        }
        let Some(directory) = &spec.reuse else { return Ok(Self::default()) };
        if spec.flow.grows() {
            return Ok(Self { former: Some(reuse::find_former(spec, directory, programs)?), ..Self::default() });
        }
        let mut reused = Reuse::find(spec, directory, programs)?;
        Ok(Self { settled: std::mem::take(&mut reused.settled), reused: Some(reused), ..Self::default() })
    }

    /// Takes over the run of a report's directory, of which only exported files are left. The
    /// workflow, its inputs and its programs must be the same.
    ///
    /// # Errors
    /// The run goes on, there is no such run, or something has changed since.
    fn resume(spec: &RunSpec, directory: &Path, programs: &HashMap<ToolId, PathBuf>) -> Result<Self, Vec<Problem>> {
        let (writer, state) = JournalWriter::resume(&directory.join(JOURNAL_FILE)).map_err(|error| match error {
            JournalError::Live { .. } => vec![live_problem(&error)],
            _ => vec![Problem::new(format!("--resume: {error}"))],
        })?;
        difference::check_workflow(spec, directory, &state)?;
        check_places(spec, &state)?;
        check_files(spec, &state, programs)?;
        if spec.flow.grows() {
            let former = FormerResults::of_killed(spec, directory, &state, programs)?;
            return Ok(Self { resumed: Some((writer, state)), former: Some(former), ..Self::default() });
        }
        let settled = settle_killed(spec, &state, &HashSet::new());
        Ok(Self { settled, resumed: Some((writer, state)), ..Self::default() })
    }
}

/// The part that is not done again of a run that was killed, and of whose pool these nodes live.
pub fn settle_killed(spec: &RunSpec, state: &JournalState, nodes: &HashSet<NodeId>) -> Settled {
    let is_done = |task| state.task(task).is_some_and(|trace| trace.phase == TaskPhase::Done);
    let lives = |attempt, node| {
        let node = nodes.get(&NodeId(node)).copied()?;
        Some(AttemptPlace { attempt, node: Some(node) })
    };
    let (mut existing, mut writers) = (HashMap::new(), HashMap::new());
    for (data, trace) in state.data.iter().filter(|(_, trace)| !trace.is_gone) {
        let Some(place) = trace.place.and_then(|(attempt, node)| lives(attempt, node)) else { continue };
        let at = place.node.map(|node| PlaceId(node.0));
        existing.insert(*data, ExistingData { bytes: trace.bytes, place: at, file: None });
        writers.extend(spec.flow.writer_of(*data).map(|task| (task, place)));
    }
    let last = |trace: &TaskTrace| trace.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0);
    let runs = |trace: &TaskTrace| {
        let running = trace.attempts.iter().filter(|attempt| attempt.ended_ms.is_none());
        running.filter_map(|attempt| lives(attempt.number, attempt.node?)).next_back()
    };
    let running = (0..).map(TaskId).zip(&state.tasks).filter_map(|(task, trace)| Some((task, runs(trace)?)));
    let settled = settle_exported((spec, &exports(spec)), is_done, |data| state.exported(data).cloned(), existing);
    Settled {
        attempts: state.tasks.iter().map(last).collect(),
        running: running.filter(|(task, _)| !is_done(*task)).collect(),
        writers,
        ..settled
    }
}

/// The part that is not done again after the pool was lost in which only `before` was settled, by
/// the report so far.
pub fn settle_anew((spec, plan): (&RunSpec, &ExportPlan), run: &RunReport, before: &Settled) -> Settled {
    let exported = |data: DataId| {
        let member = run.data.get(data.0 as usize)?;
        Some(ExportTrace { path: member.exported.clone()?, bytes: member.bytes?, hash: member.hash.clone()? })
    };
    let is_file = |existing: &ExistingData| {
        let about = existing.file.as_ref().and_then(|file| std::fs::metadata(file).ok());
        about.is_some_and(|about| about.len() == existing.bytes)
    };
    let files = before.needed.iter().filter(|(_, existing)| is_file(existing));
    let files = files.map(|(data, existing)| (*data, ExistingData { place: None, ..existing.clone() })).collect();
    let is_done = |task: TaskId| run.tasks.get(task.0 as usize).is_some_and(|task| task.status == Status::Done);
    let settled = settle_exported((spec, plan), is_done, exported, files);
    Settled { attempts: run.tasks.iter().map(|task| task.attempts).collect(), ..settled }
}

/// Settles tasks by exported files that are as they were written, and `existing` data.
fn settle_exported(
    (spec, plan): (&RunSpec, &ExportPlan),
    is_done: impl Fn(TaskId) -> bool,
    exported: impl Fn(DataId) -> Option<ExportTrace>,
    mut existing: HashMap<DataId, ExistingData>,
) -> Settled {
    let written = (0..spec.flow.workflow().data_count()).map(DataId);
    let found = written.filter_map(|data| Some((data, exported(data)?))).filter(|(_, export)| is_unchanged(export));
    let mut in_place = HashSet::new();
    for (data, export) in found {
        if is_in_place(data, &export, plan) {
            in_place.insert(data);
        }
        let file = ExistingData::of_file(export);
        existing.entry(data).and_modify(|existing| existing.file.clone_from(&file.file)).or_insert(file);
    }
    settle(&spec.flow, is_done, plan, &in_place, existing)
}

/// True if a member was exported to the path where this run would export it.
fn is_in_place(data: DataId, export: &ExportTrace, plan: &ExportPlan) -> bool {
    plan.places.get(&data).is_some_and(|place| place == Path::new(&export.path))
}

/// True if an exported file is as it was written: same length, same content.
fn is_unchanged(export: &ExportTrace) -> bool {
    let path = Path::new(&export.path);
    let same_length = std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == export.bytes);
    same_length && provenance::hash_file(path).is_ok_and(|(hash, _)| hash == export.hash)
}

/// Refuses other directories for data and outputs.
fn check_places(spec: &RunSpec, state: &JournalState) -> Result<(), Vec<Problem>> {
    let options = &state.header.options;
    let pairs = [("--data", &options.data, &spec.data_dir), ("--out", &options.out, &spec.out_dir)];
    let changed = pairs.into_iter().filter(|(_, before, now)| Path::new(before) != now.as_path());
    let problems: Vec<Problem> = changed
        .map(|(flag, before, now)| {
            Problem::new(format!("{flag} {}: the run began with {before}", now.display()))
                .hint("resume it with the flags that it began with")
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Refuses inputs and programs that have changed.
fn check_files(spec: &RunSpec, state: &JournalState, programs: &HashMap<ToolId, PathBuf>) -> Result<(), Vec<Problem>> {
    let changed = identities(spec, programs).filter_map(|now| match now {
        JournalRecord::Input { data, file } => {
            let path = layout::host_path(&spec.flow, data).unwrap_or_default();
            let what = format!("input {}, {path},", spec.flow.workflow().data_name(data));
            state.inputs.get(&data).filter(|before| **before != file).map(|_| what)
        }
        JournalRecord::Program { tool, path, file } => {
            let (before, old) = state.programs.get(&tool)?;
            let is_same = (before, *old) == (&path, file);
            (!is_same).then(|| format!("the program of tool {tool}, {path},"))
        }
        _ => None,
    });
    let problem = |what| Problem::new(format!("{what} has changed since the run began")).hint("run the workflow anew");
    let problems: Vec<Problem> = changed.take(LISTED_MAX).map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

impl ExistingData {
    /// The datum of an exported file.
    fn of_file(export: ExportTrace) -> Self {
        Self { bytes: export.bytes, place: None, file: Some(export.path.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked_workflow::CheckedWorkflow;
    use crate::spec::{RequestedOptions, StorageRequest};
    use journal::{JournalHeader, JournalWorkflow, TimedRecord};
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// A run of three tasks in a row. Member `n + 1` is written by task `n`.
    fn spec() -> RunSpec {
        let tool = serde_json::json!({"name": "t", "command": ["t", "{i}", "{o}"], "params": [
            {"name": "i", "kind": {"input": {}}}, {"name": "o", "kind": {"output": {}}}]});
        let task = |from: &str, to: &str| serde_json::json!({"tool": "t", "files": {"i": from, "o": to}});
        let descriptor = serde_json::json!({"tidemill_flow": 1, "name": "f", "tools": [tool],
            "elements": [{"name": "In", "input": "in"}, {"name": "A"}, {"name": "B"}, {"name": "C"}],
            "tasks": [task("In", "A"), task("A", "B"), task("B", "C")]});
        let flow = flow::from_json(&descriptor.to_string(), "f").expect("well formed");
        RunSpec {
            source: None,
            flow: CheckedWorkflow::new(flow, None).expect("valid").into(),
            run_id: "r".into(),
            data_dir: "/data".into(),
            out_dir: "/out".into(),
            report_dir: None,
            warnings: Vec::new(),
            requested: RequestedOptions::default(),
            memory: None,
            copies: None,
            slots: 1,
            storage: StorageRequest::Auto,
            passthrough: true,
            keep: false,
            keep_failed: None,
            exports: BTreeSet::new(),
            stage_in: false,
            fail_fast: false,
            policy: sched::PolicyKind::default(),
            stragglers: false,
            space_wait: Duration::ZERO,
            metrics: None,
            grace: Duration::ZERO,
            resume: None,
            reuse: None,
            cluster: None,
            elastic: None,
        }
    }

    /// A run that was killed: task 0 was done at node 1 by its second attempt, task 1 ran at node
    /// 2.
    fn killed() -> JournalState {
        let workflow = JournalWorkflow { tasks: 3, data: 4, ..JournalWorkflow::default() };
        let mut state = JournalState::new(JournalHeader { workflow, ..JournalHeader::default() });
        let start = |task, attempt, node| {
            let (task, reason, node) = (TaskId(task), "space".to_owned(), Some(node));
            JournalRecord::Started { task, attempt, worker: 0, slot: 0, reason, near: 0, far: 0, node }
        };
        let done =
            JournalRecord::Done { task: TaskId(0), attempt: 2, prepared_ms: 0, ran_ms: 0, wrote: vec![(DataId(1), 9)] };
        for record in [start(0, 2, 1), done, start(1, 1, 2)] {
            state.apply(TimedRecord { at_ms: 0, record });
        }
        state
    }

    fn settled(nodes: &[u32]) -> Settled {
        settle_killed(&spec(), &killed(), &nodes.iter().copied().map(NodeId).collect())
    }

    #[test]
    fn data_at_nodes_that_live_exists_and_attempts_there_may_go_on() {
        let place = |attempt, node| AttemptPlace { attempt, node: Some(NodeId(node)) };
        let all = settled(&[1, 2]);
        assert_eq!((&all.tasks[..], &all.attempts[..]), (&[TaskId(0)][..], &[2, 1, 0][..]));
        assert_eq!(all.needed[&DataId(1)].place, Some(PlaceId(1)));
        assert_eq!(all.writers, HashMap::from([(TaskId(0), place(2, 1))]));
        assert_eq!(all.running, HashMap::from([(TaskId(1), place(1, 2))]));
        assert_eq!(all.files().count(), 0, "nothing is bound that is in the pool");
    }

    #[test]
    fn what_lay_at_a_node_that_is_gone_is_made_again_and_attempts_there_are_not_adopted() {
        let first_gone = settled(&[2]);
        assert_eq!((first_gone.tasks.len(), first_gone.again), (0, vec![TaskId(0)]));
        assert_eq!(first_gone.running.len(), 1, "the scheduler does not adopt it, since its input is gone");
        let second_gone = settled(&[1]);
        assert_eq!((second_gone.tasks.len(), second_gone.running.len()), (1, 0));
    }
}
