//! The workers and the places, and the index of those with free resources.
//!
//! A worker is active, draining (its tasks run to their ends, and it gets no more) or lost. The
//! index holds the active ones by their number of processors, the least loaded first; once for all
//! workers and once for each place. So a worker for a task is found in O(sizes of machines x log
//! workers), with a look-ahead of [`LOOK_AHEAD`] for the memory. Among workers that are all idle,
//! one that can hold a task is always found: of those with equal processors the one with most free
//! memory is the first.

mod ahead;
mod free_index;
mod membership;

use crate::messages::{AttemptId, Location, LocationTarget};
use crate::resources::{Demand, FreeResources, MachineCapacity, PlaceId, SlotId, WorkerId};
use free_index::{FreeIndex, FreeKey, WorkerLoad, key_of, load};
use std::collections::{BTreeSet, HashMap};

/// The number of workers with as many processors that are tried. It bounds the work for each task.
const LOOK_AHEAD: usize = 8;

/// The number of workers that may have changed since they were indexed. It bounds the work for each
/// task.
const CHANGED_MAX: usize = 8;

/// Places with numbers below this one are found by a table, the others by hashing.
const SMALL_MAX: u32 = 1 << 16;

/// The position of a place that is unknown.
const NONE: u32 = u32::MAX;

/// A place is short of storage above this part of its capacity, in percent.
const SHORT_ABOVE: u64 = 90;

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Active,
    /// Runs its tasks to their ends, and gets no more.
    Draining,
    /// Has no processors now, and so gets no tasks; it may have some again.
    Paused,
    Lost,
}

#[derive(Debug)]
struct Worker {
    place: PlaceId,
    /// The position of the place in `Workers::places`.
    place_at: usize,
    resources: FreeResources,
    /// The key under which it is in the indexes, which may be out of date.
    indexed: Option<FreeKey>,
    state: WorkerState,
    /// The attempt that runs in each lane.
    lanes: Vec<Option<RunningTask>>,
}

/// A running attempt.
#[derive(Debug, Clone, Copy)]
struct RunningTask {
    attempt: AttemptId,
    demand: Demand,
    since_ms: u64,
    expected_end_ms: u64,
}

/// The storage of a place, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Storage {
    capacity: u64,
    used: u64,
}

impl Storage {
    fn is_short(self) -> bool {
        u128::from(self.used) * 100 > u128::from(self.capacity) * u128::from(SHORT_ABOVE) && self.capacity > 0
    }
}

#[derive(Debug, Default)]
struct Place {
    storage: Storage,
    /// The number of active workers.
    active: u32,
    /// The processors of the active workers.
    slots: u32,
    /// True if it ever had a worker.
    existed: bool,
    free: FreeIndex,
    /// The free processors of the active workers.
    free_cpus: u32,
    /// The expected end and the start of each attempt that runs there.
    ends: BTreeSet<(u64, u64, AttemptId)>,
}

/// Tells if a location can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationState {
    /// A worker is there, or may come.
    Possible,
    /// No active worker is there any more or ever will be, or none there can ever hold the task.
    Gone,
}

/// All workers, places and running tasks.
#[derive(Debug, Default)]
pub struct Workers {
    all: Vec<Option<Worker>>,
    places: Vec<Place>,
    /// The positions in `places` of places with small numbers; `NONE` for those that are unknown.
    small: Vec<u32>,
    /// The positions of the others.
    large: HashMap<PlaceId, u32>,
    free: FreeIndex,
    /// Active workers whose key in the indexes is out of date; few. Where a task ends and the next
    /// one starts at once, the indexes do not change.
    changed: Vec<WorkerId>,
    /// The places with a free processor.
    free_places: BTreeSet<PlaceId>,
    /// The number of attempts that run.
    running: u32,
    /// The capacity with most processors (then memory) of an active worker.
    largest: Option<MachineCapacity>,
    /// The active workers, that with the fewest processors of tasks which were sent ahead first.
    by_ahead: BTreeSet<(u32, WorkerId)>,
    /// The processors of all active workers.
    slots: u32,
    /// The processors that tasks lend in all.
    lent: u32,
    active: u32,
    /// True if no worker was or will be missing.
    is_fixed: bool,
    /// True if no worker will join.
    is_complete: bool,
    /// The number of places with active workers.
    active_places: u32,
    /// The number of places with active workers that are short of storage.
    short_places: u32,
}

