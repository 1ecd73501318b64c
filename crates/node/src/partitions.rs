//! The local partitions: those of the pool that this node serves.

use crate::{NodeSettings, clock};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use partition::Partition;
use placement::{Epoch, FileId, NodeId, PartitionId, PartitionMap};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A partition, locked.
pub type PartitionGuard<'a> = MappedMutexGuard<'a, Partition>;

/// A slot for each partition of the pool; empty where another node serves it.
#[derive(Debug)]
pub struct LocalPartitions {
    slots: Box<[PartitionSlot]>,
    /// Number of slots that are not empty.
    served: AtomicUsize,
}

#[derive(Debug)]
struct PartitionSlot {
    /// Epoch of the partition's entry of the map, readable without a lock. With the lowest bit set
    /// if the partition is here.
    state: AtomicU64,
    partition: Mutex<Option<Partition>>,
}

impl LocalPartitions {
    /// Makes the partitions that the map gives a node, empty except for the root directory.
    pub fn new(node: NodeId, map: &PartitionMap, settings: &NodeSettings) -> Self {
        let shared = partition::Settings {
            split_entries: settings.split_entries,
            partitions: map.partitions(),
            ..partition::Settings::new(settings.seed, settings.stripe_bytes)
        };
        let fresh = |id| match id {
            _ if id == FileId::ROOT.partition() => {
                Partition::with_root(shared, settings.owner, settings.root_mode, clock::now())
            }
            id => Partition::new(id, shared),
        };
        let last = u16::try_from(map.partitions() - 1).expect("a map has at most 2^16 partitions");
        let slot = |id| {
            let entry = map.entry(id).expect("the map has an entry for each");
            let partition = (entry.server == node).then(|| fresh(id));
            if let (Some(log), Some(partition)) = (&settings.entry_log, &partition) {
                log.begin(partition);
            }
            PartitionSlot::new(entry.epoch, partition)
        };
        let slots: Box<[PartitionSlot]> = (0..=last).map(|id| slot(PartitionId(id))).collect();
        let served = AtomicUsize::new(slots.iter().filter(|slot| slot.is_served()).count());
        Self { slots, served }
    }

    /// True if no other node of the pool serves a partition.
    pub fn serves_all(&self) -> bool {
        self.count_served() == self.slots.len()
    }

    /// Returns the number of partitions that are served here.
    pub fn count_served(&self) -> usize {
        self.served.load(Relaxed)
    }

    /// True if this node serves the partition.
    pub fn serves(&self, id: PartitionId) -> bool {
        self.slot(id).is_some_and(PartitionSlot::is_served)
    }

    /// Locks a partition, if this node serves it.
    pub fn lock(&self, id: PartitionId) -> Option<PartitionGuard<'_>> {
        self.slot(id)?.lock()
    }

    /// Returns the epoch of the partition's entry of the map; `None` if there is no such partition.
    pub fn epoch(&self, id: PartitionId) -> Option<Epoch> {
        Some(Epoch(self.slot(id)?.state.load(Acquire) >> 1))
    }

    /// Records the epoch of the partition's entry of the map.
    pub fn set_epoch(&self, id: PartitionId, Epoch(epoch): Epoch) {
        if let Some(slot) = self.slot(id) {
            let partition = slot.partition.lock();
            slot.state.store(epoch << 1 | u64::from(partition.is_some()), Release);
        }
    }

    /// Takes a partition out; it is not served here from now on.
    pub fn take(&self, id: PartitionId) -> Option<Partition> {
        let slot = self.slot(id)?;
        let mut held = slot.partition.lock();
        let taken = held.take()?;
        slot.state.fetch_and(!1, Release);
        self.served.fetch_sub(1, Relaxed);
        Some(taken)
    }

    /// Puts a partition in; it is served here from now on.
    pub fn put(&self, partition: Partition) {
        let slot = self.slot(partition.id()).expect("it is a partition of this pool");
        let mut held = slot.partition.lock();
        if held.replace(partition).is_none() {
            slot.state.fetch_or(1, Release);
            self.served.fetch_add(1, Relaxed);
        }
    }

    /// Iterates over the partitions that are served here, each locked in its turn.
    pub fn locked(&self) -> impl Iterator<Item = PartitionGuard<'_>> {
        self.slots.iter().filter_map(PartitionSlot::lock)
    }

    fn slot(&self, id: PartitionId) -> Option<&PartitionSlot> {
        self.slots.get(usize::from(id.0))
    }
}

impl PartitionSlot {
    fn new(Epoch(epoch): Epoch, partition: Option<Partition>) -> Self {
        let state = AtomicU64::new(epoch << 1 | u64::from(partition.is_some()));
        Self { state, partition: Mutex::new(partition) }
    }

    fn is_served(&self) -> bool {
        self.state.load(Acquire) & 1 != 0
    }

    fn lock(&self) -> Option<PartitionGuard<'_>> {
        MutexGuard::try_map(self.partition.lock(), Option::as_mut).ok()
    }
}
