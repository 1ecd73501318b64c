//! Locality by bytes: an idle place takes the ready task with most bytes there.
//!
//! Each place has an index of the ready tasks by priority and by the bytes of their inputs there.
//! Tasks that have all of their bytes there come before those that have a part: the latter lose
//! less if they run elsewhere in the end.
//!
//! A decision takes, in this order:
//!
//! 1. the first of the queue, if it was overtaken too often, on any worker;
//! 2. tasks that may run at one location only;
//! 3. for a place with a free processor: the task with most bytes there, unless another place has
//!    more of its bytes and room too;
//! 4. a task from the front of the queue: at its best place, or else anywhere;
//! 5. a task for which all places are equal.
//!
//! All places are equal for a task that has data nowhere, or as much everywhere. It goes to the
//! least loaded worker, but of such tasks those that are neighbours in the queue go to one place
//! ([`super::blocks`]).
//!
//! A task runs at a place that has fewer of its bytes than its best place only if that is busy for
//! longer than the difference takes to be read from afar (delay scheduling: Zaharia and others,
//! 2010, with an estimate in place of a fixed delay). The time that the best place is busy is the
//! rest of the running task that ends first there, and the median duration of the tasks that wait
//! for this place, for each of its processors. While a duration is unknown, or has been exceeded,
//! the rest is taken to be as long as the task has run, so one waits at most as long as the
//! transfer would take.
//!
//! A place whose storage is nearly full gets no task that writes more than fits there, while others
//! have room.
//!
//! A place at which no task could start is not examined again before it has more free processors or
//! another task with data there. So a decision costs O(log tasks) and a bounded look-ahead, however
//! many tasks and workers there are. With one place there is nothing to choose: the queue's order
//! counts alone, as with [`super::fifo`].

use super::blocks::Blocks;
use super::queue::ReadyQueue;
use super::{Assignment, ClusterView, LOOK_AHEAD, PLACES_MAX, QueuedTask, SchedulingPolicy, StartReason};
use crate::messages::LocationTarget;
use crate::resources::{PlaceId, SlotId, WorkerId};
use crate::workers::Workers;
use flow::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The priority, the bytes at the place (most first), then the order of arrival.
type LocalRank = (Reverse<i32>, Reverse<u64>, u64, TaskId);

/// The tasks that wait for a place.
#[derive(Debug, Default)]
struct PlaceQueue {
    tasks: BTreeSet<LocalRank>,
    /// The number of tasks that have most of their bytes here.
    best: u32,
}

/// The number of neighbours of a task that are tried in its place.
const NEIGHBOURS_MAX: usize = 8;

/// Locality by bytes.
#[derive(Debug, Default)]
pub struct LocalityPolicy {
    queue: ReadyQueue,
    places: BTreeMap<PlaceId, PlaceQueue>,
    /// The tasks for which all places are equal.
    equal: Blocks,
    /// The number of places with active workers.
    active_places: u32,
    /// The number of starts that overtook the first of the queue while it was in the block of
    /// another place, since one was counted.
    uncounted: u32,
    /// The places at which something changed since no task could start there.
    awake: BTreeSet<PlaceId>,
}

impl LocalityPolicy {
    fn insert_into_places(&mut self, id: TaskId) {
        let Some((priority, order)) = self.queue.order_of(id) else { return };
        let task = self.queue.get(id).expect("it is held");
        if self.is_equal_everywhere(task) {
            return self.equal.insert((priority, order), id);
        }
        for local in &task.local {
            let rank = (priority, Reverse(task.bytes_rank(local)), order, id);
            self.places.entry(local.place).or_default().tasks.insert(rank);
            self.awake.insert(local.place);
        }
        if let Some(best) = task.local.first() {
            self.places.entry(best.place).or_default().best += 1;
        }
    }

