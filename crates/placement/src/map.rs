//! The partition map: which node holds which partition, as of an epoch.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::PARTITIONS_MAX;

/// A partition, the unit of placement and migration: an index into the partition map, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u16);

/// A node of the pool. A pool never gives one id to two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// The version of a partition map. The map with the greater epoch is the current one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a pool's first map.
    pub const FIRST: Self = Self(1);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PartitionId {
    /// The partition chosen by the lowest bits of `hash`. `partitions` is a power of two, at most
    /// [`PARTITIONS_MAX`].
    pub(crate) fn from_hash(hash: u64, partitions: u32) -> Self {
        assert!(partitions.is_power_of_two() && partitions <= PARTITIONS_MAX, "{partitions} partitions");
        let chosen = hash & u64::from(partitions - 1);
        Self(u16::try_from(chosen).expect("masked below PARTITIONS_MAX, which is 2^16"))
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The partition map: the node of each partition, as of an epoch. It is immutable: a change makes a
/// new map with the next epoch.
///
/// The number of partitions is a power of two and is fixed for the life of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawPartitionMap")]
pub struct PartitionMap {
    epoch: Epoch,
    partitions: Vec<NodeId>,
}

impl PartitionMap {
    /// The first map of a pool of one node, which holds all `partitions`. Fails unless their number
    /// is a power of two, at most [`PARTITIONS_MAX`].
    pub fn one_node(node: NodeId, partitions: u32) -> Result<Self, InvalidPartitionCount> {
        let count = check_count(partitions.into())?;
        Ok(Self { epoch: Epoch::FIRST, partitions: vec![node; count as usize] })
    }

    /// The first map of a pool of several nodes, each given with its share of the capacity (in any
    /// unit). Each partition in turn goes to the node that is furthest behind its share, so any run
    /// of consecutive partitions is distributed in proportion, too. Fails as [`Self::one_node`]
    /// does.
    ///
    /// Panics if all shares are 0.
    pub fn proportional(nodes: &[(NodeId, u64)], partitions: u32) -> Result<Self, InvalidPartitionCount> {
        let count = check_count(partitions.into())?;
        let all: i128 = nodes.iter().map(|(_, share)| i128::from(*share)).sum();
        assert!(all > 0, "a pool has nodes, and some of them hold something");
        let mut behind = vec![0; nodes.len()];
        let next = |_| {
            behind.iter_mut().zip(nodes).for_each(|(behind, (_, share))| *behind += i128::from(*share));
            let (first, _) = (0..nodes.len())
                .map(|at| (at, behind[at]))
                .rev()
                .max_by_key(|(_, behind)| *behind)
                .expect("there are nodes");
            behind[first] -= all;
            nodes[first].0
        };
        let partitions = (0..count).map(next).collect();
        Ok(Self { epoch: Epoch::FIRST, partitions })
    }

    /// This map with one partition given to `node`.
    #[must_use]
    pub fn with(mut self, partition: PartitionId, node: NodeId) -> Self {
        if let Some(holder) = self.partitions.get_mut(usize::from(partition.0)) {
            *holder = node;
        }
        self
    }

    /// A map in which `partitions[i]` holds partition `i`. Fails unless their number is a power of
    /// two, at most [`PARTITIONS_MAX`].
    pub fn new(epoch: Epoch, partitions: Vec<NodeId>) -> Result<Self, InvalidPartitionCount> {
        check_count(partitions.len() as u64)?;
        Ok(Self { epoch, partitions })
    }

    /// The epoch of this map.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number of partitions of the pool.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("a map is never made with more than PARTITIONS_MAX")
    }

    /// The node that holds `partition`; `None` if the pool has no such partition (an invalid id).
    pub fn node(&self, partition: PartitionId) -> Option<NodeId> {
        self.partitions.get(usize::from(partition.0)).copied()
    }

    /// The nodes that hold at least one partition, in ascending order, each once.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.partition_counts().into_keys().collect()
    }

    /// The number of partitions of each node that holds at least one.
    pub fn partition_counts(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        self.partitions.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
        counts
    }

    /// Picks one of the partitions that `node` holds, by `hash`; `None` if it holds none.
    pub fn pick(&self, node: NodeId, hash: u64) -> Option<PartitionId> {
        let held = || (0..=u16::MAX).zip(&self.partitions).filter(|(_, holder)| **holder == node);
        let chosen = hash.checked_rem(held().count() as u64)?;
        held().nth(usize::try_from(chosen).ok()?).map(|(partition, _)| PartitionId(partition))
    }

    /// The next map, in which `node` holds `partition`; all other partitions stay where they are.
    #[must_use]
    pub fn moved(&self, partition: PartitionId, node: NodeId) -> Self {
        let mut partitions = self.partitions.clone();
        partitions[usize::from(partition.0)] = node;
        Self { epoch: self.epoch.next(), partitions }
    }
}

/// A decoded map whose number of partitions has not been checked yet.
#[derive(Deserialize)]
struct RawPartitionMap {
    epoch: Epoch,
    partitions: Vec<NodeId>,
}

impl TryFrom<RawPartitionMap> for PartitionMap {
    type Error = InvalidPartitionCount;

