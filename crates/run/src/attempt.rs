//! One attempt of a task: its directory, command, process and outputs.
//!
//! ```text
//! expand -> prepare -> exec -> collect      outputs are in the pool
//!             |         |        |
//!             +---------+--------+-> discard, and a failure that says what to do
//! ```

use crate::checked_workflow::CheckedWorkflow;
use crate::keep_failed::{KeepFailed, RerunScript};
use crate::memory_limits::MemoryLimits;
use crate::recorder::{AttemptFailure, AttemptResult};
use crate::workspace::{CollectResult, MissingOutput, OutputFile, TaskIo, Workspace, WorkspaceError};
use base::ByteSize;
use exec::{ExitReason, Launch};
use flow::{DataId, TaskCommand, TaskId, ToolId};
use report::{CapturedOutput, ReasonKind};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use wire::Refusal;

/// Advice for a full pool.
pub const SPACE_HINT: &str =
    "give it more with --memory, run fewer tasks at once with --slots, or leave --keep out so that temporaries go";

/// Advice for a full RAM disk: containers often have a small one.
const RAM_DISK_HINT: &str = "run fewer tasks at once with --slots, make it larger (mount -o remount,size=8G /dev/shm; \
     docker run --shm-size 8g), or let the pool be mounted (as root, or with fusermount3)";

/// State that all attempts of a run share.
#[derive(Debug)]
pub struct RunContext {
    /// The checked workflow.
    pub flow: Arc<CheckedWorkflow>,
    /// The pool as tasks see it; `None` if no task needs it.
    pub workspace: Option<Workspace>,
    /// Path of each tool's program.
    pub programs: HashMap<ToolId, PathBuf>,
    /// Environment of every task, before the tool's own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory of tasks that have no directory of their own.
    pub default_cwd: PathBuf,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Upper bound of the bytes of all copies on the RAM disk.
    pub copies_max: u64,
    /// Control groups that enforce the memory that tools declare, where they can be made.
    pub memory: Option<MemoryLimits>,
    /// Keeps leftovers of tasks.
    pub keep: bool,
    /// Directory for failed tasks, if they are kept.
    pub keep_failed: Option<KeepFailed>,
    /// How often the pool was found full at the end of a task. A counter, not a flag: the first
    /// task that fails frees space, but others may have failed for the same shortage.
    pub filled: AtomicU64,
}

/// Runs an attempt to its end.
pub async fn run(context: Arc<RunContext>, task: TaskId, attempt: u32, cancel: CancellationToken) -> AttemptResult {
    let started = Instant::now();
    let mut attempt_result = AttemptResult {
        task,
        started,
        ended: started,
        argv: Vec::new(),
        exit_code: None,
        cpu_s: None,
        max_rss_bytes: None,
        peak_memory_bytes: None,
        stdout: None,
        stderr: None,
        refused: false,
        result: Ok(Vec::new()),
    };
    attempt_result.result = context.perform(attempt, cancel, &mut attempt_result).await;
    attempt_result.ended = Instant::now();
    attempt_result
}

impl RunContext {
    async fn perform(
        &self,
        attempt: u32,
        cancel: CancellationToken,
        attempt_result: &mut AttemptResult,
    ) -> Result<Vec<OutputFile>, AttemptFailure> {
        let task = attempt_result.task;
        let command = self.expand(task);
        self.record_argv(&command, attempt_result);
        let workspace = self.workspace.as_ref().filter(|_| self.flow.tool_of(task).needs_workdir());
        let refused_before = (self.refusals(), self.filled.load(Relaxed));
        if let Some(workspace) = workspace {
            workspace
                .prepare_task(task, &command)
                .await
                .map_err(|error| setup_failure(&error, "the task's directory could not be prepared"))?;
        }
        let outcome = self.execute(&command, attempt, cancel, attempt_result).await;
        let outcome = match (outcome, workspace) {
            (Ok(()), Some(workspace)) => self.collect(workspace, task).await,
            (outcome, _) => outcome.map(|()| Vec::new()),
        };
        if self.workspace.as_ref().is_some_and(Workspace::is_filled) {
            self.filled.fetch_add(1, Relaxed);
        }
        attempt_result.refused = (self.refusals(), self.filled.load(Relaxed)) != refused_before;
        // Do this before the directory is removed, while the fill level that explains the failure
        // can still be seen.
        let outcome = outcome.map_err(|failure| self.attribute_to_space(failure, task, attempt_result.refused));
        let outcome = self.keep_or_forget(outcome, (task, attempt)).await;
        if let (Err(_), Some(workspace)) = (&outcome, workspace) {
            // Only log an error of the removal; the user needs the failure that came first.
            if let Err(error) = workspace.discard(task).await {
                tracing::warn!(task = task.0, %error, "could not remove what a failed task left");
            }
        }
        outcome
    }

