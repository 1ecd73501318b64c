//! Places on a cluster: the node of each worker, how full nodes are, and where data lies.

use crate::host_copies::HostCopies;
use crate::usage_refresh::NodeUsages;
use flow::DataId;
use placement::NodeId;
use sched::{PlaceId, WorkerId};
use std::collections::{BTreeSet, HashMap, HashSet};
use wire::SpaceUsage;

/// Share of a node's memory that may be used before the outputs of its tasks go elsewhere, in
/// percent. The scheduler avoids such places too.
pub const FULL_PERCENT: u64 = 90;

/// The nodes of a cluster's workers, and the place of each member that a task wrote. Empty for a
/// run on one host.
#[derive(Debug, Default)]
pub struct DataPlaces {
    /// Places of the workers; those of workers without a node are no nodes.
    workers: HashMap<WorkerId, PlaceId>,
    /// The nodes on hosts of workers that are there.
    nodes: BTreeSet<NodeId>,
    /// Places of hosts without workers: they serve what they have, and get no new data.
    leaving: HashSet<PlaceId>,
    usages: NodeUsages,
    data: HashMap<DataId, NodeId>,
    /// Inputs of the workflow that the hosts at places have themselves.
    own_inputs: HashMap<PlaceId, HashSet<DataId>>,
    /// The copies of data at the nodes. They count as free: they go before anything waits for
    /// space.
    pub copies: HostCopies,
}

impl DataPlaces {
    /// Places in a pool whose nodes have these usages.
    pub fn new(usages: NodeUsages) -> Self {
        Self { usages, ..Self::default() }
    }

    /// Adds a worker at a place, with the node there if it has one.
    pub fn add_worker(&mut self, worker: WorkerId, place: PlaceId, node: Option<NodeId>) {
        self.workers.insert(worker, place);
        self.nodes.extend(node);
    }

    /// Records the inputs of the workflow that a host has itself.
    pub fn add_inputs(&mut self, place: PlaceId, inputs: HashSet<DataId>) {
        self.own_inputs.insert(place, inputs);
    }

    /// Returns whether a host has these inputs of the workflow itself. Attempts there use its own
    /// files if it has all that they read.
    pub fn has_inputs(&self, place: PlaceId, mut inputs: impl Iterator<Item = DataId>) -> bool {
        let own = self.own_inputs.get(&place);
        inputs.all(|data| own.is_some_and(|own| own.contains(&data)))
    }

    /// Records whether a host has no workers now.
    pub fn set_leaving(&mut self, worker: WorkerId, leaves: bool) {
        let Some(place) = self.workers.get(&worker) else { return };
        if leaves {
            self.leaving.insert(*place);
        } else {
            self.leaving.remove(place);
        }
    }

    /// The place of a worker; `None` for a run on one host.
    pub fn place_of_worker(&self, worker: WorkerId) -> Option<PlaceId> {
        self.workers.get(&worker).copied()
    }

    /// The node at which an attempt on a worker makes its directory: that of its own host, unless
    /// that is nearly full, has no room for `bytes` more, or `elsewhere` is asked for; then the one
    /// with most free memory. `None` for a run on one host.
    pub fn node_for(&self, worker: WorkerId, elsewhere: bool, bytes: u64) -> Option<NodeId> {
        let place = self.workers.get(&worker)?;
        let own = self.nodes.iter().find(|node| node.0 == place.0).copied();
        let has_room = |node: &NodeId| {
            let usage = self.usages.of(*node);
            usage.is_none_or(|usage| {
                let used = self.used_at(*node, usage);
                used <= usage.capacity / 100 * FULL_PERCENT && used.saturating_add(bytes) <= usage.capacity
            })
        };
        let free = |node: &NodeId| {
            self.usages.of(*node).map_or(0, |usage| usage.capacity.saturating_sub(self.used_at(*node, usage)))
        };
        let stays = |node: &NodeId| !self.leaving.contains(&PlaceId(node.0));
        let emptiest = || self.nodes.iter().copied().max_by_key(|node| (stays(node), free(node)));
        own.filter(|node| !elsewhere && has_room(node)).or_else(emptiest).or(own)
    }

    /// Bytes that are used at a node, without those of copies.
    fn used_at(&self, node: NodeId, usage: SpaceUsage) -> u64 {
        usage.used.saturating_sub(self.copies.bytes_at(PlaceId(node.0)))
    }