    /// Returns whether no place is better than another for a task.
    fn is_equal_everywhere(&self, task: &QueuedTask) -> bool {
        let most = task.local.first().map_or(0, |local| local.bytes);
        let is_everywhere = task.local.len() >= self.active_places as usize && self.active_places > 1;
        let is_same = task.preferred.is_none() && task.local.iter().all(|local| local.bytes == most);
        task.local.is_empty() || (is_everywhere && is_same)
    }

    fn remove_from_places(&mut self, id: TaskId) {
        let Some((priority, order)) = self.queue.order_of(id) else { return };
        if self.equal.remove((priority, order)) {
            return;
        }
        let task = self.queue.get(id).expect("it is held");
        if let Some(best) = task.local.first() {
            self.places.get_mut(&best.place).expect("it is there").best -= 1;
        }
        for local in &task.local {
            let place = self.places.get_mut(&local.place).expect("it is there");
            place.tasks.remove(&(priority, Reverse(task.bytes_rank(local)), order, id));
            if place.tasks.is_empty() {
                self.places.remove(&local.place);
            }
        }
    }

    /// The task with most bytes at a place with a free processor, of those with at least this
    /// priority.
    fn choose_local(&mut self, lowest: i32, view: &ClusterView) -> Option<Assignment> {
        let awake: Vec<PlaceId> = self.awake.iter().take(LOOK_AHEAD).copied().collect();
        for place in awake {
            if !view.workers.is_free_place(place) {
                self.awake.remove(&place);
                continue;
            }
            let first = self.places.get(&place).and_then(|queue| queue.tasks.first());
            if let Some(chosen) = self.most_bytes_at(place, lowest, view) {
                return Some(chosen);
            }
            // One that waits for tasks of higher priority is examined again.
            if first.is_none_or(|(Reverse(priority), ..)| *priority >= lowest) {
                self.awake.remove(&place);
            }
        }
        None
    }

    fn most_bytes_at(&self, place: PlaceId, lowest: i32, view: &ClusterView) -> Option<Assignment> {
        let ranked = self.places.get(&place)?.tasks.iter().take(LOOK_AHEAD);
        let ranked = ranked.take_while(|(Reverse(priority), ..)| *priority >= lowest);
        let mut tasks = ranked.filter_map(|(.., task)| self.queue.get(*task));
        tasks.find_map(|task| self.place_task(task, Some(place), view))
    }

    /// Starts a task at the place of those with room that has most of its bytes, unless waiting for
    /// a better one is quicker. `asking` is the place that asks for a task; without one, the task
    /// may go to a place that has none of its bytes.
    fn place_task(&self, task: &QueuedTask, asking: Option<PlaceId>, view: &ClusterView) -> Option<Assignment> {
        let known = task.local.iter().filter(|local| view.workers.is_active_place(local.place)).take(PLACES_MAX);
        let best = known.clone().next();
        let mut known = known.chain(task.local.iter().filter(|local| Some(local.place) == asking));
        let soft = self.queue.fit_soft(task, view);
        if let Some(found) = soft.and_then(|(worker, slot)| start_on(task, worker, slot, view)) {
            return Some(Assignment { reason: StartReason::SoftLocation, ..found });
        }
        let most = best.map_or(0, |best| best.bytes);
        let found = known.find_map(|local| Some((local, self.start_at(task, local.place, view)?)));
        let found = found.filter(|(local, _)| asking.is_none_or(|asking| asking == local.place));
        let (here, found) = match found {
            Some((local, found)) => (local.bytes, found),
            None if asking.is_none() => (0, self.start_anywhere(task, view)?),
            None => return None,
        };
        let reason = if here < most {
            self.is_quicker(task, best?.place, most - here, view).then_some(StartReason::QuickerThanWaiting)?
        } else if most == 0 {
            self.queue.plain_reason(task)
        } else if asking.is_some() {
            StartReason::MostBytesLocal
        } else {
            StartReason::BestPlace
        };
        Some(Assignment { reason, ..found })
    }

