//! The partition map: for each partition its replicas, as of an epoch of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

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

/// The version of a partition's entry in the map. The entry with the greater epoch is the current
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the entries of a pool's first map.
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

/// The entry of one partition in the map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// The version of this entry.
    pub epoch: Epoch,
    /// The node whose replica serves: it executes all requests.
    pub server: NodeId,
    /// The other replicas, if there are any.
    pub others: Option<Box<[PartitionReplica]>>,
}

/// A replica of a partition that does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionReplica {
    /// Its node.
    pub node: NodeId,
    /// Its state.
    pub state: ReplicaState,
}

/// The state of a replica that does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplicaState {
    /// It gets a snapshot.
    Joins,
    /// It has applied all entries that the server has answered.
    Follows,
}

impl PartitionEntry {
    /// The first entry of a partition with one replica.
    pub fn first(server: NodeId) -> Self {
        Self { epoch: Epoch::FIRST, server, others: None }
    }

    /// The next entry of this partition, in which `server` serves. The other replicas stay.
    #[must_use]
    pub fn moved(&self, server: NodeId) -> Self {
        Self { epoch: self.epoch.next(), server, others: self.others.clone() }
    }
}

/// The partition map: an entry for each partition. The entries have epochs of their own, so a map
/// may have newer entries than another one for some partitions, and older ones for others.
///
/// The number of partitions is a power of two and is fixed for the life of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawPartitionMap")]
pub struct PartitionMap {
    partitions: Vec<PartitionEntry>,
    /// How each node is reached, for those who have no connection to it yet.
    addresses: BTreeMap<NodeId, Arc<str>>,
    /// The nodes that have left the pool. They never come back.
    departed: BTreeSet<NodeId>,
}

impl PartitionMap {
    /// The first map of a pool of one node, which holds all `partitions`. Fails unless their number
    /// is a power of two, at most [`PARTITIONS_MAX`].
    pub fn one_node(node: NodeId, partitions: u32) -> Result<Self, InvalidPartitionCount> {
        let count = check_count(partitions.into())?;
        Ok(Self::of(vec![PartitionEntry::first(node); count as usize]))
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
            PartitionEntry::first(nodes[first].0)
        };
        Ok(Self::of((0..count).map(next).collect()))
    }

    fn of(partitions: Vec<PartitionEntry>) -> Self {
        Self { partitions, addresses: BTreeMap::new(), departed: BTreeSet::new() }
    }

    /// This map with addresses of nodes. What a text means is between those who start nodes and
    /// those who connect to them.
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = (NodeId, Arc<str>)>) -> Self {
        self.addresses.extend(addresses.into_iter().filter(|(node, _)| !self.departed.contains(node)));
        self
    }

    /// Notes that a node has left the pool.
    pub fn depart(&mut self, node: NodeId) {
        self.addresses.remove(&node);
        self.departed.insert(node);
    }

    /// The nodes that have left the pool, by ascending ids.
    pub fn departed(&self) -> impl Iterator<Item = NodeId> {
        self.departed.iter().copied()
    }

    /// The nodes whose addresses are known, by ascending ids. A node's address never changes.
    pub fn addresses(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.addresses.iter().map(|(node, address)| (*node, &**address))
    }

    /// This map with one partition given to `node` from the start.
    #[must_use]
    pub fn with(mut self, partition: PartitionId, node: NodeId) -> Self {
        if let Some(entry) = self.partitions.get_mut(usize::from(partition.0)) {
            *entry = PartitionEntry::first(node);
        }
        self
    }

    /// A map with these entries, of partition 0 and so on. Fails unless their number is a power of
    /// two, at most [`PARTITIONS_MAX`].
    pub fn new(partitions: Vec<PartitionEntry>) -> Result<Self, InvalidPartitionCount> {
        check_count(partitions.len() as u64)?;
        Ok(Self::of(partitions))
    }

    /// The entry of `partition`; `None` if the pool has no such partition (an invalid id).
    pub fn entry(&self, partition: PartitionId) -> Option<&PartitionEntry> {
        self.partitions.get(usize::from(partition.0))
    }

    /// Takes an entry of `partition` if it is newer; returns whether it was.
    pub fn learn(&mut self, partition: PartitionId, entry: PartitionEntry) -> bool {
        match self.partitions.get_mut(usize::from(partition.0)) {
            Some(known) if known.epoch < entry.epoch => {
                *known = entry;
                true
            }
            _ => false,
        }
    }

    /// Takes from another map of the pool which nodes there are.
    pub fn learn_nodes(&mut self, other: &Self) {
        other.departed.iter().for_each(|node| self.depart(*node));
        for (node, address) in other.addresses.iter().filter(|(node, _)| !self.departed.contains(node)) {
            self.addresses.entry(*node).or_insert_with(|| address.clone());
        }
    }

    /// Takes all entries of another map of the pool that are newer, and which nodes there are.
    pub fn learn_all(&mut self, other: &Self) {
        self.learn_nodes(other);
        for (partition, entry) in (0..=u16::MAX).zip(&other.partitions) {
            if self.partitions.get(usize::from(partition)).is_some_and(|known| known.epoch < entry.epoch) {
                self.learn(PartitionId(partition), entry.clone());
            }
        }
    }

    /// The moves of partitions that another map of the pool knows and this one does not: from which
    /// node, and to which.
    pub fn moves_in(&self, other: &Self) -> BTreeSet<(NodeId, NodeId)> {
        let pairs = self.partitions.iter().zip(&other.partitions);
        let moved = pairs.filter(|(known, entry)| known.epoch < entry.epoch && known.server != entry.server);
        moved.map(|(known, entry)| (known.server, entry.server)).collect()
    }

    /// The number of partitions of the pool.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("a map is never made with more than PARTITIONS_MAX")
    }

    /// The node that serves `partition`; `None` if the pool has no such partition (an invalid id).
    pub fn node(&self, partition: PartitionId) -> Option<NodeId> {
        Some(self.entry(partition)?.server)
    }

    /// The nodes that serve at least one partition, in ascending order, each once.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.partition_counts().into_keys().collect()
    }

    /// The number of partitions of each node that serves at least one.
    pub fn partition_counts(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        self.partitions.iter().for_each(|entry| *counts.entry(entry.server).or_default() += 1);
        counts
    }

    /// Picks one of the partitions that `node` serves, by `hash`; `None` if it serves none.
    pub fn pick(&self, node: NodeId, hash: u64) -> Option<PartitionId> {
        let held = || (0..=u16::MAX).zip(&self.partitions).filter(|(_, entry)| entry.server == node);
        let chosen = hash.checked_rem(held().count() as u64)?;
        held().nth(usize::try_from(chosen).ok()?).map(|(partition, _)| PartitionId(partition))
    }
}

