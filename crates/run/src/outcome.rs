//! Outcome of an attempt: what the host that ran it reports.

use crate::workspace::OutputFile;
use flow::{DataId, TaskId};
use report::{CapturedOutput, ReasonKind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Failure of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// Category of the failure.
    pub kind: ReasonKind,
    /// A sentence for the user: what failed, on what, what to do.
    pub text: String,
    /// Signal that ended the process.
    pub signal: Option<i32>,
    /// True if another attempt may succeed.
    pub retry: bool,
    /// Directory where the attempt is kept, if it is kept.
    pub kept: Option<PathBuf>,
}

impl AttemptFailure {
    /// A failure without a signal that another attempt may avoid.
    pub fn new(kind: ReasonKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), signal: None, retry: true, kept: None }
    }
}

/// Outcome of one attempt of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptOutcome {
    /// Id of the task.
    pub task: TaskId,
    /// Number of the attempt.
    pub attempt: u32,
    /// Time that its process ran, or that the attempt took if there was no process.
    pub ran: Duration,
    /// Time from the order to the start of the process: its directory and inputs were prepared.
    pub prepared: Duration,
    /// Command line; empty if it could not be made.
    pub argv: Vec<String>,
    /// Exit code, if the process exited.
    pub exit_code: Option<i32>,
    /// Processor time in seconds.
    pub cpu_s: Option<f64>,
    /// Largest resident memory in bytes.
    pub max_rss_bytes: Option<u64>,
    /// Peak of the anonymous memory that its processes held together, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Captured standard output.
    pub stdout: Option<CapturedOutput>,
    /// Captured standard error.
    pub stderr: Option<CapturedOutput>,
    /// The inputs that it read at copies that others had made at its node.
    pub cached: Vec<DataId>,
    /// True if the pool refused space to any task while this one ran. It is not known which task
    /// was refused; a needless warning does less harm than a missing one.
    pub refused: bool,
    /// True if a node of the pool did not answer its host while it ran: a tool that goes on after
    /// an error may have read less than there was.
    pub unanswered: bool,
    /// Members that the attempt wrote, or the reason of its failure.
    pub result: Result<Vec<OutputFile>, AttemptFailure>,
}

impl AttemptOutcome {
    /// The outcome of an attempt that has not done anything yet.
    pub fn blank(task: TaskId, attempt: u32) -> Self {
        Self {
            task,
            attempt,
            ran: Duration::ZERO,
            prepared: Duration::ZERO,
            argv: Vec::new(),
            exit_code: None,
            cpu_s: None,
            max_rss_bytes: None,
            peak_memory_bytes: None,
            stdout: None,
            stderr: None,
            cached: Vec::new(),
            refused: false,
            unanswered: false,
            result: Ok(Vec::new()),
        }
    }
}