    /// Returns whether reading these bytes from afar is quicker than waiting for a place.
    fn is_quicker(&self, task: &QueuedTask, best: PlaceId, bytes: u64, view: &ClusterView) -> bool {
        let fits = view.workers.find(task.demand, Some(LocationTarget::Place(best)), &|_| true).is_some();
        let Some(wait) = view.workers.wait_ms(best, view.now_ms).filter(|_| !fits) else {
            // Its storage is full, its free worker is reserved, or no worker there is large enough.
            return true;
        };
        let ahead = self.places.get(&best).map_or(0, |queue| queue.best.saturating_sub(1));
        let each = view.durations.median_ms(task.tool).unwrap_or(0);
        let queued = u64::from(ahead).saturating_mul(each) / u64::from(view.workers.slots_at(best).max(1));
        view.transfer_ms(bytes) < wait.saturating_add(queued)
    }

    fn start_at(&self, task: &QueuedTask, place: PlaceId, view: &ClusterView) -> Option<Assignment> {
        let worker = self.queue.fit(task, Some(LocationTarget::Place(place)), view)?;
        start_on(task, worker, None, view)
    }

    fn start_anywhere(&self, task: &QueuedTask, view: &ClusterView) -> Option<Assignment> {
        let is_equal = self.queue.order_of(task.id).is_some_and(|order| self.equal.contains(order));
        let plain = self.queue.fit(task, None, view).filter(|_| is_equal && task.location.is_none());
        let (worker, slot) = plain.map(|worker| (worker, None)).or_else(|| self.queue.fit_anywhere(task, view))?;
        let others = || view.workers.free_places(PlaceId(0)).take(LOOK_AHEAD);
        // If that place is short of storage, others are tried. If nothing runs, no place will get
        // room by waiting.
        let found =
            start_on(task, worker, slot, view).or_else(|| others().find_map(|place| self.start_at(task, place, view)));
        let reason = StartReason::FirstInQueue;
        found.or_else(|| view.workers.is_idle().then_some(Assignment { task: task.id, worker, slot, reason }))
    }

    /// A task from the front of the queue with at least this priority.
    fn choose_from_front(&self, lowest: i32, view: &ClusterView) -> Option<Assignment> {
        let several = view.workers.active_places() > 1;
        let mut front = self.queue.first(LOOK_AHEAD).take_while(|task| task.priority >= lowest);
        front.find_map(|task| {
            let order = self.queue.order_of(task.id)?;
            let is_equal = !several || self.equal.contains(order);
            if is_equal { self.place_anywhere(task, view) } else { self.place_task(task, None, view) }
        })
    }

    /// A task for which all places are equal, if those at the front of the queue all wait for their
    /// places.
    fn choose_equal(&self, lowest: i32, view: &ClusterView) -> Option<Assignment> {
        let tasks = self.equal.first(LOOK_AHEAD).filter_map(|task| self.queue.get(task));
        tasks.take_while(|task| task.priority >= lowest).find_map(|task| self.place_anywhere(task, view))
    }

    fn place_anywhere(&self, task: &QueuedTask, view: &ClusterView) -> Option<Assignment> {
        let found = self.start_anywhere(task, view)?;
        Some(Assignment { reason: self.queue.plain_reason(task), ..found })
    }

    /// Replaces a task for which all places are equal by the next one of the block at which its
    /// place works, if that fits there.
    fn prefer_neighbour(&mut self, found: Assignment, view: &ClusterView) -> Assignment {
        let (workers, places) = (view.workers, view.workers.active_places());
        let order = self.queue.order_of(found.task).filter(|order| places > 1 && self.equal.contains(*order));
        let is_bound = self.queue.get(found.task).is_some_and(|task| task.location.is_some());
        let (Some(order), Some(place), false) = (order, workers.place(found.worker), is_bound) else { return found };
        let neighbours = self.equal.neighbours(order, place, places, NEIGHBOURS_MAX);
        let neighbours = neighbours.into_iter().filter_map(|task| self.queue.get(task));
        let mut nearby =
            neighbours.filter(|task| task.local.is_empty() || task.local.iter().any(|at| at.place == place));
        let chosen = nearby.find_map(|task| self.start_at(task, place, view));
        chosen.map_or(found, |chosen| Assignment { reason: found.reason, ..chosen })
    }