    fn expand(&self, task: TaskId) -> TaskCommand {
        match &self.workspace {
            None => self.flow.command(task, "", &|_: DataId| String::new()),
            Some(workspace) => {
                let path_of = |id| workspace.path_of(task, id).text();
                self.flow.command(task, &workspace.dir_of(task).text(), &path_of)
            }
        }
    }

    fn record_argv(&self, command: &TaskCommand, attempt_result: &mut AttemptResult) {
        attempt_result.argv = std::iter::once(self.program(attempt_result.task).display().to_string())
            .chain(command.args.iter().cloned())
            .collect();
    }

    fn program(&self, task: TaskId) -> PathBuf {
        self.programs.get(&self.flow.task(task).tool).cloned().unwrap_or_default()
    }

    async fn execute(
        &self,
        command: &TaskCommand,
        attempt: u32,
        cancel: CancellationToken,
        attempt_result: &mut AttemptResult,
    ) -> Result<(), AttemptFailure> {
        let tool = self.flow.tool_of(attempt_result.task);
        let workspace = self.workspace.as_ref().filter(|_| tool.needs_workdir());
        let io = match workspace {
            Some(workspace) => workspace.task_io(attempt_result.task, command).await,
            None => Ok(TaskIo::paths(self.default_cwd.clone().into(), command)),
        };
        let io = io.map_err(|error| setup_failure(&error, "its standard files could not be opened"))?;
        let launch = Launch {
            program: self.program(attempt_result.task),
            args: command.args.iter().map(OsString::from).collect(),
            env: self.environment_of(command, (attempt_result.task, attempt), &io),
            cwd: io.cwd,
            stdin: io.stdin,
            stdout: io.stdout,
            timeout: tool.timeout_ms.map(Duration::from_millis),
            grace: self.grace,
            memory: self.memory.as_ref().and_then(|limits| limits.limit_of(tool)),
        };
        attempt_result.started = Instant::now();
        let ended = exec::run(launch, cancel).await;
        if let Some(workspace) = workspace {
            workspace.release_opened(&io.opened).await;
        }
        attempt_result.stdout = captured_output(&ended.stdout);
        attempt_result.stderr = captured_output(&ended.stderr);
        attempt_result.cpu_s = Some((ended.usage.user + ended.usage.system).as_secs_f64());
        attempt_result.max_rss_bytes = ended.usage.rss_max;
        attempt_result.peak_memory_bytes = ended.usage.memory_peak;
        attempt_result.exit_code = if let ExitReason::Exited(code) = &ended.ending { Some(*code) } else { None };
        check_exit(&ended.ending, tool)
    }

