//! Active workers by their number of processors, the least loaded first.

use crate::resources::{FreeResources, WorkerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Free processors, most first; then free memory; then the worker.
pub type FreeKey = (Reverse<u32>, Reverse<u64>, WorkerId);

/// Active workers by their number of processors, the least loaded first.
#[derive(Debug, Default)]
pub struct FreeIndex(BTreeMap<u32, BTreeSet<FreeKey>>);

impl FreeIndex {
    pub fn insert(&mut self, slots: u32, key: FreeKey) {
        self.0.entry(slots).or_default().insert(key);
    }

    pub fn remove(&mut self, slots: u32, key: FreeKey) {
        let Some(alike) = self.0.get_mut(&slots) else { return };
        alike.remove(&key);
        if alike.is_empty() {
            self.0.remove(&slots);
        }
    }

    /// Workers with at least this many processors, of each size the `look` least loaded ones that
    /// are `valid`, each with its load.
    pub fn first_of_each<'a>(
        &'a self,
        cpus: u32,
        look: usize,
        valid: impl Fn(WorkerId) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (WorkerLoad, WorkerId)> + 'a {
        self.0.range(cpus..).flat_map(move |(slots, alike)| {
            let alike = alike.iter().filter(move |(.., worker)| valid(*worker)).take(look);
            alike.map(|(Reverse(free), _, worker)| (load(*slots, *free), *worker))
        })
    }
}

/// The used processors of a worker, in thousandths.
pub type WorkerLoad = u64;

pub fn load(slots: u32, free: u32) -> WorkerLoad {
    u64::from(slots - free) * 1000 / u64::from(slots.max(1))
}

pub fn key_of(worker: WorkerId, resources: &FreeResources) -> FreeKey {
    (Reverse(resources.cpus()), Reverse(resources.memory()), worker)
}