    fn try_from(read: RawPartitionMap) -> Result<Self, InvalidPartitionCount> {
        Self::new(read.epoch, read.partitions)
    }
}

/// The error of a number of partitions that no pool can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidPartitionCount {
    /// The number that was asked for.
    pub partitions: u64,
}

impl fmt::Display for InvalidPartitionCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "a pool cannot have {} partitions; choose a power of two from 1 to {PARTITIONS_MAX}, for example 4096",
            self.partitions
        )
    }
}

impl std::error::Error for InvalidPartitionCount {}

fn check_count(partitions: u64) -> Result<u32, InvalidPartitionCount> {
    u32::try_from(partitions)
        .ok()
        .filter(|count| count.is_power_of_two() && *count <= PARTITIONS_MAX)
        .ok_or(InvalidPartitionCount { partitions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_pool_of_one_node_holds_every_partition_there() {
        let map = PartitionMap::one_node(NodeId(7), 64).unwrap();
        assert_eq!((map.epoch(), map.partitions()), (Epoch::FIRST, 64));
        assert!((0..64).all(|id| map.node(PartitionId(id)) == Some(NodeId(7))));
        assert_eq!(map.node(PartitionId(64)), None);
    }

    #[test]
    fn partitions_are_dealt_to_equal_nodes_evenly_and_the_map_names_them() {
        let nodes = [NodeId(9), NodeId(2), NodeId(5)];
        let equal = nodes.map(|node| (node, 7));
        let map = PartitionMap::proportional(&equal, 64).unwrap();
        assert_eq!(
            (map.epoch(), map.partitions(), map.nodes()),
            (Epoch::FIRST, 64, vec![NodeId(2), NodeId(5), NodeId(9)])
        );
        assert_eq!(nodes.map(|node| map.partition_counts()[&node]), [22, 21, 21]);
        assert_eq!(PartitionMap::proportional(&equal, 2).unwrap().nodes().len(), 2, "a node may hold none");
        assert_eq!(PartitionMap::proportional(&equal[..1], 8), PartitionMap::one_node(nodes[0], 8));
    }

    #[test]
    fn partitions_are_dealt_in_proportion_to_shares_over_any_run_of_them() {
        let shares = [(NodeId(1), 4 << 40), (NodeId(2), 1 << 40), (NodeId(3), 0), (NodeId(4), 3 << 40)];
        let map = PartitionMap::proportional(&shares, 1024).unwrap();
        for run in [0..1024_u16, 100..164, 1000..1008] {
            let share = |node| run.clone().filter(|id| map.node(PartitionId(*id)) == Some(NodeId(node))).count();
            let eighth = run.len() / 8;
            assert_eq!([1, 2, 3, 4].map(share), [4 * eighth, eighth, 0, 3 * eighth], "{run:?}");
        }
    }

    #[test]
    fn a_move_changes_one_home_and_the_epoch_and_leaves_the_old_map() {
        let before = PartitionMap::one_node(NodeId(1), 4).unwrap();
        let after = before.moved(PartitionId(2), NodeId(9));
        assert!(after.epoch() > before.epoch());
        let homes: Vec<_> = (0..4).map(|id| after.node(PartitionId(id)).unwrap().0).collect();
        assert_eq!(homes, [1, 1, 9, 1]);
        assert_eq!(before.node(PartitionId(2)), Some(NodeId(1)));
    }

    #[test]
    fn a_node_is_asked_for_partitions_of_its_own_and_all_of_them_come() {
        let map = PartitionMap::proportional(&[(NodeId(1), 1), (NodeId(2), 3), (NodeId(3), 0)], 64).unwrap();
        let picked = |node| (0..1000).filter_map(|hash| map.pick(NodeId(node), hash)).collect::<BTreeSet<_>>();
        assert_eq!([1, 2, 3, 4].map(|node| picked(node).len()), [16, 48, 0, 0]);
        assert!(picked(2).iter().all(|partition| map.node(*partition) == Some(NodeId(2))));
        let all = PartitionMap::one_node(NodeId(1), PARTITIONS_MAX).unwrap();
        assert_eq!(all.pick(NodeId(1), 65_535), Some(PartitionId(65_535)), "the last one too");
    }

    #[test]
    fn a_count_that_is_no_power_of_two_or_too_large_is_refused_by_its_number() {
        for count in [0, 3, 100, PARTITIONS_MAX * 2] {
            let error = PartitionMap::one_node(NodeId(1), count).unwrap_err().to_string();
            assert!(error.contains(&count.to_string()), "{error}");
        }
        assert!(PartitionMap::one_node(NodeId(1), PARTITIONS_MAX).is_ok());
    }

    #[test]
    fn a_map_survives_json_and_a_damaged_one_is_refused() {
        let map = PartitionMap::one_node(NodeId(1), 4).unwrap().moved(PartitionId(0), NodeId(2));
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<PartitionMap>(&json).unwrap(), map);
        let damaged = serde_json::from_str::<PartitionMap>(r#"{"epoch":1,"partitions":[1,1,1]}"#);
        assert!(damaged.unwrap_err().to_string().contains("3 partitions"));
    }
}