    fn environment_of(
        &self,
        command: &TaskCommand,
        (task, attempt): (TaskId, u32),
        io: &TaskIo,
    ) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        if !command.path.is_empty() {
            put_path_first(&mut environment, &command.path);
        }
        let own = self.task_variables(task, attempt).map(|(name, value)| (name.into(), value.into())).into_iter();
        let of_tool = command.env.iter().map(|(name, value)| (name.into(), value.into()));
        for (name, value) in own.chain(of_tool).chain(io.variables.iter().cloned()) {
            set(&mut environment, name, value);
        }
        if let Some(library) = &io.library {
            let others = environment.iter().find(|(name, _)| name == "LD_PRELOAD").map(|(_, value)| value.clone());
            let (name, list) = exec::preload_variable(library, others.as_deref());
            set(&mut environment, name, list);
        }
        environment
    }

    /// Variables that tell a task its number, tool and attempt.
    fn task_variables(&self, task: TaskId, attempt: u32) -> [(&'static str, String); 3] {
        [
            ("TIDEMILL_TASK", task.0.to_string()),
            ("TIDEMILL_TOOL", self.flow.tool_of(task).name.clone()),
            ("TIDEMILL_ATTEMPT", attempt.to_string()),
        ]
    }

    /// Keeps the files of a failed attempt, if wanted. After a success it removes those of earlier
    /// attempts.
    async fn keep_or_forget(
        &self,
        outcome: Result<Vec<OutputFile>, AttemptFailure>,
        (task, attempt): (TaskId, u32),
    ) -> Result<Vec<OutputFile>, AttemptFailure> {
        let (Some(keep), Some(workspace)) = (&self.keep_failed, &self.workspace) else { return outcome };
        let failure = match outcome {
            Ok(made) => {
                keep.forget(&self.flow, task);
                return Ok(made);
            }
            Err(failure) if failure.kind == ReasonKind::Cancelled => return Err(failure),
            Err(failure) => failure,
        };
        let variables = self.task_variables(task, attempt).map(|(name, value)| (name.to_owned(), value)).into();
        let repeat = RerunScript { task, why: failure.text.clone(), program: self.program(task), variables };
        let (kept, text) = match keep.keep(&self.flow, workspace, &repeat).await {
            Ok(kept) => (kept, failure.text.clone()),
            Err(error) => (None, format!("{}; it could not be kept: {error}", failure.text)),
        };
        Err(AttemptFailure { text, kept, ..failure })
    }

    async fn collect(&self, workspace: &Workspace, task: TaskId) -> Result<Vec<OutputFile>, AttemptFailure> {
        match workspace.collect(task, self.keep).await {
            Ok(CollectResult::All(made)) => Ok(made),
            Ok(CollectResult::Missing(missing)) => {
                Err(AttemptFailure::new(ReasonKind::MissingOutput, self.name_missing(&missing)))
            }
            Err(error) => Err(setup_failure(&error, "its outputs could not be taken over")),
        }
    }

    fn name_missing(&self, missing: &[MissingOutput]) -> String {
        const NAMED_MAX: usize = 5;
        let workflow = self.flow.workflow();
        let named = missing
            .iter()
            .take(NAMED_MAX)
            .map(|one| format!("{} ({}: {})", workflow.data_name(one.data), one.path, one.found));
        let more = missing.len().saturating_sub(NAMED_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let list: Vec<String> = named.collect();
        format!("it succeeded but did not write {}{rest}", list.join(", "))
    }

    /// Number of requests for space that the pool has refused so far.
    fn refusals(&self) -> u64 {
        self.workspace.as_ref().map_or(0, |workspace| workspace.usage().refused)
    }

    /// Turns a failure into one of space, with advice, if space ran out while the task ran.
    fn attribute_to_space(&self, failure: AttemptFailure, task: TaskId, refused: bool) -> AttemptFailure {
        let own = matches!(failure.kind, ReasonKind::Exit | ReasonKind::Signal | ReasonKind::MissingOutput);
        let Some(full) = self.full_storage(task, refused).filter(|_| own) else { return failure };
        let text = format!("{}; {full}", failure.text);
        AttemptFailure { kind: ReasonKind::NoSpace, text, ..failure }
    }

    /// Describes the pool if it refused space, or the RAM disk if it is full now.
    fn full_storage(&self, task: TaskId, refused: bool) -> Option<String> {
        let workspace = self.workspace.as_ref()?;
        let describe = |what: String, space: wire::SpaceUsage, hint: &str| {
            format!("{what} was full ({} of {} used): {hint}", ByteSize(space.used), ByteSize(space.capacity))
        };
        if refused {
            return Some(describe("the pool".into(), workspace.usage(), SPACE_HINT));
        }
        let (place, space) = workspace.full_ram_disk(task)?;
        Some(describe(format!("the RAM disk of {}", place.display()), space, RAM_DISK_HINT))
    }
}

fn captured_output(captured: &exec::OutputCapture) -> Option<CapturedOutput> {
    CapturedOutput::new(captured.head(), &captured.tail(), captured.total())
}

/// Converts an error in the work around the process to a failure.
fn setup_failure(error: &WorkspaceError, what: &str) -> AttemptFailure {
    match error {
        WorkspaceError::Pool { refusal: Refusal::NoSpace(shortage), .. } => {
            let (used, capacity) = (ByteSize(shortage.used), ByteSize(shortage.capacity));
            let waited = shortage.waited.as_secs_f64();
            let text = format!("{what}: the pool was full ({used} of {capacity} used) for {waited:.1} s: {SPACE_HINT}");
            AttemptFailure::new(ReasonKind::NoSpace, text)
        }
        WorkspaceError::Pool { refusal: Refusal::Interrupted(_), .. } => AttemptFailure {
            retry: false,
            ..AttemptFailure::new(ReasonKind::Cancelled, "the run was ended while it ran")
        },
        _ if error.is_no_space() => {
            AttemptFailure::new(ReasonKind::NoSpace, format!("{what}: {error}: {RAM_DISK_HINT}"))
        }
        _ => AttemptFailure::new(ReasonKind::NotStarted, format!("{what}: {error}")),
    }
}

/// Converts the ending of a process to success or a failure.
fn check_exit(ending: &ExitReason, tool: &flow::Tool) -> Result<(), AttemptFailure> {
    let failed = |kind, text: String| Err(AttemptFailure::new(kind, text));
    match ending {
        ExitReason::Exited(0) => Ok(()),
        ExitReason::Exited(code) => failed(ReasonKind::Exit, format!("it ended with exit code {code}")),
        ExitReason::Signalled(signal) => Err(AttemptFailure {
            signal: Some(*signal),
            ..AttemptFailure::new(ReasonKind::Signal, format!("it was {ending}"))
        }),
        ExitReason::TimedOut => {
            let limit = tool.timeout_ms.map(Duration::from_millis).unwrap_or_default();
            failed(
                ReasonKind::Timeout,
                format!("it ran longer than its time-out of {} s and was ended", limit.as_secs_f64()),
            )
        }
        ExitReason::OverMemory { own, held } => {
            failed(ReasonKind::Memory, over_memory(ByteSize(*own), held.map(ByteSize)))
        }
        ExitReason::Cancelled => Err(AttemptFailure {
            retry: false,
            ..AttemptFailure::new(ReasonKind::Cancelled, "the run was ended while it ran")
        }),
        ExitReason::NotStarted { .. } => {
            Err(AttemptFailure { retry: false, ..AttemptFailure::new(ReasonKind::NotStarted, ending.to_string()) })
        }
        other => failed(ReasonKind::NotStarted, format!("it {other}")),
    }
}

/// Message for a tool that took more memory than it declares, with advice.
fn over_memory(own: ByteSize, held: Option<ByteSize>) -> String {
    let held =
        held.map_or("the kernel killed it at the limit of its control group".into(), |held| format!("it held {held}"));
    format!("it took more memory than its tool declares (memory = {own}; {held}): raise `memory` in the tool file")
}

/// Prepends the tool's directories to PATH.
fn put_path_first(environment: &mut Vec<(OsString, OsString)>, own: &[String]) {
    let old = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone()).unwrap_or_default();
    let directories: Vec<PathBuf> = own.iter().map(PathBuf::from).chain(std::env::split_paths(&old)).collect();
    if let Ok(joined) = std::env::join_paths(directories) {
        set(environment, "PATH".into(), joined);
    }
}

/// Sets a variable and removes earlier values: of two with one name, it depends on the program
/// which one counts.
fn set(environment: &mut Vec<(OsString, OsString)>, name: OsString, value: OsString) {
    environment.retain(|(known, _)| *known != name);
    environment.push((name, value));
}
