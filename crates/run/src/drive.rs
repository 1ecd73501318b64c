//! Event loop of a run: the scheduler decides, attempts and exports run, and each end of one is
//! reported to the scheduler.
//!
//! ```text
//!   ends of attempts, ends of exports, ticks, cancel
//!        |
//!     Driver -> Scheduler::on(event) -> commands -> attempts started and stopped,
//!                                                   data dropped, failures reported
//! ```
//!
//! One thread runs the loop; processes, copies and removals run in parallel to it.

use crate::attempt::{self, Context};
use crate::event::{Event, Progress};
use crate::export::{self, Written};
use crate::guess::Guess;
use crate::machine::MachineMeter;
use crate::record::{Failure, Record, Tried};
use crate::workspace::{Made, Trouble, Workspace};
use base::ByteSize;
use flow::{DataId, TaskId};
use report::{CapturedOutput, FailureReason, ReasonKind};
use sched::{FailureCause, Scheduler, SchedulerCommand, SchedulerEvent};
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
pub struct Exports {
    /// Target path of each member to export.
    pub places: HashMap<DataId, PathBuf>,
    /// The subset that no task reads: these members leave the pool once they are exported.
    pub finals: HashSet<DataId>,
}

/// Result of an export.
struct Exported {
    data: DataId,
    place: PathBuf,
    result: Result<Written, String>,
}

/// State of one run in progress.
pub struct Driver<'a> {
    context: Arc<Context>,
    scheduler: Scheduler,
    exports: Exports,
    record: &'a mut Record,
    tell: &'a mut dyn FnMut(&Event),
    cancel: CancellationToken,
    begun: Instant,
    attempts: JoinSet<Tried>,
    stops: HashMap<TaskId, CancellationToken>,
    exporting: JoinSet<Exported>,
    export_turns: Arc<Semaphore>,
    /// Members whose export is under way; true if they are dropped afterwards.
    leaving: HashMap<DataId, bool>,
    failures: HashMap<TaskId, Failure>,
    /// Task that was stopped because the copies of running tasks took too much memory, and their
    /// bytes at that time. Set until the task has ended, for whatever reason.
    evicted: Option<(TaskId, ByteSize)>,
    guess: Guess,
    meter: Option<MachineMeter>,
    commands: Vec<SchedulerCommand>,
    ended: bool,
}

impl<'a> Driver<'a> {
    /// Creates the driver of a run that has not begun.
    pub fn new(
        context: Arc<Context>,
        scheduler: Scheduler,
        exports: Exports,
        record: &'a mut Record,
        tell: &'a mut dyn FnMut(&Event),
        cancel: CancellationToken,
    ) -> Self {
        let guess = Guess::new(context.flow.workflow());
        let meter = MachineMeter::new();
        record.run.machine_use = meter.as_ref().map(MachineMeter::blank);
        Self {
            context,
            scheduler,
            exports,
            record,
            tell,
            cancel,
            begun: Instant::now(),
            attempts: JoinSet::new(),
            stops: HashMap::new(),
            exporting: JoinSet::new(),
            export_turns: Arc::new(Semaphore::new(EXPORTS_AT_ONCE)),
            leaving: HashMap::new(),
            failures: HashMap::new(),
            evicted: None,
            guess,
            meter,
            commands: Vec::new(),
            ended: false,
        }
    }

