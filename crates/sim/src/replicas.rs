//! Replicas of the partitions of a pool, which follow the log of its nodes.
//!
//! A replica begins with a snapshot and applies the entries, without any soft state. It must stay
//! equal to the partition that serves. From time to time it is replaced by the restored copy of its
//! own snapshot.

use crate::pool::settings;
use node::{EntryLog, NodeSettings};
use parking_lot::Mutex;
use partition::{EntryBody, LogEntry, Partition};
use placement::PartitionId;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};
use wire::{Command, ExtentRequest};

/// Number of entries between two comparisons of a replica with its original.
const COMPARED_EVERY: u64 = 4;

/// Number of partitions of a pool whose partitions have replicas.
pub const PARTITIONS: u16 = 8;

/// Replicas of all partitions of a pool.
#[derive(Debug, Default)]
pub struct Replicas(Mutex<BTreeMap<PartitionId, Replica>>);

/// Numbers of entries of some kinds.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryCounts {
    /// All entries.
    pub all: u64,
    /// Entries that keep or release an unlinked file, by the decision of the node that serves.
    pub unlinked: u64,
    /// Entries that give an extent to a file.
    pub extents: u64,
    /// Locks.
    pub locks: u64,
    /// Ends of sessions.
    pub ends: u64,
}

#[derive(Debug)]
struct Replica {
    partition: Partition,
    /// The entries that it has applied.
    entries: EntryCounts,
}

impl EntryLog for Replicas {
    fn begin(&self, partition: &Partition) {
        match self.0.lock().entry(partition.id()) {
            // Another node serves it now.
            Entry::Occupied(replica) => replica.get().check(partition),
            Entry::Vacant(vacant) => {
                vacant.insert(Replica { partition: restored(partition), entries: EntryCounts::default() });
            }
        }
    }

    fn append(&self, partition: &Partition, entry: LogEntry) {
        let mut replicas = self.0.lock();
        let replica = replicas.get_mut(&partition.id()).expect("its log has begun");
        replica.entries.count(&entry);
        let (text, is_compared) = (format!("{entry:?}"), replica.entries.all.is_multiple_of(COMPARED_EVERY));
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
    /// Returns settings of a pool whose nodes log to replicas, and these.
    pub fn logged(split_entries: u32) -> (NodeSettings, Arc<Self>) {
        let replicas = Arc::new(Self::default());
        let entry_log = Some(replicas.clone() as Arc<dyn EntryLog>);
        (NodeSettings { partitions: PARTITIONS.into(), split_entries, entry_log, ..settings() }, replicas)
    }

    /// Returns the numbers of entries that all replicas have applied.
    pub fn entries(&self) -> EntryCounts {
        let mut sum = EntryCounts::default();
        self.0.lock().values().for_each(|replica| sum.add(replica.entries));
        sum
    }
}

impl EntryCounts {
    fn count(&mut self, LogEntry { body, unlinked, .. }: &LogEntry) {
        let EntryBody::Command(command) = body else { return self.all += 1 };
        let extent = match command {
            Command::Create { extent, .. } | Command::Open { extent, .. } => *extent,
            _ => ExtentRequest::None,
        };
        self.add(Self {
            all: 1,
            unlinked: u64::from(!unlinked.kept.is_empty() || !unlinked.released.is_empty()),
            extents: u64::from(matches!(extent, ExtentRequest::Allocated(_))),
            locks: u64::from(matches!(command, Command::Lock { .. })),
            ends: u64::from(matches!(command, Command::CloseSession { .. })),
        });
    }

    /// Adds other numbers.
    pub fn add(&mut self, other: Self) {
        self.all += other.all;
        self.unlinked += other.unlinked;
        self.extents += other.extents;
        self.locks += other.locks;
        self.ends += other.ends;
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
