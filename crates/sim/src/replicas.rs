//! Replicas of the partitions of a pool, which follow the log of its nodes.
//!
//! A replica begins with a snapshot and applies the entries, without any soft state. It must stay
//! equal to the partition that serves. From time to time it is replaced by the restored copy of its
//! own snapshot.

use node::EntryLog;
use parking_lot::Mutex;
use partition::Partition;
use placement::PartitionId;
use std::collections::{BTreeMap, btree_map::Entry};

/// Number of entries between two comparisons of a replica with its original.
const COMPARED_EVERY: u64 = 4;

/// Replicas of all partitions of a pool.
#[derive(Debug, Default)]
pub struct Replicas(Mutex<BTreeMap<PartitionId, Replica>>);

#[derive(Debug)]
struct Replica {
    partition: Partition,
    /// Number of entries that it has applied.
    entries: u64,
}

impl EntryLog for Replicas {
    fn begin(&self, partition: &Partition) {
        match self.0.lock().entry(partition.id()) {
            // Another node serves it now.
            Entry::Occupied(replica) => replica.get().check(partition),
            Entry::Vacant(vacant) => {
                vacant.insert(Replica { partition: restored(partition), entries: 0 });
            }
        }
    }

    fn append(&self, partition: &Partition, entry: partition::Entry) {
        let mut replicas = self.0.lock();
        let replica = replicas.get_mut(&partition.id()).expect("its log has begun");
        replica.entries += 1;
        let (text, is_compared) = (format!("{entry:?}"), replica.entries.is_multiple_of(COMPARED_EVERY));
        replica.partition.apply(entry);
        let sizes = |partition: &Partition| (partition.bytes(), partition.files());
        assert_eq!(sizes(&replica.partition), sizes(partition), "after {text}");
        if is_compared {
            replica.check(partition);
            replica.partition = restored(&replica.partition);
        }
    }
}

impl Replicas {
    /// Returns the number of entries that all replicas have applied.
    pub fn entries(&self) -> u64 {
        self.0.lock().values().map(|replica| replica.entries).sum()
    }
}

impl Replica {
    fn check(&self, partition: &Partition) {
        assert!(self.partition.snapshot() == partition.snapshot(), "the replica of {} differs", partition.id());
    }
}

fn restored(partition: &Partition) -> Partition {
    Partition::restore(&partition.snapshot()).expect("a snapshot can be restored")
}
