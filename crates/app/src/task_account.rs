//! Account of one task for `tidemill explain`: what it waited for, why it started where and when it
//! did, or why it still waits. As a value for programs, and as text for people.

use crate::flow_command::format_call;
use crate::recorded_run::{MissingPart, RecordedRun, RunCondition, TaskCondition};
use base::ByteSize;
use flow::{DataId, TaskId};
use journal::AttemptTrace;
use run::StartReason;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;

/// The most missing parts that are named; the others are counted.
const MISSING_LISTED_MAX: usize = 10;

/// The most outputs that are named in the text.
const OUTPUTS_LISTED_MAX: usize = 10;

/// The account of a task. Times are in seconds since the start of the run.
#[derive(Debug, Serialize)]
pub struct TaskAccount {
    /// Name of the run.
    pub run: String,
    /// What has become of the run.
    pub run_condition: RunCondition,
    /// Number of the task.
    pub task: u32,
    /// Its tool.
    pub tool: String,
    /// The task as a call of its tool, for people.
    pub call: String,
    /// Line of the call in the script; 0 if it is not known.
    pub line: u32,
    /// What it does or waits for.
    pub condition: TaskCondition,
    /// When the last thing that it needed was there; absent while something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
    /// What came last; absent if it needs nothing of other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_by: Option<NeededPart>,
    /// What is missing: the first ten.
    pub missing: Vec<NeededPart>,
    /// Number of all that is missing.
    pub missing_count: usize,
    /// For a ready task: the number of tasks that were ready before it and have not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<usize>,
    /// For a ready task: the slots of all workers, and the tasks that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<(u32, usize)>,
    /// Its attempts.
    pub attempts: Vec<AttemptAccount>,
    /// The reason of its failure for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The run whose results stand in for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reused: Option<String>,
    /// How often it ran again after it was done, since data was lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub again: u32,
    /// What it wrote.
    pub wrote: Vec<WrittenPart>,
}

/// Something that a task needs.
#[derive(Debug, Serialize)]
pub struct NeededPart {
    /// Name of the member; absent if only the task must be done first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The task that brings it.
    pub task: u32,
    /// The tool of that task.
    pub tool: String,
    /// What that task does or waits for.
    pub condition: TaskCondition,
    /// Where and since when that task runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<(String, f64)>,
    /// If that task waits too: the task that it waits for in the end, its tool and what it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<(u32, String, TaskCondition)>,
}

/// An attempt.
#[derive(Debug, Serialize)]
pub struct AttemptAccount {
    /// Its number.
    pub attempt: u32,
    /// The host.
    pub worker: String,
    /// The slot there.
    pub slot: u32,
    /// Its start.
    pub started_s: f64,
    /// Its end; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// The reason of the start, as in the journal.
    pub reason: String,
    /// The same in words.
    pub because: String,
    /// Bytes that its inputs take at the worker's place.
    pub near_bytes: u64,
    /// Bytes that its inputs take elsewhere.
    pub far_bytes: u64,
    /// Seconds in which its directory and inputs were prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_s: Option<f64>,
    /// Seconds that its process ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_s: Option<f64>,
    /// The reason of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A datum that a task wrote.
#[derive(Debug, Serialize)]
pub struct WrittenPart {
    /// Name of the member.
    pub data: String,
    /// Its bytes.
    pub bytes: u64,
    /// True if it is in the pool no more.
    pub is_gone: bool,
    /// The file to which it was exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Milliseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "a run is shorter than 2^52 ms")]
pub fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

impl TaskAccount {
    /// The account of a task.
    pub fn new(run: &RecordedRun, task: TaskId) -> Self {
        let trace = run.state.task(task).cloned().unwrap_or_default();
        let condition = run.condition_of(task);
        let ready = run.ready(task);
        let is_ready = condition == TaskCondition::Ready && run.condition() == RunCondition::Live;
        let missing: Vec<MissingPart> =
            if condition == TaskCondition::Waiting { run.missing(task).collect() } else { Vec::new() };
        Self {
            run: run.state.header.run.clone(),
            run_condition: run.condition(),
            task: task.0,
            tool: run.flow.tool_of(task).name.clone(),
            call: format_call(&run.flow, task, &run.flow.tool_of(task).name),
            line: run.flow.task(task).line,
            condition,
            ready_s: ready.map(|(ms, _)| seconds(ms)),
            ready_by: ready.and_then(|(_, part)| part).map(|part| needed(run, part)),
            missing: missing.iter().take(MISSING_LISTED_MAX).map(|part| needed(run, *part)).collect(),
            missing_count: missing.len(),
            ahead: is_ready.then(|| ahead_of(run, task, ready.map_or(0, |(ms, _)| ms))),
            slots: is_ready.then(|| slots(run)),
            attempts: trace.attempts.iter().map(|attempt| attempt_account(run, attempt)).collect(),
            failure: trace.failure,
            reused: trace.reused,
            again: trace.again,
            wrote: run.flow.outputs(task).filter_map(|data| written(run, data)).collect(),
        }
    }