impl Workers {
    /// Updates the storage of a place, in bytes.
    pub fn set_storage(&mut self, place: PlaceId, capacity: u64, used: u64) {
        self.change_place(place, |place| place.storage = Storage { capacity, used });
    }

    /// The position of a place, which is created if necessary.
    fn place_at(&mut self, place: PlaceId) -> usize {
        if let Some(at) = self.position(place) {
            return at;
        }
        let at = self.places.len();
        let position = u32::try_from(at).expect("places are few");
        self.places.push(Place::default());
        if place.0 < SMALL_MAX {
            let number = place.0 as usize;
            self.small.resize(self.small.len().max(number + 1), NONE);
            self.small[number] = position;
        } else {
            self.large.insert(place, position);
        }
        at
    }

    fn position(&self, place: PlaceId) -> Option<usize> {
        let known = if place.0 < SMALL_MAX { self.small.get(place.0 as usize) } else { self.large.get(&place) };
        known.filter(|position| **position != NONE).map(|position| *position as usize)
    }

    fn place_of(&self, place: PlaceId) -> Option<&Place> {
        self.position(place).map(|at| &self.places[at])
    }

    /// Changes a place and counts it anew.
    fn change_place(&mut self, place: PlaceId, change: impl FnOnce(&mut Place)) {
        let at = self.place_at(place);
        let place = &mut self.places[at];
        let counts =
            |place: &Place| (u32::from(place.active > 0), u32::from(place.active > 0 && place.storage.is_short()));
        let before = counts(place);
        change(place);
        let after = counts(place);
        self.active_places = self.active_places + after.0 - before.0;
        self.short_places = self.short_places + after.1 - before.1;
    }

    /// The free and total resources of a worker.
    pub fn resources(&self, worker: WorkerId) -> Option<&FreeResources> {
        self.worker(worker).map(|entry| &entry.resources)
    }

    fn worker(&self, worker: WorkerId) -> Option<&Worker> {
        self.all.get(worker.0 as usize)?.as_ref()
    }

    fn active_worker(&self, worker: WorkerId) -> Option<&Worker> {
        self.worker(worker).filter(|entry| entry.state == WorkerState::Active)
    }

