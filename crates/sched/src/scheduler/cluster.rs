//! Workers that join, leave and are lost, the places of data, and starts.

use super::{EventContext, Scheduler};
use crate::locations::LocalInputs;
use crate::messages::{AttemptId, DataTarget, FailureCause, Location, LocationTarget, SchedulerCommand};
use crate::policy::{Assignment, ClusterView, QueuedTask};
use crate::resources::{MachineCapacity, PlaceId, SlotId, WorkerId};
use crate::space::SpaceContext;
use crate::table::{DataState, RunningAttempt, TaskState};
use crate::workers::LocationState;
use flow::{DataId, TaskId};

/// The number of times that a task may lose its worker before each further loss counts as a failed
/// attempt, because the task itself may be the cause (for example, it takes all memory of its
/// host).
pub const LOSSES_MAX: u32 = 3;

/// The way in which a task starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartKind {
    /// The policy chose it.
    Policy,
    /// The policy chose it, to be sent ahead to a busy worker.
    Ahead,
    /// It starts for another reason.
    Other,
}

impl Scheduler {
    pub(super) fn on_add_worker(&mut self, worker: WorkerId, place: PlaceId, capacity: MachineCapacity) {
        self.workers.add(worker, place, capacity);
        self.policy.on_free(worker, &self.workers);
    }

    /// Sends tasks to `worker` that name `former` as their location: the same host, which has
    /// another number since its pool was formed anew. Call it before `worker` is added. A worker
    /// that was lost in this pool stays lost.
    pub fn replace_worker(&mut self, former: WorkerId, worker: WorkerId) {
        if self.workers.is_known(former) {
            return;
        }
        self.replaced.values_mut().filter(|now| **now == former).for_each(|now| *now = worker);
        self.replaced.insert(former, worker);
        let moved = self.targets.iter().filter(|(_, location)| location.at.worker() == Some(former));
        let moved: Vec<(TaskId, Location)> = moved.map(|(task, location)| (*task, *location)).collect();
        for (task, location) in moved {
            self.targets.insert(task, self.current(location));
            if self.policy.get(task).is_some() {
                self.policy.remove(task);
                self.policy.add(self.queued(task, None));
            }
        }
    }

    /// A location with the number that its host has now.
    pub(super) fn current(&self, location: Location) -> Location {
        let now = |worker| self.replaced.get(&worker).copied().unwrap_or(worker);
        let at = match location.at {
            LocationTarget::Place(place) => LocationTarget::Place(place),
            LocationTarget::Worker(worker) => LocationTarget::Worker(now(worker)),
            LocationTarget::Slot(worker, slot) => LocationTarget::Slot(now(worker), slot),
        };
        Location { at, ..location }
    }

    pub(super) fn on_drain_worker(&mut self, worker: WorkerId) {
        self.workers.drain(worker);
        self.on_worker_gone(worker);
    }

    pub(super) fn on_resize_worker(&mut self, worker: WorkerId, slots: u32) {
        self.workers.resize(worker, slots);
        // Forgets reservations that the worker is too small for now.
        self.on_worker_gone(worker);
        if self.workers.is_active(worker) {
            self.policy.on_free(worker, &self.workers);
        }
    }

    /// The tasks of a lost worker become ready again. Losses count no attempt, as messages of a
    /// queue become visible again after a time-out (paper 003, section 5).
    pub(super) fn on_lost_worker(&mut self, worker: WorkerId, context: &mut EventContext) {
        let attempts = self.workers.lose(worker);
        self.on_worker_gone(worker);
        for attempt in attempts {
            if !self.loses_beside_another(attempt) {
                self.lose_attempt(attempt.task, context);
            }
        }
    }

    fn on_worker_gone(&mut self, worker: WorkerId) {
        let tasks = self.policy.on_worker_gone(worker, &self.workers);
        self.fail_unlocatable(tasks);
        self.fail_homeless();
    }

