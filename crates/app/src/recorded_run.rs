//! A run as its directory tells it: the journal, and the workflow beside it.

use crate::data_directory::REPORTS;
use base::Problem;
use flow::{DataId, TaskId};
use journal::{JOURNAL_FILE, JournalError, JournalReader, JournalState, TaskPhase, WORKFLOW_FILE};
use run::CheckedWorkflow;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A run, and its journal as far as it was read.
#[derive(Debug)]
pub struct RecordedRun {
    /// The workflow.
    pub flow: CheckedWorkflow,
    /// What the journal tells.
    pub state: JournalState,
    /// True if the run goes on.
    pub is_live: bool,
    journal: PathBuf,
    reader: JournalReader,
}

/// What has become of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunCondition {
    /// It goes on.
    Live,
    /// It came to its end.
    Ended,
    /// Its process is gone, and did not come to the end.
    Killed,
}

/// What a task does or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskCondition {
    /// It waits for data or tasks.
    Waiting,
    /// It waits for a slot or space.
    Ready,
    /// An attempt runs.
    Running,
    /// It succeeded.
    Done,
    /// It failed for good.
    Failed,
}

/// Something that a task needs and that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPart {
    /// A datum, and the task that writes it.
    Data(DataId, TaskId),
    /// A task that must be done first.
    After(TaskId),
}

impl MissingPart {
    /// The task that brings it.
    pub fn task(self) -> TaskId {
        match self {
            Self::Data(_, task) | Self::After(task) => task,
        }
    }
}

/// The directory of a run: a path, or the name of a directory below `tidemill-report`.
pub fn directory(name: &Path) -> Result<PathBuf, Problem> {
    let has_journal = |directory: &PathBuf| directory.join(JOURNAL_FILE).is_file();
    let found = [name.to_owned(), Path::new(REPORTS).join(name)].into_iter().find(has_journal);
    found.ok_or_else(|| {
        let known: Vec<String> = below_reports().iter().filter_map(|(_, path)| name_of(path)).collect();
        let known = known.iter().map(String::as_str);
        let problem = Problem::new(format!("{}: no run has its journal there, nor in {REPORTS}", name.display()));
        let near = problem.clone().nearest(&name.display().to_string(), known);
        if near.hint.is_some() { near } else { problem.hint("name the directory of the report") }
    })
}

