//! What happens during a run, told as it happens: progress bars, plain lines and `--json` are all made of these.

use base::ByteSize;
use flow::TaskId;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Something that happened. Times are seconds since the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The run begins.
    Started {
        /// Its id.
        run: String,
        /// How many tasks it has.
        tasks: usize,
        /// Slots.
        slots: u32,
        /// How tasks see the pool: `mount`, `preload`, `staging` or `none`.
        storage: &'static str,
        /// One line that says it, and why.
        storage_line: String,
        /// The pool's size; 0 without a pool.
        memory: ByteSize,
    },
    /// An attempt of a task begins.
    TaskStarted {
        /// The task.
        task: TaskId,
        /// Its tool's name.
        tool: String,
        /// From 1.
        attempt: u32,
    },
    /// A task is done.
    TaskDone {
        /// The task.
        task: TaskId,
        /// Its tool's name.
        tool: String,
        /// Seconds of the last attempt.
        seconds: f64,
    },
    /// An attempt failed and there will be another.
    TaskRetried {
        /// The task.
        task: TaskId,
        /// Its tool's name.
        tool: String,
        /// Why.
        reason: String,
    },
    /// A task failed for good, or will never run.
    TaskFailed {
        /// The task.
        task: TaskId,
        /// Its tool's name.
        tool: String,
        /// Why, in a line or two.
        reason: String,
        /// The line of its call in the script, from 1; 0 when unknown.
        line: u32,
        /// What it should have written, as in the script; of many the first and how many more.
        writes: String,
        /// The values that its call gives, such as `n = 3, mode = "fast"`.
        values: String,
        /// The end of what it printed; empty if it never ran.
        output: String,
        /// Bytes that it printed before that.
        left_out: u64,
        /// The folder that is kept of it, if it is.
        kept: Option<PathBuf>,
        /// Whether it failed only since a task before it did.
        upstream: bool,
    },
    /// An output stands under `--out`.
    Exported {
        /// The member's name as in the script.
        data: String,
        /// Where it is.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// How things stand, a few times a second.
    Progress(Progress),
    /// Something the user should know that is no failure.
    Warning(String),
    /// All is over; the report is written.
    Ended {
        /// `done`, `failed` or `interrupted`.
        outcome: &'static str,
        /// Seconds in all.
        seconds: f64,
        /// Tasks that are done.
        done: usize,
        /// Tasks that failed or never ran.
        failed: usize,
        /// The report; none if it could not be written.
        report: Option<PathBuf>,
    },
}

/// Counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Tasks in all.
    pub tasks: usize,
    /// Tasks that are done.
    pub done: usize,
    /// Tasks that failed or will never run.
    pub failed: usize,
    /// Tasks that run.
    pub running: usize,
    /// Bytes in the pool.
    pub used: ByteSize,
    /// The pool's size.
    pub capacity: ByteSize,
    /// Seconds since the start.
    pub elapsed: f64,
    /// A guess at the seconds that are left; none before there is something to guess from.
    pub left: Option<f64>,
}

impl Event {
    /// The event as one JSON object for `--json`; `event` names its kind.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Started { run, tasks, slots, storage, storage_line, memory } => {
                json!({"event": "started", "run": run,
                "tasks": tasks, "slots": slots, "storage": storage, "storage_line": storage_line, "memory": memory.0})
            }
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
            Self::Warning(text) => json!({"event": "warning", "text": text}),
            Self::Ended { outcome, seconds, done, failed, report } => json!({"event": "ended", "outcome": outcome,
                "seconds": seconds, "done": done, "failed": failed, "report": report}),
        }
    }
}