    pub(super) fn on_no_more_workers(&mut self) {
        self.workers.complete();
        let tasks = self.policy.take_unlocatable(&self.workers);
        self.fail_unlocatable(tasks);
        self.fail_homeless();
    }

    /// Fails ready tasks that no worker can hold any more.
    fn fail_homeless(&mut self) {
        if !self.workers.is_complete() || self.stopped.is_some() {
            return;
        }
        for task in (0..self.table.len()).map(TaskId) {
            let is_held = self.policy.get(task).is_some();
            if let Some(cause) = self.lost_location(task).filter(|_| is_held) {
                self.policy.remove(task);
                self.space.forget_ready(task);
                self.failing.push_back((task, cause));
            }
        }
    }

    /// Fails ready tasks whose only location is gone.
    fn fail_unlocatable(&mut self, tasks: Vec<TaskId>) {
        for task in tasks {
            self.space.forget_ready(task);
            let cause = self.lost_location(task).expect("its location is gone");
            self.failing.push_back((task, cause));
        }
    }

    fn lose_attempt(&mut self, task: TaskId, context: &mut EventContext) {
        let losses = self.losses.entry(task).or_default();
        *losses += 1;
        if *losses > LOSSES_MAX || self.stopped.is_some() {
            // Also if data was lost with the worker: such a task may lose both each time.
            return self.fail_attempt(task, true, context);
        }
        self.table.row_mut(task).attempts_max += 1;
        self.fail_attempt(task, true, context);
    }

    /// The cause of a task's failure if the only location where it may run is gone, or no worker is
    /// or will be large enough.
    pub(super) fn lost_location(&self, task: TaskId) -> Option<FailureCause> {
        let demand = self.table.row(task)?.demand;
        let Some(location) = self.location(task).filter(|location| location.hard) else {
            return self.workers.never_holds(demand).then_some(FailureCause::NoWorker);
        };
        let is_gone = self.workers.location_state(location, demand) == LocationState::Gone;
        is_gone.then_some(FailureCause::NoSuchLocation { at: location.at })
    }

    pub(super) fn on_located(&mut self, data: DataId, place: PlaceId, bytes: u64) {
        if self.space.size(data) == 0 && bytes > 0 {
            self.space.set_size(data, bytes, false);
        }
        if self.locations.add(data, place) {
            self.relocate_readers(data);
        }
    }

    pub(super) fn on_unlocated(&mut self, data: DataId, place: PlaceId) {
        if self.locations.remove(data, place) {
            self.relocate_readers(data);
        }
    }

    /// Tells the policy where the inputs of the datum's ready readers are.
    fn relocate_readers(&mut self, data: DataId) {
        let is_present = self.table.datum(data).is_some_and(|datum| datum.state == DataState::Present);
        if !is_present || !self.policy.uses_places() {
            return;
        }
        for task in self.table.readers_of(data) {
            if self.table.row(task).is_some_and(|row| row.state == TaskState::Ready) {
                self.policy.relocate(self.queued(task, None));
            }
        }
    }

    /// The task's inputs by place, and the place of the location that it prefers.
    pub(super) fn local_inputs(&self, task: TaskId) -> (Vec<LocalInputs>, Option<PlaceId>) {
        let mut local = self.locations.sum(self.table.inputs(task).map(|data| (data, self.space.size(data))));
        let soft = self.location(task).filter(|location| !location.hard);
        let preferred = soft.and_then(|location| match location.at {
            LocationTarget::Place(place) => Some(place),
            LocationTarget::Worker(worker) | LocationTarget::Slot(worker, _) => self.workers.place(worker),
        });
        if let Some(place) = preferred.filter(|place| local.iter().all(|local| local.place != *place)) {
            local.push(LocalInputs { place, count: 0, bytes: 0 });
        }
        (local, preferred)
    }