    /// Records where a member was written.
    pub fn add_data(&mut self, data: DataId, node: NodeId) {
        self.data.insert(data, node);
    }

    /// The place of a member that a task wrote and that is still there.
    pub fn of(&self, data: DataId) -> Option<PlaceId> {
        self.data.get(&data).map(|node| PlaceId(node.0))
    }

    /// Records that a member was removed.
    pub fn remove(&mut self, data: DataId) {
        self.data.remove(&data);
    }

    /// The nodes on hosts of workers.
    pub fn nodes(&self) -> impl Iterator<Item = PlaceId> + '_ {
        self.nodes.iter().map(|node| PlaceId(node.0))
    }

    /// The nodes with the capacity and the use of each, in bytes.
    pub fn states(&self) -> impl Iterator<Item = (PlaceId, u64, u64)> + '_ {
        let state = |node: &NodeId| {
            let usage = self.usages.of(*node)?;
            Some((PlaceId(node.0), usage.capacity, self.used_at(*node, usage)))
        };
        self.nodes.iter().filter_map(state)
    }

    /// Removes a worker that is lost or released, and the node of its host. Returns the members
    /// that were there, by ascending numbers.
    pub fn lose(&mut self, worker: WorkerId) -> Vec<DataId> {
        let Some(place) = self.workers.remove(&worker) else { return Vec::new() };
        self.nodes.remove(&NodeId(place.0));
        self.own_inputs.remove(&place);
        let at = |node: &NodeId| node.0 == place.0;
        let mut lost: Vec<DataId> = self.data.iter().filter(|(_, node)| at(node)).map(|(data, _)| *data).collect();
        lost.sort_unstable();
        self.data.retain(|_, node| !at(node));
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used: u64) -> SpaceUsage {
        SpaceUsage { capacity: 1000, used, ..SpaceUsage::default() }
    }

    fn places(used: &[(u32, u64)]) -> DataPlaces {
        let usages = NodeUsages::default();
        usages.set(used.iter().map(|(node, used)| (NodeId(*node), usage(*used))));
        let mut places = DataPlaces::new(usages);
        for (node, _) in used {
            places.add_worker(WorkerId(node - 1), PlaceId(*node), Some(NodeId(*node)));
        }
        places
    }

    #[test]
    fn outputs_lie_at_the_own_node_unless_that_is_full() {
        let mut places = places(&[(1, 0), (2, 950), (3, 500)]);
        let node =
            |places: &DataPlaces, worker, elsewhere| places.node_for(WorkerId(worker), elsewhere, 0).map(|node| node.0);
        assert_eq!([0, 1, 2].map(|worker| node(&places, worker, false)), [Some(1), Some(1), Some(3)]);
        let large = places.node_for(WorkerId(2), false, 501).map(|node| node.0);
        assert_eq!(large, Some(1), "its own node has no room for so much");
        assert_eq!(node(&places, 2, true), Some(1), "that found no space at its own node");
        places.add_worker(WorkerId(9), PlaceId(70_000), None);
        assert_eq!(node(&places, 9, false), Some(1), "a host without a node");
        places.set_leaving(WorkerId(0), true);
        assert_eq!(node(&places, 9, false), Some(3), "node 1 is on a host that leaves");
        places.set_leaving(WorkerId(0), false);
        assert_eq!(node(&DataPlaces::default(), 0, false), None, "a run on one host");
        places.copies.update(PlaceId(2), [(DataId(0), 60)]);
        assert_eq!(node(&places, 1, false), Some(2), "copies count as free");
        assert!(places.states().any(|state| state == (PlaceId(2), 1000, 890)));
    }

    #[test]
    fn what_lies_at_a_node_is_lost_with_the_worker_of_its_host() {
        let mut places = places(&[(1, 0), (2, 0)]);
        for (data, node) in [(3, 1), (1, 1), (2, 2), (4, 1)] {
            places.add_data(DataId(data), NodeId(node));
        }
        places.remove(DataId(4));
        assert_eq!(places.lose(WorkerId(0)), [DataId(1), DataId(3)]);
        assert_eq!((places.of(DataId(1)), places.of(DataId(2))), (None, Some(PlaceId(2))));
        assert_eq!(places.node_for(WorkerId(0), false, 0), None);
        assert_eq!(places.states().count(), 1);
    }
}
