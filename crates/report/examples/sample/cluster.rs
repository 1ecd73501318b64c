//! The nodes of a made-up cluster: their slots, the data that each holds, and when one is lost.

use report::{NodeRecord, ReadBytes, Seconds};
use std::collections::{HashMap, HashSet};

/// The nodes of a run, and where its data lies.
#[derive(Default)]
pub struct Cluster {
    /// The nodes; empty for a run on one host.
    pub nodes: Vec<NodeRecord>,
    /// The node on which each member was written, by its place.
    homes: HashMap<usize, u32>,
    /// The copies that nodes have of members from elsewhere.
    copies: HashSet<(u32, usize)>,
}

impl Cluster {
    /// Some nodes with `slots` each. The second is lost after 4 s; of many, the last joins after
    /// 2 s.
    pub fn new(names: &[String], slots: u32) -> Self {
        let node = |(index, name): (u32, &String)| NodeRecord {
            name: name.clone(),
            first_slot: index * slots,
            slots,
            joined_s: Seconds(if index > 3 && index as usize + 1 == names.len() { 2.0 } else { 0.012 }),
            lost_s: (index == 1).then_some(Seconds(4.0)),
        };
        Self { nodes: (0..).zip(names).map(node).collect(), ..Self::default() }
    }

    /// The index of the node that has `slot`; none on one host.
    pub fn node_of(&self, slot: u32) -> Option<u32> {
        let place = self.nodes.iter().position(|node| slot < node.first_slot + node.slots)?;
        u32::try_from(place).ok()
    }

    /// The time at which the node of `slot` is lost; infinity if it stays.
    pub fn lost_s(&self, slot: u32) -> f64 {
        let node = self.node_of(slot).and_then(|node| self.nodes[node as usize].lost_s);
        node.map_or(f64::INFINITY, |lost| lost.0)
    }

    /// Reads members on the node of `slot`, each a place and its bytes.
    pub fn read(&mut self, slot: u32, members: impl Iterator<Item = (usize, u64)>) -> Option<ReadBytes> {
        let node = self.node_of(slot)?;
        let mut reads = ReadBytes::default();
        for (place, bytes) in members {
            if self.homes.get(&place) == Some(&node) {
                reads.local += bytes;
            } else if self.copies.insert((node, place)) {
                reads.remote += bytes;
            } else {
                reads.cached += bytes;
            }
        }
        Some(reads)
    }

    /// The time in which a task that reads `reads` is prepared. Few nodes receive little a second,
    /// so that one sees it.
    #[expect(clippy::cast_precision_loss, reason = "a sample is small")]
    pub fn prepared_s(&self, reads: ReadBytes) -> f64 {
        let bytes_per_second = if self.nodes.len() > 3 { 4e8 } else { 2e7 };
        0.003 + reads.remote as f64 / bytes_per_second
    }

    /// Records that the member at `place` was written on the node of `slot`.
    pub fn wrote(&mut self, slot: u32, place: usize) {
        self.homes.extend(self.node_of(slot).map(|node| (place, node)));
    }
}
