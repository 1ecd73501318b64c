//! One attempt of a task: its directory, command, process and outputs.
//!
//! ```text
//! expand -> prepare -> exec -> collect      outputs are in the pool
//!             |         |        |
//!             +---------+--------+-> discard, and a failure that says what to do
//! ```

use crate::cluster::{HostTools, InputCopies};
use crate::memory_limits::MemoryLimits;
use crate::order::AttemptOrder;
use crate::outcome::{AttemptFailure, AttemptOutcome};
use crate::workspace::{CollectResult, MissingOutput, OutputFile, TaskIo, Workspace, WorkspaceError};
use base::ByteSize;
use exec::{ExitReason, Launch};
use flow::{DataId, TaskCommand};
use report::{CapturedOutput, ReasonKind};
use std::borrow::Cow;
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

/// Environment of a task, before the tool's own variables.
pub type Environment = Vec<(OsString, OsString)>;

/// State that all attempts on one host share.
#[derive(Debug)]
pub struct HostContext {
    /// The pool as tasks see it; `None` if no task needs it.
    pub workspace: Option<Workspace>,
    /// Tools of this host with their files; `None` where they are those of the run itself.
    pub tools: Option<HostTools>,
    /// Copies of inputs at the node of this host; `None` if it has no node, or all data.
    pub copies: Option<Arc<InputCopies>>,
    /// Working directory of tasks that have no directory of their own.
    pub default_cwd: PathBuf,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Control groups that enforce the memory that tools declare, where they can be made.
    pub memory: Option<MemoryLimits>,
    /// Keeps leftovers of tasks.
    pub keep: bool,
    /// Leaves the directory of a failed attempt in the pool; the run removes it.
    pub leave_failed: bool,
    /// How often the pool was found full at the end of a task. A counter, not a flag: the first
    /// task that fails frees space, but others may have failed for the same shortage.
    pub filled: AtomicU64,
}

/// Runs an attempt to its end.
pub async fn run(
    context: Arc<HostContext>,
    order: Arc<AttemptOrder>,
    environment: Arc<Environment>,
    cancel: CancellationToken,
) -> AttemptOutcome {
    let mut outcome = AttemptOutcome::blank(order.task, order.attempt);
    let ordered = Instant::now();
    outcome.result = match (&context.copies, &context.workspace) {
        (Some(copies), Some(workspace)) => {
            let mut order = AttemptOrder::clone(&order);
            let mut used = copies.acquire(&mut order, workspace, &cancel).await;
            outcome.cached = std::mem::take(&mut used.cached);
            let result = context.perform((&order, &environment), cancel, &mut outcome).await;
            copies.release(used).await;
            result
        }
        _ => context.perform((&order, &environment), cancel, &mut outcome).await,
    };
    outcome.prepared = ordered.elapsed().saturating_sub(outcome.ran);
    outcome
}

impl HostContext {
    async fn perform(
        &self,
        (order, environment): (&AttemptOrder, &Environment),
        cancel: CancellationToken,
        outcome: &mut AttemptOutcome,
    ) -> Result<Vec<OutputFile>, AttemptFailure> {
        // The files of its tool stay while it runs.
        let (order, _files) = match &self.tools {
            None => (Cow::Borrowed(order), None),
            Some(tools) => {
                let (order, files) = tools.localize(order, &cancel).await?;
                (Cow::Owned(order), Some(files))
            }
        };
        let order = order.as_ref();
        let command = self.command(order);
        outcome.argv =
            std::iter::once(order.program.display().to_string()).chain(command.args.iter().cloned()).collect();
        let workspace = self.workspace.as_ref().filter(|_| order.has_directory);
        let outages = self.outages();
        let refused_before = (self.refusals(), self.filled.load(Relaxed));
        if let Some(workspace) = workspace {
            workspace
                .prepare_task(order, &command)
                .await
                .map_err(|error| setup_failure(&error, "the task's directory could not be prepared"))?;
        }
        let result = self.execute((order, environment), &command, cancel, outcome).await;
        let result = match (result, workspace) {
            (Ok(()), Some(workspace)) => self.collect(workspace, order).await,
            (result, _) => result.map(|()| Vec::new()),
        };
        if self.workspace.as_ref().is_some_and(Workspace::is_filled) {
            self.filled.fetch_add(1, Relaxed);
        }
        let (is_any_silent, count) = self.outages();
        outcome.unanswered = is_any_silent || count != outages.1;
        outcome.refused = (self.refusals(), self.filled.load(Relaxed)) != refused_before;
        // Do this before the directory is removed, while the fill level that explains the failure
        // can still be seen.
        let result = result.map_err(|failure| self.attribute_to_space(failure, order, outcome.refused));
        if let (Err(failure), Some(workspace)) = (&result, workspace) {
            let is_left = self.leave_failed && failure.kind != ReasonKind::Cancelled;
            let removed = if is_left { workspace.leave(order).await } else { workspace.discard(order).await };
            // Only log an error of the removal; the user needs the failure that came first.
            if let Err(error) = removed {
                tracing::warn!(task = order.task.0, %error, "could not remove what a failed task left");
            }
        }
        result
    }

    fn command(&self, order: &AttemptOrder) -> TaskCommand {
        match &self.workspace {
            None => order.command_at("", &|_: DataId| String::new()),
            Some(workspace) => workspace.command(order),
        }
    }

