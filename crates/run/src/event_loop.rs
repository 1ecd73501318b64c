//! Event loop of a run: the scheduler decides, attempts and exports run, and each end of one is
//! reported to the scheduler.
//!
//! ```text
//!   ends of attempts, ends of exports, ticks, cancel
//!        |
//!     EventLoop -> Scheduler::on(event) -> commands -> attempts started and stopped,
//!                                                      data dropped, failures reported
//! ```
//!
//! One thread runs the loop; processes, copies and removals run in parallel to it.

use crate::attempt::{self, RunContext};
use crate::eta::EtaEstimator;
use crate::event::{Progress, RunEvent};
use crate::export::{self, ExportedFile};
use crate::machine::MachineMeter;
use crate::recorder::{AttemptFailure, AttemptResult, Recorder};
use crate::workspace::{OutputFile, Workspace, WorkspaceError};
use base::ByteSize;
use flow::{DataId, TaskId};
use report::{CapturedOutput, FailureReason, ReasonKind};
use sched::{AttemptId, FailureCause, Scheduler, SchedulerCommand, SchedulerEvent};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Interval between two samples of the pool and the machine.
const TICK: Duration = Duration::from_millis(100);

/// Number of concurrent exports: one reads while the other waits for the disk.
const EXPORTS_AT_ONCE: usize = 2;

/// Members to export, and their target paths.
#[derive(Debug, Default)]
pub struct ExportPlan {
    /// Target path of each member to export.
    pub places: HashMap<DataId, PathBuf>,
    /// The subset that no task reads: these members leave the pool once they are exported.
    pub finals: HashSet<DataId>,
}

/// Result of an export.
struct ExportResult {
    data: DataId,
    place: PathBuf,
    result: Result<ExportedFile, String>,
}

/// State of one run in progress.
pub struct EventLoop<'a> {
    context: Arc<RunContext>,
    scheduler: Scheduler,
    exports: ExportPlan,
    recorder: &'a mut Recorder,
    on_event: &'a mut dyn FnMut(&RunEvent),
    cancel: CancellationToken,
    begun: Instant,
    attempts: JoinSet<AttemptResult>,
    stops: HashMap<TaskId, CancellationToken>,
    exporting: JoinSet<ExportResult>,
    export_permits: Arc<Semaphore>,
    /// Members whose export is under way; true if they are dropped afterwards.
    leaving: HashMap<DataId, bool>,
    failures: HashMap<TaskId, AttemptFailure>,
    /// Task that was stopped because the copies of running tasks took too much memory, and their
    /// bytes at that time. Set until the task has ended, for whatever reason.
    evicted: Option<(TaskId, ByteSize)>,
    eta: EtaEstimator,
    meter: Option<MachineMeter>,
    commands: Vec<SchedulerCommand>,
    ended: bool,
}

impl<'a> EventLoop<'a> {
    /// Creates the event loop of a run that has not begun.
    pub fn new(
        context: Arc<RunContext>,
        scheduler: Scheduler,
        exports: ExportPlan,
        recorder: &'a mut Recorder,
        on_event: &'a mut dyn FnMut(&RunEvent),
        cancel: CancellationToken,
    ) -> Self {
        let eta = EtaEstimator::new(context.flow.workflow());
        let meter = MachineMeter::new();
        recorder.run.machine_use = meter.as_ref().map(MachineMeter::blank);
        Self {
            context,
            scheduler,
            exports,
            recorder,
            on_event,
            cancel,
            begun: Instant::now(),
            attempts: JoinSet::new(),
            stops: HashMap::new(),
            exporting: JoinSet::new(),
            export_permits: Arc::new(Semaphore::new(EXPORTS_AT_ONCE)),
            leaving: HashMap::new(),
            failures: HashMap::new(),
            evicted: None,
            eta,
            meter,
            commands: Vec::new(),
            ended: false,
        }
    }

