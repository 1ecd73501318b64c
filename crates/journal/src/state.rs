//! State: what the records of a journal say together: the history of each task, where data is, who
//! runs what.

use crate::error::JournalError;
use crate::header::JournalHeader;
use crate::reader::JournalReader;
use crate::record::{AgentTrace, FileIdentity, JournalRecord, TimedRecord};
use flow::{DataId, TaskId};
use std::collections::BTreeMap;
use std::path::Path;

/// State of a run, as far as its journal tells.
#[derive(Debug, Clone, Default)]
pub struct JournalState {
    /// The first line.
    pub header: JournalHeader,
    /// The history of each task, by its number.
    pub tasks: Vec<TaskTrace>,
    /// The additions to the workflow, as `flow::growth_to_json` writes it.
    pub growth: Vec<String>,
    /// Data that tasks wrote.
    pub data: BTreeMap<DataId, DataTrace>,
    /// The notes of the script.
    pub notes: Vec<String>,
    /// The plans before this one, of a workflow that grows, the oldest first.
    pub former: Vec<FormerPlan>,
    /// Inputs of the workflow, as they were at the start.
    pub inputs: BTreeMap<DataId, FileIdentity>,
    /// Programs of the tools, as they were at the start: path and identity, by the tool's name.
    pub programs: BTreeMap<String, (String, FileIdentity)>,
    /// Hashes of the inputs' contents. Empty before the end.
    pub input_hashes: BTreeMap<DataId, String>,
    /// Hashes of the tools, by their names. Empty before the end.
    pub tool_hashes: BTreeMap<String, String>,
    /// The workers, by their numbers.
    pub workers: BTreeMap<u32, WorkerTrace>,
    /// The agent of the first node of the pool on a cluster, as far as one was formed.
    pub first: Option<AgentTrace>,
    /// The last fill level of the pool: bytes used, and capacity. `None` if it is not known.
    pub pool: Option<(u64, u64)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The time and outcome of the end; `None` while the run goes on, and after it was killed.
    pub ended: Option<(u64, String)>,
    /// The last time at which the run was resumed, and the process and host that did so.
    pub resumed_ms: Option<u64>,
    resumed_by: (u32, String),
    /// Time of the last record.
    pub last_ms: u64,
}

/// The plan of a process that was killed, of a workflow that grows.
#[derive(Debug, Clone, Default)]
pub struct FormerPlan {
    /// The additions to the workflow.
    pub growth: Vec<String>,
    /// The history of each task.
    pub tasks: Vec<TaskTrace>,
    /// Data that tasks wrote.
    pub data: BTreeMap<DataId, DataTrace>,
    /// Inputs, as they were when they were added.
    pub inputs: BTreeMap<DataId, FileIdentity>,
    /// The notes of the script.
    pub notes: Vec<String>,
}

/// What has become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskPhase {
    /// It has not started, or waits for another attempt.
    #[default]
    Waiting,
    /// An attempt runs.
    Running,
    /// It succeeded.
    Done,
    /// It failed for good, or will never run.
    Failed,
}

/// The history of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskTrace {
    /// What has become of it.
    pub phase: TaskPhase,
    /// Its attempts, in the order of their starts.
    pub attempts: Vec<AttemptTrace>,
    /// The time at which it was done or failed for good.
    pub ended_ms: Option<u64>,
    /// The reason of its failure for good.
    pub failure: Option<String>,
    /// The run whose results stand in for it; it has no attempts then.
    pub reused: Option<String>,
    /// How often it ran again after it was done, since data was lost.
    pub again: u32,
}

/// The history of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptTrace {
    /// Its number, from 1.
    pub number: u32,
    /// The worker that ran it.
    pub worker: u32,
    /// Its slot there.
    pub slot: u32,
    /// Why it started there: a name of the scheduler's.
    pub reason: String,
    /// Bytes of its inputs at the worker's place.
    pub near: u64,
    /// Bytes of its inputs elsewhere.
    pub far: u64,
    /// Number of the node at which its directory is; `None` for a run on one host.
    pub node: Option<u32>,
    /// Time of its start.
    pub started_ms: u64,
    /// Time of its end; `None` while it runs.
    pub ended_ms: Option<u64>,
    /// Milliseconds before its process started, and those that the process ran.
    pub took_ms: Option<(u64, u64)>,
    /// The reason of its failure; `None` if it runs or succeeded.
    pub failure: Option<String>,
}

