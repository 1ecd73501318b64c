//! The data-aware scheduler of the paper (paper 001, section 4.2.4, Algorithm 1): the ready task
//! with most inputs at the place, by number.
//!
//! A worker of the paper is a lane here. The tasks that became ready by the end of the task that
//! ran in a lane are in the *local list* of that lane (line 21). When the lane is idle, it takes
//! the task with most inputs at its place from its local list and the queue together; ties go to
//! the local list, then to the order of the queue (line 25). The rest of the local list goes to the
//! queue, in order (lines 28-31). The caller is told to clean the lane (lines 32-33).
//!
//! The paper does not say which of several idle workers comes first. Here it is the lane whose task
//! ended first, then the places in order, and at a place the least loaded worker. Tasks of the
//! paper fit every worker. Here a task that does not fit is passed over, a limited number of times;
//! if no task fits the lane, its local list goes to the queue.
//!
//! The queue is not scanned: each place has an index of the ready tasks with inputs there.

use super::queue::{QueueOrder, ReadyQueue};
use super::{Assignment, ClusterView, LOOK_AHEAD, QueuedTask, SchedulingPolicy, StartReason};
use crate::messages::LocationTarget;
use crate::resources::{Demand, PlaceId, SlotId, WorkerId};
use crate::workers::Workers;
use flow::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The number of idle places that are asked for each start.
const IDLE_PLACES_MAX: usize = 64;

/// The least demand that an idle lane meets.
const ONE_CPU: Demand = Demand { cpus: 1, memory: 0 };

/// A lane of a worker.
type WorkerSlot = (WorkerId, SlotId);

/// The paper's scheduler.
#[derive(Debug, Default)]
pub struct Algorithm1Policy {
    queue: ReadyQueue,
    /// The local list of each lane that has one.
    activated: BTreeMap<WorkerSlot, Vec<TaskId>>,
    /// The lanes with local lists, in the order in which they became idle.
    idle: VecDeque<WorkerSlot>,
    /// The queued tasks with inputs at each place, that with most inputs first.
    places: HashMap<PlaceId, BTreeSet<(Reverse<u32>, QueueOrder, TaskId)>>,
}

impl Algorithm1Policy {
    fn enqueue(&mut self, task: TaskId) {
        self.queue.enqueue(task);
        let Some(order) = self.queue.order_of(task) else { return };
        self.insert_into_places(task, order);
    }

    fn insert_into_places(&mut self, id: TaskId, order: QueueOrder) {
        let task = self.queue.get(id).expect("it is held");
        for local in &task.local {
            self.places.entry(local.place).or_default().insert((Reverse(task.count_rank(local)), order, id));
        }
    }

    /// Takes a queued task out of the indexes of places.
    fn remove_from_places(&mut self, id: TaskId) {
        let Some(order) = self.queue.order_of(id) else { return };
        let task = self.queue.get(id).expect("it is held");
        for local in &task.local {
            let index = self.places.get_mut(&local.place).expect("it is there");
            index.remove(&(Reverse(task.count_rank(local)), order, id));
            if index.is_empty() {
                self.places.remove(&local.place);
            }
        }
    }

    /// Takes a task out of the local list that holds it, if one does.
    fn remove_from_list(&mut self, task: TaskId) {
        let held = self.queue.get(task).and_then(|task| task.activated_in);
        if let Some(list) = held.and_then(|lane| self.activated.get_mut(&lane)) {
            list.retain(|other| *other != task);
        }
    }

    /// Moves the local list of a lane to the queue.
    fn flush(&mut self, lane: WorkerSlot) {
        if let Some(list) = self.activated.remove(&lane) {
            self.idle.retain(|idle| *idle != lane);
            for task in list {
                self.enqueue(task);
            }
        }
    }

    /// The choice of the first idle lane with a local list. Lanes that can take no task lose theirs
    /// to the queue.
    fn choose_for_activated(&mut self, view: &ClusterView) -> Option<Assignment> {
        while let Some(lane) = self.idle.front().copied() {
            if view.workers.is_free_slot(lane.0, lane.1) {
                let chosen = self.select(lane, view);
                if chosen.is_some() {
                    return chosen;
                }
            }
            self.flush(lane);
        }
        None
    }

    /// The best task for a lane from its local list and the queue.
    fn select(&self, lane: WorkerSlot, view: &ClusterView) -> Option<Assignment> {
        let (worker, slot) = lane;
        let place = view.workers.place(worker)?;
        let fits = |task: &QueuedTask| self.queue.fit(task, Some(LocationTarget::Worker(worker)), view).is_some();
        let list = self.activated.get(&lane).map_or(&[][..], Vec::as_slice);
        // Of equals, `max_by_key` returns the last, and the first of the list is wanted.
        let list = list.iter().rev().filter_map(|task| self.queue.get(*task)).filter(|task| fits(task));
        let from_list = list.map(|task| (count_at(task, place), task)).max_by_key(|(count, _)| *count);
        let from_queue = self.first_of_queue(place, &fits);
        let (count, task) = match (from_list, from_queue) {
            (Some(own), Some(other)) => Some(if own.0 >= other.0 { own } else { other }),
            (own, other) => own.or(other),
        }?;
        if let Some((worker, slot)) = self.queue.fit_soft(task, view) {
            return Some(Assignment { task: task.id, worker, slot, reason: StartReason::SoftLocation });
        }
        let reason = if count > 0 { StartReason::MostInputsLocal } else { self.queue.plain_reason(task) };
        Some(Assignment { task: task.id, worker, slot: Some(slot), reason })
    }

