//! The scheduler's state machine: how each event changes the table, the queue and the free
//! resources.
//!
//! Asserted invariants: a task ends once; only running tasks report an end;
//! something runs while there are unfinished tasks, unless workers are missing.

mod ahead;
mod cluster;
mod failures;
mod lineage;
mod restore;
mod stragglers;

use crate::explain::TaskExplanation;
use crate::locations::{Locations, ToolDurations};
use crate::messages::{
    AddError, AttemptId, CauseLink, FailureCause, SchedulerCommand, SchedulerEvent, SchedulerOptions, TaskSpec,
};
use crate::messages::{DataTarget, Location};
use crate::policy::SchedulingPolicy;
use crate::resources::{Demand, FreeResources, MachineCapacity, PlaceId, SlotId, WorkerId};
use crate::space::{ForeseenBytes, SpaceRules, expected_bytes, foresee};
use crate::table::{DataState, RunningAttempt, TaskState, TaskTable};
use crate::workers::Workers;
use flow::{DataId, TaskId, ToolId};
use std::collections::{HashMap, HashSet, VecDeque};

use ahead::ShortTools;
pub use cluster::LOSSES_MAX;
pub use restore::RestoredData;
use stragglers::Stragglers;

/// The number of tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks that wait for data or other tasks.
    pub new: u32,
    /// Tasks that wait for resources or space.
    pub ready: u32,
    /// Tasks that run.
    pub running: u32,
    /// Tasks that succeeded.
    pub done: u32,
    /// Tasks that failed for good.
    pub failed: u32,
}

impl TaskCounts {
    /// The number of tasks that have not ended.
    pub fn unfinished(&self) -> u32 {
        self.new + self.ready + self.running
    }

    fn of_state_mut(&mut self, state: TaskState) -> &mut u32 {
        match state {
            TaskState::New => &mut self.new,
            TaskState::Ready => &mut self.ready,
            TaskState::Running(..) => &mut self.running,
            TaskState::Done => &mut self.done,
            TaskState::Failed => &mut self.failed,
            TaskState::Vacant => unreachable!("vacant rows are not counted"),
        }
    }
}

/// Tells whether more tasks may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// Tasks may be added.
    Open,
    /// The workflow is complete: `Begin` closes it.
    Complete,
    /// No more tasks can be added.
    Closed,
}

/// The scheduler: the task table, the policy, the space rules and the workers.
#[derive(Debug)]
pub struct Scheduler {
    table: TaskTable,
    policy: Box<dyn SchedulingPolicy>,
    space: SpaceRules,
    workers: Workers,
    locations: Locations,
    durations: ToolDurations,
    short_tools: ShortTools,
    options: SchedulerOptions,
    counts: TaskCounts,
    begun: bool,
    growth: Growth,
    ended: bool,
    /// The reason with which tasks that have not started fail. Set if no task may start any more.
    stopped: Option<FailureCause>,
    failures: HashMap<TaskId, FailureCause>,
    /// The locations of the tasks that have one.
    targets: HashMap<TaskId, Location>,
    /// The numbers that hosts have now, by those that tasks may know.
    replaced: HashMap<WorkerId, WorkerId>,
    /// The data beside which tasks should run.
    beside: HashMap<TaskId, DataTarget>,
    /// The number of times that each task lost its worker.
    losses: HashMap<TaskId, u32>,
    /// Tasks that are about to fail. Empty between events.
    failing: VecDeque<(TaskId, FailureCause)>,
    /// Tasks that waited for a task that is done: a buffer, empty between events.
    unblocked: Vec<TaskId>,
    /// Tasks that are done and about to run again. Empty between events.
    again: VecDeque<TaskId>,
    /// Running tasks of which an input was lost since their start.
    deprived: HashSet<TaskId>,
    /// Second attempts, and those that were stopped because another one succeeded.
    stragglers: Stragglers,
}

