//! Tasks that are sent ahead to busy workers.

use super::Workers;
use crate::messages::AttemptId;
use crate::resources::{Demand, FreeResources, SlotId, WorkerId};

impl Workers {
    /// The busy workers to which the fewest tasks were sent ahead, at most `most`.
    pub fn fewest_ahead(&self, most: usize) -> Vec<WorkerId> {
        let is_busy = |worker: &WorkerId| self.resources(*worker).is_some_and(|resources| resources.cpus() == 0);
        self.by_ahead.iter().take(most).map(|(_, worker)| *worker).filter(is_busy).collect()
    }

    /// Makes a busy worker look as if it had a free processor, until [`Workers::withdraw`].
    pub fn offer(&mut self, worker: WorkerId) {
        self.change_free(worker, FreeResources::offer);
    }

    /// Ends what [`Workers::offer`] began.
    pub fn withdraw(&mut self, worker: WorkerId) {
        self.change_free(worker, FreeResources::withdraw);
    }

    fn change_free(&mut self, worker: WorkerId, change: impl FnOnce(&mut FreeResources)) {
        let resources = &mut self.worker_mut(worker).resources;
        let before = resources.cpus();
        change(resources);
        self.count_free(worker, before);
        self.update_index(worker);
    }

    /// Sends an attempt ahead to a busy worker, where it waits until another one ends. Otherwise as
    /// [`Workers::start`].
    pub fn start_ahead(
        &mut self,
        attempt: AttemptId,
        (worker, slot): (WorkerId, Option<SlotId>),
        demand: Demand,
        times: (u64, Option<u64>),
    ) -> SlotId {
        let before = self.worker_mut(worker).resources.ahead();
        let slot = self.start_by(FreeResources::acquire_ahead, attempt, (worker, slot), demand, times);
        self.update_ahead(worker, before);
        slot
    }

    /// Notes that tasks were sent ahead to a worker, or that fewer wait there than before.
    pub(super) fn update_ahead(&mut self, worker: WorkerId, before: u32) {
        let now = self.worker_mut(worker).resources.ahead();
        if now != before && self.by_ahead.remove(&(before, worker)) {
            self.by_ahead.insert((now, worker));
        }
    }
}