    /// The queued task with most inputs at the place, with their number.
    fn first_of_queue(&self, place: PlaceId, fits: &dyn Fn(&QueuedTask) -> bool) -> Option<(u32, &QueuedTask)> {
        let index = self.places.get(&place).into_iter().flatten().take(LOOK_AHEAD);
        let mut local = index.filter_map(|(Reverse(count), _, task)| Some((*count, self.queue.get(*task)?)));
        let found = local.find(|(_, task)| fits(task));
        found.or_else(|| Some((0, self.queue.first(LOOK_AHEAD).find(|task| fits(task))?)))
    }

    /// The choice of an idle lane without a local list.
    fn choose_for_idle(&self, view: &ClusterView) -> Option<Assignment> {
        self.queue.priorities()?;
        view.workers.free_places(PlaceId(0)).take(IDLE_PLACES_MAX).find_map(|place| {
            let worker = view.workers.find(ONE_CPU, Some(LocationTarget::Place(place)), &|_| true)?;
            self.select((worker, view.workers.resources(worker)?.first_lane()), view)
        })
    }

    /// A task from the front of the queue on any worker: if the first idle places can take none.
    fn choose_anywhere(&self, view: &ClusterView) -> Option<Assignment> {
        self.queue.first(LOOK_AHEAD).find_map(|task| {
            let (worker, slot) = self.queue.fit_anywhere(task, view)?;
            Some(Assignment { task: task.id, worker, slot, reason: self.queue.plain_reason(task) })
        })
    }
}

/// The number of inputs of the task at the place.
fn count_at(task: &QueuedTask, place: PlaceId) -> u32 {
    task.local.iter().find(|local| local.place == place).map_or(0, |local| task.count_rank(local))
}

impl SchedulingPolicy for Algorithm1Policy {
    fn add(&mut self, task: QueuedTask) {
        let id = task.id;
        let lane = task.activated_in.filter(|_| task.hard_target().is_none());
        self.queue.hold(task);
        let Some(lane) = lane else { return self.enqueue(id) };
        let list = self.activated.entry(lane).or_default();
        if list.is_empty() {
            self.idle.push_back(lane);
        }
        // Line 16 visits the table in order.
        list.insert(list.partition_point(|other| *other < id), id);
    }

    fn choose(&mut self, view: &ClusterView) -> Option<Assignment> {
        if !view.workers.has_free() {
            return None;
        }
        if let Some(urgent) = self.queue.choose_urgent(view) {
            return Some(urgent);
        }
        let chosen = self.choose_for_activated(view).or_else(|| self.choose_for_idle(view));
        chosen.or_else(|| self.choose_anywhere(view)).or_else(|| self.queue.choose_hard(None, view))
    }

    fn assign(&self, task: TaskId, view: &ClusterView) -> Option<Assignment> {
        let mut local = self.queue.get(task)?.local.clone();
        local.sort_by_key(|local| Reverse(local.count));
        self.queue.assign(task, local.into_iter().map(|local| local.place).take(LOOK_AHEAD), view)
    }

    fn start(&mut self, assignment: &Assignment, slot: SlotId, chosen: bool, workers: &Workers) {
        let Assignment { task, worker, .. } = *assignment;
        self.remove_from_places(task);
        self.remove_from_list(task);
        // The paper lets the queue wait for locality as long as it takes, so only tasks that do not
        // fit count as overtaken.
        self.queue.start(assignment, chosen, workers, |first| !workers.fits(worker, first.demand));
        self.flush((worker, slot));
    }

    fn remove(&mut self, task: TaskId) {
        self.remove_from_places(task);
        self.remove_from_list(task);
        self.queue.remove(task);
    }

    fn relocate(&mut self, moved: QueuedTask) {
        let task = moved.id;
        self.remove_from_places(task);
        self.queue.relocate(moved);
        if let Some(order) = self.queue.order_of(task) {
            self.insert_into_places(task, order);
        }
    }

    fn on_free(&mut self, worker: WorkerId, workers: &Workers) {
        self.queue.wake(worker, workers);
    }

    fn on_worker_gone(&mut self, worker: WorkerId, workers: &Workers) -> Vec<TaskId> {
        let lanes = self.activated.range((worker, SlotId(0))..=(worker, SlotId(u32::MAX)));
        let lanes: Vec<WorkerSlot> = lanes.map(|(lane, _)| *lane).collect();
        for lane in lanes {
            self.flush(lane);
        }
        self.queue.on_worker_gone(worker, workers)
    }

    fn cleans(&self) -> bool {
        true
    }

    fn take_unlocatable(&mut self, workers: &Workers) -> Vec<TaskId> {
        self.queue.take_unlocatable(workers)
    }

    fn is_reserved(&self, worker: WorkerId) -> bool {
        self.queue.is_reserved(worker)
    }

    fn get(&self, task: TaskId) -> Option<&QueuedTask> {
        self.queue.get(task)
    }

    fn ahead_of(&self, task: TaskId) -> Option<usize> {
        self.queue.ahead_of(task)
    }
}