    /// The active workers at `target` with at least this many processors, each with its load: of
    /// each size the `look` least loaded ones, and those that have changed.
    fn candidates(
        &self,
        target: Option<LocationTarget>,
        cpus: u32,
        look: usize,
    ) -> impl Iterator<Item = (WorkerLoad, WorkerId)> + '_ {
        let place = match target {
            Some(LocationTarget::Place(place)) => Some(place),
            _ => None,
        };
        let index = place.map_or(Some(&self.free), |place| Some(&self.place_of(place)?.free));
        let same = index.into_iter().flat_map(move |index| {
            index.first_of_each(cpus, look, |worker| self.changed.is_empty() || !self.changed.contains(&worker))
        });
        let changed = self.changed.iter().filter_map(move |id| {
            let worker = self.active_worker(*id).filter(|worker| place.is_none_or(|place| worker.place == place))?;
            let slots = worker.resources.machine().slots;
            (slots >= cpus).then(|| (load(slots, worker.resources.cpus()), *id))
        });
        same.chain(changed)
    }

    fn worker_mut(&mut self, worker: WorkerId) -> &mut Worker {
        self.all[worker.0 as usize].as_mut().expect("it was added")
    }

    /// The place of a worker.
    pub fn place(&self, worker: WorkerId) -> Option<PlaceId> {
        self.worker(worker).map(|entry| entry.place)
    }

    /// The number of active workers.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// The number of places with active workers.
    pub fn active_places(&self) -> u32 {
        self.active_places
    }

    /// The processors of all active workers.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns whether ready tasks may wait although nothing runs, because workers are missing.
    pub fn may_lack(&self) -> bool {
        !self.is_fixed
    }

    /// Returns whether the worker was ever added.
    pub fn is_known(&self, worker: WorkerId) -> bool {
        self.worker(worker).is_some()
    }

    /// Returns whether the worker gets tasks.
    pub fn is_active(&self, worker: WorkerId) -> bool {
        self.active_worker(worker).is_some()
    }

    /// Returns whether a place has active workers.
    pub fn is_active_place(&self, place: PlaceId) -> bool {
        self.place_of(place).is_some_and(|place| place.active > 0)
    }

    /// The places with a free processor, from `first` on.
    pub fn free_places(&self, first: PlaceId) -> impl Iterator<Item = PlaceId> + '_ {
        self.free_places.range(first..).copied()
    }

    /// Returns whether a place has a free processor.
    pub fn is_free_place(&self, place: PlaceId) -> bool {
        self.place_of(place).is_some_and(|place| place.free_cpus > 0)
    }

    /// Returns whether no task runs.
    pub fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Returns whether any active worker has a free processor.
    pub fn has_free(&self) -> bool {
        !self.free_places.is_empty()
    }

    /// A capacity of an active worker that is too small for the demand, if all are: the one with
    /// most processors, or of those with enough processors the one with most memory.
    pub fn too_small(&self, demand: Demand) -> Option<MachineCapacity> {
        let largest = self.largest.filter(|largest| !largest.holds(demand))?;
        let active = self.all.iter().flatten().filter(|entry| entry.state == WorkerState::Active);
        let wide = active.map(|entry| entry.resources.machine()).filter(|capacity| capacity.slots >= demand.cpus);
        let roomiest = wide.max_by_key(|capacity| capacity.memory).unwrap_or(largest);
        (!roomiest.holds(demand)).then_some(roomiest)
    }

    /// Tells if a task with this demand can ever run at a location.
    pub fn location_state(&self, location: Location, demand: Demand) -> LocationState {
        let of_worker = |worker, slot: SlotId| match self.worker(worker) {
            None if self.is_complete => LocationState::Gone,
            None => LocationState::Possible,
            Some(entry) => {
                let machine = entry.resources.machine();
                let holds = machine.holds(demand) && slot.0 < machine.slots;
                let possible = holds && entry.state == WorkerState::Active;
                if possible || entry.state == WorkerState::Paused {
                    LocationState::Possible
                } else {
                    LocationState::Gone
                }
            }
        };
        match location.at {
            LocationTarget::Worker(worker) => of_worker(worker, SlotId(0)),
            LocationTarget::Slot(worker, slot) => of_worker(worker, slot),
            LocationTarget::Place(_) if self.is_complete => {
                let holds = self.may_hold(demand, Some(location.at));
                if holds { LocationState::Possible } else { LocationState::Gone }
            }
            LocationTarget::Place(at) => match self.place_of(at) {
                Some(place) if place.existed && place.active == 0 && !self.has_paused(Some(location.at)) => {
                    LocationState::Gone
                }
                _ => LocationState::Possible,
            },
        }
    }

    /// Returns whether a task with this demand fits a worker at `target` that is there, now or
    /// later.
    fn may_hold(&self, demand: Demand, target: Option<LocationTarget>) -> bool {
        self.find_for_reservation(demand, target).is_some() || self.has_paused(target)
    }

    /// Returns whether a worker at `target` may have processors again.
    fn has_paused(&self, target: Option<LocationTarget>) -> bool {
        let is_at = |worker: &Worker| target.is_none_or(|target| target == LocationTarget::Place(worker.place));
        self.all.iter().flatten().any(|worker| worker.state == WorkerState::Paused && is_at(worker))
    }

    /// Returns whether a task with this demand fits no worker that is there or may join.
    pub fn never_holds(&self, demand: Demand) -> bool {
        self.is_complete && !self.is_fixed && !self.may_hold(demand, None)
    }

    /// The least loaded worker on which a task with this demand can start now, of those at `target`
    /// that are `allowed`.
    pub fn find(
        &self,
        demand: Demand,
        target: Option<LocationTarget>,
        allowed: &dyn Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        match target {
            Some(LocationTarget::Worker(worker)) => {
                return Some(worker).filter(|one| self.fits(*one, demand) && allowed(*one));
            }
            Some(LocationTarget::Slot(worker, slot)) => {
                let fits = self.fits(worker, demand) && self.is_free_slot(worker, slot);
                return Some(worker).filter(|worker| fits && allowed(*worker));
            }
            None | Some(LocationTarget::Place(_)) => {}
        }
        let all = self.candidates(target, demand.cpus, LOOK_AHEAD);
        let fitting = all.filter(|(_, worker)| self.fits(*worker, demand));
        fitting.filter(|(_, worker)| allowed(*worker)).min().map(|(_, worker)| worker)
    }

    /// Returns whether a task with this demand can start on the worker now.
    pub fn fits(&self, worker: WorkerId, demand: Demand) -> bool {
        self.active_worker(worker).is_some_and(|entry| entry.resources.fits(demand))
    }

    /// Returns whether the lane of an active worker is free.
    pub fn is_free_slot(&self, worker: WorkerId, slot: SlotId) -> bool {
        let entry = self.active_worker(worker);
        entry.is_some_and(|entry| slot.0 < entry.resources.machine().slots && entry.resources.is_free_lane(slot))
    }

    /// The worker on which a task with this demand can start now if tasks lend `lendable`
    /// processors in all.
    pub fn find_lender(&self, demand: Demand, target: Option<LocationTarget>, lendable: u32) -> Option<WorkerId> {
        let lends = |worker: &WorkerId| {
            self.active_worker(*worker).is_some_and(|Worker { resources, .. }| {
                let within = self.lent + resources.missing(demand) <= lendable;
                within && resources.fits_borrowed(demand, lendable.min(resources.machine().slots))
            })
        };
        match target {
            Some(LocationTarget::Worker(worker)) => return Some(worker).filter(lends),
            Some(LocationTarget::Slot(..)) => return None,
            None | Some(LocationTarget::Place(_)) => {}
        }
        let all = self.candidates(target, demand.cpus, LOOK_AHEAD);
        let least = all.filter(|(_, worker)| lends(worker)).min();
        least.map(|(_, worker)| worker)
    }

    /// The worker that will soonest have room for a task that fits no worker now: the least loaded
    /// of those that can hold it.
    pub fn find_for_reservation(&self, demand: Demand, target: Option<LocationTarget>) -> Option<WorkerId> {
        let holds = |worker: &WorkerId| {
            self.active_worker(*worker).is_some_and(|entry| entry.resources.machine().holds(demand))
        };
        if let Some(LocationTarget::Worker(worker) | LocationTarget::Slot(worker, _)) = target {
            return Some(worker).filter(holds);
        }
        let all = self.candidates(target, demand.cpus, usize::MAX).filter(|(_, worker)| holds(worker));
        all.min().map(|(_, worker)| worker)
    }

    /// Starts an attempt, which is expected to take `expected_ms` if that is known. Returns its
    /// lane.
    pub fn start(
        &mut self,
        attempt: AttemptId,
        (worker, slot): (WorkerId, Option<SlotId>),
        demand: Demand,
        times: (u64, Option<u64>),
    ) -> SlotId {
        self.start_by(FreeResources::acquire, attempt, (worker, slot), demand, times)
    }

    /// Starts an attempt by the way in which it takes resources.
    fn start_by(
        &mut self,
        acquire: impl FnOnce(&mut FreeResources, Demand, Option<SlotId>) -> SlotId,
        attempt: AttemptId,
        (worker, slot): (WorkerId, Option<SlotId>),
        demand: Demand,
        (now_ms, expected_ms): (u64, Option<u64>),
    ) -> SlotId {
        let entry = self.worker_mut(worker);
        assert!(entry.state == WorkerState::Active, "tasks start on active workers");
        let (at, lent, free) = (entry.place_at, entry.resources.lent(), entry.resources.cpus());
        let slot = acquire(&mut entry.resources, demand, slot);
        let lent = entry.resources.lent() - lent;
        let expected_end_ms = now_ms.saturating_add(expected_ms.unwrap_or(0));
        let lane = slot.0 as usize;
        if lane >= entry.lanes.len() {
            entry.lanes.resize(lane + 1, None);
        }
        entry.lanes[lane] = Some(RunningTask { attempt, demand, since_ms: now_ms, expected_end_ms });
        self.running += 1;
        self.lent += lent;
        self.places[at].ends.insert((expected_end_ms, now_ms, attempt));
        self.count_free(worker, free);
        self.update_index(worker);
        slot
    }

    /// Ends the attempt that runs in a lane.
    pub fn end(&mut self, worker: WorkerId, slot: SlotId) {
        let entry = self.worker_mut(worker);
        let running = entry.lanes.get_mut(slot.0 as usize).and_then(Option::take);
        let RunningTask { attempt, demand, since_ms, expected_end_ms } = running.expect("an attempt runs there");
        let (at, lent, free) = (entry.place_at, entry.resources.lent(), entry.resources.cpus());
        let ahead = entry.resources.ahead();
        entry.resources.release(demand, slot);
        let returned = lent - entry.resources.lent();
        self.update_ahead(worker, ahead);
        self.running -= 1;
        self.lent -= returned;
        self.places[at].ends.remove(&(expected_end_ms, since_ms, attempt));
        self.count_free(worker, free);
        self.update_index(worker);
    }

    /// Counts the free processors of an active worker, which had `before`, for its place.
    fn count_free(&mut self, worker: WorkerId, before: u32) {
        let Some(entry) = self.active_worker(worker) else { return };
        let (at, id, free) = (entry.place_at, entry.place, entry.resources.cpus());
        let place = &mut self.places[at];
        let had_free = place.free_cpus > 0;
        place.free_cpus = place.free_cpus + free - before;
        if had_free != (place.free_cpus > 0) {
            self.update_free_place(at, id);
        }
    }

    fn update_free_place(&mut self, at: usize, place: PlaceId) {
        if self.places[at].free_cpus > 0 {
            self.free_places.insert(place);
        } else {
            self.free_places.remove(&place);
        }
    }

    /// Notes that the resources of an active worker have changed, for the indexes.
    fn update_index(&mut self, worker: WorkerId) {
        let Some(entry) = self.active_worker(worker) else { return };
        let is_same = entry.indexed == Some(key_of(worker, &entry.resources));
        let position = self.changed.iter().position(|other| *other == worker);
        match position {
            Some(position) if is_same => drop(self.changed.swap_remove(position)),
            None if !is_same => self.changed.push(worker),
            _ => {}
        }
        if self.changed.len() > CHANGED_MAX {
            for worker in std::mem::take(&mut self.changed) {
                self.remove_from_index(worker);
                self.insert_into_index(worker);
            }
        }
    }

    fn insert_into_index(&mut self, worker: WorkerId) {
        let entry = self.worker_mut(worker);
        let (key, slots, at) = (key_of(worker, &entry.resources), entry.resources.machine().slots, entry.place_at);
        entry.indexed = Some(key);
        self.free.insert(slots, key);
        self.places[at].free.insert(slots, key);
    }

    fn remove_from_index(&mut self, worker: WorkerId) {
        self.changed.retain(|other| *other != worker);
        let entry = self.worker_mut(worker);
        let (slots, at) = (entry.resources.machine().slots, entry.place_at);
        if let Some(key) = entry.indexed.take() {
            self.free.remove(slots, key);
            self.places[at].free.remove(slots, key);
        }
    }

    /// The time in ms until a running task of the place ends, as far as can be foreseen: the rest
    /// of the expected time, or, if that is over or unknown, as long as the task has run. `None` if
    /// nothing runs there.
    pub fn wait_ms(&self, place: PlaceId, now_ms: u64) -> Option<u64> {
        let ends = self.place_of(place)?.ends.iter().take(LOOK_AHEAD);
        let left = ends.map(|(end, since, _)| if *end > now_ms { end - now_ms } else { now_ms.saturating_sub(*since) });
        left.min()
    }

    /// The processors of the active workers at a place.
    pub fn slots_at(&self, place: PlaceId) -> u32 {
        self.place_of(place).map_or(0, |place| place.slots)
    }

    /// Returns whether a task that writes `bytes` should not run at the place because its storage
    /// is nearly full, while other places have room.
    pub fn is_short_for(&self, place: PlaceId, bytes: impl FnOnce() -> u64) -> bool {
        let others_have_room = self.short_places < self.active_places;
        let storage = self.place_of(place).map(|place| place.storage).unwrap_or_default();
        others_have_room && storage.is_short() && bytes() > storage.capacity.saturating_sub(storage.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::TaskId;

    const ONE: Demand = Demand { cpus: 1, memory: 0 };

    fn workers(places: &[u32]) -> Workers {
        let mut workers = Workers::default();
        for (id, place) in (0..).zip(places) {
            workers.add(WorkerId(id), PlaceId(*place), MachineCapacity { slots: 2, memory: 10 });
        }
        workers
    }

    fn first(task: u32) -> AttemptId {
        AttemptId { task: TaskId(task), attempt: 1 }
    }

    fn any(_: WorkerId) -> bool {
        true
    }

    #[test]
    fn the_least_loaded_worker_is_found_of_all_and_at_a_place() {
        let mut workers = workers(&[7, 7, 8]);
        workers.start(first(0), (WorkerId(0), None), ONE, (0, None));
        assert_eq!(workers.find(ONE, None, &any), Some(WorkerId(1)));
        workers.start(first(1), (WorkerId(2), None), ONE, (0, None));
        assert_eq!(workers.find(ONE, Some(LocationTarget::Place(PlaceId(7))), &any), Some(WorkerId(1)));
        assert_eq!(workers.find(ONE, Some(LocationTarget::Place(PlaceId(8))), &any), Some(WorkerId(2)));
        assert_eq!(workers.find(Demand { cpus: 2, memory: 11 }, None, &any), None);
    }

    #[test]
    fn a_drained_worker_is_not_found_and_a_lost_one_returns_its_tasks() {
        let mut workers = workers(&[7, 8]);
        workers.start(first(5), (WorkerId(0), Some(SlotId(1))), ONE, (0, None));
        workers.drain(WorkerId(0));
        assert_eq!(workers.find(ONE, Some(LocationTarget::Place(PlaceId(7))), &any), None);
        assert!(!workers.is_active_place(PlaceId(7)) && workers.slots() == 2);
        assert_eq!(workers.lose(WorkerId(0)), [first(5)]);
        workers.end(WorkerId(0), SlotId(1));
        let hard = |at| Location { at, hard: true };
        assert_eq!(workers.location_state(hard(LocationTarget::Place(PlaceId(7))), ONE), LocationState::Gone);
        assert_eq!(workers.location_state(hard(LocationTarget::Place(PlaceId(9))), ONE), LocationState::Possible);
        assert_eq!(
            workers.location_state(hard(LocationTarget::Slot(WorkerId(1), SlotId(2))), ONE),
            LocationState::Gone
        );
    }

    #[test]
    fn the_wait_at_a_place_is_the_rest_of_what_is_expected_or_else_what_passed() {
        let mut workers = workers(&[7]);
        assert_eq!(workers.wait_ms(PlaceId(7), 0), None);
        workers.start(first(0), (WorkerId(0), None), ONE, (100, Some(50)));
        assert_eq!([110, 150, 160].map(|now| workers.wait_ms(PlaceId(7), now)), [Some(40), Some(50), Some(60)]);
        workers.start(first(1), (WorkerId(0), None), ONE, (160, None));
        assert_eq!(workers.wait_ms(PlaceId(7), 170), Some(10));
    }

    #[test]
    fn a_place_that_is_nearly_full_is_avoided_while_another_has_room() {
        let mut workers = workers(&[7, 8]);
        workers.set_storage(PlaceId(7), 100, 95);
        assert!(workers.is_short_for(PlaceId(7), || 6) && !workers.is_short_for(PlaceId(7), || 5));
        workers.set_storage(PlaceId(8), 100, 99);
        assert!(!workers.is_short_for(PlaceId(7), || 6), "nowhere is room");
    }
}
