//! Events of a run. Progress bars, plain lines and `--json` are all made from them.

use base::ByteSize;
use flow::TaskId;
use serde_json::{Value, json};
use std::path::PathBuf;

/// An event of a run. Times are seconds since the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The run starts.
    Started {
        /// Id of the run.
        run: String,
        /// Number of tasks.
        tasks: usize,
        /// Number of slots.
        slots: u32,
        /// Storage mode: `mount`, `preload`, `staging` or `none`.
        storage: &'static str,
        /// One line for the user that names the storage mode and the reason for it.
        storage_line: String,
        /// Size of the pool; 0 without a pool.
        memory: ByteSize,
    },
    /// The run goes on that an earlier process began.
    Resumed {
        /// Number of tasks that are not run again.
        settled: usize,
        /// Number of tasks that were done and run again, since data that they wrote is needed and
        /// gone.
        again: usize,
    },
    /// Results of another run stand in for tasks.
    Reused {
        /// Name of the other run.
        from: String,
        /// Number of tasks that do not run.
        tasks: usize,
    },
    /// An attempt of a task starts.
    TaskStarted {
        /// Id of the task.
        task: TaskId,
        /// Name of the task's tool.
        tool: String,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// A task succeeded.
    TaskDone {
        /// Id of the task.
        task: TaskId,
        /// Name of the task's tool.
        tool: String,
        /// Duration of the last attempt in seconds.
        seconds: f64,
    },
    /// An attempt failed, and another one follows.
    TaskRetried {
        /// Id of the task.
        task: TaskId,
        /// Name of the task's tool.
        tool: String,
        /// Reason of the failure.
        reason: String,
    },
    /// A task failed for good, or will never run.
    TaskFailed {
        /// Id of the task.
        task: TaskId,
        /// Name of the task's tool.
        tool: String,
        /// Reason in one or two lines.
        reason: String,
        /// Line of the task's call in the script, from 1; 0 if unknown.
        line: u32,
        /// Data elements that the task should have written, named as in the script. Of many, the
        /// first few and the number of the others.
        writes: String,
        /// Config values of the call, such as `n = 3, mode = "fast"`.
        values: String,
        /// End of the captured output; empty if the task never ran.
        output: String,
        /// Number of bytes printed before `output`.
        left_out: u64,
        /// Directory where the failed attempt is kept, if `--keep-failed` kept it.
        kept: Option<PathBuf>,
        /// True if the task failed only because an earlier task did, or because the run was ended.
        upstream: bool,
    },
    /// An output was written below `--out`.
    Exported {
        /// Name of the member, as in the script.
        data: String,
        /// Path of the output.
        path: String,
        /// Size in bytes.
        bytes: u64,
    },
    /// Current counts, sent a few times a second.
    Progress(Progress),
    /// Lines that the script prints.
    Printed(String),
    /// A problem with which the run cannot go on.
    Problem(String),
    /// A warning for the user; not a failure.
    Warning(String),
    /// The pool grows or shrinks by itself: what happens, and why.
    Pool(String),
    /// The run ended.
    Ended {
        /// `done`, `failed` or `interrupted`.
        outcome: &'static str,
        /// Duration of the run in seconds.
        seconds: f64,
        /// Number of tasks that succeeded.
        done: usize,
        /// Number of tasks that failed or never ran.
        failed: usize,
        /// Path of the report; `None` if it could not be written.
        report: Option<PathBuf>,
    },
}

/// Counts of a run at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Number of tasks.
    pub tasks: usize,
    /// Number of tasks that succeeded.
    pub done: usize,
    /// Number of tasks that failed or will never run.
    pub failed: usize,
    /// Number of running tasks.
    pub running: usize,
    /// Bytes in the pool.
    pub used: ByteSize,
    /// Size of the pool.
    pub capacity: ByteSize,
    /// Seconds since the start of the run.
    pub elapsed: f64,
    /// Estimated seconds until the end; `None` before there is enough data for an estimate.
    pub left: Option<f64>,
}

impl RunEvent {
    /// Encodes the event as one JSON object for `--json`; the key `event` names its kind.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Started { run, tasks, slots, storage, storage_line, memory } => {
                json!({"event": "started", "run": run,
                "tasks": tasks, "slots": slots, "storage": storage, "storage_line": storage_line, "memory": memory.0})
            }
            Self::Resumed { settled, again } => json!({"event": "resumed", "settled": settled, "again": again}),
            Self::Reused { from, tasks } => json!({"event": "reused", "from": from, "tasks": tasks}),
            Self::TaskStarted { task, tool, attempt } => {
                json!({"event": "task_started", "task": task.0, "tool": tool, "attempt": attempt})
            }
            Self::TaskDone { task, tool, seconds } => {
                json!({"event": "task_done", "task": task.0, "tool": tool, "seconds": seconds})
            }
            Self::TaskRetried { task, tool, reason } => {
                json!({"event": "task_retried", "task": task.0, "tool": tool, "reason": reason})
            }
            Self::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, upstream } => {
                json!({"event": "task_failed", "task": task.0, "tool": tool, "reason": reason, "line": line,
                "writes": writes, "values": values, "output": output, "left_out": left_out, "kept": kept, "upstream": upstream})
            }
            Self::Exported { data, path, bytes } => {
                json!({"event": "exported", "data": data, "path": path, "bytes": bytes})
            }
            Self::Progress(at) => json!({"event": "progress", "tasks": at.tasks, "done": at.done, "failed": at.failed,
                "running": at.running, "used": at.used.0, "capacity": at.capacity.0, "elapsed": at.elapsed, "left": at.left}),
            Self::Printed(text) => json!({"event": "printed", "text": text}),
            Self::Problem(text) => json!({"event": "problem", "text": text}),
            Self::Pool(text) => json!({"event": "pool", "text": text}),
            Self::Warning(text) => json!({"event": "warning", "text": text}),
            Self::Ended { outcome, seconds, done, failed, report } => json!({"event": "ended", "outcome": outcome,
                "seconds": seconds, "done": done, "failed": failed, "report": report}),
        }
    }
}
