//! The queue that all policies share: ready tasks by priority and order of arrival, those that may
//! run at one location only apart from the others.
//!
//! No starvation: the first of the queue may be overtaken [`OVERTAKES_MAX`] times. After that it
//! starts on any worker where it fits. If it fits nowhere, a worker that can hold it is reserved:
//! no other task starts there until this one fits. The same holds for the first task of each
//! location.

use super::{Assignment, ClusterView, LOOK_AHEAD, PLACES_MAX, QueuedTask, StartReason};
use crate::messages::LocationTarget;
use crate::resources::{PlaceId, SlotId, WorkerId};
use crate::task_map::TaskMap;
use crate::workers::{LocationState, Workers};
use flow::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Enough to keep a machine busy while a big task waits for the running ones; small beside a long
/// queue.
pub const OVERTAKES_MAX: u32 = 64;

/// The place of a task in the queue: higher priorities first, then the order of arrival.
pub type QueueOrder = (Reverse<i32>, u64);

/// Tasks that wait at one location.
#[derive(Debug, Default)]
struct HardQueue {
    tasks: BTreeMap<QueueOrder, TaskId>,
    /// The number of times that its first task was overtaken.
    overtaken: u32,
}

#[derive(Debug)]
struct Entry {
    task: QueuedTask,
    /// `None` while the task is held but not in the queue.
    order: Option<QueueOrder>,
}

/// The ready tasks.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    entries: TaskMap<Entry>,
    /// Tasks that may run anywhere.
    order: BTreeMap<QueueOrder, TaskId>,
    /// Tasks that may run at one location only.
    hard: BTreeMap<LocationTarget, HardQueue>,
    /// The locations of `hard` at which something changed since no task could start there.
    awake: BTreeSet<LocationTarget>,
    next: u64,
    /// The number of times that the first of `order` was overtaken.
    overtaken: u32,
    /// Workers that start no task but this one.
    reserved: HashMap<WorkerId, TaskId>,
}

impl ReadyQueue {
    /// Holds a task without a place in the queue, and then queues it.
    pub fn add(&mut self, task: QueuedTask) {
        let id = task.id;
        self.hold(task);
        self.enqueue(id);
    }

    /// Holds a task that is not in the queue.
    pub fn hold(&mut self, task: QueuedTask) {
        self.entries.insert(task.id, Entry { task, order: None });
    }

    /// Puts a held task at the end of those of its priority.
    pub fn enqueue(&mut self, id: TaskId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let order = (Reverse(entry.task.priority), self.next);
        self.next += 1;
        entry.order = Some(order);
        if let Some(target) = entry.task.hard_target() {
            self.hard.entry(target).or_default().tasks.insert(order, id);
            self.awake.insert(target);
        } else {
            self.order.insert(order, id);
        }
    }

    /// The held task.
    pub fn get(&self, task: TaskId) -> Option<&QueuedTask> {
        self.entries.get(task).map(|entry| &entry.task)
    }

    /// Updates the inputs by place of a task, if it is held.
    pub fn relocate(&mut self, moved: QueuedTask) {
        if let Some(Entry { task, .. }) = self.entries.get_mut(moved.id) {
            (task.local, task.reads, task.preferred) = (moved.local, moved.reads, moved.preferred);
        }
    }

    /// The place of a task in the queue, if it is queued and may run anywhere.
    pub fn order_of(&self, task: TaskId) -> Option<QueueOrder> {
        self.entries.get(task).filter(|entry| entry.task.hard_target().is_none())?.order
    }