    /// Runs the loop until all tasks and exports have ended.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let (mut cancelled, context) = (false, self.context.clone());
        self.report_pool_state();
        self.send_event(SchedulerEvent::Begin);
        while !self.ended || !self.exporting.is_empty() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.send_event(SchedulerEvent::Cancel);
                }
                Some(ended) = self.attempts.join_next() => self.attempt_ended(joined(ended)),
                Some(ended) = self.exporting.join_next() => self.export_ended(joined(ended)),
                () = removed(&context) => self.report_pool_state(),
                _ = tick.tick() => self.sample(),
            }
        }
        drop(context);
        self.sample();
    }

    /// Reports the fill level of the pool to the scheduler.
    fn report_pool_state(&mut self) {
        if let Some(workspace) = &self.context.workspace {
            let state = workspace.pool_state();
            self.send_event(SchedulerEvent::Pool(state));
        }
    }

    /// Passes an event to the scheduler and executes its commands in order.
    fn send_event(&mut self, event: SchedulerEvent) {
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut commands = std::mem::take(&mut self.commands);
        self.scheduler.on(event, now_ms, &mut commands);
        for command in commands.drain(..) {
            self.execute(command);
        }
        self.commands = commands;
    }

    fn execute(&mut self, command: SchedulerCommand) {
        match command {
            SchedulerCommand::Start { task, slot, attempt, .. } => self.launch(task, slot.0, attempt),
            SchedulerCommand::Stop { task, .. } => {
                if let Some(stop) = self.stops.get(&task) {
                    stop.cancel();
                }
            }
            SchedulerCommand::Retry { task, .. } => self.retry(task),
            SchedulerCommand::Failed { task, cause } => self.failed(task, cause),
            SchedulerCommand::Drop { data } => self.drop_member(data),
            // One machine has all data at one place, and loses none.
            SchedulerCommand::Clean { .. } | SchedulerCommand::Again { .. } | SchedulerCommand::Provide { .. } => {}
            SchedulerCommand::Rejected { task, reason } => {
                self.recorder.never_ran(task, FailureReason { text: reason.to_string(), ..FailureReason::default() });
            }
            SchedulerCommand::Ended { .. } => self.ended = true,
        }
    }

    fn launch(&mut self, task: TaskId, slot: u32, attempt: u32) {
        let stop = CancellationToken::new();
        self.stops.insert(task, stop.clone());
        self.recorder.started(task, slot, attempt);
        let tool = self.tool_name(task);
        (self.on_event)(&RunEvent::TaskStarted { task, tool, attempt });
        self.attempts.spawn(attempt::run(self.context.clone(), task, attempt, stop));
    }

    fn attempt_ended(&mut self, attempt: AttemptResult) {
        let task = attempt.task;
        self.stops.remove(&task);
        let evicted = self.evicted.take_if(|(stopped, _)| *stopped == task);
        self.recorder.attempt(&attempt);
        let limit = self.context.flow.tool_of(task).resources.memory;
        let is_reported = attempt.result.as_ref().is_err_and(|failure| failure.kind == ReasonKind::Memory);
        if let Some(passed) = (!is_reported).then(|| self.recorder.over_memory_warning(&attempt, limit)).flatten() {
            (self.on_event)(&RunEvent::Warning(passed));
        }
        let seconds = attempt.ended.saturating_duration_since(attempt.started).as_secs_f64();
        match attempt.result {
            Ok(made) => {
                if let Some(doubt) = attempt.refused.then(|| self.recorder.possibly_truncated(task)).flatten() {
                    (self.on_event)(&RunEvent::Warning(doubt));
                }
                self.eta.finished(self.context.flow.task(task), seconds);
                let tool = self.tool_name(task);
                (self.on_event)(&RunEvent::TaskDone { task, tool, seconds });
                self.on_outputs(task, &made);
                self.send_event(SchedulerEvent::Done(self.attempt_of(task)));
            }
            Err(failure) => {
                let failure = match evicted {
                    Some((_, taken)) => self.eviction(task, failure, taken),
                    None => failure,
                };
                self.attempt_failed(task, failure);
            }
        }
    }

    /// The attempt of a task that runs; one machine runs no second one beside it.
    fn attempt_of(&self, task: TaskId) -> AttemptId {
        self.scheduler.running_attempt(task).expect("its end was not reported yet")
    }

    /// Reports the members that a task wrote to the scheduler, and starts their exports.
    fn on_outputs(&mut self, task: TaskId, made: &[OutputFile]) {
        let attempt = self.attempt_of(task);
        for made in made {
            self.send_event(SchedulerEvent::Wrote { attempt, data: made.data, bytes: made.takes, place: None });
            self.export(made.data);
        }
        self.report_pool_state();
    }

    /// Replaces the failure of an evicted task by one that blames its copies, unless the task
    /// failed by itself or the run was cancelled.
    fn eviction(&mut self, task: TaskId, failure: AttemptFailure, taken: ByteSize) -> AttemptFailure {
        if failure.kind != ReasonKind::Cancelled || self.cancel.is_cancelled() {
            return failure;
        }
        let limit = ByteSize(self.context.copies_max);
        let text = format!(
            "the files of running tasks on the RAM disk took {taken}, more than the {limit} that are left beside the pool: \
             run fewer tasks at once with --slots, or use the mount"
        );
        let failure = AttemptFailure { retry: false, ..AttemptFailure::new(ReasonKind::NoSpace, text) };
        self.recorder.blame(task, &failure);
        failure
    }

    /// Stops the task with the largest directory when the copies exceed their memory limit.
    /// Otherwise the kernel might kill all tasks.
    fn evict(&mut self) {
        let Some(workspace) = &self.context.workspace else { return };
        let taken = workspace.ram_disk_bytes();
        // Stop one task at a time: its memory may be enough.
        if taken <= self.context.copies_max || self.evicted.is_some() {
            return;
        }
        if let Some(largest) = workspace.largest(self.stops.keys().copied()) {
            self.evicted = Some((largest, ByteSize(taken)));
            self.stops[&largest].cancel();
        }
    }

    fn attempt_failed(&mut self, task: TaskId, failure: AttemptFailure) {
        let found_no_space = failure.kind == ReasonKind::NoSpace && !self.cancel.is_cancelled();
        let (attempt, retry) = (self.attempt_of(task), failure.retry);
        self.failures.insert(task, failure);
        self.report_pool_state();
        if found_no_space {
            self.send_event(SchedulerEvent::NoSpace { attempt, retry });
        } else {
            self.send_event(SchedulerEvent::Failed { attempt, retry });
        }
    }

    fn retry(&mut self, task: TaskId) {
        self.recorder.retried(task);
        let reason = self.failures.remove(&task).map(|failure| failure.text).unwrap_or_default();
        let tool = self.tool_name(task);
        (self.on_event)(&RunEvent::TaskRetried { task, tool, reason });
    }

    fn failed(&mut self, task: TaskId, cause: FailureCause) {
        self.eta.skipped(self.context.flow.task(task));
        let tool = self.tool_name(task);
        let own = matches!(cause, FailureCause::OwnAttempt) || self.failures.contains_key(&task);
        let (reason, (output, left_out), kept, upstream) = if own {
            let failure = self.failures.remove(&task);
            let kept = failure.as_ref().and_then(|failure| failure.kept.clone());
            let text = failure.map(|failure| failure.text).unwrap_or_default();
            (text, self.printed(task), kept, cause == FailureCause::Cancelled)
        } else {
            let reason = self.explain(cause);
            let text = reason.text.clone();
            self.recorder.never_ran(task, reason);
            (text, (String::new(), 0), None, true)
        };
        let flow = &self.context.flow;
        let (line, writes, values) = (flow.task(task).line, flow.describe_outputs(task), flow.describe_values(task));
        (self.on_event)(&RunEvent::TaskFailed {
            task,
            tool,
            reason,
            line,
            writes,
            values,
            output,
            left_out,
            kept,
            upstream,
        });
    }

    /// The end of the failed task's output (standard error, or standard output if there is none),
    /// and the number of bytes before it.
    fn printed(&self, task: TaskId) -> (String, u64) {
        let reason = self.recorder.run.tasks[task.0 as usize].reason.as_ref();
        let stream = reason.and_then(|reason| reason.stderr.as_ref().or(reason.stdout.as_ref()));
        stream
            .map(|CapturedOutput { head, tail, bytes }| match tail.as_str() {
                "" => (head.clone(), 0),
                _ => (tail.clone(), bytes.saturating_sub(tail.len() as u64)),
            })
            .unwrap_or_default()
    }

    /// Reason for a task that failed without running.
    fn explain(&self, cause: FailureCause) -> FailureReason {
        let named = |task: TaskId| format!("task {} {}", task.0, self.tool_name(task));
        let (kind, text, root, via) = match cause {
            FailureCause::Input { data, root } => {
                let writer = self.context.flow.writer_of(data);
                let name = self.context.flow.workflow().data_name(data);
                (
                    ReasonKind::Upstream,
                    format!("{name} was not written, since {} failed", named(root)),
                    Some(root),
                    writer,
                )
            }
            FailureCause::Predecessor { task, root } => (
                ReasonKind::Upstream,
                format!("it comes after {}, and {} failed", named(task), named(root)),
                Some(root),
                Some(task),
            ),
            FailureCause::FailFast { root } => (
                ReasonKind::Cancelled,
                format!("{} failed, and --fail-fast starts nothing after that", named(root)),
                Some(root),
                None,
            ),
            FailureCause::Cancelled => {
                (ReasonKind::Cancelled, "the run was ended before it could start".to_owned(), None, None)
            }
            FailureCause::NoWriter { data } => {
                let name = self.context.flow.workflow().data_name(data);
                (ReasonKind::Upstream, format!("no task writes {name}"), None, None)
            }
            FailureCause::NoTask { task } => {
                (ReasonKind::Upstream, format!("it comes after task {}, which does not exist", task.0), None, None)
            }
            FailureCause::NoSuchLocation { .. } => (
                ReasonKind::NotStarted,
                "it may run at one location only, and no worker is there".to_owned(),
                None,
                None,
            ),
            FailureCause::OwnAttempt => (ReasonKind::NotStarted, String::new(), None, None),
        };
        FailureReason {
            kind,
            text,
            root: root.map(|task| task.0),
            via: via.map(|task| task.0),
            ..FailureReason::default()
        }
    }

    fn tool_name(&self, task: TaskId) -> String {
        self.context.flow.tool_of(task).name.clone()
    }

    /// Starts the export of a member, if it is one to export.
    fn export(&mut self, data: DataId) {
        let Some(place) = self.exports.places.get(&data).cloned() else { return };
        let goes = self.exports.finals.contains(&data) && !self.context.keep;
        self.leaving.insert(data, goes);
        if goes {
            self.announce_removal(data);
        }
        let (context, turns) = (self.context.clone(), self.export_permits.clone());
        self.exporting.spawn(async move {
            let _turn = turns.acquire().await;
            let result = export_one(&context, data, place.clone()).await;
            ExportResult { data, place, result }
        });
    }

    fn export_ended(&mut self, exported: ExportResult) {
        let ExportResult { data, place, result } = exported;
        let drop_now = self.leaving.remove(&data).unwrap_or(false);
        match result {
            Ok(written) => {
                let (path, bytes) = (place.display().to_string(), written.bytes);
                self.recorder.exported(data, path.clone(), written);
                let data = self.context.flow.workflow().data_name(data);
                (self.on_event)(&RunEvent::Exported { data, path, bytes });
            }
            Err(error) => {
                let name = self.context.flow.workflow().data_name(data);
                let text = format!("{name} could not be exported: {error}");
                (self.on_event)(&RunEvent::Warning(text.clone()));
                self.recorder.problem(text);
            }
        }
        if drop_now {
            self.remove(data);
        }
    }

    /// Drops a member after its last reader; one that is being exported is dropped after the
    /// export.
    fn drop_member(&mut self, data: DataId) {
        self.announce_removal(data);
        match self.leaving.get_mut(&data) {
            Some(drop_after) => *drop_after = !self.context.keep,
            None => self.remove(data),
        }
    }

    /// Counts the member's bytes as ones that will be freed without any task's doing.
    fn announce_removal(&self, data: DataId) {
        if let Some(workspace) = self.pool_of(data) {
            workspace.announce_removal(self.scheduler.bytes_of(data));
        }
    }

    /// The workspace, if a task wrote the member; `None` for inputs. Inputs stay until the end of
    /// the run (docs/SEMANTICS.md): bound ones take no memory.
    fn pool_of(&self, data: DataId) -> Option<&Workspace> {
        self.context.workspace.as_ref().filter(|_| self.context.flow.writer_of(data).is_some())
    }

    fn remove(&mut self, data: DataId) {
        let Some(workspace) = self.pool_of(data) else { return };
        workspace.drop_member(data, self.scheduler.bytes_of(data));
        self.recorder.dropped(data);
    }

    /// Samples the pool and the machine, evicts a task if needed, and reports progress.
    fn sample(&mut self) {
        self.evict();
        self.report_pool_state();
        let usage = self.context.workspace.as_ref().map(Workspace::usage);
        if let Some(usage) = usage {
            self.recorder.sample(usage.used, usage.capacity);
        }
        if let Some(seen) = self.meter.as_ref().and_then(MachineMeter::read) {
            self.recorder.machine_sample(seen);
        }
        let (usage, counts) = (usage.unwrap_or_default(), self.scheduler.counts());
        let elapsed = self.begun.elapsed().as_secs_f64();
        (self.on_event)(&RunEvent::Progress(Progress {
            tasks: self.context.flow.workflow().tasks.len(),
            done: counts.done as usize,
            failed: counts.failed as usize,
            running: counts.running as usize,
            used: ByteSize(usage.used),
            capacity: ByteSize(usage.capacity),
            elapsed,
            left: self.eta.seconds_left(self.recorder.run.settings.slots),
        }));
    }
}

/// Waits for the next removal from the pool; never returns without a pool.
async fn removed(context: &RunContext) {
    match &context.workspace {
        Some(workspace) => workspace.removed().await,
        None => std::future::pending().await,
    }
}

/// The result of a spawned task; propagates its panic.
fn joined<T>(outcome: Result<T, tokio::task::JoinError>) -> T {
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn export_one(context: &RunContext, data: DataId, place: PathBuf) -> Result<ExportedFile, String> {
    let workspace = context.workspace.as_ref().expect("what is exported was written in a workspace");
    let mut source = workspace.open(data).await.map_err(|error: WorkspaceError| error.to_string())?;
    let mode = source.mode;
    let written = tokio::task::spawn_blocking(move || export::write(&mut source, &place, mode));
    match written.await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
