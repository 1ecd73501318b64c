//! Resume: a run goes on that an earlier process began and did not end.
//!
//! ```text
//! journal -> Resumption::open: lock, checks -> JournalState
//!   existing data: exported files that are unchanged (`exports_found`); data of a pool that lives
//!     -> settle(): tasks that are not run again -> Scheduler::restore, RunFiles::bind_existing
//! ```
//!
//! An embedded pool ends with its process, so of a run on one host only what was exported is left.
//! With `--reuse`, results of another run stand in for tasks in the same way ([`Reuse`]).
//!
//! A caller with a pool that lives adds what is there to the existing data.

mod difference;
mod reuse;
mod settle;

pub use reuse::Reuse;
pub use settle::{ExistingData, Settled, settle};

use crate::event_loop::ExportPlan;
use crate::layout;
use crate::provenance;
use crate::run_journal::{identities, live_problem};
use crate::spec::RunSpec;
use crate::start::exports;
use base::Problem;
use flow::{DataId, ToolId};
use journal::{ExportTrace, JOURNAL_FILE, JournalError, JournalRecord, JournalState, JournalWriter};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Upper bound of the changed inputs and programs that are listed.
const LISTED_MAX: usize = 10;

/// A run that goes on: its journal, its state so far, and what is not done again.
#[derive(Debug)]
pub struct Resumption {
    /// The journal; it is locked.
    pub writer: JournalWriter,
    /// What happened so far.
    pub state: JournalState,
    /// What is not done again.
    pub settled: Settled,
}

impl Resumption {
    /// Takes over the run of a report's directory, of which only exported files are left. The
    /// workflow, its inputs and its programs must be the same.
    ///
    /// # Errors
    /// The run goes on, there is no such run, or something has changed since.
    pub fn open(spec: &RunSpec, directory: &Path, programs: &HashMap<ToolId, PathBuf>) -> Result<Self, Vec<Problem>> {
        let (writer, state) = JournalWriter::resume(&directory.join(JOURNAL_FILE)).map_err(|error| match error {
            JournalError::Live { .. } => vec![live_problem(&error)],
            _ => vec![Problem::new(format!("--resume: {error}"))],
        })?;
        difference::check_workflow(spec, directory, &state)?;
        check_places(spec, &state)?;
        check_files(spec, &state, programs)?;
        let plan = exports(spec);
        let found = exports_found(spec, &state);
        let in_place = found.iter().filter(|(data, export)| is_in_place(**data, export, &plan));
        let in_place: HashSet<DataId> = in_place.map(|(data, _)| *data).collect();
        let existing = found.into_iter().map(|(data, file)| (data, ExistingData::of_file(file))).collect();
        let is_done = |task| state.task(task).is_some_and(|trace| trace.phase == journal::TaskPhase::Done);
        let settled = settle(&spec.flow, is_done, &plan, &in_place, existing);
        Ok(Self { writer, state, settled })
    }
}

/// True if a member was exported to the path where this run would export it.
fn is_in_place(data: DataId, export: &ExportTrace, plan: &ExportPlan) -> bool {
    plan.places.get(&data).is_some_and(|place| place == Path::new(&export.path))
}

/// Exported files that are as they were written: same length, same content.
fn exports_found(spec: &RunSpec, state: &JournalState) -> HashMap<DataId, ExportTrace> {
    let written = (0..spec.flow.workflow().data_count()).map(DataId);
    let exported = written.filter_map(|data| Some((data, state.exported(data)?.clone())));
    exported.filter(|(_, export)| is_unchanged(export)).collect()
}

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