/// The context of one call of `on`: the time, and the commands so far.
struct EventContext<'a> {
    now_ms: u64,
    commands: &'a mut Vec<SchedulerCommand>,
}

impl Scheduler {
    /// A scheduler without tasks that has one machine: worker 0 at place 0.
    pub fn new(machine: MachineCapacity, options: SchedulerOptions) -> Self {
        let mut scheduler = Self::without_workers(options);
        scheduler.on_add_worker(WorkerId(0), PlaceId(0), machine);
        scheduler.workers.fix();
        scheduler
    }

    /// A scheduler without tasks and workers. Tasks wait until workers are added.
    pub fn without_workers(options: SchedulerOptions) -> Self {
        Self {
            table: TaskTable::default(),
            policy: options.policy.policy(),
            space: SpaceRules::default(),
            workers: Workers::default(),
            locations: Locations::default(),
            durations: ToolDurations::default(),
            short_tools: ShortTools::default(),
            options,
            counts: TaskCounts::default(),
            begun: false,
            growth: Growth::Open,
            ended: false,
            stopped: None,
            failures: HashMap::new(),
            targets: HashMap::new(),
            replaced: HashMap::new(),
            beside: HashMap::new(),
            losses: HashMap::new(),
            failing: VecDeque::new(),
            unblocked: Vec::new(),
            again: VecDeque::new(),
            deprived: HashSet::new(),
            stragglers: Stragglers::default(),
        }
    }

    /// Declares that the datum exists before the run. Call it before adding tasks that read the
    /// datum.
    pub fn add_existing(&mut self, data: DataId) {
        self.table.datum_mut(data).state = DataState::Present;
    }

    /// Sets the size of an input of the workflow. Call it before adding tasks that read the input.
    pub fn set_size(&mut self, data: DataId, bytes: u64) {
        self.space.set_size(data, bytes, false);
    }

    /// Declares that the datum is never dropped. Panics if the workflow is closed.
    pub fn keep(&mut self, data: DataId) {
        assert!(self.growth != Growth::Closed, "data is declared as kept before any can be dropped");
        self.table.datum_mut(data).kept = true;
    }

    /// Allocates memory for this many tasks and data.
    pub(crate) fn reserve(&mut self, tasks: usize, data: usize) {
        self.table.reserve(tasks, data);
    }

    /// Returns whether tasks are added after the beginning.
    pub(crate) fn grows(&self) -> bool {
        self.options.grows
    }

    /// Declares that all tasks were added: `Begin` closes the workflow.
    pub(crate) fn mark_complete(&mut self) {
        self.growth = Growth::Complete;
    }

    /// Handles an event that happened at `now_ms` (of any clock that does not go back) and appends
    /// the resulting commands.
    pub fn on(&mut self, event: SchedulerEvent, now_ms: u64, commands: &mut Vec<SchedulerCommand>) {
        let context = &mut EventContext { now_ms, commands };
        let is_tick = event == SchedulerEvent::Tick;
        match event {
            SchedulerEvent::Begin => self.on_begin(context),
            SchedulerEvent::Add(spec) => self.on_add(&spec, context),
            SchedulerEvent::Close => self.close(context),
            SchedulerEvent::Tick => {}
            SchedulerEvent::Done(attempt) => self.on_attempt_done(attempt, context),
            SchedulerEvent::Wrote { attempt, data, bytes, place } => {
                if !self.stragglers.is_stopped(attempt) {
                    self.on_wrote(data, bytes, place);
                }
            }
            SchedulerEvent::Sealed(data) => self.on_sealed(data, context),
            SchedulerEvent::Located { data, place, bytes } => self.on_located(data, place, bytes),
            SchedulerEvent::Unlocated { data, place } => self.on_unlocated(data, place),
            SchedulerEvent::LostData { data, needed } => self.on_lost_data(data, needed, context),
            SchedulerEvent::AddWorker { worker, place, capacity } => self.on_add_worker(worker, place, capacity),
            SchedulerEvent::AddBusyWorker { worker, place, capacity, runs } => {
                self.on_add_worker(worker, place, capacity);
                for attempt in runs {
                    self.adopt(attempt, worker, context);
                }
            }
            SchedulerEvent::NoMoreWorkers => self.on_no_more_workers(),
            SchedulerEvent::DrainWorker(worker) => self.on_drain_worker(worker),
            SchedulerEvent::ResizeWorker { worker, slots } => self.on_resize_worker(worker, slots),
            SchedulerEvent::LostWorker(worker) => self.on_lost_worker(worker, context),
            SchedulerEvent::PlaceState { place, capacity, used } => self.workers.set_storage(place, capacity, used),
            SchedulerEvent::Pool(state) => self.space.update_pool(state),
            SchedulerEvent::NoSpace { attempt, retry } => {
                if !self.ends_beside_another(attempt) {
                    self.on_no_space(attempt.task, retry, context);
                }
            }
            SchedulerEvent::Failed { attempt, retry } => {
                if !self.ends_beside_another(attempt) {
                    self.on_attempt_failed(attempt.task, retry, context);
                }
            }
            SchedulerEvent::Cancel => self.on_cancel(context),
        }
        self.propagate_failures(context);
        self.start_ready(context);
        if is_tick && self.options.stragglers {
            self.start_seconds(context);
        }
        self.finish_if_all_ended(context);
    }

