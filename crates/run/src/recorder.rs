//! Recorder: fills in the report while tasks run, in the types of run.json, and writes the journal.

mod workers;

use crate::checked_workflow::CheckedWorkflow;
use crate::export::ExportedFile;
use crate::keep_failed;
use crate::layout::{self, AttemptPlace};
use crate::outcome::AttemptOutcome;
use crate::provenance::InputHashes;
use crate::resume::{Reuse, Settled};
use crate::run_journal::RunJournal;
use base::ByteSize;
use flow::{DataId, TaskId};
use journal::{ExportTrace, FileIdentity, JournalRecord, JournalState};
use report::{Attempt, FailureReason, ReadBytes, ReasonKind, RunOutcome, RunReport, Seconds, Status};
use sched::{StartReason, WorkerId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

/// An attempt that ended, on the clock of this process.
#[derive(Debug)]
pub struct EndedAttempt {
    /// Time of the start.
    pub started: Instant,
    /// Time of the end.
    pub ended: Instant,
    /// Its outcome.
    pub outcome: AttemptOutcome,
}

impl EndedAttempt {
    /// An attempt whose outcome has just come.
    pub fn now(outcome: AttemptOutcome) -> Self {
        let ended = Instant::now();
        Self { started: ended.checked_sub(outcome.ran).unwrap_or(ended), ended, outcome }
    }
}

/// Why an attempt starts, and where its inputs are.
#[derive(Debug, Clone, Copy)]
pub struct StartDetails {
    /// Why the task was chosen and its worker too.
    pub reason: StartReason,
    /// Bytes of its inputs at the worker's place.
    pub near: u64,
    /// Bytes of its inputs elsewhere.
    pub far: u64,
}

/// A `report::RunReport` in the making, and the instant that its times count from.
#[derive(Debug)]
pub struct Recorder {
    /// The report so far.
    pub run: RunReport,
    /// The journal of the run.
    pub journal: RunJournal,
    begun: Instant,
    /// Number of tasks that may have lost output in a full pool.
    possibly_truncated_count: usize,
    /// Tools whose excess over their declared memory was already reported.
    over_memory_tools: BTreeSet<String>,
    /// Index of each worker in the report's nodes; empty for a run on this host.
    nodes: BTreeMap<WorkerId, usize>,
    /// True when the run has ended itself.
    gave_up: bool,
}

impl Recorder {
    /// Creates a recorder whose times count from `begun`.
    pub fn new(run: RunReport, journal: RunJournal, begun: Instant) -> Self {
        let (over_memory_tools, nodes) = (BTreeSet::new(), BTreeMap::new());
        Self { run, journal, begun, possibly_truncated_count: 0, over_memory_tools, nodes, gave_up: false }
    }

    /// Converts `moment` to seconds since the start.
    pub fn at(&self, moment: Instant) -> Seconds {
        moment.saturating_duration_since(self.begun).into()
    }

    /// Seconds since the start.
    pub fn now(&self) -> Seconds {
        self.at(Instant::now())
    }

    fn task(&mut self, id: TaskId) -> &mut report::TaskRecord {
        &mut self.run.tasks[id.0 as usize]
    }

    fn member(&mut self, id: DataId) -> &mut report::Member {
        &mut self.run.data[id.0 as usize]
    }

    /// Records the start of an attempt.
    pub fn started(
        &mut self,
        id: TaskId,
        (worker, slot): (WorkerId, u32),
        AttemptPlace { attempt, node }: AttemptPlace,
        why: StartDetails,
    ) {
        let StartDetails { reason, near, far } = why;
        let (reason, worker_number, node) = (reason.name().to_owned(), worker.0, node.map(|node| node.0));
        self.journal.write(JournalRecord::Started {
            task: id,
            attempt,
            worker: worker_number,
            slot,
            reason,
            near,
            far,
            node,
        });
        self.set_slot(id, (worker, slot));
        let now = self.now();
        let task = self.task(id);
        task.attempts = attempt;
        // The start of the process is known when it has ended.
        task.start_s = Some(now);
    }

    /// Records where the attempt ran that counts.
    pub fn set_slot(&mut self, id: TaskId, (worker, slot): (WorkerId, u32)) {
        let index = self.nodes.get(&worker).copied();
        let node = index.and_then(|index| self.run.nodes.get(index));
        // An attempt that was sent ahead has a number above those of the host's processors.
        let slot = node.map_or(slot, |node| node.first_slot + slot % node.slots.max(1));
        let node = index.and_then(|index| u32::try_from(index).ok());
        let task = self.task(id);
        (task.slot, task.node, task.prepared_s) = (Some(slot), node, None);
    }

    /// Records that a running attempt was lost with its worker.
    pub fn attempt_lost(&mut self, id: TaskId, worker: WorkerId) {
        let (now, name) = (self.now(), self.worker_name(worker));
        let task = self.task(id);
        task.end_s = Some(now);
        let text = format!("{name} was lost while it ran there");
        task.reason = Some(FailureReason { kind: ReasonKind::NotStarted, text, ..FailureReason::default() });
    }

    /// Records the end of an attempt. Retry or final failure of the task is recorded separately.
    pub fn attempt(&mut self, ended: &EndedAttempt) {
        let (start, end) = (self.at(ended.started), self.at(ended.ended));
        let outcome = &ended.outcome;
        self.journal.write(record_of(outcome));
        for made in outcome.result.iter().flatten() {
            let member = self.member(made.data);
            (member.bytes, member.written_s) = (Some(made.bytes), Some(end));
        }
        let task = self.task(outcome.task);
        (task.start_s, task.end_s) = (Some(start), Some(end));
        task.prepared_s = task.node.map(|_| outcome.prepared.into());
        task.exit_code = outcome.exit_code;
        task.cpu_s = outcome.cpu_s.map(Seconds::rounded);
        task.max_rss_bytes = outcome.max_rss_bytes;
        task.peak_memory_bytes = outcome.peak_memory_bytes;
        let printed = (outcome.stdout.clone(), outcome.stderr.clone());
        let (of_failure, of_success) =
            if outcome.result.is_ok() { ((None, None), printed) } else { (printed, (None, None)) };
        (task.stdout, task.stderr) = of_success;
        task.reason = outcome.result.as_ref().err().map(|failure| FailureReason {
            kind: failure.kind,
            text: failure.text.clone(),
            root: Some(outcome.task.0),
            via: None,
            signal: failure.signal,
            kept: failure.kept.as_ref().map(|directory| directory.display().to_string()),
            repeat: failure.kept.as_ref().map(|directory| directory.join(keep_failed::SCRIPT).display().to_string()),
            stdout: of_failure.0,
            stderr: of_failure.1,
        });
        task.status = Status::of(task.reason.as_ref());
        task.set_command(&outcome.argv);
    }

    /// Records where the last attempt of a task had its inputs from, on a cluster.
    pub fn reads(&mut self, id: TaskId, bytes: ReadBytes) {
        self.task(id).reads = Some(bytes);
    }

    /// Records what the workflow has more: elements and tasks from these indices on.
    pub fn grew(&mut self, workflow: &flow::Workflow, (elements, tasks): (usize, usize)) {
        let growth = flow::growth_to_json(workflow, elements, tasks);
        let count = u32::try_from(workflow.tasks.len() - tasks).unwrap_or(u32::MAX);
        self.journal.write(JournalRecord::Grew { tasks: count, growth });
        self.run.grow(workflow);
        let now = self.now();
        self.run.tasks[tasks..].iter_mut().for_each(|task| task.ready_s = Some(now));
    }

    /// Returns whether a task has written a member and it has not been removed.
    pub fn is_in_pool(&self, id: DataId) -> bool {
        let member = &self.run.data[id.0 as usize];
        member.written_s.is_some() && member.dropped_s.is_none()
    }

    /// Records that the attempt that just failed is followed by another.
    pub fn retried(&mut self, id: TaskId) {
        self.journal.write(JournalRecord::Retried { task: id });
        let task = self.task(id);
        let (Some(slot), Some(start_s), Some(end_s)) = (task.slot, task.start_s, task.end_s) else { return };
        let text = task.reason.as_ref().map(|reason| reason.text.clone()).unwrap_or_default();
        let (node, prepared_s) = (task.node, task.prepared_s);
        let (cpu_s, peak_memory_bytes) = (task.cpu_s, task.peak_memory_bytes);
        task.earlier.push(Attempt { slot, node, prepared_s, start_s, end_s, text, cpu_s, peak_memory_bytes });
    }

    /// Records that a task that was done runs again.
    pub fn again(&mut self, id: TaskId) {
        self.journal.write(JournalRecord::Again { task: id });
        let task = self.task(id);
        let (Some(slot), Some(start_s), Some(end_s)) = (task.slot, task.start_s, task.end_s) else { return };
        let (node, prepared_s) = (task.node, task.prepared_s);
        let (cpu_s, peak_memory_bytes) = (task.cpu_s, task.peak_memory_bytes);
        let text = "it succeeded, and data that it wrote was lost later".to_owned();
        task.earlier.push(Attempt { slot, node, prepared_s, start_s, end_s, text, cpu_s, peak_memory_bytes });
        task.status = Status::default();
    }

    /// Records the failure of a task that never ran.
    pub fn never_ran(&mut self, id: TaskId, reason: FailureReason) {
        self.failed(id, &reason.text);
        let task = self.task(id);
        task.status = Status::of(Some(&reason));
        task.reason = Some(reason);
    }

    /// Records that a task has failed for good.
    pub fn failed(&mut self, id: TaskId, why: &str) {
        self.journal.write(JournalRecord::Failed { task: id, why: why.to_owned() });
    }

    /// Records a warning for the user.
    pub fn warning(&mut self, text: String) {
        self.journal.write(JournalRecord::Warning { text: text.clone() });
        self.run.warnings.push(text);
    }

    /// Records that the member was deleted from the pool.
    pub fn dropped(&mut self, id: DataId) {
        self.journal.write(JournalRecord::Dropped { data: id });
        let now = self.now();
        self.member(id).dropped_s = Some(now);
    }

    /// Records that the member was written below `--out`.
    pub fn exported(&mut self, id: DataId, path: String, written: ExportedFile) {
        let (bytes, hash) = (written.bytes, written.hash.clone());
        self.journal.write(JournalRecord::Exported { data: id, path: path.clone(), bytes, hash });
        let member = self.member(id);
        (member.exported, member.hash) = (Some(path), Some(written.hash));
    }

    /// Records the hashes of tools and inputs.
    pub fn hashed(&mut self, hashes: InputHashes) {
        let tool_hashes = hashes
            .tools
            .iter()
            .filter_map(|tool| Some(JournalRecord::ToolHashed { tool: tool.name.clone(), hash: tool.hash.clone()? }));
        let input_hashes =
            hashes.inputs.iter().map(|(data, hash, _)| JournalRecord::InputHashed { data: *data, hash: hash.clone() });
        self.journal.write_all(tool_hashes.chain(input_hashes));
        self.run.provenance.tools = hashes.tools;
        for (id, hash, bytes) in hashes.inputs {
            let member = self.member(id);
            (member.hash, member.bytes) = (Some(hash), Some(bytes));
        }
    }

    /// Adds a sample of the machine: processor seconds since any fixed moment before the run, and
    /// bytes of memory in use.
    pub fn machine_sample(&mut self, (cpu_s, memory_bytes): (f64, u64)) {
        let now = self.now();
        if let Some(used) = &mut self.run.machine_use {
            used.push(now, cpu_s, memory_bytes);
        }
    }

    /// Adds a sample of the pool: bytes used and capacity.
    pub fn sample(&mut self, used: u64, capacity: u64) {
        let now = self.now();
        self.run.pool.push(now, used, capacity);
        self.journal.pool(used, capacity);
    }

    /// Records the peak of the bytes that the pool held.
    pub fn peak(&mut self, bytes: u64) {
        self.run.pool.record_peak(bytes);
    }

    /// Computes the least memory that another order of the tasks would have needed. Does nothing
    /// unless all tasks succeeded.
    pub fn find_least_peak(&mut self, workflow: &flow::Workflow) {
        if self.run.tasks.iter().any(|task| task.status != Status::Done) {
            return;
        }
        let bytes = |data: DataId| self.run.data[data.0 as usize].bytes.unwrap_or(0);
        let settings = &self.run.settings;
        let found = sched::least_peak(&sched::task_specs(workflow), settings.slots, bytes, |_| settings.keep);
        if let Some(found) = found {
            self.run.pool.least_peak_bytes = Some(found.bytes);
            self.run.pool.least_peak_orders = found.orders;
        }
    }

    /// Records a task that succeeded although the pool refused space while it ran, as a program
    /// that ignores write errors does. Returns the warning for the first 10 tasks only.
    pub fn possibly_truncated(&mut self, id: TaskId) -> Option<String> {
        const WARNINGS_MAX: usize = 10;
        let tool = self.task(id).tool.clone();
        let text = format!(
            "the pool was full while task {} {tool} ran, which ended well all the same: its outputs may be cut short; give more with --memory",
            id.0
        );
        self.possibly_truncated_count += 1;
        (self.possibly_truncated_count <= WARNINGS_MAX).then(|| {
            self.warning(text.clone());
            text
        })
    }

    /// Records an attempt that held more memory than its tool declares (`limit`; 0: none declared),
    /// and so took memory promised to other tasks. Returns a warning once per tool.
    pub fn over_memory_warning(&mut self, outcome: &AttemptOutcome, limit: u64) -> Option<String> {
        let peak = outcome.peak_memory_bytes.filter(|peak| limit > 0 && *peak > limit)?;
        let tool = self.task(outcome.task).tool.clone();
        let text = format!(
            "tool {tool}: task {} held {} of memory, more than its `memory = {:?}`: raise it, or fewer tasks fit than run at once",
            outcome.task.0,
            ByteSize(peak),
            ByteSize(limit).to_string().replace(' ', ""),
        );
        self.over_memory_tools.insert(tool).then(|| {
            self.warning(text.clone());
            text
        })
    }

    /// Records a problem of the whole run; only the first one is kept.
    pub fn problem(&mut self, text: String) {
        self.run.problem.get_or_insert(text);
    }

    /// Records a problem with which the run cannot go on. The rest of it is cancelled then, but by
    /// nobody.
    pub fn give_up(&mut self, text: String) {
        self.gave_up = true;
        self.run.problem = Some(text);
    }

    /// Records that the tasks that are not done will not be, since the pool is lost.
    pub fn abandon(&mut self, why: &str, interrupted: bool) {
        let (kind, text) = if interrupted {
            (ReasonKind::Cancelled, "the run was ended before it could start".to_owned())
        } else {
            (ReasonKind::NotStarted, format!("the run lost its pool: {why}"))
        };
        let never_ended = |task: &report::TaskRecord| task.status == Status::default();
        let left: Vec<u32> = self.run.tasks.iter().filter(|task| never_ended(task)).map(|task| task.id).collect();
        for task in left {
            self.never_ran(TaskId(task), FailureReason { kind, text: text.clone(), ..FailureReason::default() });
        }
        if !interrupted {
            self.problem(format!("the pool is lost again and again: {why}"));
        }
    }

    /// Fills in what an earlier process of the run has done. From now on times count from its
    /// start.
    pub fn restore(&mut self, flow: &CheckedWorkflow, state: &JournalState, settled: &Settled) {
        let since_start = Duration::from_millis(journal::unix_ms().saturating_sub(state.header.started_unix_ms));
        self.begun = self.begun.checked_sub(since_start).unwrap_or(self.begun);
        self.run.started.clone_from(&state.header.started);
        self.run.warnings.extend(state.warnings.iter().cloned());
        let at = |ms: u64| Seconds::from(Duration::from_millis(ms));
        for id in &settled.tasks {
            let (Some(trace), Some(last)) = (state.task(*id), state.task(*id).and_then(|trace| trace.attempts.last()))
            else {
                continue;
            };
            let task = self.task(*id);
            task.status = Status::Done;
            task.reason = None;
            task.attempts = trace.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0);
            self.set_slot(*id, (WorkerId(last.worker), last.slot));
            let task = self.task(*id);
            let prepared_ms = last.took_ms.filter(|_| task.node.is_some()).map(|(prepared, _)| prepared);
            task.prepared_s = prepared_ms.map(at);
            task.reads = prepared_ms.map(|_| ReadBytes { local: last.near, cached: 0, remote: last.far });
            let started_ms = last.started_ms + prepared_ms.unwrap_or(0);
            (task.start_s, task.end_s) = (Some(at(started_ms)), last.ended_ms.map(at));
        }
        let written = settled.tasks.iter().flat_map(|task| flow.outputs(*task));
        for (id, trace) in written.filter_map(|id| Some((id, state.data.get(&id)?))) {
            let member = self.member(id);
            (member.bytes, member.written_s) = (Some(trace.bytes), Some(at(trace.written_ms)));
            if let Some(export) = &trace.exported {
                (member.exported, member.hash) = (Some(export.path.clone()), Some(export.hash.clone()));
            }
        }
    }

    /// Fills in the tasks for which results of another run stand in.
    pub fn reuse(&mut self, flow: &CheckedWorkflow, settled: &Settled, reused: &Reuse) {
        let start = Some(Seconds(0.0));
        for id in &settled.tasks {
            self.stand_in_at((flow, *id), start, &reused.run, (&reused.bytes, &reused.in_place));
        }
    }

    /// Fills in a task for which an earlier one stands in, of the run `from`: the bytes of its
    /// outputs, as far as they are known, and those that are where they are exported.
    pub fn stand_in(
        &mut self,
        task: (&CheckedWorkflow, TaskId),
        from: &str,
        bytes: &HashMap<DataId, u64>,
        in_place: &HashMap<DataId, ExportTrace>,
    ) {
        let now = Some(self.now());
        self.stand_in_at(task, now, from, (bytes, in_place));
    }

    fn stand_in_at(
        &mut self,
        (flow, id): (&CheckedWorkflow, TaskId),
        at: Option<Seconds>,
        from: &str,
        (bytes, in_place): (&HashMap<DataId, u64>, &HashMap<DataId, ExportTrace>),
    ) {
        let wrote = flow.outputs(id).filter_map(|data| Some((data, *bytes.get(&data)?))).collect();
        let from = from.to_owned();
        self.journal.write(JournalRecord::Reused { task: id, from: from.clone(), wrote });
        let task = self.task(id);
        (task.status, task.reason, task.end_s, task.reused) = (Status::Done, None, at, Some(from));
        for data in flow.outputs(id) {
            let member = self.member(data);
            (member.bytes, member.written_s) = (bytes.get(&data).copied(), at);
            if let Some(export) = in_place.get(&data).cloned() {
                self.exported(data, export.path, ExportedFile { bytes: export.bytes, hash: export.hash });
            }
        }
    }

    /// Records inputs that were added to the workflow, as they are now.
    pub fn added_inputs(&mut self, flow: &CheckedWorkflow, data_dir: &Path, inputs: &[DataId]) {
        let identity = |data: &DataId| {
            let about = std::fs::metadata(data_dir.join(layout::host_path(flow, *data)?)).ok()?;
            Some(JournalRecord::Input { data: *data, file: FileIdentity::of(&about) })
        };
        self.journal.write_all(inputs.iter().filter_map(identity));
    }

    /// Completes the report. The outcome follows from the tasks, the problem, and `interrupted`.
    pub fn seal(&mut self, interrupted: bool) {
        let failed = self.run.problem.is_some() || self.run.tasks.iter().any(|task| task.status != Status::Done);
        self.run.outcome = match (interrupted && !self.gave_up, failed) {
            (true, _) => RunOutcome::Interrupted,
            (false, true) => RunOutcome::Failed,
            (false, false) => RunOutcome::Done,
        };
        self.run.exit_code = i32::from(self.run.outcome != RunOutcome::Done);
        let outcome = outcome_name(self.run.outcome).to_owned();
        self.journal.write(JournalRecord::Ended { outcome });
        let makespan = self.now();
        self.run.seal(makespan);
        self.run.ended = wall_clock();
    }
}

