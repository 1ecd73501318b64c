//! One task of the run: when and where it ran, the resources it took, and why it failed.

use crate::truncation;
use crate::{DataRef, ReadBytes, Seconds, TimeByCause};
use serde::{Deserialize, Serialize};

/// The record of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    /// The number of the task, from 0 in the order of the calls; the index in `RunReport::tasks`.
    pub id: u32,
    /// The tool that it called.
    pub tool: String,
    /// The status at the end.
    pub status: Status,
    /// The line of the call in the script, from 1; 0 if unknown.
    pub line: u32,
    /// The reason why the task did not succeed; none if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The run whose results stood in for it; it never started then. None for all other tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<String>,
    /// The number of attempts; 0 if it never started.
    pub attempts: u32,
    /// The slot in which it ran, from 0: the lowest, if it had several; none if it never started.
    pub slot: Option<u32>,
    /// The node on whose host it ran, as an index into `RunReport::nodes`; none on a single host,
    /// or if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The number of slots that it took.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cpus: u32,
    /// The time at which the last input or task that it waited for was complete; 0 if it waited for
    /// nothing; none if that never happened. Of a task that was added while the run went on not
    /// before that time, which it is until `RunReport::seal` fills it.
    pub ready_s: Option<Seconds>,
    /// The time from `ready_s` to its first start, less the time in which that was prepared on a
    /// cluster: it waited for a slot or for space. None if it never started. Filled by
    /// `RunReport::seal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<Seconds>,
    /// The time before the process of the last attempt in which its directory and inputs were
    /// prepared; none on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_s: Option<Seconds>,
    /// The start of its last attempt.
    pub start_s: Option<Seconds>,
    /// The end of its last attempt.
    pub end_s: Option<Seconds>,
    /// The time from the start of the run to `end_s` by cause; none on a single host, or if it
    /// never ran. Filled by `RunReport::seal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<TimeByCause>,
    /// Attempts before the last one; empty for most tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Attempt>,
    /// The command as it was started, truncated (see [`TaskRecord::set_command`]); empty if it
    /// never started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The number of arguments that `command` leaves out at its end. The last one kept may be cut;
    /// then it ends with `…`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub command_cut: u32,
    /// The exit code of the last attempt; none if a signal ended it or if it never started.
    pub exit_code: Option<i32>,
    /// The processor time of the last attempt and its children, user and system; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<Seconds>,
    /// The largest resident memory of the last attempt, in bytes; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<u64>,
    /// The most private memory that the processes of the last attempt held together, in bytes; none
    /// if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// The standard output of a task that succeeded; none if it was empty or went to a file. For
    /// failures see `FailureReason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<CapturedOutput>,
    /// The standard error of a task that succeeded; none if it was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<CapturedOutput>,
    /// The data that it read, in the order of the tool's parameters.
    pub inputs: Vec<DataRef>,
    /// The data that it wrote, or should have written.
    pub outputs: Vec<DataRef>,
    /// The bytes of all inputs; filled by `RunReport::seal`.
    pub input_bytes: u64,
    /// The bytes of the inputs by the place from which the last attempt had them; none on a single
    /// host, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadBytes>,
    /// The bytes of all outputs that exist; filled by `RunReport::seal`.
    pub output_bytes: u64,
    /// Tasks that it had to wait for although no data passes between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// The status of a task at the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The task succeeded and all its outputs exist.
    Done,
    /// The task failed, or one that it needs did; `TaskRecord::reason` says which.
    Failed,
    /// The run ended before the task did.
    #[default]
    Cancelled,
}

impl Status {
    /// The status of a task that has ended for `reason`; `Done` without one.
    pub fn of(reason: Option<&FailureReason>) -> Self {
        match reason.map(|reason| reason.kind) {
            None => Self::Done,
            Some(ReasonKind::Cancelled) => Self::Cancelled,
            Some(_) => Self::Failed,
        }
    }
}

/// The reason why a task did not succeed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureReason {
    /// The kind of failure.
    pub kind: ReasonKind,
    /// A sentence for users: what failed, on what, and what to do.
    pub text: String,
    /// The task whose own failure caused this one; the task itself unless `kind` is `upstream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u32>,
    /// The task that this one waited for directly, one step on the way to `root`; only for
    /// `upstream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<u32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The directory that is kept of it, with `--keep-failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The script in that directory that repeats its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// The task's standard output; none if it was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<CapturedOutput>,
    /// The task's standard error; none if it was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<CapturedOutput>,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonKind {
    /// The command ended with an exit code other than 0.
    Exit,
    /// A signal ended the command.
    Signal,
    /// The command ran longer than its tool allows.
    Timeout,
    /// The command succeeded, but an output is missing.
    MissingOutput,
    /// The command could not be started.
    NotStarted,
    /// A task that it depends on failed.
    Upstream,
    /// The run ended before the task did.
    #[default]
    Cancelled,
    /// The pool was full.
    NoSpace,
    /// The command took more memory than its tool declares.
    Memory,
}

/// The beginning and the end of a task's output on one stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedOutput {
    /// The beginning; the whole output if `tail` is empty.
    pub head: String,
    /// The end; empty if `head` is the whole output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// The length of the whole output in bytes.
    pub bytes: u64,
}