    /// The account for people.
    pub fn text(&self) -> String {
        let mut text = format!("task {} {}: {}\n", self.task, self.call, self.headline());
        let mut add = |label: &str, line: String| {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  {label:<8} {line}");
        };
        if self.line > 0 {
            add("call", format!("line {} of the script", self.line));
        }
        self.add_waiting(&mut add);
        for attempt in &self.attempts {
            attempt.add_to(self.attempts.len(), &mut add);
        }
        if self.again > 0 {
            add("again", format!("{} times it ran again after it was done: data that it wrote was lost", self.again));
        }
        if let Some(run) = &self.reused {
            add("reused", format!("results of run {run} stand in for it: tool, parameters and inputs are the same"));
        }
        if let Some(failure) = &self.failure {
            add("failed", failure.clone());
        }
        for written in self.wrote.iter().take(OUTPUTS_LISTED_MAX) {
            let place = match (&written.exported, written.is_gone) {
                (Some(path), _) => format!(", exported to {path}"),
                (None, true) => ", removed from the pool after its last reader".to_owned(),
                (None, false) => String::new(),
            };
            add("wrote", format!("{} ({}){place}", written.data, ByteSize(written.bytes)));
        }
        if let Some(more) = self.wrote.len().checked_sub(OUTPUTS_LISTED_MAX).filter(|more| *more > 0) {
            add("wrote", format!("and {more} more"));
        }
        text
    }

    fn headline(&self) -> String {
        let state = match self.condition {
            TaskCondition::Waiting => "waits for data or tasks",
            TaskCondition::Ready => "ready, waits for a slot or space",
            TaskCondition::Running => "runs",
            TaskCondition::Done => "done",
            TaskCondition::Failed => "failed",
        };
        match (self.run_condition, self.condition) {
            (_, TaskCondition::Done | TaskCondition::Failed) | (RunCondition::Live, _) => state.to_owned(),
            (RunCondition::Killed, TaskCondition::Running) => "ran when the run was killed".to_owned(),
            (RunCondition::Killed, _) => format!("did not run before the run was killed; it {}", past(state)),
            (RunCondition::Ended, _) => format!("did not run before the end of the run; it {}", past(state)),
        }
    }