    /// Runs the loop until all tasks and exports have ended.
    pub async fn drive(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let (mut cancelled, context) = (false, self.context.clone());
        self.see_pool();
        self.feed(SchedulerEvent::Begin);
        while !self.ended || !self.exporting.is_empty() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.feed(SchedulerEvent::Cancel);
                }
                Some(ended) = self.attempts.join_next() => self.attempt_ended(joined(ended)),
                Some(ended) = self.exporting.join_next() => self.export_ended(joined(ended)),
                () = removed(&context) => self.see_pool(),
                _ = tick.tick() => self.look(),
            }
        }
        drop(context);
        self.look();
    }

    /// Reports the fill level of the pool to the scheduler.
    fn see_pool(&mut self) {
        if let Some(workspace) = &self.context.workspace {
            let state = workspace.pool_state();
            self.feed(SchedulerEvent::Pool(state));
        }
    }

    /// Passes an event to the scheduler and executes its commands in order.
    fn feed(&mut self, event: SchedulerEvent) {
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut commands = std::mem::take(&mut self.commands);
        self.scheduler.on(event, now_ms, &mut commands);
        for command in commands.drain(..) {
            self.obey(command);
        }
        self.commands = commands;
    }

    fn obey(&mut self, command: SchedulerCommand) {
        match command {
            SchedulerCommand::Start { task, slot, attempt } => self.launch(task, slot.0, attempt),
            SchedulerCommand::Stop { task } => {
                if let Some(stop) = self.stops.get(&task) {
                    stop.cancel();
                }
            }
            SchedulerCommand::Retry { task, .. } => self.retry(task),
            SchedulerCommand::Failed { task, cause } => self.failed(task, cause),
            SchedulerCommand::Drop { data } => self.drop_member(data),
            SchedulerCommand::Rejected { task, reason } => {
                self.record.never_ran(task, FailureReason { text: reason.to_string(), ..FailureReason::default() });
            }
            SchedulerCommand::Ended { .. } => self.ended = true,
        }
    }

    fn launch(&mut self, task: TaskId, slot: u32, attempt: u32) {
        let stop = CancellationToken::new();
        self.stops.insert(task, stop.clone());
        self.record.started(task, slot, attempt);
        let tool = self.tool_name(task);
        (self.tell)(&Event::TaskStarted { task, tool, attempt });
        self.attempts.spawn(attempt::run(self.context.clone(), task, attempt, stop));
    }

    fn attempt_ended(&mut self, tried: Tried) {
        let task = tried.task;
        self.stops.remove(&task);
        let evicted = self.evicted.take_if(|(stopped, _)| *stopped == task);
        self.record.tried(&tried);
        let limit = self.context.flow.tool_of(task).resources.memory;
        let is_told = tried.result.as_ref().is_err_and(|failure| failure.kind == ReasonKind::Memory);
        if let Some(passed) = (!is_told).then(|| self.record.passed_memory(&tried, limit)).flatten() {
            (self.tell)(&Event::Warning(passed));
        }
        let seconds = tried.ended.saturating_duration_since(tried.started).as_secs_f64();
        match tried.result {
            Ok(made) => {
                if let Some(doubt) = tried.refused.then(|| self.record.doubtful(task)).flatten() {
                    (self.tell)(&Event::Warning(doubt));
                }
                self.guess.done(self.context.flow.task(task), seconds);
                let tool = self.tool_name(task);
                (self.tell)(&Event::TaskDone { task, tool, seconds });
                self.made(&made);
                self.feed(SchedulerEvent::Done(task));
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

    /// Reports the members that a task wrote to the scheduler, and starts their exports.
    fn made(&mut self, made: &[Made]) {
        for made in made {
            self.feed(SchedulerEvent::Wrote { data: made.data, bytes: made.takes });
            self.export(made.data);
        }
        self.see_pool();
    }

    /// Replaces the failure of an evicted task by one that blames its copies, unless the task
    /// failed by itself or the run was cancelled.
    fn eviction(&mut self, task: TaskId, failure: Failure, taken: ByteSize) -> Failure {
        if failure.kind != ReasonKind::Cancelled || self.cancel.is_cancelled() {
            return failure;
        }
        let limit = ByteSize(self.context.copies_max);
        let text = format!(
            "the files of running tasks on the RAM disk took {taken}, more than the {limit} that are left beside the pool: \
             run fewer tasks at once with --slots, or use the mount"
        );
        let failure = Failure { retry: false, ..Failure::new(ReasonKind::NoSpace, text) };
        self.record.blame(task, &failure);
        failure
    }

    /// Stops the task with the largest directory when the copies exceed their memory limit.
    /// Otherwise the kernel might kill all tasks.
    fn evict(&mut self) {
        let Some(workspace) = &self.context.workspace else { return };
        let taken = workspace.copies_bytes();
        // Stop one task at a time: its memory may be enough.
        if taken <= self.context.copies_max || self.evicted.is_some() {
            return;
        }
        if let Some(largest) = workspace.largest(self.stops.keys().copied()) {
            self.evicted = Some((largest, ByteSize(taken)));
            self.stops[&largest].cancel();
        }
    }

    fn attempt_failed(&mut self, task: TaskId, failure: Failure) {
        let found_no_space = failure.kind == ReasonKind::NoSpace && !self.cancel.is_cancelled();
        let retry = failure.retry;
        self.failures.insert(task, failure);
        self.see_pool();
        if found_no_space {
            self.feed(SchedulerEvent::NoSpace { task, retry });
        } else {
            self.feed(SchedulerEvent::Failed { task, retry });
        }
    }

    fn retry(&mut self, task: TaskId) {
        self.record.retried(task);
        let reason = self.failures.remove(&task).map(|failure| failure.text).unwrap_or_default();
        let tool = self.tool_name(task);
        (self.tell)(&Event::TaskRetried { task, tool, reason });
    }

    fn failed(&mut self, task: TaskId, cause: FailureCause) {
        self.guess.gone(self.context.flow.task(task));
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
            self.record.never_ran(task, reason);
            (text, (String::new(), 0), None, true)
        };
        let flow = &self.context.flow;
        let (line, writes, values) = (flow.task(task).line, flow.told_outputs(task), flow.told_values(task));
        (self.tell)(&Event::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, upstream });
    }

    /// The end of the failed task's output (standard error, or standard output if there is none),
    /// and the number of bytes before it.
    fn printed(&self, task: TaskId) -> (String, u64) {
        let reason = self.record.run.tasks[task.0 as usize].reason.as_ref();
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
                (ReasonKind::Upstream, format!("it comes after task {}, which is not there", task.0), None, None)
            }
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
            self.leaves(data);
        }
        let (context, turns) = (self.context.clone(), self.export_turns.clone());
        self.exporting.spawn(async move {
            let _turn = turns.acquire().await;
            let result = export_one(&context, data, place.clone()).await;
            Exported { data, place, result }
        });
    }

    fn export_ended(&mut self, exported: Exported) {
        let Exported { data, place, result } = exported;
        let drop_now = self.leaving.remove(&data).unwrap_or(false);
        match result {
            Ok(written) => {
                let (path, bytes) = (place.display().to_string(), written.bytes);
                self.record.exported(data, path.clone(), written);
                let data = self.context.flow.workflow().data_name(data);
                (self.tell)(&Event::Exported { data, path, bytes });
            }
            Err(error) => {
                let name = self.context.flow.workflow().data_name(data);
                let text = format!("{name} could not be exported: {error}");
                (self.tell)(&Event::Warning(text.clone()));
                self.record.problem(text);
            }
        }
        if drop_now {
            self.remove(data);
        }
    }

    /// Drops a member after its last reader; one that is being exported is dropped after the
    /// export.
    fn drop_member(&mut self, data: DataId) {
        self.leaves(data);
        match self.leaving.get_mut(&data) {
            Some(drop_after) => *drop_after = !self.context.keep,
            None => self.remove(data),
        }
    }

    /// Counts the member's bytes as ones that will be freed without any task's doing.
    fn leaves(&self, data: DataId) {
        if let Some(workspace) = self.pool_of(data) {
            workspace.leaves(self.scheduler.bytes_of(data));
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
        self.record.dropped(data);
    }

    /// Samples the pool and the machine, evicts a task if needed, and reports progress.
    fn look(&mut self) {
        self.evict();
        self.see_pool();
        let usage = self.context.workspace.as_ref().map(Workspace::usage);
        if let Some(usage) = usage {
            self.record.sample(usage.used, usage.capacity);
        }
        if let Some(seen) = self.meter.as_ref().and_then(MachineMeter::read) {
            self.record.machine_sample(seen);
        }
        let (usage, counts) = (usage.unwrap_or_default(), self.scheduler.counts());
        let elapsed = self.begun.elapsed().as_secs_f64();
        (self.tell)(&Event::Progress(Progress {
            tasks: self.context.flow.workflow().tasks.len(),
            done: counts.done as usize,
            failed: counts.failed as usize,
            running: counts.running as usize,
            used: ByteSize(usage.used),
            capacity: ByteSize(usage.capacity),
            elapsed,
            left: self.guess.seconds_left(self.record.run.settings.slots),
        }));
    }
}

/// Waits for the next removal from the pool; never returns without a pool.
async fn removed(context: &Context) {
    match &context.workspace {
        Some(workspace) => workspace.removed().await,
        None => std::future::pending().await,
    }
}

/// The result of a spawned task; propagates its panic.
fn joined<T>(outcome: Result<T, tokio::task::JoinError>) -> T {
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn export_one(context: &Context, data: DataId, place: PathBuf) -> Result<Written, String> {
    let workspace = context.workspace.as_ref().expect("what is exported was written in a workspace");
    let mut source = workspace.open(data).await.map_err(|trouble: Trouble| trouble.to_string())?;
    let mode = source.mode;
    let written = tokio::task::spawn_blocking(move || export::write(&mut source, &place, mode));
    match written.await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