/// The directory of the newest run below `tidemill-report` that goes on.
pub fn newest_live() -> Result<PathBuf, Problem> {
    let live =
        below_reports().into_iter().map(|(_, path)| path).find(|path| journal::is_live(&path.join(JOURNAL_FILE)));
    live.ok_or_else(|| {
        Problem::new(format!("no run goes on whose report is in {REPORTS}")).hint("name the directory of its report")
    })
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The directories with a journal below `tidemill-report`, the one that changed last first.
fn below_reports() -> Vec<(std::time::SystemTime, PathBuf)> {
    let entries = fs::read_dir(REPORTS).into_iter().flatten().flatten();
    let dated = entries.filter_map(|entry| {
        let changed = fs::metadata(entry.path().join(JOURNAL_FILE)).and_then(|about| about.modified()).ok()?;
        Some((changed, entry.path()))
    });
    let mut found: Vec<_> = dated.collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// The name of the run of a directory.
pub fn name_of_run(directory: &Path) -> Result<String, Problem> {
    let reader = JournalReader::open(&directory.join(JOURNAL_FILE)).map_err(|error| unreadable(&error))?;
    Ok(reader.header().run.clone())
}

/// The problem of a journal that cannot be read.
pub fn unreadable(error: &JournalError) -> Problem {
    Problem::new(error.to_string())
}

/// Reads the workflow of a run, with what was added to it.
fn workflow(journal: &Path, growth: &[String]) -> Result<CheckedWorkflow, Vec<Problem>> {
    let path = journal.with_file_name(WORKFLOW_FILE);
    let name = path.display().to_string();
    let text = fs::read_to_string(&path).map_err(|error| vec![Problem::new(format!("{name}: {error}"))])?;
    CheckedWorkflow::new(flow::from_json_grown(&text, &name, growth).map_err(|problem| vec![problem])?, None)
}

impl RecordedRun {
    /// Reads the run of a directory.
    pub fn read(directory: &Path) -> Result<Self, Vec<Problem>> {
        let journal = directory.join(JOURNAL_FILE);
        let refused = |error: JournalError| vec![unreadable(&error)];
        // Whether it goes on is asked first: what it writes until its end is then read.
        let is_live = journal::is_live(&journal);
        let mut reader = JournalReader::open(&journal).map_err(refused)?;
        let mut state = JournalState::new(reader.header().clone());
        state.follow(&mut reader).map_err(refused)?;
        let flow = workflow(&journal, &state.growth)?;
        if flow.workflow().tasks.len() != state.tasks.len() {
            let text = format!("{}: {WORKFLOW_FILE} is not the workflow of the journal", directory.display());
            return Err(vec![Problem::new(text)]);
        }
        Ok(Self { flow, state, is_live, journal, reader })
    }

    /// Reads what was written since.
    ///
    /// # Errors
    /// The journal is damaged, or another run has replaced it.
    pub fn follow(&mut self) -> Result<(), Vec<Problem>> {
        self.is_live = journal::is_live(&self.journal);
        if self.reader.is_replaced() {
            return Err(vec![Problem::new(format!("{}: another run has replaced it", self.journal.display()))]);
        }
        let plan = |state: &JournalState| (state.former.len(), state.growth.len());
        let before = plan(&self.state);
        self.state.follow(&mut self.reader).map_err(|error| vec![unreadable(&error)])?;
        if plan(&self.state) != before {
            self.flow = workflow(&self.journal, &self.state.growth)?;
        }
        Ok(())
    }

    /// What has become of the run.
    pub fn condition(&self) -> RunCondition {
        match (&self.state.ended, self.is_live) {
            (Some(_), _) => RunCondition::Ended,
            (None, true) => RunCondition::Live,
            (None, false) => RunCondition::Killed,
        }
    }

    /// The current time of a run that goes on; else the time of its last record. In milliseconds
    /// since its start.
    pub fn now_ms(&self) -> u64 {
        let now = journal::unix_ms().saturating_sub(self.state.header.started_unix_ms);
        if self.condition() == RunCondition::Live { now.max(self.state.last_ms) } else { self.state.last_ms }
    }

    /// What a task does or waits for.
    pub fn condition_of(&self, task: TaskId) -> TaskCondition {
        match self.phase(task) {
            TaskPhase::Waiting if self.missing(task).next().is_some() => TaskCondition::Waiting,
            TaskPhase::Waiting => TaskCondition::Ready,
            TaskPhase::Running => TaskCondition::Running,
            TaskPhase::Done => TaskCondition::Done,
            TaskPhase::Failed => TaskCondition::Failed,
        }
    }

    /// The phase of a task.
    pub fn phase(&self, task: TaskId) -> TaskPhase {
        self.state.task(task).map(|trace| trace.phase).unwrap_or_default()
    }

    /// What a task needs and is not there yet.
    pub fn missing(&self, task: TaskId) -> impl Iterator<Item = MissingPart> + '_ {
        let undone = |task: &TaskId| self.phase(*task) != TaskPhase::Done;
        let data = self.flow.inputs(task).filter_map(move |data| {
            self.flow.writer_of(data).filter(undone).map(|writer| MissingPart::Data(data, writer))
        });
        data.chain(self.flow.task(task).after.iter().copied().filter(undone).map(MissingPart::After))
    }

    /// The time at which a task became ready, and the part that came last; `None` while a part is
    /// missing. The part is `None` for a task that needs nothing of other tasks.
    pub fn ready(&self, task: TaskId) -> Option<(u64, Option<MissingPart>)> {
        let data = self.flow.inputs(task).filter_map(|data| {
            let writer = self.flow.writer_of(data)?;
            Some((MissingPart::Data(data, writer), writer))
        });
        let after = self.flow.task(task).after.iter().map(|task| (MissingPart::After(*task), *task));
        let mut last = (0, None);
        for (part, writer) in data.chain(after) {
            let trace = self.state.task(writer)?;
            let ended = trace.ended_ms.filter(|_| trace.phase == TaskPhase::Done)?;
            if last.1.is_none() || ended > last.0 {
                last = (ended, Some(part));
            }
        }
        Some(last)
    }

    /// Name of a worker's host.
    pub fn worker_name(&self, worker: u32) -> String {
        self.state.workers.get(&worker).map_or_else(|| format!("worker {worker}"), |worker| worker.name.clone())
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..u32::try_from(self.state.tasks.len()).unwrap_or(u32::MAX)).map(TaskId)
    }
}