    fn add_waiting(&self, add: &mut impl FnMut(&str, String)) {
        if let Some(ready_s) = self.ready_s {
            let by = match &self.ready_by {
                None => "it needs nothing of other tasks".to_owned(),
                Some(NeededPart { data: Some(data), task, tool, .. }) => {
                    format!("task {task} {tool} had written {data}")
                }
                Some(NeededPart { task, tool, .. }) => format!("task {task} {tool} was done"),
            };
            add("ready", format!("at {ready_s:.3} s: {by}"));
        }
        for part in &self.missing {
            add("missing", part.text());
        }
        if let Some(more) = self.missing_count.checked_sub(self.missing.len()).filter(|more| *more > 0) {
            add("missing", format!("and {more} more"));
        }
        if let Some(ahead) = self.ahead {
            add("queue", format!("{ahead} tasks were ready before it and have not started either"));
        }
        if let Some((slots, running)) = self.slots {
            add("slots", format!("{running} tasks run on {slots} slots"));
        }
    }
}

/// A state in the past.
fn past(state: &str) -> String {
    state.replacen("waits", "waited", 1).replacen("ready,", "was ready and", 1)
}

impl NeededPart {
    fn text(&self) -> String {
        let what = self.data.as_ref().map_or_else(String::new, |data| format!("{data}, written by "));
        let state = match (&self.runs, self.condition) {
            (Some((worker, since)), _) => format!("runs on {worker} since {since:.3} s"),
            (None, TaskCondition::Waiting) => "waits itself".to_owned(),
            (None, TaskCondition::Ready) => "is ready and waits for a slot or space".to_owned(),
            (None, TaskCondition::Failed) => "failed".to_owned(),
            (None, TaskCondition::Running | TaskCondition::Done) => "was under way".to_owned(),
        };
        let root = self.root.as_ref().map_or_else(String::new, |(task, tool, condition)| {
            let does = match condition {
                TaskCondition::Running => "runs",
                TaskCondition::Failed => "failed",
                _ => "is ready",
            };
            format!(", in the end for task {task} {tool}, which {does}")
        });
        format!("{what}task {} {}, which {state}{root}", self.task, self.tool)
    }
}

impl AttemptAccount {
    /// Adds the lines of an attempt, one of `count`.
    fn add_to(&self, count: usize, add: &mut impl FnMut(&str, String)) {
        let number = if count > 1 { format!("attempt {} ", self.attempt) } else { String::new() };
        add("started", format!("{number}at {:.3} s on {}, slot {}", self.started_s, self.worker, self.slot));
        add("because", self.because.clone());
        add("inputs", format!("{} there, {} elsewhere", ByteSize(self.near_bytes), ByteSize(self.far_bytes)));
        let Some(ended_s) = self.ended_s else { return };
        let took = match (self.prepared_s, self.ran_s) {
            (Some(prepared), Some(ran)) => format!("; {prepared:.3} s to prepare it, {ran:.3} s of its process"),
            _ => String::new(),
        };
        let how = self.failure.as_ref().map_or_else(|| "done".to_owned(), |why| format!("failed: {why}"));
        add("ended", format!("{number}at {ended_s:.3} s: {how}{took}"));
    }
}

fn attempt_account(run: &RecordedRun, attempt: &AttemptTrace) -> AttemptAccount {
    let because = StartReason::from_name(&attempt.reason).map_or_else(|| attempt.reason.clone(), |why| why.to_string());
    AttemptAccount {
        attempt: attempt.number,
        worker: run.worker_name(attempt.worker),
        slot: attempt.slot,
        started_s: seconds(attempt.started_ms),
        ended_s: attempt.ended_ms.map(seconds),
        reason: attempt.reason.clone(),
        because,
        near_bytes: attempt.near,
        far_bytes: attempt.far,
        prepared_s: attempt.took_ms.map(|(prepared, _)| seconds(prepared)),
        ran_s: attempt.took_ms.map(|(_, ran)| seconds(ran)),
        failure: attempt.failure.clone(),
    }
}

fn needed(run: &RecordedRun, part: MissingPart) -> NeededPart {
    let task = part.task();
    let condition = run.condition_of(task);
    let data = match part {
        MissingPart::Data(data, _) => Some(run.flow.workflow().data_name(data)),
        MissingPart::After(_) => None,
    };
    let running = run.state.task(task).and_then(|trace| trace.attempts.last());
    let running = running.filter(|attempt| condition == TaskCondition::Running && attempt.ended_ms.is_none());
    NeededPart {
        data,
        task: task.0,
        tool: run.flow.tool_of(task).name.clone(),
        condition,
        runs: running.map(|attempt| (run.worker_name(attempt.worker), seconds(attempt.started_ms))),
        root: (condition == TaskCondition::Waiting).then(|| root_of(run, task)).flatten(),
    }
}

/// The task that a waiting task waits for in the end: the first one found that does not wait.
fn root_of(run: &RecordedRun, task: TaskId) -> Option<(u32, String, TaskCondition)> {
    let mut at = task;
    // The workflow has no cycle; the set bounds the walk should the journal be of another one.
    let mut seen = HashSet::new();
    while seen.insert(at) {
        let Some(next) = run.missing(at).next() else { break };
        at = next.task();
    }
    (at != task).then(|| (at.0, run.flow.tool_of(at).name.clone(), run.condition_of(at)))
}

/// Number of tasks that were ready before `task` and have not started.
fn ahead_of(run: &RecordedRun, task: TaskId, ready_ms: u64) -> usize {
    let waits = |other: &TaskId| run.condition_of(*other) == TaskCondition::Ready;
    let is_before = |other: &TaskId| run.ready(*other).is_some_and(|(ms, _)| (ms, other.0) < (ready_ms, task.0));
    run.tasks().filter(waits).filter(is_before).count()
}

/// The slots of all workers, and the number of tasks that run.
fn slots(run: &RecordedRun) -> (u32, usize) {
    let workers = run.state.workers.values().filter(|worker| worker.lost_ms.is_none());
    (workers.map(|worker| worker.slots).sum(), run.state.count(journal::TaskPhase::Running))
}

fn written(run: &RecordedRun, data: DataId) -> Option<WrittenPart> {
    let trace = run.state.data.get(&data)?;
    Some(WrittenPart {
        data: run.flow.workflow().data_name(data),
        bytes: trace.bytes,
        is_gone: trace.is_gone,
        exported: trace.exported.as_ref().map(|export| export.path.clone()),
    })
}
