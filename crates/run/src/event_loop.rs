//! Event loop of a run: the scheduler decides, attempts and exports run, and each end of one is
//! reported to the scheduler.
//!
//! ```text
//!   events of the executor, ends of exports, ticks, cancel
//!        |
//!     EventLoop -> Scheduler::on(event) -> commands -> executor: attempts started and stopped,
//!                                                      data dropped, failures reported
//! ```
//!
//! One thread runs the loop; processes, copies and removals run in parallel to it.

mod copies;
mod elastic;
mod exports;
mod growth;
mod losses;
mod reads;
mod stalls;

pub use exports::ExportPlan;
pub use growth::{OngoingPlan, PlanGrower};
pub use losses::LoopEnd;

use crate::checked_workflow::CheckedWorkflow;
use crate::data_places::DataPlaces;
use crate::elastic_run::ElasticLink;
use crate::eta::EtaEstimator;
use crate::event::{Progress, RunEvent};
use crate::executor::Executor;
use crate::failure_text;
use crate::keep_failed::{KeepFailed, RerunScript};
use crate::layout::{AttemptPlace, RunLayout};
use crate::machine::MachineMeter;
use crate::order::{AttemptOrder, AttemptTurn};
use crate::outcome::{AttemptFailure, AttemptOutcome};
use crate::recorder::{EndedAttempt, Recorder, StartDetails};
use crate::resume::Settled;
use crate::run_files::{PoolAccess, RunFiles};
use crate::workspace::OutputFile;
use base::ByteSize;
use flow::{DataId, TaskId, ToolId};
use placement::NodeId;
use report::{CapturedOutput, FailureReason, ReasonKind};
use sched::{
    AttemptId, FailureCause, PlaceId, Scheduler, SchedulerCommand, SchedulerEvent, StartReason, TaskExplanation,
    WorkerId,
};
use stalls::StallWatch;
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

/// What the event loop needs to know of the run.
#[derive(Debug)]
pub struct LoopContext {
    /// The checked workflow.
    pub flow: Arc<CheckedWorkflow>,
    /// The run's files in its pool; `None` if no task needs the pool.
    pub files: Option<RunFiles>,
    /// Nodes of workers and places of data on a cluster; empty for a run on this host.
    pub places: DataPlaces,
    /// Path of each tool's program on this host.
    pub programs: HashMap<ToolId, PathBuf>,
    /// Keeps everything until the end.
    pub keep: bool,
    /// Directory for failed tasks, if they are kept.
    pub keep_failed: Option<KeepFailed>,
    /// What an earlier process of the run, or another run, has done.
    pub settled: Settled,
    /// The source of more tasks; `None` if the workflow is whole.
    pub grower: Option<PlanGrower>,
    /// The pool that grows and shrinks by itself; `None` if it does not.
    pub elastic: Option<ElasticLink>,
}

/// An attempt that runs.
#[derive(Debug, Clone, Copy)]
struct PlacedAttempt {
    worker: WorkerId,
    slot: u32,
    place: AttemptPlace,
    /// True if another attempt of the task has succeeded.
    superseded: bool,
}

/// State of one run in progress.
pub struct EventLoop<'a> {
    context: LoopContext,
    scheduler: Scheduler,
    executor: &'a mut dyn Executor,
    exports: ExportPlan,
    recorder: &'a mut Recorder,
    on_event: &'a mut dyn FnMut(&RunEvent),
    cancel: CancellationToken,
    begun: Instant,
    /// The attempts that run.
    running: HashMap<AttemptId, PlacedAttempt>,
    /// Tasks that found no space at their node, and so go to another one next time.
    elsewhere: HashSet<TaskId>,
    /// Failed attempts and exports that may have failed because a host is gone.
    held: Vec<EndedAttempt>,
    held_exports: Vec<exports::ExportResult>,
    held_reads: Vec<reads::MemberRead>,
    /// Failed attempts whose files are being kept.
    keeping: JoinSet<EndedAttempt>,
    exporting: JoinSet<exports::ExportResult>,
    reading: JoinSet<reads::MemberRead>,
    /// Members that the source of the plan wants to read.
    reads: HashSet<DataId>,
    /// Members that no later task reads, of a plan that grows.
    sealed: Vec<DataId>,
    export_permits: Arc<Semaphore>,
    /// Members whose export is under way; true if they are dropped afterwards.
    leaving: HashMap<DataId, bool>,
    failures: HashMap<TaskId, AttemptFailure>,
    eta: EtaEstimator,
    meter: Option<MachineMeter>,
    commands: Vec<SchedulerCommand>,
    stall: StallWatch,
    /// The time of the last look ahead, for a pool that grows by itself.
    foreseen: Option<Instant>,
    ended: bool,
    /// Why the pool is lost.
    lost: Option<String>,
}