    /// The location at which a task should run: its own, or a place of the datum beside which it
    /// should run.
    pub(super) fn location(&self, task: TaskId) -> Option<Location> {
        let beside = || {
            let DataTarget { data, hard } = *self.beside.get(&task)?;
            let place = self.locations.places(data).next()?;
            Some(Location { at: LocationTarget::Place(place), hard })
        };
        self.targets.get(&task).copied().or_else(beside)
    }

    /// The task as the policy holds it.
    pub(super) fn queued(&self, task: TaskId, activated_in: Option<(WorkerId, SlotId)>) -> QueuedTask {
        let row = self.table.row(task).expect("it was added");
        let (priority, demand) = (row.priority, row.demand);
        let (location, uses_places) = (self.location(task), self.policy.uses_places());
        let (local, preferred) = if uses_places { self.local_inputs(task) } else { (Vec::new(), None) };
        let reads = self.table.inputs(task).filter(|_| uses_places).map(|data| self.space.size(data)).sum();
        QueuedTask { id: task, tool: row.tool, priority, demand, location, local, reads, preferred, activated_in }
    }

    /// No more readers of the datum will be added.
    pub(super) fn on_sealed(&mut self, data: DataId, context: &mut EventContext) {
        self.table.datum_mut(data).sealed = true;
        self.drop_if_unneeded(data, context);
    }

    pub(super) fn view(&self, now_ms: u64) -> ClusterView<'_> {
        let Self { workers, space, durations, .. } = self;
        ClusterView { workers, space, durations, bandwidth: self.options.bandwidth, now_ms }
    }

    /// The task that starts next.
    pub(super) fn choose(&mut self, now_ms: u64) -> Option<(Assignment, StartKind)> {
        let Self { table, workers, durations, space, .. } = self;
        let bandwidth = self.options.bandwidth;
        let preferred = self.policy.choose(&ClusterView { workers, space, durations, bandwidth, now_ms });
        let policy = self.policy.as_ref();
        let context = SpaceContext { table, policy, workers, durations, bandwidth, now_ms };
        let chosen = self.space.choose(preferred, &context)?;
        let is_preferred = preferred.is_some_and(|preferred| preferred.task == chosen.task);
        Some((chosen, if is_preferred { StartKind::Policy } else { StartKind::Other }))
    }

    /// Starts a task on a worker.
    pub(super) fn start(&mut self, assignment: Assignment, kind: StartKind, context: &mut EventContext) {
        let Assignment { task, worker, reason, .. } = assignment;
        let row = self.table.row_mut(task);
        assert!(row.state == TaskState::Ready && row.missing == 0, "the policy holds ready tasks only");
        row.attempts += 1;
        let (number, demand, tool) = (row.attempts, row.demand, row.tool);
        let free = self.workers.resources(worker).expect("it was added").first_lane();
        let slot = assignment.slot.unwrap_or(free);
        self.policy.start(&assignment, slot, kind != StartKind::Other, &self.workers);
        self.space.start(task);
        let expected = self.durations.median_ms(tool);
        let attempt = AttemptId { task, attempt: number };
        let (lane, times) = ((worker, Some(slot)), (context.now_ms, expected));
        let ahead = kind == StartKind::Ahead;
        if ahead {
            self.workers.start_ahead(attempt, lane, demand, times);
        } else {
            self.workers.start(attempt, lane, demand, times);
        }
        self.set_state(task, TaskState::Running(RunningAttempt { number, worker, slot, reason }), context.now_ms);
        self.watch_straggler(task);
        self.command_start(attempt, (worker, slot), ahead, context);
    }

    pub(super) fn command_start(
        &self,
        AttemptId { task, attempt }: AttemptId,
        (worker, slot): (WorkerId, SlotId),
        ahead: bool,
        context: &mut EventContext,
    ) {
        if self.policy.cleans() {
            context.commands.push(SchedulerCommand::Clean { worker, slot, task });
        }
        context.commands.push(SchedulerCommand::Start { task, worker, slot, attempt, ahead });
    }
}