/// The record of an attempt that ended.
fn record_of(outcome: &AttemptOutcome) -> JournalRecord {
    let ms = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let (task, attempt) = (outcome.task, outcome.attempt);
    let (prepared_ms, ran_ms) = (ms(outcome.prepared), ms(outcome.ran));
    match &outcome.result {
        Ok(made) => {
            let wrote = made.iter().map(|made| (made.data, made.bytes)).collect();
            JournalRecord::Done { task, attempt, prepared_ms, ran_ms, wrote }
        }
        Err(failure) => JournalRecord::AttemptFailed { task, attempt, prepared_ms, ran_ms, why: failure.text.clone() },
    }
}

/// Name of an outcome in events and journals.
pub fn outcome_name(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Done => "done",
        RunOutcome::Failed => "failed",
        RunOutcome::Interrupted => "interrupted",
    }
}

/// The current time in the format of run.json.
pub fn wall_clock() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    report::rfc3339_utc(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(task: u32, peak: Option<u64>) -> AttemptOutcome {
        AttemptOutcome { peak_memory_bytes: peak, ..AttemptOutcome::blank(TaskId(task), 1) }
    }

    #[test]
    fn a_tool_that_takes_more_memory_than_it_declares_is_told_once() {
        let task = |tool: &str| report::TaskRecord { tool: tool.into(), ..report::TaskRecord::default() };
        let run = RunReport { tasks: vec![task("hog"), task("hog"), task("calm")], ..RunReport::default() };
        let mut record = Recorder::new(run, RunJournal::default(), Instant::now());
        let limit = 8 << 20;
        assert_eq!(record.over_memory_warning(&outcome(0, Some(limit)), limit), None);
        assert_eq!(record.over_memory_warning(&outcome(0, None), limit), None, "it is not known");
        assert_eq!(record.over_memory_warning(&outcome(0, Some(40 << 20)), 0), None, "nothing was declared");
        let message = record.over_memory_warning(&outcome(0, Some(40 << 20)), limit).unwrap();
        assert!(
            message.contains("tool hog: task 0 held 40 MiB") && message.contains("`memory = \"8MiB\"`"),
            "{message}"
        );
        assert_eq!(record.over_memory_warning(&outcome(1, Some(50 << 20)), limit), None);
        assert!(record.over_memory_warning(&outcome(2, Some(50 << 20)), limit).is_some());
        assert_eq!(record.run.warnings.len(), 2);
    }
}