impl<'a> EventLoop<'a> {
    /// Creates the event loop of a run that has not begun.
    pub fn new(
        context: LoopContext,
        (scheduler, executor): (Scheduler, &'a mut dyn Executor),
        exports: ExportPlan,
        recorder: &'a mut Recorder,
        on_event: &'a mut dyn FnMut(&RunEvent),
        cancel: CancellationToken,
    ) -> Self {
        let mut eta = EtaEstimator::new(context.flow.workflow());
        context.settled.tasks.iter().for_each(|task| eta.skipped(context.flow.task(*task)));
        let meter = MachineMeter::new();
        let blank = || meter.as_ref().map(MachineMeter::blank);
        recorder.run.machine_use = recorder.run.machine_use.take().or_else(blank);
        Self {
            context,
            scheduler,
            executor,
            exports,
            recorder,
            on_event,
            cancel,
            begun: Instant::now(),
            running: HashMap::new(),
            elsewhere: HashSet::new(),
            held: Vec::new(),
            held_exports: Vec::new(),
            held_reads: Vec::new(),
            keeping: JoinSet::new(),
            exporting: JoinSet::new(),
            reading: JoinSet::new(),
            reads: HashSet::new(),
            sealed: Vec::new(),
            export_permits: Arc::new(Semaphore::new(EXPORTS_AT_ONCE)),
            leaving: HashMap::new(),
            failures: HashMap::new(),
            eta,
            meter,
            commands: Vec::new(),
            stall: StallWatch::default(),
            foreseen: None,
            ended: false,
            lost: None,
        }
    }

    /// Runs the loop until all tasks and exports have ended, or the pool is lost.
    pub async fn run(mut self) -> LoopEnd {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut cancelled = false;
        self.report_pool_state();
        for data in std::mem::take(&mut self.context.settled.unexported) {
            self.export(data);
        }
        self.begin().await;
        self.begin_ongoing();
        while self.lost.is_none() && !(self.ended && self.exporting.is_empty() && self.held_exports.is_empty()) {
            self.learn_hosts();
            let wants_tasks = self.wants_tasks();
            let executor = &mut *self.executor;
            let LoopContext { flow, files, grower, elastic, .. } = &mut self.context;
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.send_event(SchedulerEvent::Cancel);
                    self.end_growth();
                }
                event = std::future::poll_fn(|context| executor.poll_event(context)) => self.on_executor(event),
                Some(ended) = self.keeping.join_next() => self.attempt_ended(joined(ended)),
                Some(ended) = self.exporting.join_next() => self.export_ended(joined(ended)),
                Some(read) = self.reading.join_next() => self.read_ended(joined(read)),
                () = removed(files.as_ref()) => self.report_pool_state(),
                event = elastic::next_event(elastic) => self.on_elastic(&event),
                step = std::future::poll_fn(|context| growth::poll_step(grower, flow, context)), if wants_tasks => {
                    self.on_step(step).await;
                }
                _ = tick.tick() => self.sample(),
            }
        }
        self.leave_pool().await;
        self.sample();
        let progressed = self.scheduler.counts().done as usize > self.context.settled.tasks.len();
        let LoopContext { flow, files, grower, .. } = self.context;
        let plan = OngoingPlan { grower, exports: self.exports, sealed: self.sealed, reads: self.reads };
        LoopEnd { flow, files, plan, lost: self.lost, progressed }
    }

    /// Reports the fill level of the pool to the scheduler.
    fn report_pool_state(&mut self) {
        let states: Vec<_> = self.context.places.states().collect();
        for (place, capacity, used) in states {
            self.send_event(SchedulerEvent::PlaceState { place, capacity, used });
        }
        if let Some(files) = &self.context.files {
            let mut state = files.pool_state();
            state.used = state.used.saturating_sub(self.context.places.copies.bytes());
            state.capacity = state.capacity.max(self.potential());
            self.send_event(SchedulerEvent::Pool(state));
        }
    }

    /// Passes an event to the scheduler and executes its commands in order.
    fn send_event(&mut self, event: SchedulerEvent) {
        let now_ms = self.now_ms();
        let mut commands = std::mem::take(&mut self.commands);
        self.scheduler.on(event, now_ms, &mut commands);
        self.execute_all(commands);
    }

    /// Milliseconds since the start, for the scheduler.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Executes commands of the scheduler in order. Their memory is used again.
    fn execute_all(&mut self, mut commands: Vec<SchedulerCommand>) {
        for command in commands.drain(..) {
            self.execute(command);
        }
        self.commands = commands;
    }

    fn execute(&mut self, command: SchedulerCommand) {
        match command {
            SchedulerCommand::Start { task, worker, slot, attempt, ahead } => {
                self.launch(task, (worker, slot.0), (attempt, ahead));
            }
            SchedulerCommand::Stop { task, attempt } => {
                if let Some(running) = self.running.get_mut(&AttemptId { task, attempt }) {
                    running.superseded = !self.cancel.is_cancelled();
                    self.executor.stop(running.worker, task, attempt);
                }
            }
            SchedulerCommand::Again { task } => self.again(task),
            SchedulerCommand::Retry { task, .. } => self.retry(task),
            SchedulerCommand::Failed { task, cause } => self.failed(task, cause),
            SchedulerCommand::Drop { data } => self.drop_member(data),
            SchedulerCommand::Clean { worker, slot, task } => self.clean((worker, slot.0), task),
            // Inputs stay in the pool until the end of the run.
            SchedulerCommand::Provide { .. } => {}
            SchedulerCommand::Rejected { task, reason } => {
                self.recorder.never_ran(task, FailureReason { text: reason.to_string(), ..FailureReason::default() });
            }
            SchedulerCommand::Ended { .. } => self.ended = true,
        }
    }

    fn launch(&mut self, task: TaskId, (worker, slot): (WorkerId, u32), (attempt, ahead): (u32, bool)) {
        let is_elsewhere = self.elsewhere.remove(&task);
        let node = match self.context.settled.running.remove(&task) {
            Some(place) if place.attempt == attempt => place.node,
            _ => self.context.places.node_for(worker, is_elsewhere, self.bytes_for_node(task)),
        };
        let place = AttemptPlace { attempt, node };
        self.running.insert(AttemptId { task, attempt }, PlacedAttempt { worker, slot, place, superseded: false });
        let why = self.start_details(task, worker, attempt);
        self.record_reads(task, worker, None);
        self.recorder.started(task, (worker, slot), place, why);
        let tool = self.tool_name(task);
        (self.on_event)(&RunEvent::TaskStarted { task, tool, attempt });
        let mut order = self.order(task, place);
        self.mark_shared(worker, &mut order);
        let slots = self.scheduler.resources(worker).map_or(0, |resources| resources.machine().slots);
        order.turn = AttemptTurn { slots, waits: ahead, ..order.turn };
        self.executor.start(worker, order);
    }

    /// Why an attempt starts that the scheduler has just ordered.
    fn start_details(&self, task: TaskId, worker: WorkerId, attempt: u32) -> StartDetails {
        let reason = match self.scheduler.explain(task, 0) {
            Some(TaskExplanation::Running { reason, attempt: first, .. }) if first == attempt => reason,
            _ => StartReason::Straggler,
        };
        let place = self.context.places.place_of_worker(worker);
        let (near, far) = self.scheduler.input_bytes(task, place.unwrap_or(PlaceId(0)));
        // Without places all data is here.
        let (near, far) = if place.is_some() { (near, far) } else { (near + far, 0) };
        StartDetails { reason, near, far }
    }

    fn order(&self, task: TaskId, place: AttemptPlace) -> AttemptOrder {
        let LoopContext { flow, files, programs, .. } = &self.context;
        let program = programs.get(&flow.task(task).tool).cloned().unwrap_or_default();
        let files = files.as_ref();
        let bound = |data| files.and_then(|files| files.bound(data));
        let first = RunLayout::default();
        let layout = files.map_or(&first, RunFiles::layout);
        AttemptOrder::new(flow, layout, (task, place), program, &bound)
    }

    /// An attempt has ended. The files of a failed one are kept first, if the user wants that.
    fn on_outcome(&mut self, outcome: AttemptOutcome) {
        let (task, attempt) = (outcome.task, outcome.attempt);
        // An attempt that was given up before has no readers.
        let Some(PlacedAttempt { place, .. }) = self.running.get(&AttemptId { task, attempt }).copied() else {
            return;
        };
        let ended = EndedAttempt::now(outcome);
        let LoopContext { flow, keep_failed, files, .. } = &self.context;
        let (Some(keep), Some(files)) = (keep_failed, files) else { return self.attempt_ended(ended) };
        match &ended.outcome.result {
            Ok(_) => keep.forget(flow, task),
            Err(failure) if failure.kind == ReasonKind::Cancelled => {}
            Err(failure) => {
                let repeat = self.rerun_script(task, place, failure.text.clone());
                let pool = (flow.clone(), files.reader(), files.layout().clone());
                self.keeping.spawn(keep_attempt(keep.clone(), pool, repeat, ended));
                return;
            }
        }
        self.attempt_ended(ended);
    }

    fn rerun_script(&self, task: TaskId, place: AttemptPlace, why: String) -> RerunScript {
        let order = self.order(task, place);
        let variables = order.variables().map(|(name, value)| (name.to_owned(), value)).into();
        RerunScript { task, left: order.directory, why, program: order.program, variables }
    }

    fn attempt_ended(&mut self, mut attempt: EndedAttempt) {
        let task = attempt.outcome.task;
        let id = AttemptId { task, attempt: attempt.outcome.attempt };
        if (attempt.outcome.result.is_err() || attempt.outcome.unanswered) && self.is_doubtful(id, &attempt) {
            return self.held.push(attempt);
        }
        let Some(PlacedAttempt { worker, slot, place, superseded }) = self.running.remove(&id) else { return };
        if superseded {
            // Another attempt was quicker.
            if let Some(files) = &self.context.files {
                files.remove_attempt(task, place);
            }
            return self.send_event(SchedulerEvent::Failed { attempt: id, retry: true });
        }
        self.doubt_success(place, &mut attempt.outcome);
        self.record_reads(task, worker, Some(&attempt.outcome.cached));
        self.recorder.set_slot(task, (worker, slot));
        self.recorder.attempt(&attempt);
        let limit = self.context.flow.tool_of(task).resources.memory;
        let is_reported = attempt.outcome.result.as_ref().is_err_and(|failure| failure.kind == ReasonKind::Memory);
        if let Some(passed) =
            (!is_reported).then(|| self.recorder.over_memory_warning(&attempt.outcome, limit)).flatten()
        {
            (self.on_event)(&RunEvent::Warning(passed));
        }
        let seconds = attempt.ended.saturating_duration_since(attempt.started).as_secs_f64();
        match attempt.outcome.result {
            Ok(made) => {
                if let Some(doubt) = attempt.outcome.refused.then(|| self.recorder.possibly_truncated(task)).flatten() {
                    (self.on_event)(&RunEvent::Warning(doubt));
                }
                self.eta.finished(self.context.flow.task(task), seconds);
                let tool = self.tool_name(task);
                (self.on_event)(&RunEvent::TaskDone { task, tool, seconds });
                if let Some(files) = &mut self.context.files {
                    files.set_writer(task, place);
                }
                self.on_outputs(id, &made, place.node);
                let ms = u64::try_from(attempt.outcome.ran.as_millis()).unwrap_or(u64::MAX);
                self.scheduler.record_run_time(task, ms);
                self.send_event(SchedulerEvent::Done(id));
                for made in &made {
                    self.read_again(made.data);
                }
                self.tell_source(task, true);
            }
            Err(failure) => self.attempt_failed(id, failure),
        }
    }

    /// Reports the members that a task wrote to the scheduler, and starts their exports.
    fn on_outputs(&mut self, attempt: AttemptId, made: &[OutputFile], node: Option<NodeId>) {
        for made in made {
            if let Some(node) = node {
                self.context.places.add_data(made.data, node);
            }
            let place = node.map(|node| PlaceId(node.0));
            self.send_event(SchedulerEvent::Wrote { attempt, data: made.data, bytes: made.takes, place });
            self.export(made.data);
        }
        self.report_pool_state();
    }

    fn attempt_failed(&mut self, attempt: AttemptId, failure: AttemptFailure) {
        let found_no_space = failure.kind == ReasonKind::NoSpace && !self.cancel.is_cancelled();
        let retry = failure.retry;
        self.failures.insert(attempt.task, failure);
        self.report_pool_state();
        if found_no_space {
            self.elsewhere.insert(attempt.task);
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

    /// A task that was done runs again, since data that it wrote is lost.
    fn again(&mut self, task: TaskId) {
        let tool = self.tool_name(task);
        self.recorder.again(task);
        (self.on_event)(&RunEvent::TaskRetried { task, tool, reason: "data that it wrote is lost".to_owned() });
    }

    fn failed(&mut self, task: TaskId, cause: FailureCause) {
        self.eta.skipped(self.context.flow.task(task));
        let tool = self.tool_name(task);
        let own = matches!(cause, FailureCause::OwnAttempt) || self.failures.contains_key(&task);
        let (reason, (output, left_out), kept, upstream) = if own {
            let failure = self.failures.remove(&task);
            let kept = failure.as_ref().and_then(|failure| failure.kept.clone());
            let text = failure.map(|failure| failure.text).unwrap_or_default();
            self.recorder.failed(task, &text);
            (text, self.printed(task), kept, cause == FailureCause::Cancelled)
        } else {
            let reason = failure_text::without_running(&self.context.flow, cause);
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
        self.fail_reads(task);
        self.tell_source(task, false);
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

    fn tool_name(&self, task: TaskId) -> String {
        self.context.flow.tool_of(task).name.clone()
    }

    /// Samples the pool and the machine, and reports progress.
    fn sample(&mut self) {
        self.executor.tick();
        self.release_held();
        self.send_event(SchedulerEvent::Tick);
        self.warn_of_stall();
        if let Some(text) = self.recorder.journal.take_warning() {
            self.warn(text);
        }
        self.report_pool_state();
        self.foresee();
        let usage = self.context.files.as_ref().map(RunFiles::usage);
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
async fn removed(files: Option<&RunFiles>) {
    match files {
        Some(files) => files.removed().await,
        None => std::future::pending().await,
    }
}

/// The result of a spawned task; propagates its panic.
fn joined<T>(outcome: Result<T, tokio::task::JoinError>) -> T {
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Keeps the files of a failed attempt, and removes its directory from the pool.
async fn keep_attempt(
    keep: KeepFailed,
    (flow, access, layout): (Arc<CheckedWorkflow>, PoolAccess, RunLayout),
    repeat: RerunScript,
    mut ended: EndedAttempt,
) -> EndedAttempt {
    let kept = keep.keep(&flow, (&access, &layout), &repeat).await;
    if let Err(error) = access.discard(&repeat.left).await {
        tracing::warn!(task = repeat.task.0, %error, "could not remove what a failed task left");
    }
    if let Err(failure) = &mut ended.outcome.result {
        match kept {
            Ok(kept) => failure.kept = kept,
            Err(error) => failure.text = format!("{}; it could not be kept: {error}", failure.text),
        }
    }
    ended
}