/// An attempt that failed and was followed by another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The slot in which it ran.
    pub slot: u32,
    /// The node on whose host it ran, as an index into `RunReport::nodes`; none on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The time before its process in which its directory and inputs were prepared; none on a
    /// single host, or if it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_s: Option<Seconds>,
    /// The start.
    pub start_s: Seconds,
    /// The end.
    pub end_s: Seconds,
    /// The reason of the failure, in a sentence.
    pub text: String,
    /// The processor time of its processes, user and system; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<Seconds>,
    /// The most private memory that its processes held together, in bytes; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl TaskRecord {
    /// Keeps `argv`, or its beginning: `COMMAND_BYTES_MAX` bytes, or `FAILED_COMMAND_BYTES_MAX` if
    /// the task did not succeed, because users run such commands by hand. Call it after `status` is
    /// set.
    pub fn set_command(&mut self, argv: &[String]) {
        let limit = match self.status {
            Status::Done => truncation::COMMAND_BYTES_MAX,
            Status::Failed | Status::Cancelled => truncation::FAILED_COMMAND_BYTES_MAX,
        };
        (self.command, self.command_cut) = truncation::truncate_command(argv, limit);
    }

    /// The start and the end of each of its attempts, in the order of time.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (f64, f64)> {
        let last = self.start_s.zip(self.end_s);
        self.earlier
            .iter()
            .map(|attempt| (attempt.start_s.0, attempt.end_s.0))
            .chain(last.map(|(start, end)| (start.0, end.0)))
    }

    /// The time at which it first had a slot: the start of its first attempt, or on a cluster the
    /// begin of what was prepared for it.
    pub(crate) fn slot_taken(&self) -> Option<f64> {
        self.spans().zip(self.prepared()).next().map(|((start, _), prepared)| start - prepared)
    }

    /// The time in which each of its attempts was prepared; 0 if unknown.
    pub(crate) fn prepared(&self) -> impl Iterator<Item = f64> {
        let earlier = self.earlier.iter().map(|attempt| attempt.prepared_s);
        earlier.chain([self.prepared_s]).map(|prepared| prepared.map_or(0.0, |prepared| prepared.0))
    }

    /// Returns whether the task failed by itself, not because of another task or the end of the
    /// run.
    pub fn is_root_failure(&self) -> bool {
        let upstream = |reason: &FailureReason| reason.kind == ReasonKind::Upstream;
        self.status == Status::Failed && !self.reason.as_ref().is_some_and(upstream)
    }
}

impl CapturedOutput {
    /// The captured output of a stream: its first bytes, its last bytes (empty if `head` is the
    /// whole output) and its length in bytes. Both ends are truncated (`OUTPUT_HEAD_BYTES`,
    /// `OUTPUT_TAIL_BYTES`), and bytes that are not UTF-8 are replaced. `None` if the output is
    /// empty.
    pub fn new(head: &[u8], tail: &[u8], bytes: u64) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let (head, rest) = head.split_at(head.len().min(truncation::OUTPUT_HEAD_BYTES));
        let tail = if tail.is_empty() { rest } else { tail };
        let tail = &tail[tail.len().saturating_sub(truncation::OUTPUT_TAIL_BYTES)..];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self { head: text(head), tail: text(tail), bytes })
    }

    /// Returns whether output is left out between `head` and `tail`.
    pub fn is_cut(&self) -> bool {
        (self.head.len() + self.tail.len()) as u64 != self.bytes
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_end_of_the_run_stopped_did_not_fail() {
        let status = |kind| Status::of(Some(&FailureReason { kind, ..FailureReason::default() }));
        assert_eq!(status(ReasonKind::Cancelled), Status::Cancelled);
        assert_eq!((status(ReasonKind::Exit), status(ReasonKind::Upstream)), (Status::Failed, Status::Failed));
        assert_eq!(Status::of(None), Status::Done);
    }

    #[test]
    fn a_stream_within_the_bounds_is_kept_whole() {
        let captured = CapturedOutput::new(b"one line\n", b"", 9).unwrap();
        assert_eq!((captured.head.as_str(), captured.tail.as_str(), captured.is_cut()), ("one line\n", "", false));
        assert_eq!(CapturedOutput::new(b"", b"", 0), None);
    }

    #[test]
    fn a_long_stream_keeps_its_first_and_its_last_bytes() {
        let long: Vec<u8> = (0..=255).cycle().take(100_000).map(|byte: u8| b'a' + byte % 26).collect();
        let captured = CapturedOutput::new(&long, b"", 100_000).unwrap();
        assert!(captured.is_cut());
        assert_eq!(captured.head.as_bytes(), &long[..OUTPUT_HEAD_BYTES]);
        assert_eq!(captured.tail.as_bytes(), &long[long.len() - OUTPUT_TAIL_BYTES..]);
    }

    use crate::{OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES};

    #[test]
    fn a_failed_task_keeps_more_of_its_command() {
        let argv: Vec<String> = (0..1000).map(|index| format!("argument-{index}")).collect();
        let mut task = TaskRecord { status: Status::Done, ..TaskRecord::default() };
        task.set_command(&argv);
        let short = task.command.len();
        task.status = Status::Failed;
        task.set_command(&argv);
        assert!(task.command.len() > short);
        assert_eq!(task.command.len() + task.command_cut as usize, argv.len());
    }
}