    fn choose_by_priority(&mut self, lowest: i32, view: &ClusterView) -> Option<Assignment> {
        let local = if view.workers.active_places() > 1 { self.choose_local(lowest, view) } else { None };
        if local.is_some() {
            return local;
        }
        let found = self.choose_from_front(lowest, view).or_else(|| self.choose_equal(lowest, view))?;
        Some(self.prefer_neighbour(found, view))
    }

    /// Returns whether a start on a worker counts as overtaking the first of the queue. If that
    /// fits the worker and waits for the place of its block instead, each place may overtake it as
    /// often.
    fn counts_as_overtaking(&mut self, worker: WorkerId, workers: &Workers) -> bool {
        let first = self.queue.first(1).next().filter(|first| workers.fits(worker, first.demand));
        let block = first.and_then(|first| self.equal.place_of(self.queue.order_of(first.id)?));
        let waits_for_other = block.is_some() && block != workers.place(worker);
        self.uncounted += u32::from(waits_for_other);
        let counts = !waits_for_other || self.uncounted >= self.active_places;
        self.uncounted = if counts { 0 } else { self.uncounted };
        counts
    }
}

/// Starts the task on the worker, unless the place is short of storage for what the task writes.
fn start_on(task: &QueuedTask, worker: WorkerId, slot: Option<SlotId>, view: &ClusterView) -> Option<Assignment> {
    let place = view.workers.place(worker)?;
    let short = view.workers.is_short_for(place, || view.space.claims(task.id));
    (!short).then_some(Assignment { task: task.id, worker, slot, reason: StartReason::FirstInQueue })
}

impl SchedulingPolicy for LocalityPolicy {
    fn add(&mut self, task: QueuedTask) {
        let id = task.id;
        self.queue.add(task);
        self.insert_into_places(id);
    }

    fn choose(&mut self, view: &ClusterView) -> Option<Assignment> {
        if !view.workers.has_free() {
            return None;
        }
        if let Some(urgent) = self.queue.choose_urgent(view) {
            return Some(urgent);
        }
        let chosen = self.queue.priorities().and_then(|(first, last)| {
            let chosen = self.choose_by_priority(first, view);
            chosen.or_else(|| if last < first { self.choose_by_priority(last, view) } else { None })
        });
        chosen.or_else(|| self.queue.choose_hard(None, view))
    }

    fn assign(&self, task: TaskId, view: &ClusterView) -> Option<Assignment> {
        let local = &self.queue.get(task)?.local;
        self.queue.assign(task, local.iter().map(|local| local.place).take(PLACES_MAX), view)
    }

    fn start(&mut self, assignment: &Assignment, _: SlotId, chosen: bool, workers: &Workers) {
        self.remove_from_places(assignment.task);
        let counts = chosen && self.counts_as_overtaking(assignment.worker, workers);
        self.queue.start(assignment, chosen, workers, |_| counts);
    }

    fn remove(&mut self, task: TaskId) {
        self.remove_from_places(task);
        self.queue.remove(task);
    }

    fn relocate(&mut self, moved: QueuedTask) {
        let task = moved.id;
        self.remove_from_places(task);
        self.queue.relocate(moved);
        self.insert_into_places(task);
    }

    fn on_free(&mut self, worker: WorkerId, workers: &Workers) {
        self.active_places = workers.active_places();
        self.queue.wake(worker, workers);
        self.awake.extend(workers.place(worker));
    }

    fn on_worker_gone(&mut self, worker: WorkerId, workers: &Workers) -> Vec<TaskId> {
        self.active_places = workers.active_places();
        self.queue.on_worker_gone(worker, workers)
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