    /// The first tasks of the queue, of those that may run anywhere.
    pub fn first(&self, most: usize) -> impl Iterator<Item = &QueuedTask> + '_ {
        self.order.values().take(most).map(|task| &self.entries[*task].task)
    }

    /// The priorities of the first and the last task that may run anywhere.
    pub fn priorities(&self) -> Option<(i32, i32)> {
        let ((Reverse(first), _), _) = self.order.first_key_value()?;
        let ((Reverse(last), _), _) = self.order.last_key_value()?;
        Some((*first, *last))
    }

    /// The reason of a start without regard to places.
    pub fn plain_reason(&self, task: &QueuedTask) -> StartReason {
        let lowest = self.priorities().map(|(_, lowest)| lowest);
        let is_higher = lowest.is_some_and(|lowest| task.priority > lowest);
        if is_higher { StartReason::HighestPriority } else { StartReason::FirstInQueue }
    }

    /// Returns whether a worker is reserved for a task that waits.
    pub fn is_reserved(&self, worker: WorkerId) -> bool {
        self.reserved.contains_key(&worker)
    }

    /// Removes a held task.
    pub fn remove(&mut self, id: TaskId) -> Option<QueuedTask> {
        let entry = self.entries.remove(id)?;
        self.release_reservations(id);
        let Some(order) = entry.order else { return Some(entry.task) };
        if let Some(target) = entry.task.hard_target() {
            self.remove_hard(target, order);
        } else {
            let was_first = self.order.first_key_value().is_some_and(|(first, _)| *first == order);
            self.order.remove(&order);
            self.overtaken = if was_first { 0 } else { self.overtaken };
        }
        Some(entry.task)
    }

    fn release_reservations(&mut self, id: TaskId) {
        if self.reserved.is_empty() {
            return;
        }
        let before = self.reserved.len();
        self.reserved.retain(|_, holder| *holder != id);
        if self.reserved.len() < before {
            self.awake.extend(self.hard.keys());
        }
    }

    fn remove_hard(&mut self, target: LocationTarget, order: QueueOrder) {
        let Some(queue) = self.hard.get_mut(&target) else { return };
        if queue.tasks.first_key_value().is_some_and(|(first, _)| *first == order) {
            queue.overtaken = 0;
        }
        queue.tasks.remove(&order);
        if queue.tasks.is_empty() {
            self.hard.remove(&target);
            self.awake.remove(&target);
        }
    }

    /// Removes a task that starts on a worker; if the policy chose it, counts it for those that it
    /// overtakes. The first of the queue counts it only if `counts` returns true for it.
    pub fn start(
        &mut self,
        assignment: &Assignment,
        chosen: bool,
        workers: &Workers,
        counts: impl Fn(&QueuedTask) -> bool,
    ) -> Option<QueuedTask> {
        let order = self.entries.get(assignment.task).and_then(|entry| entry.order);
        let task = self.remove(assignment.task)?;
        // A task that is not queued comes after all that are.
        let overtakes = |first: &QueueOrder| order.is_none_or(|order| *first < order);
        if chosen && self.order.first_key_value().is_some_and(|(first, _)| overtakes(first)) {
            let counted = self.first(1).next().is_some_and(counts);
            self.overtaken += u32::from(counted);
        }
        if chosen && !self.hard.is_empty() {
            for target in self.targets_at(assignment.worker, workers) {
                let queue = self.hard.get_mut(&target).expect("it has tasks");
                let is_first = queue.tasks.first_key_value().is_some_and(|(first, _)| overtakes(first));
                queue.overtaken += u32::from(is_first);
            }
        }
        Some(task)
    }

    /// The locations that a worker is part of and at which tasks wait.
    fn targets_at(&self, worker: WorkerId, workers: &Workers) -> Vec<LocationTarget> {
        let slots = LocationTarget::Slot(worker, SlotId(0))..=LocationTarget::Slot(worker, SlotId(u32::MAX));
        let place = workers.place(worker).map(LocationTarget::Place);
        let plain = place.into_iter().chain([LocationTarget::Worker(worker)]);
        let slots = self.hard.range(slots).map(|(target, _)| *target);
        plain.filter(|target| self.hard.contains_key(target)).chain(slots).collect()
    }

    /// Marks the locations that a worker is part of as changed.
    pub fn wake(&mut self, worker: WorkerId, workers: &Workers) {
        if !self.hard.is_empty() {
            let targets = self.targets_at(worker, workers);
            self.awake.extend(targets);
        }
    }

    /// Forgets the reservation of a worker that is gone, and returns the tasks that may run there
    /// only; they are no longer held.
    pub fn on_worker_gone(&mut self, worker: WorkerId, workers: &Workers) -> Vec<TaskId> {
        self.reserved.remove(&worker);
        let targets = self.targets_at(worker, workers);
        self.take_unlocatable_of(&targets, workers)
    }

    /// Removes and returns the tasks that may run at one location only, if that is gone.
    pub fn take_unlocatable(&mut self, workers: &Workers) -> Vec<TaskId> {
        let targets: Vec<LocationTarget> = self.hard.keys().copied().collect();
        self.take_unlocatable_of(&targets, workers)
    }

    fn take_unlocatable_of(&mut self, targets: &[LocationTarget], workers: &Workers) -> Vec<TaskId> {
        let waiting = targets.iter().flat_map(|target| self.hard[target].tasks.values());
        let gone = |id: &TaskId| {
            let task = &self.entries[*id].task;
            let state = task.location.map(|location| workers.location_state(location, task.demand));
            state == Some(LocationState::Gone)
        };
        let gone: Vec<TaskId> = waiting.copied().filter(gone).collect();
        for task in &gone {
            self.remove(*task);
        }
        gone
    }

    /// The worker at `target` on which the task can start now.
    pub fn fit(&self, task: &QueuedTask, target: Option<LocationTarget>, view: &ClusterView) -> Option<WorkerId> {
        let allowed = |worker: WorkerId| self.reserved.get(&worker).is_none_or(|holder| *holder == task.id);
        view.workers.find(task.demand, target, &allowed)
    }

    /// The worker at the task's soft location on which it can start now.
    pub fn fit_soft(&self, task: &QueuedTask, view: &ClusterView) -> Option<(WorkerId, Option<SlotId>)> {
        let target = task.soft_target()?;
        Some((self.fit(task, Some(target), view)?, slot_of(target)))
    }

    /// The worker on which the task can start now: at its soft location, or else where its inputs
    /// are, or else anywhere.
    pub fn fit_anywhere(&self, task: &QueuedTask, view: &ClusterView) -> Option<(WorkerId, Option<SlotId>)> {
        let places = || task.local.iter().take(PLACES_MAX).map(|local| LocationTarget::Place(local.place));
        let near = || places().find_map(|place| self.fit(task, Some(place), view));
        self.fit_soft(task, view).or_else(|| Some((near().or_else(|| self.fit(task, None, view))?, None)))
    }

    /// Starts of tasks that precede the policy: the first of the queue, if it was overtaken too
    /// often, and tasks that may run at one location only, if their priority is not below that of
    /// the queue.
    pub fn choose_urgent(&mut self, view: &ClusterView) -> Option<Assignment> {
        self.choose_overtaken(view).or_else(|| self.choose_hard(self.priorities().map(|(first, _)| first), view))
    }

    fn choose_overtaken(&mut self, view: &ClusterView) -> Option<Assignment> {
        if self.overtaken < OVERTAKES_MAX {
            return None;
        }
        let task = self.first(1).next()?;
        if let Some((worker, slot)) = self.fit_anywhere(task, view) {
            return Some(Assignment { task: task.id, worker, slot, reason: StartReason::Overtaken });
        }
        self.reserve(task.id, None, view);
        None
    }

    /// Reserves a worker for a task that fits nowhere now, unless one is reserved.
    fn reserve(&mut self, id: TaskId, target: Option<LocationTarget>, view: &ClusterView) {
        if self.reserved.values().any(|holder| *holder == id) {
            return;
        }
        let demand = self.entries[id].task.demand;
        if let Some(worker) = view.workers.find_for_reservation(demand, target) {
            self.reserved.entry(worker).or_insert(id);
        }
    }

    /// A task that may run at one location only and can start there, if its priority is at least
    /// `lowest`.
    pub fn choose_hard(&mut self, lowest: Option<i32>, view: &ClusterView) -> Option<Assignment> {
        let targets: Vec<LocationTarget> = self.awake.iter().take(LOOK_AHEAD).copied().collect();
        for target in targets {
            let queue = &self.hard[&target];
            let examined = if queue.overtaken < OVERTAKES_MAX { LOOK_AHEAD } else { 1 };
            let (first, tasks) = (queue.tasks.values().next().copied(), queue.tasks.values().take(examined));
            let mut tasks = tasks.map(|id| &self.entries[*id].task);
            let found = tasks.find_map(|task| Some((task, self.fit(task, Some(target), view)?)));
            let Some((task, worker)) = found else {
                if let Some(first) = first.filter(|_| examined == 1) {
                    self.reserve(first, Some(target), view);
                }
                self.awake.remove(&target);
                continue;
            };
            if lowest.is_none_or(|lowest| task.priority >= lowest) {
                let (task, slot) = (task.id, slot_of(target));
                return Some(Assignment { task, worker, slot, reason: StartReason::HardLocation });
            }
        }
        None
    }

    /// The worker for a task that the space rules choose: at the best of these places, or else
    /// anywhere. Reservations do not count.
    pub fn assign(&self, id: TaskId, best: impl Iterator<Item = PlaceId>, view: &ClusterView) -> Option<Assignment> {
        let task = self.get(id)?;
        let all = |_: WorkerId| true;
        let find = |target: Option<LocationTarget>| view.workers.find(task.demand, target, &all);
        let at = |target| Some((find(Some(target))?, slot_of(target)));
        let found = match task.location {
            Some(location) if location.hard => at(location.at),
            location => {
                let named = location.and_then(|location| at(location.at));
                let mut best = best.filter_map(|place| at(LocationTarget::Place(place)));
                named.or_else(|| best.next()).or_else(|| Some((find(None)?, None)))
            }
        };
        let (worker, slot) = found?;
        Some(Assignment { task: id, worker, slot, reason: StartReason::Space })
    }

    /// The number of queued tasks before `task` that can run where it can.
    pub fn ahead_of(&self, task: TaskId) -> Option<usize> {
        let entry = self.entries.get(task)?;
        let Some(order) = entry.order else { return Some(0) };
        Some(match entry.task.hard_target() {
            Some(target) => self.hard[&target].tasks.range(..order).count(),
            None => self.order.range(..order).count(),
        })
    }
}

/// The lane that a target names.
fn slot_of(target: LocationTarget) -> Option<SlotId> {
    match target {
        LocationTarget::Slot(_, slot) => Some(slot),
        LocationTarget::Place(_) | LocationTarget::Worker(_) => None,
    }
}