/// A datum that a task wrote.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DataTrace {
    /// Its bytes.
    pub bytes: u64,
    /// The worker that wrote it.
    pub worker: u32,
    /// Number of the attempt that wrote it, and of the node where it is; `None` for a run on one
    /// host.
    pub place: Option<(u32, u32)>,
    /// The time at which it was written.
    pub written_ms: u64,
    /// True if it is not in the pool any more: it was dropped or lost.
    pub is_gone: bool,
    /// The file to which it was exported.
    pub exported: Option<ExportTrace>,
}

/// A file below the directory for outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportTrace {
    /// Path of the file.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its bytes in hexadecimal.
    pub hash: String,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerTrace {
    /// Name of its host.
    pub name: String,
    /// Its slots.
    pub slots: u32,
    /// The time at which it joined.
    pub joined_ms: u64,
    /// The time at which it was lost.
    pub lost_ms: Option<u64>,
    /// The agent of its host; `None` for a run on one host.
    pub agent: Option<AgentTrace>,
}

impl JournalState {
    /// The state before any record.
    pub fn new(header: JournalHeader) -> Self {
        let tasks = vec![TaskTrace::default(); header.workflow.tasks as usize];
        Self { header, tasks, ..Self::default() }
    }

    /// Reads a whole journal.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        Self::read_to(path).map(|(state, _)| state)
    }

    /// Reads a whole journal; returns the bytes of its complete lines too.
    pub(crate) fn read_to(path: &Path) -> Result<(Self, u64), JournalError> {
        let mut reader = JournalReader::open(path)?;
        let mut state = Self::new(reader.header().clone());
        state.follow(&mut reader)?;
        Ok((state, reader.bytes()))
    }

    /// Applies all records that the reader has now. Returns whether there were any.
    pub fn follow(&mut self, reader: &mut JournalReader) -> Result<bool, JournalError> {
        let mut any = false;
        while let Some(record) = reader.next_record()? {
            self.apply(record);
            any = true;
        }
        Ok(any)
    }

    /// The process that runs or ran it last, and its host.
    pub fn process(&self) -> (u32, String) {
        if self.resumed_ms.is_some() {
            self.resumed_by.clone()
        } else {
            (self.header.process, self.header.host.clone())
        }
    }

    /// The history of a task; `None` if the workflow has no such task.
    pub fn task(&self, task: TaskId) -> Option<&TaskTrace> {
        self.tasks.get(task.0 as usize)
    }

    /// The plan as it is now.
    pub fn plan(&self) -> FormerPlan {
        let Self { growth, tasks, data, inputs, notes, .. } = self;
        FormerPlan {
            growth: growth.clone(),
            tasks: tasks.clone(),
            data: data.clone(),
            inputs: inputs.clone(),
            notes: notes.clone(),
        }
    }

    /// Number of tasks in a phase.
    pub fn count(&self, phase: TaskPhase) -> usize {
        self.tasks.iter().filter(|task| task.phase == phase).count()
    }

    /// The file to which a datum was exported, if it was.
    pub fn exported(&self, data: DataId) -> Option<&ExportTrace> {
        self.data.get(&data)?.exported.as_ref()
    }

    /// Applies one record. Records of tasks that the workflow does not have are skipped.
    pub fn apply(&mut self, TimedRecord { at_ms, record }: TimedRecord) {
        self.last_ms = self.last_ms.max(at_ms);
        match record {
            JournalRecord::Input { data, file } => drop(self.inputs.insert(data, file)),
            JournalRecord::Program { tool, path, file } => drop(self.programs.insert(tool, (path, file))),
            JournalRecord::Grew { tasks, growth } => {
                self.tasks.resize(self.tasks.len() + tasks as usize, TaskTrace::default());
                self.growth.push(growth);
            }
            JournalRecord::InputHashed { data, hash } => drop(self.input_hashes.insert(data, hash)),
            JournalRecord::ToolHashed { tool, hash } => drop(self.tool_hashes.insert(tool, hash)),
            JournalRecord::WorkerJoined { worker, name, slots, agent } => {
                self.workers.insert(worker, WorkerTrace { name, slots, joined_ms: at_ms, lost_ms: None, agent });
            }
            JournalRecord::WorkerResized { worker, slots } => {
                self.workers.entry(worker).and_modify(|worker| worker.slots = slots);
            }
            JournalRecord::PoolFormed { first } => {
                self.data.values_mut().for_each(|datum| datum.is_gone = true);
                self.first = Some(first);
            }
            JournalRecord::WorkerLost { worker } => self.lose_worker(worker, at_ms),
            JournalRecord::Dropped { data } | JournalRecord::Lost { data } => {
                if let Some(datum) = self.data.get_mut(&data) {
                    datum.is_gone = true;
                }
            }
            JournalRecord::Exported { data, path, bytes, hash } => {
                self.data.entry(data).or_default().exported = Some(ExportTrace { path, bytes, hash });
            }
            JournalRecord::Pool { used, capacity } => self.pool = Some((used, capacity)),
            JournalRecord::Warning { text } => self.warnings.push(text),
            JournalRecord::Resumed { process, host, .. } => self.resume(at_ms, process, host),
            JournalRecord::Noted { text } => self.notes.push(text),
            JournalRecord::PlanBegunAnew => {
                let former = self.plan();
                let tasks = vec![TaskTrace::default(); self.header.workflow.tasks as usize];
                (self.growth, self.tasks, self.notes) = (Vec::new(), tasks, Vec::new());
                (self.data, self.inputs) = (BTreeMap::new(), BTreeMap::new());
                self.former.push(former);
            }
            JournalRecord::Ended { outcome } => self.ended = Some((at_ms, outcome)),
            record => self.apply_to_task(at_ms, record),
        }
    }

    fn apply_to_task(&mut self, at_ms: u64, record: JournalRecord) {
        match record {
            JournalRecord::Started { task, attempt: number, worker, slot, reason, near, far, node } => {
                let Some(trace) = self.tasks.get_mut(task.0 as usize) else { return };
                trace.phase = TaskPhase::Running;
                let (started_ms, ended_ms, took_ms, failure) = (at_ms, None, None, None);
                trace.attempts.push(AttemptTrace {
                    number,
                    worker,
                    slot,
                    reason,
                    near,
                    far,
                    node,
                    started_ms,
                    ended_ms,
                    took_ms,
                    failure,
                });
            }
            JournalRecord::Done { task, attempt, prepared_ms, ran_ms, wrote } => {
                let (worker, node) = self.end_attempt(task, attempt, at_ms, Some((prepared_ms, ran_ms)), None);
                self.end_task(task, at_ms, None);
                self.add_data(wrote, (worker, node.map(|node| (attempt, node))), at_ms);
            }
            JournalRecord::Reused { task, from, wrote } => {
                self.end_task(task, at_ms, None);
                self.add_data(wrote, (0, None), at_ms);
                if let Some(trace) = self.tasks.get_mut(task.0 as usize) {
                    trace.reused = Some(from);
                }
            }
            JournalRecord::AttemptFailed { task, attempt, prepared_ms, ran_ms, why } => {
                self.end_attempt(task, attempt, at_ms, Some((prepared_ms, ran_ms)), Some(why));
            }
            JournalRecord::Failed { task, why } => self.end_task(task, at_ms, Some(why)),
            JournalRecord::Again { task } => {
                let Some(trace) = self.tasks.get_mut(task.0 as usize) else { return };
                (trace.phase, trace.ended_ms, trace.failure, trace.reused) = (TaskPhase::Waiting, None, None, None);
                trace.again += 1;
            }
            _ => {}
        }
    }

    fn add_data(&mut self, wrote: Vec<(DataId, u64)>, (worker, place): (u32, Option<(u32, u32)>), written_ms: u64) {
        for (data, bytes) in wrote {
            let exported = self.data.remove(&data).and_then(|datum| datum.exported);
            self.data.insert(data, DataTrace { bytes, worker, place, written_ms, is_gone: false, exported });
        }
    }

    /// Ends an attempt; returns its worker and node. The task waits, unless another attempt of it
    /// runs.
    fn end_attempt(
        &mut self,
        task: TaskId,
        number: u32,
        at_ms: u64,
        took_ms: Option<(u64, u64)>,
        failure: Option<String>,
    ) -> (u32, Option<u32>) {
        let Some(trace) = self.tasks.get_mut(task.0 as usize) else { return (0, None) };
        let runs = |attempt: &&mut AttemptTrace| attempt.ended_ms.is_none() && attempt.number == number;
        let Some(attempt) = trace.attempts.iter_mut().rev().find(runs) else { return (0, None) };
        (attempt.ended_ms, attempt.took_ms, attempt.failure) = (Some(at_ms), took_ms, failure);
        let by = (attempt.worker, attempt.node);
        if trace.phase == TaskPhase::Running && trace.attempts.iter().all(|attempt| attempt.ended_ms.is_some()) {
            trace.phase = TaskPhase::Waiting;
        }
        by
    }

    fn end_task(&mut self, task: TaskId, at_ms: u64, failure: Option<String>) {
        let Some(trace) = self.tasks.get_mut(task.0 as usize) else { return };
        trace.phase = if failure.is_some() { TaskPhase::Failed } else { TaskPhase::Done };
        (trace.ended_ms, trace.failure) = (Some(at_ms), failure);
    }

    fn lose_worker(&mut self, worker: u32, at_ms: u64) {
        let Some(lost) = self.workers.get_mut(&worker) else { return };
        lost.lost_ms = Some(at_ms);
        let why = format!("{} was lost while it ran there", lost.name);
        self.end_attempts(at_ms, &why, |attempt| attempt.worker == worker);
    }

    /// Ends the attempts that run and for which `ends` returns true.
    fn end_attempts(&mut self, at_ms: u64, why: &str, ends: impl Fn(&AttemptTrace) -> bool) {
        for trace in self.tasks.iter_mut().filter(|trace| !trace.attempts.is_empty()) {
            for attempt in trace.attempts.iter_mut().filter(|attempt| attempt.ended_ms.is_none() && ends(attempt)) {
                (attempt.ended_ms, attempt.failure) = (Some(at_ms), Some(why.to_owned()));
            }
            let is_over = trace.attempts.iter().all(|attempt| attempt.ended_ms.is_some());
            if trace.phase == TaskPhase::Running && is_over {
                trace.phase = TaskPhase::Waiting;
            }
        }
    }

    /// Another process goes on: it has workers of its own, and tasks that failed are tried again.
    fn resume(&mut self, at_ms: u64, process: u32, host: String) {
        let before = self.last_before(at_ms);
        self.end_attempts(before, "the run was ended while it ran", |_| true);
        for trace in self.tasks.iter_mut().filter(|trace| trace.phase == TaskPhase::Failed) {
            (trace.phase, trace.ended_ms, trace.failure) = (TaskPhase::Waiting, None, None);
        }
        for worker in self.workers.values_mut() {
            worker.lost_ms.get_or_insert(before);
        }
        (self.resumed_ms, self.resumed_by) = (Some(at_ms), (process, host));
        self.ended = None;
        self.pool = None;
    }

    /// The last time that is known before a resume: that of the pool's level or of an attempt.
    fn last_before(&self, at_ms: u64) -> u64 {
        let times = self.tasks.iter().flat_map(|trace| &trace.attempts);
        let last = times.map(|attempt| attempt.ended_ms.unwrap_or(attempt.started_ms)).max().unwrap_or(0);
        last.min(at_ms)
    }
}
