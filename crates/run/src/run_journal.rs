//! Journal of a run: begins it, and writes what happens into it. An error of writing ends the
//! journal, and not the run.

use crate::layout;
use crate::spec::RunSpec;
use crate::start::{ReportHead, mode_name};
use base::Problem;
use flow::{DataId, ToolId};
use journal::{
    FileIdentity, JOURNAL_FILE, JOURNAL_VERSION, JournalError, JournalHeader, JournalOptions, JournalRecord,
    JournalWorkflow, JournalWriter, WORKFLOW_FILE,
};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two records of the pool's fill level.
const POOL_INTERVAL: Duration = Duration::from_secs(1);

/// The journal of one run; without a writer nothing is written.
#[derive(Debug, Default)]
pub struct RunJournal {
    writer: Option<JournalWriter>,
    /// A warning for the user that is not shown yet.
    warning: Option<String>,
    /// The last recorded fill level of the pool, and its time.
    pool: Option<(Instant, (u64, u64))>,
}

impl RunJournal {
    /// Begins the journal in the directory of the report, with the workflow beside it. A run
    /// without that directory has no journal, nor has one whose directory another run writes to.
    pub fn begin(spec: &RunSpec, head: &ReportHead, programs: &HashMap<ToolId, PathBuf>) -> Self {
        let Some(directory) = &spec.report_dir else { return Self::default() };
        let descriptor = flow::to_json(spec.flow.workflow());
        let header = header(spec, head, &descriptor);
        let mut begun = match create(directory, &header, &descriptor) {
            Ok(writer) => Self::new(writer),
            Err(error) => Self { warning: Some(without_journal(&error.to_string())), ..Self::default() },
        };
        begun.write_all(identities(spec, programs));
        begun
    }

    /// A journal with this writer.
    pub fn new(writer: JournalWriter) -> Self {
        Self { writer: Some(writer), ..Self::default() }
    }

    /// Writes a record.
    pub fn write(&mut self, record: JournalRecord) {
        let Some(writer) = &mut self.writer else { return };
        let written = writer.append(record);
        self.conclude(written);
    }

    /// Writes many records at once.
    pub fn write_all(&mut self, records: impl Iterator<Item = JournalRecord>) {
        let Some(writer) = &mut self.writer else { return };
        let written = writer.append_all(records);
        self.conclude(written);
    }

    fn conclude(&mut self, written: io::Result<()>) {
        if let (Err(error), Some(writer)) = (written, &self.writer) {
            self.warning = Some(without_journal(&format!("{}: {error}", writer.path().display())));
            self.writer = None;
        }
    }

    /// Records the fill level of the pool, if it has changed and some time has passed.
    pub fn pool(&mut self, used: u64, capacity: u64) {
        let is_due = self.pool.is_none_or(|(at, last)| at.elapsed() >= POOL_INTERVAL && last != (used, capacity));
        if is_due {
            self.pool = Some((Instant::now(), (used, capacity)));
            self.write(JournalRecord::Pool { used, capacity });
        }
    }

    /// A warning about the journal that the user has not seen.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

/// The problem of a journal that another run writes.
pub fn live_problem(error: &JournalError) -> Problem {
    let JournalError::Live { path, run, process, resumed, .. } = error else {
        return Problem::new(error.to_string());
    };
    let directory = path.parent().unwrap_or(path).display();
    let what = if *resumed { "is resumed already" } else { "goes on" };
    Problem::new(format!("{directory}: run {run} {what}, by process {process}")).hint("wait for its end")
}

fn without_journal(error: &str) -> String {
    format!("this run has no journal from now on, so it cannot be resumed or explained: {error}")
}

fn create(directory: &Path, header: &JournalHeader, descriptor: &str) -> Result<JournalWriter, JournalError> {
    let refused = |error| JournalError::Io { path: directory.to_owned(), error };
    fs::create_dir_all(directory).map_err(refused)?;
    // Take the lock first: the workflow of a run that goes on must stay.
    let writer = JournalWriter::create(&directory.join(JOURNAL_FILE), header)?;
    let part = directory.join(format!(".{WORKFLOW_FILE}.{}.part", std::process::id()));
    let written = fs::write(&part, descriptor).and_then(|()| fs::rename(&part, directory.join(WORKFLOW_FILE)));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.map(|()| writer).map_err(refused)
}

fn header(spec: &RunSpec, head: &ReportHead, descriptor: &str) -> JournalHeader {
    let workflow = spec.flow.workflow();
    let started_unix_ms = journal::unix_ms();
    JournalHeader {
        tidemill_journal: JOURNAL_VERSION,
        run: spec.run_id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: report::rfc3339_utc(started_unix_ms),
        started_unix_ms,
        process: std::process::id(),
        host: host_name(),
        workflow: JournalWorkflow {
            name: workflow.name.clone(),
            source: spec.requested.source.clone(),
            hash: blake3::hash(descriptor.as_bytes()).to_hex().to_string(),
            tasks: u32::try_from(workflow.tasks.len()).unwrap_or(u32::MAX),
            data: workflow.data_count(),
        },
        options: JournalOptions {
            data: spec.data_dir.display().to_string(),
            out: spec.out_dir.display().to_string(),
            storage: mode_name(head.mode).to_owned(),
            memory: head.memory.0,
            policy: spec.policy.to_string(),
            keep: spec.keep,
            cluster: spec.cluster.as_ref().map(|cluster| cluster.target.to_string()),
        },
        command_line: spec.requested.command_line.clone(),
        directory: std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default(),
    }
}

/// Name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Inputs and programs as they are now. Those that cannot be looked at are left out.
pub fn identities<'a>(
    spec: &'a RunSpec,
    programs: &'a HashMap<ToolId, PathBuf>,
) -> impl Iterator<Item = JournalRecord> + 'a {
    let identity = |path: &Path| fs::metadata(path).ok().map(|metadata| FileIdentity::of(&metadata));
    let input = move |data| {
        let path = spec.data_dir.join(layout::host_path(&spec.flow, data)?);
        Some(JournalRecord::Input { data, file: identity(&path)? })
    };
    let program = move |(tool, path): (&ToolId, &PathBuf)| {
        let tool = spec.flow.workflow().tools[tool.0 as usize].name.clone();
        Some(JournalRecord::Program { tool, path: path.display().to_string(), file: identity(path)? })
    };
    let data = (0..spec.flow.workflow().data_count()).map(DataId);
    programs.iter().filter_map(program).chain(data.filter_map(input))
}