    /// The size of a datum in bytes; 0 if it is not known yet.
    pub fn bytes_of(&self, data: DataId) -> u64 {
        self.space.size(data)
    }

    /// The bytes that a task which runs is expected to write; 0 if that is not known.
    pub fn expected_bytes(&self, task: TaskId) -> u64 {
        expected_bytes(&self.space, task)
    }

    /// The bytes of a task's inputs: those at a place, and those that are not there.
    pub fn input_bytes(&self, task: TaskId, place: PlaceId) -> (u64, u64) {
        let add = |(near, far), (_, bytes, is_near)| if is_near { (near + bytes, far) } else { (near, far + bytes) };
        self.inputs_at(task, place).fold((0, 0), add)
    }

    /// A task's inputs, with the bytes of each, and whether it or a copy is at a place.
    pub fn inputs_at(&self, task: TaskId, place: PlaceId) -> impl Iterator<Item = (DataId, u64, bool)> + '_ {
        let at = move |data| self.locations.places(data).any(|at| at == place);
        self.table.inputs(task).map(move |data| (data, self.space.size(data), at(data)))
    }

    /// The number of tasks that read a datum and have not ended.
    pub fn readers_left(&self, data: DataId) -> u32 {
        self.table.datum(data).map_or(0, |datum| datum.readers)
    }

    /// The bytes that the workflow will use from now on, in as many slots as there are. Some
    /// milliseconds; without a pool nothing.
    pub fn foresee(&self) -> ForeseenBytes {
        foresee(&self.table, &self.space, self.workers.slots())
    }

    /// The number of tasks in each state.
    pub fn counts(&self) -> TaskCounts {
        self.counts
    }

    /// The resources of a worker, and those that are free; `None` if it was never added.
    pub fn resources(&self, worker: WorkerId) -> Option<&FreeResources> {
        self.workers.resources(worker)
    }

    /// Returns whether a datum exists: it was given or written, and neither lost nor dropped.
    pub fn exists(&self, data: DataId) -> bool {
        self.table.datum(data).is_some_and(|datum| datum.state == DataState::Present)
    }

    /// Returns whether an input of a running task was lost since it started: its failure counts as
    /// no attempt.
    pub fn is_deprived(&self, task: TaskId) -> bool {
        self.deprived.contains(&task)
    }

    /// The attempt of a running task, the older one if it has two; `None` if the task does not run.
    pub fn running_attempt(&self, task: TaskId) -> Option<AttemptId> {
        match self.table.row(task)?.state {
            TaskState::Running(attempt) => Some(AttemptId { task, attempt: attempt.number }),
            _ => None,
        }
    }

    /// The state of the task at `now_ms`, and why it waits, runs where it runs or failed; `None`
    /// for a task that was never added.
    pub fn explain(&self, task: TaskId, now_ms: u64) -> Option<TaskExplanation> {
        let failure = |task| self.failures.get(&task).copied();
        TaskExplanation::find(task, &self.table, self.policy.as_ref(), &self.view(now_ms), failure)
    }

    /// The chain of causes from a failed task to the root; empty if the task has not failed.
    pub fn chain(&self, task: TaskId) -> Vec<CauseLink> {
        let cause = |task: TaskId| self.failures.get(&task).map(|cause| CauseLink { task, cause: *cause });
        std::iter::successors(cause(task), |link| match link.cause {
            FailureCause::Input { data, .. } => cause(self.table.datum(data)?.writer()?),
            FailureCause::Predecessor { task, .. } => cause(task),
            _ => None,
        })
        .collect()
    }

    fn on_begin(&mut self, context: &mut EventContext) {
        assert!(!self.begun, "a run begins once");
        self.begun = true;
        if self.growth == Growth::Complete {
            self.close(context);
        }
    }

    fn on_add(&mut self, spec: &TaskSpec, context: &mut EventContext) {
        match self.add(spec, context.now_ms) {
            Ok(()) => self.remake_inputs(spec.id, context),
            Err(reason) => context.commands.push(SchedulerCommand::Rejected { task: spec.id, reason }),
        }
    }

    /// Adds a task: it is ready, waits, or is about to fail.
    pub(crate) fn add(&mut self, spec: &TaskSpec, now_ms: u64) -> Result<(), AddError> {
        self.admit(spec)?;
        self.table.insert(spec, now_ms)?;
        self.targets.extend(spec.location.map(|location| (spec.id, self.current(location))));
        self.beside.extend(spec.beside.map(|target| (spec.id, target)));
        self.counts.new += 1;
        self.space.count_task(spec.tool);
        match self.stopped.or_else(|| self.lost_dependency(spec.id)) {
            Some(cause) => self.failing.push_back((spec.id, cause)),
            None => self.count_missing(spec.id, now_ms),
        }
        Ok(())
    }

    fn admit(&self, spec: &TaskSpec) -> Result<(), AddError> {
        if self.growth == Growth::Closed {
            return Err(AddError::Closed);
        }
        let demand = Demand { cpus: spec.cpus.max(1), memory: spec.memory };
        match self.workers.too_small(demand) {
            Some(machine) if demand.cpus > machine.slots => Err(AddError::Cpus { demand: spec.cpus, machine }),
            Some(machine) => Err(AddError::Memory { demand: spec.memory, machine }),
            None => Ok(()),
        }
    }

    /// The first need of a new task that can never be met.
    fn lost_dependency(&self, task: TaskId) -> Option<FailureCause> {
        let lost = |data: &DataId| self.table.datum(*data).is_some_and(|datum| datum.state == DataState::Lost);
        let failed =
            |task: &TaskId| self.table.row(*task).is_some_and(|row| row.state == TaskState::Failed && !row.was_done);
        let input = self.table.inputs(task).find(lost).and_then(|data| self.cause_by_data(data));
        input.or_else(|| self.table.after(task).find(failed).map(|task| self.cause_by_task(task)))
    }

    /// Counts the inputs and tasks that a new task lacks; it is ready if there are none.
    fn count_missing(&mut self, task: TaskId, now_ms: u64) {
        let undone = |task: &TaskId| self.table.row(*task).is_some_and(|row| !row.was_done);
        let missing = self.lacking(task).count() + self.table.after(task).filter(undone).count();
        self.table.row_mut(task).missing = u32::try_from(missing).expect("edges are counted in u32");
        if missing == 0 {
            self.make_ready(task, None, now_ms);
        }
    }

    /// The inputs of a task that do not exist now.
    fn lacking(&self, task: TaskId) -> impl Iterator<Item = DataId> + '_ {
        let is_present = |data: DataId| self.table.datum(data).is_some_and(|datum| datum.state == DataState::Present);
        self.table.inputs(task).filter(move |data| !is_present(*data))
    }

    fn make_ready(&mut self, task: TaskId, activated_in: Option<(WorkerId, SlotId)>, now_ms: u64) {
        self.set_state(task, TaskState::Ready, now_ms);
        self.offer(task, activated_in);
    }

    /// Hands a ready task to the space rules and the policy: it may start from now on. If its
    /// location is gone, the task is about to fail instead.
    fn offer(&mut self, task: TaskId, activated_in: Option<(WorkerId, SlotId)>) {
        if let Some(cause) = self.lost_location(task) {
            return self.failing.push_back((task, cause));
        }
        let (mut frees, mut reads) = (0, 0);
        for data in self.table.inputs(task) {
            let bytes = self.space.size(data);
            reads += bytes;
            let is_last = self.table.datum(data).is_some_and(|datum| datum.last_reader() == Some(task));
            frees += if is_last { bytes } else { 0 };
        }
        self.space.add_ready(task, self.tool(task), frees, reads);
        let queued = self.queued(task, activated_in);
        self.policy.add(queued);
    }

    fn tool(&self, task: TaskId) -> ToolId {
        self.table.row(task).expect("it was added").tool
    }

    fn set_state(&mut self, task: TaskId, state: TaskState, now_ms: u64) {
        let row = self.table.row_mut(task);
        assert!(!matches!(row.state, TaskState::Done | TaskState::Failed), "task {} ends only once", task.0);
        *self.counts.of_state_mut(row.state) -= 1;
        *self.counts.of_state_mut(state) += 1;
        row.state = state;
        row.since_ms = now_ms;
    }

    /// Closes the workflow. From here on it is known which data and tasks will never exist, and
    /// which data has no more readers.
    fn close(&mut self, context: &mut EventContext) {
        if std::mem::replace(&mut self.growth, Growth::Closed) == Growth::Closed {
            return;
        }
        for data in (0..self.table.data_len()).map(DataId) {
            let datum = self.table.datum_mut(data);
            if datum.state == DataState::Awaited && datum.writer().is_none() {
                let cause = FailureCause::NoWriter { data };
                self.failing.extend(self.table.readers_of(data).map(|reader| (reader, cause)));
            }
            self.drop_if_unneeded(data, context);
        }
        for task in (0..self.table.len()).map(TaskId) {
            if self.table.row_mut(task).state == TaskState::Vacant {
                let cause = FailureCause::NoTask { task };
                self.failing.extend(self.table.waiters_of(task).map(|waiter| (waiter, cause)));
            }
        }
    }

    /// Records the size and place of an output of a task that is about to be done. An output that
    /// nobody reads leaves the pool by itself.
    fn on_wrote(&mut self, data: DataId, bytes: u64, place: Option<PlaceId>) {
        let datum = self.table.datum_mut(data);
        let stays = datum.has_readers() || datum.kept;
        let is_new = datum.state != DataState::Present;
        self.space.set_size(data, bytes, stays && is_new);
        if let Some(place) = place {
            self.locations.add(data, place);
        }
    }

    fn on_done(&mut self, task: TaskId, context: &mut EventContext) {
        let ran_in = self.release_resources(task);
        let since_ms = self.table.row_mut(task).since_ms;
        self.durations.add(self.tool(task), context.now_ms.saturating_sub(since_ms));
        self.set_state(task, TaskState::Done, context.now_ms);
        self.space.count_task_ended(self.tool(task));
        let written = self.table.outputs(task).iter().map(|data| self.space.size(*data)).sum();
        self.space.end(task, self.tool(task), Some(written));
        let mut unblocked = std::mem::take(&mut self.unblocked);
        for position in 0..self.table.outputs(task).len() {
            let data = self.table.outputs(task)[position];
            let before = std::mem::replace(&mut self.table.datum_mut(data).state, DataState::Present);
            if before != DataState::Present {
                unblocked.extend(self.table.readers_of(data));
            }
            self.drop_if_unneeded(data, context);
        }
        if !std::mem::replace(&mut self.table.row_mut(task).was_done, true) {
            unblocked.extend(self.table.waiters_of(task));
        }
        for waiter in unblocked.drain(..) {
            self.count_present(waiter, ran_in, context.now_ms);
        }
        self.unblocked = unblocked;
        self.release_inputs(task, context);
    }

    /// Returns the resources of a running task of one attempt; returns where it ran.
    fn release_resources(&mut self, task: TaskId) -> (WorkerId, SlotId) {
        let TaskState::Running(RunningAttempt { worker, slot, .. }) = self.table.row_mut(task).state else {
            panic!("only a running task reports its end");
        };
        if !self.deprived.is_empty() {
            self.deprived.remove(&task);
        }
        self.forget_straggler(task);
        self.release_lane(worker, slot);
        (worker, slot)
    }

    /// Returns the resources of the attempt that runs in a lane.
    fn release_lane(&mut self, worker: WorkerId, slot: SlotId) {
        self.workers.end(worker, slot);
        if self.workers.is_active(worker) {
            self.policy.on_free(worker, &self.workers);
        }
    }

    /// Counts one datum or task that the task waited for as present.
    /// `ran_in` is the lane in which the task ran that brought it.
    fn count_present(&mut self, task: TaskId, ran_in: (WorkerId, SlotId), now_ms: u64) {
        let row = self.table.row_mut(task);
        if row.state != TaskState::New {
            return;
        }
        row.missing -= 1;
        if row.missing == 0 {
            self.make_ready(task, Some(ran_in), now_ms);
        }
    }

    fn release_inputs(&mut self, task: TaskId, context: &mut EventContext) {
        let inputs = self.table.inputs(task).len();
        for position in 0..inputs {
            let data = self.table.input(task, position);
            self.table.remove_reader(data, task);
            if let Some(last) = self.table.datum_mut(data).last_reader() {
                self.space.add_freed(last, data);
            }
            self.drop_if_unneeded(data, context);
        }
    }

    fn drop_if_unneeded(&mut self, data: DataId, context: &mut EventContext) {
        let datum = self.table.datum_mut(data);
        if (self.growth == Growth::Closed || datum.sealed) && datum.is_unneeded() {
            datum.state = DataState::Dropped;
            self.locations.clear(data);
            if datum.writer().is_some() {
                self.space.count_leaving(data);
            }
            context.commands.push(SchedulerCommand::Drop { data });
        }
    }

    fn start_ready(&mut self, context: &mut EventContext) {
        if !self.begun || self.stopped.is_some() {
            return;
        }
        for task in self.space.take_retryable() {
            self.offer(task, None);
        }
        self.propagate_failures(context);
        while let Some((assignment, start)) = self.choose(context.now_ms).or_else(|| self.choose_ahead(context.now_ms))
        {
            self.start(assignment, start, context);
        }
    }

    fn finish_if_all_ended(&mut self, context: &mut EventContext) {
        let all_known = self.begun && self.growth == Growth::Closed;
        if !all_known || self.ended {
            return;
        }
        let TaskCounts { ready, running, done, failed, .. } = self.counts;
        let waits = self.space.waits_for_leaving() || self.workers.may_lack() || !self.targets.is_empty();
        if !self.workers.is_idle() {
            return; // A task runs, or an attempt that was stopped.
        }
        let goes_on = running > 0 || (ready > 0 && waits);
        assert!(goes_on || self.counts.unfinished() == 0, "nothing runs and tasks wait: the graph has a cycle");
        if self.counts.unfinished() == 0 {
            self.ended = true;
            context.commands.push(SchedulerCommand::Ended { done, failed });
        }
    }
}
