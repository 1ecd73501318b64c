//! The local partitions: the node's share of the pool's.

use crate::{Settings, clock};
use parking_lot::Mutex;
use partition::{Endings, Partition};
use placement::{FileId, NodeId, PartitionId, PartitionMap};

/// A slot for each partition of the pool; empty where another node holds it.
#[derive(Debug)]
pub struct Held {
    places: Box<[Option<Mutex<Partition>>]>,
    /// True if no other node holds any partition.
    are_all: bool,
}

impl Held {
    /// Makes the partitions that the map gives a node, empty except for the root directory. All
    /// share the list of ended sessions.
    pub fn share(node: NodeId, map: &PartitionMap, settings: &Settings, endings: &Endings) -> Self {
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
        let held = |id| (map.node(id) == Some(node)).then(|| Mutex::new(fresh(id).sharing(endings.clone())));
        let places: Box<[_]> = ids.map(held).collect();
        Self { are_all: places.iter().all(Option::is_some), places }
    }

    /// True if no other node of the pool holds a partition.
    pub fn are_all(&self) -> bool {
        self.are_all
    }

    /// Returns a partition, if it is held here.
    pub fn get(&self, id: PartitionId) -> Option<&Mutex<Partition>> {
        self.places.get(usize::from(id.0))?.as_ref()
    }
}

/// Iterates over the partitions that are held here.
impl<'a> IntoIterator for &'a Held {
    type Item = &'a Mutex<Partition>;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Option<Mutex<Partition>>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.places.iter().flatten()
    }
}
