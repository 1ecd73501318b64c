//! The local partitions: the node's share of the pool's.

use crate::{NodeSettings, clock};
use parking_lot::Mutex;
use partition::Partition;
use placement::{FileId, NodeId, PartitionId, PartitionMap};

/// A slot for each partition of the pool; empty where another node holds it.
#[derive(Debug)]
pub struct LocalPartitions {
    slots: Box<[Option<Mutex<Partition>>]>,
    /// True if no other node holds any partition.
    holds_all: bool,
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
        let ids = (0..=last).map(PartitionId);
        let held = |id| (map.node(id) == Some(node)).then(|| Mutex::new(fresh(id)));
        let slots: Box<[Option<Mutex<Partition>>]> = ids.map(held).collect();
        if let Some(log) = &settings.entry_log {
            slots.iter().flatten().for_each(|partition| log.begin(&partition.lock()));
        }
        Self { holds_all: slots.iter().all(Option::is_some), slots }
    }

    /// True if no other node of the pool holds a partition.
    pub fn holds_all(&self) -> bool {
        self.holds_all
    }

    /// Returns a partition, if it is held here.
    pub fn get(&self, id: PartitionId) -> Option<&Mutex<Partition>> {
        self.slots.get(usize::from(id.0))?.as_ref()
    }
}

/// Iterates over the partitions that are held here.
impl<'a> IntoIterator for &'a LocalPartitions {
    type Item = &'a Mutex<Partition>;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Option<Mutex<Partition>>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.iter().flatten()
    }
}