/// A decoded map whose number of partitions has not been checked yet.
#[derive(Deserialize)]
struct RawPartitionMap {
    partitions: Vec<PartitionEntry>,
    addresses: BTreeMap<NodeId, Arc<str>>,
    departed: BTreeSet<NodeId>,
}

impl TryFrom<RawPartitionMap> for PartitionMap {
    type Error = InvalidPartitionCount;

    fn try_from(read: RawPartitionMap) -> Result<Self, InvalidPartitionCount> {
        let map = Self { departed: read.departed, ..Self::new(read.partitions)? };
        Ok(map.with_addresses(read.addresses))
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
        assert_eq!(map.partitions(), 64);
        assert!((0..64).all(|id| map.node(PartitionId(id)) == Some(NodeId(7))));
        assert_eq!(map.node(PartitionId(64)), None);
    }

    #[test]
    fn partitions_are_dealt_to_equal_nodes_evenly_and_the_map_names_them() {
        let nodes = [NodeId(9), NodeId(2), NodeId(5)];
        let equal = nodes.map(|node| (node, 7));
        let map = PartitionMap::proportional(&equal, 64).unwrap();
        assert_eq!((map.partitions(), map.nodes()), (64, vec![NodeId(2), NodeId(5), NodeId(9)]));
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
    fn of_two_entries_of_a_partition_the_later_counts_whatever_the_others_are() {
        let (mut one, mut other) =
            (PartitionMap::one_node(NodeId(1), 4).unwrap(), PartitionMap::one_node(NodeId(1), 4).unwrap());
        let first = one.entry(PartitionId(2)).unwrap().clone();
        let (second, third) = (first.moved(NodeId(9)), first.moved(NodeId(9)).moved(NodeId(8)));
        assert!(one.learn(PartitionId(2), third.clone()));
        assert!(!one.learn(PartitionId(2), second.clone()) && !one.learn(PartitionId(2), third));
        assert!(other.learn(PartitionId(2), second) && other.learn(PartitionId(0), first.moved(NodeId(7))));
        assert!(!other.learn(PartitionId(4), first.moved(NodeId(7))), "there is no such partition");
        one.learn_all(&other);
        other.learn_all(&one);
        assert_eq!(one, other);
        let homes: Vec<_> = (0..4).map(|id| one.node(PartitionId(id)).unwrap().0).collect();
        assert_eq!(homes, [7, 1, 8, 1]);
    }

    #[test]
    fn addresses_of_nodes_are_learnt_from_other_maps_and_never_change() {
        let map = |addresses: &[(u32, &str)]| {
            let addresses = addresses.iter().map(|(node, address)| (NodeId(*node), Arc::from(*address)));
            PartitionMap::one_node(NodeId(1), 4).unwrap().with_addresses(addresses)
        };
        let mut known = map(&[(1, "here"), (3, "there")]);
        known.learn_all(&map(&[(3, "elsewhere"), (2, "near")]));
        assert_eq!(known, map(&[(1, "here"), (2, "near"), (3, "there")]));
        assert_eq!(known.addresses().map(|(node, _)| node.0).collect::<Vec<_>>(), [1, 2, 3]);
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
    fn a_node_that_has_left_is_never_learnt_of_again() {
        let map = || PartitionMap::one_node(NodeId(1), 4).unwrap();
        let before = map().with_addresses([(NodeId(1), Arc::from("a")), (NodeId(2), Arc::from("b"))]);
        let mut after = before.clone();
        after.depart(NodeId(2));
        let mut other = before.clone();
        other.learn_all(&after);
        other.learn_all(&before);
        let other = other.with_addresses([(NodeId(2), Arc::from("b"))]);
        assert_eq!(other.addresses().collect::<Vec<_>>(), [(NodeId(1), "a")]);
        assert_eq!(other.departed().collect::<Vec<_>>(), [NodeId(2)]);
    }

    #[test]
    fn a_map_survives_json_and_a_damaged_one_is_refused() {
        let map = PartitionMap::one_node(NodeId(1), 4).unwrap().with(PartitionId(0), NodeId(2));
        let mut map = map.with_addresses([(NodeId(2), Arc::from("host")), (NodeId(3), Arc::from("gone"))]);
        map.depart(NodeId(3));
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<PartitionMap>(&json).unwrap(), map);
        let three = serde_json::json!({ "addresses": {}, "departed": [], "partitions": [map.entry(PartitionId(1)), map.entry(PartitionId(2)), map.entry(PartitionId(3))] });
        let damaged = serde_json::from_value::<PartitionMap>(three);
        assert!(damaged.unwrap_err().to_string().contains("3 partitions"));
    }
}