    async fn execute(
        &self,
        (order, environment): (&AttemptOrder, &Environment),
        command: &TaskCommand,
        cancel: CancellationToken,
        outcome: &mut AttemptOutcome,
    ) -> Result<(), AttemptFailure> {
        let workspace = self.workspace.as_ref().filter(|_| order.has_directory);
        let io = match workspace {
            Some(workspace) => workspace.task_io(order, command).await,
            None => Ok(TaskIo::paths(self.default_cwd.clone().into(), command)),
        };
        let io = io.map_err(|error| setup_failure(&error, "its standard files could not be opened"))?;
        let launch = Launch {
            program: order.program.clone(),
            args: command.args.iter().map(OsString::from).collect(),
            env: environment_of(environment.clone(), order, command, &io),
            cwd: io.cwd,
            stdin: io.stdin,
            stdout: io.stdout,
            stderr: io.stderr,
            timeout: order.timeout_ms.map(Duration::from_millis),
            grace: self.grace,
            memory: self.memory.as_ref().and_then(|limits| limits.limit_of(order.memory)),
        };
        let started = Instant::now();
        let ended = exec::run(launch, cancel).await;
        if let Some(workspace) = workspace {
            workspace.release_opened(&io.opened).await;
        }
        outcome.ran = started.elapsed();
        outcome.stdout = captured_output(&ended.stdout);
        outcome.stderr = captured_output(&ended.stderr);
        outcome.cpu_s = Some((ended.usage.user + ended.usage.system).as_secs_f64());
        outcome.max_rss_bytes = ended.usage.rss_max;
        outcome.peak_memory_bytes = ended.usage.memory_peak;
        outcome.exit_code = if let ExitReason::Exited(code) = &ended.ending { Some(*code) } else { None };
        check_exit(&ended.ending, order.timeout_ms)
    }

    async fn collect(&self, workspace: &Workspace, order: &AttemptOrder) -> Result<Vec<OutputFile>, AttemptFailure> {
        match workspace.collect(order, self.keep).await {
            Ok(CollectResult::All(made)) => Ok(made),
            Ok(CollectResult::Missing(missing)) => {
                Err(AttemptFailure::new(ReasonKind::MissingOutput, name_missing(&missing)))
            }
            Err(error) => Err(setup_failure(&error, "its outputs could not be taken over")),
        }
    }

    /// Returns whether a node does not answer now, and how often one has ceased to.
    fn outages(&self) -> (bool, u64) {
        self.workspace.as_ref().map_or((false, 0), Workspace::outages)
    }

    /// Number of requests for space that the pool has refused so far.
    fn refusals(&self) -> u64 {
        self.workspace.as_ref().map_or(0, |workspace| workspace.usage().refused)
    }

    /// Turns a failure into one of space, with advice, if space ran out while the task ran.
    fn attribute_to_space(&self, failure: AttemptFailure, order: &AttemptOrder, refused: bool) -> AttemptFailure {
        let own = matches!(failure.kind, ReasonKind::Exit | ReasonKind::Signal | ReasonKind::MissingOutput);
        let Some(full) = self.full_storage(order, refused).filter(|_| own) else { return failure };
        let text = format!("{}; {full}", failure.text);
        AttemptFailure { kind: ReasonKind::NoSpace, text, ..failure }
    }

    /// Describes the pool if it refused space, or the RAM disk if it is full now.
    fn full_storage(&self, order: &AttemptOrder, refused: bool) -> Option<String> {
        let workspace = self.workspace.as_ref()?;
        let describe = |what: String, space: wire::SpaceUsage, hint: &str| {
            format!("{what} was full ({} of {} used): {hint}", ByteSize(space.used), ByteSize(space.capacity))
        };
        if refused {
            return Some(describe("the pool".into(), workspace.usage(), SPACE_HINT));
        }
        let (place, space) = workspace.full_ram_disk(order)?;
        Some(describe(format!("the RAM disk of {}", place.display()), space, RAM_DISK_HINT))
    }
}

fn environment_of(
    mut environment: Environment,
    order: &AttemptOrder,
    command: &TaskCommand,
    io: &TaskIo,
) -> Environment {
    if !command.path.is_empty() {
        put_path_first(&mut environment, &command.path);
    }
    let own = order.variables().map(|(name, value)| (name.into(), value.into())).into_iter();
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

fn name_missing(missing: &[MissingOutput]) -> String {
    const NAMED_MAX: usize = 5;
    let named = missing.iter().take(NAMED_MAX).map(|one| format!("{} ({}: {})", one.name, one.path, one.found));
    let more = missing.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let list: Vec<String> = named.collect();
    format!("it succeeded but did not write {}{rest}", list.join(", "))
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
fn check_exit(ending: &ExitReason, timeout_ms: Option<u64>) -> Result<(), AttemptFailure> {
    let failed = |kind, text: String| Err(AttemptFailure::new(kind, text));
    match ending {
        ExitReason::Exited(0) => Ok(()),
        ExitReason::Exited(code) => failed(ReasonKind::Exit, format!("it ended with exit code {code}")),
        ExitReason::Signalled(signal) => Err(AttemptFailure {
            signal: Some(*signal),
            ..AttemptFailure::new(ReasonKind::Signal, format!("it was {ending}"))
        }),
        ExitReason::TimedOut => {
            let limit = timeout_ms.map(Duration::from_millis).unwrap_or_default();
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
