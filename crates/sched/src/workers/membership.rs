//! Workers that join, get more or fewer processors, drain and are lost.

use super::{Worker, WorkerState, Workers};
use crate::messages::AttemptId;
use crate::resources::{FreeResources, MachineCapacity, PlaceId, WorkerId};

impl Workers {
    /// Adds a worker. Panics if there is or was one with this number.
    pub fn add(&mut self, worker: WorkerId, place: PlaceId, capacity: MachineCapacity) {
        let at = worker.0 as usize;
        if at >= self.all.len() {
            self.all.resize_with(at + 1, || None);
        }
        assert!(self.all[at].is_none(), "the number of a worker is used once");
        let resources = FreeResources::new(capacity);
        let place_at = self.place_at(place);
        let (indexed, state, lanes) = (None, WorkerState::Active, Vec::new());
        self.all[at] = Some(Worker { place, place_at, resources, indexed, state, lanes });
        self.activate(worker);
    }

    /// Counts a worker as an active one.
    fn activate(&mut self, worker: WorkerId) {
        let entry = self.worker_mut(worker);
        entry.state = WorkerState::Active;
        let (place, capacity) = (entry.place, entry.resources.machine());
        let ahead = entry.resources.ahead();
        self.by_ahead.insert((ahead, worker));
        self.largest = self.largest.max(Some(capacity));
        self.slots += capacity.slots;
        self.active += 1;
        self.change_place(place, |place| {
            place.active += 1;
            place.slots += capacity.slots;
            place.existed = true;
        });
        self.count_free(worker, 0);
        self.update_index(worker);
    }

    /// Declares that the workers are all that will ever be.
    pub fn fix(&mut self) {
        self.is_fixed = true;
        self.is_complete = true;
    }

    /// Returns whether no worker will join.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Declares that no worker will join. Those that are there may still go.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Takes a worker out of the index: it gets no more tasks.
    pub fn drain(&mut self, worker: WorkerId) {
        self.deactivate(worker, WorkerState::Draining);
    }

    /// Changes the number of processors of a worker that is not drained or lost.
    pub fn resize(&mut self, worker: WorkerId, slots: u32) {
        self.deactivate(worker, WorkerState::Paused);
        let Some(entry) = self.all.get_mut(worker.0 as usize).and_then(Option::as_mut) else { return };
        if entry.state != WorkerState::Paused {
            return;
        }
        let before = entry.resources.lent();
        entry.resources.resize(slots);
        self.lent = self.lent + entry.resources.lent() - before;
        if slots > 0 {
            self.activate(worker);
        }
    }

    /// Takes a worker out of the index, if it is in it.
    fn deactivate(&mut self, worker: WorkerId, state: WorkerState) {
        let Some(entry) = self.all.get_mut(worker.0 as usize).and_then(Option::as_mut) else { return };
        if entry.state != WorkerState::Active {
            entry.state = if entry.state == WorkerState::Paused { state } else { entry.state };
            return;
        }
        self.remove_from_index(worker);
        let entry = self.worker_mut(worker);
        entry.state = state;
        let (place, at, slots) = (entry.place, entry.place_at, entry.resources.machine().slots);
        let (free, ahead) = (entry.resources.cpus(), entry.resources.ahead());
        self.by_ahead.remove(&(ahead, worker));
        self.slots -= slots;
        self.active -= 1;
        self.is_fixed = false;
        self.change_place(place, |place| {
            place.active -= 1;
            place.slots -= slots;
        });
        self.places[at].free_cpus -= free;
        self.update_free_place(at, place);
        let active = self.all.iter().flatten().filter(|entry| entry.state == WorkerState::Active);
        self.largest = active.map(|entry| entry.resources.machine()).max();
    }

    /// Marks a worker as lost and returns the attempts that ran there; the caller ends each of
    /// them.
    pub fn lose(&mut self, worker: WorkerId) -> Vec<AttemptId> {
        self.drain(worker);
        let Some(entry) = self.all.get_mut(worker.0 as usize).and_then(Option::as_mut) else { return Vec::new() };
        entry.state = WorkerState::Lost;
        let mut attempts: Vec<AttemptId> = entry.lanes.iter().flatten().map(|running| running.attempt).collect();
        attempts.sort_unstable();
        attempts
    }
}
