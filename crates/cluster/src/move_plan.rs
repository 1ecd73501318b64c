//! The plan of moves: the fewest partitions, and of those the ones that are quickest to move.

use crate::partition_shares;
use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The bytes of a partition, and the things that keep it where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLoad {
    /// Bytes of stripes and metadata.
    pub bytes: u64,
    /// Bytes that a user has placed at this node, by `here` or `at`.
    pub placed_bytes: u64,
    /// Files that are in use at the host of its node: open or mapped extents, bound files, locks of
    /// processes.
    pub pins: u32,
}

/// A move of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionMove {
    /// The partition.
    pub partition: PartitionId,
    /// The node that serves it.
    pub from: NodeId,
    /// The node that is to serve it.
    pub to: NodeId,
    /// The epoch of its entry when the move begins. The next one says how the move has ended.
    pub epoch: Epoch,
}

/// Returns the moves after which each node has its share of the partitions, in an order in which
/// they may be made. `capacities` are those of all nodes, 0 for one that is to be drained;
/// `load(partition)` says what a partition holds.
///
/// Of a node that has too many, those partitions stay that have pins, then those with bytes that a
/// user has placed there. Of the others those go that are a fair sample of all by their bytes, so
/// that a node's share of the bytes becomes what its share of the partitions is. The largest goes
/// to the node that lacks the most bytes.
///
/// Partitions that nothing keeps go first, in an order that has nothing to do with bytes. So what
/// is left when some have gone is a fair sample too, and a plan that is made anew moves no more
/// bytes than the first.
///
/// Panics if all capacities are 0.
pub fn plan_moves(
    map: &PartitionMap,
    capacities: &BTreeMap<NodeId, u64>,
    load: impl Fn(PartitionId) -> PartitionLoad,
) -> Vec<PartitionMove> {
    let current = map.partition_counts();
    let shares = partition_shares(capacities, map.partitions(), &current);
    let share = |node: NodeId| shares.get(&node).copied().unwrap_or(0);
    let mut held: BTreeMap<NodeId, Vec<(PartitionId, PartitionLoad)>> = BTreeMap::new();
    for partition in (0..=u16::MAX).map(PartitionId).take(map.partitions() as usize) {
        let node = map.node(partition).expect("the map has an entry for each");
        held.entry(node).or_default().push((partition, load(partition)));
    }
    let all_bytes: u128 = held.values().flatten().map(|(_, load)| u128::from(load.bytes)).sum();
    let average = u64::try_from(all_bytes / u128::from(map.partitions())).unwrap_or(u64::MAX);
    let mut leaving: Vec<(LoadedPartition, NodeId)> = Vec::new();
    for (node, partitions) in &mut held {
        let goes = partitions.len().saturating_sub(share(*node) as usize);
        let (gone, stays) = choose(std::mem::take(partitions), goes);
        *partitions = stays;
        leaving.extend(gone.into_iter().map(|held| (held, *node)));
    }
    let mut lacking = Lacking::new(&shares, &held, average);
    leaving.sort_by_key(|((partition, load), _)| (Reverse(load.bytes), *partition));
    let moves = leaving.into_iter().map(|(held, from)| {
        let (partition, to) = (held.0, lacking.take(held.1.bytes));
        let epoch = map.entry(partition).map_or(Epoch::FIRST, |entry| entry.epoch);
        (kept_by(&held), PartitionMove { partition, from, to, epoch })
    });
    let mut moves: Vec<_> = moves.collect();
    moves.sort_by_key(|(kept_by, step)| (*kept_by, step.partition));
    moves.into_iter().map(|(_, step)| step).collect()
}

/// A partition, and what it holds.
type LoadedPartition = (PartitionId, PartitionLoad);

/// What keeps a partition at its node: the more, the later it goes.
fn kept_by((_, load): &LoadedPartition) -> (u32, u64) {
    (load.pins, load.placed_bytes)
}

/// Chooses this number of partitions: those that nothing keeps first. If not all that are kept
/// equally are needed, every n-th of them goes in the order of their bytes. Returns those that go,
/// and the others.
fn choose(mut partitions: Vec<LoadedPartition>, goes: usize) -> (Vec<LoadedPartition>, Vec<LoadedPartition>) {
    partitions.sort_by_key(|held| (kept_by(held), Reverse(held.1.bytes), Reverse(held.0)));
    let (mut gone, mut stays) = (Vec::new(), Vec::new());
    for class in partitions.chunk_by(|a, b| kept_by(a) == kept_by(b)) {
        let (of, count) = (class.len(), class.len().min(goes - gone.len()));
        for (at, held) in class.iter().enumerate() {
            // One more goes at each n-th, from the middle of the first n on.
            let up_to = |at: usize| (2 * at * count + of) / (2 * of);
            if up_to(at + 1) > up_to(at) { gone.push(*held) } else { stays.push(*held) }
        }
    }
    (gone, stays)
}

/// The nodes that have too few partitions, ordered by the bytes that they lack.
struct Lacking {
    /// The number of partitions that each lacks.
    partitions: BTreeMap<NodeId, u32>,
    by_bytes: BTreeSet<(i128, Reverse<NodeId>)>,
}

impl Lacking {
    fn new(
        shares: &BTreeMap<NodeId, u32>,
        held: &BTreeMap<NodeId, Vec<(PartitionId, PartitionLoad)>>,
        average: u64,
    ) -> Self {
        let (mut partitions, mut by_bytes) = (BTreeMap::new(), BTreeSet::new());
        for (node, share) in shares {
            let kept = held.get(node).map_or(&[][..], |kept| kept);
            let lacks = share.saturating_sub(u32::try_from(kept.len()).expect("at most all partitions"));
            if lacks > 0 {
                let bytes: i128 = kept.iter().map(|(_, load)| i128::from(load.bytes)).sum();
                partitions.insert(*node, lacks);
                by_bytes.insert((i128::from(*share) * i128::from(average) - bytes, Reverse(*node)));
            }
        }
        Self { partitions, by_bytes }
    }

    /// The node that lacks the most bytes, to which these go.
    fn take(&mut self, bytes: u64) -> NodeId {
        let (lacks, node) = self.by_bytes.pop_last().expect("as many partitions are lacking as leave");
        let left = self.partitions.get_mut(&node.0).expect("it lacks some");
        *left -= 1;
        if *left > 0 {
            self.by_bytes.insert((lacks - i128::from(bytes), node));
        }
        node.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    fn capacities(values: &[u64]) -> BTreeMap<NodeId, u64> {
        (1..).map(NodeId).zip(values.iter().copied()).collect()
    }

    /// The map after all moves.
    fn moved(map: &PartitionMap, moves: &[PartitionMove]) -> PartitionMap {
        let mut map = map.clone();
        for PartitionMove { partition, from, to, .. } in moves {
            let entry = map.entry(*partition).unwrap().clone();
            assert_eq!(entry.server, *from);
            assert!(map.learn(*partition, entry.moved(*to)));
        }
        map
    }

    #[test]
    fn a_node_that_joins_gets_its_share_and_nothing_else_moves() {
        for nodes in 1..8_u32 {
            let equal = |count: u32| (1..=count).map(|id| (NodeId(id), 1)).collect::<BTreeMap<NodeId, u64>>();
            let before: Vec<(NodeId, u64)> = equal(nodes).into_iter().collect();
            let map = PartitionMap::proportional(&before, 4096).unwrap();
            let load = |_| PartitionLoad { bytes: 1 << 20, ..PartitionLoad::default() };
            let moves = plan_moves(&map, &equal(nodes + 1), load);
            assert!(moves.iter().all(|step| step.to == NodeId(nodes + 1)), "{nodes}");
            assert!(moves.len() <= 4096_usize.div_ceil(nodes as usize + 1), "{nodes}: {}", moves.len());
            let counts = moved(&map, &moves).partition_counts();
            assert!(counts.values().all(|count| count.abs_diff(4096 / (nodes + 1)) <= 1), "{counts:?}");
        }
    }

    #[test]
    fn a_drained_node_keeps_nothing_and_the_others_share_what_it_had() {
        let map = PartitionMap::proportional(&[(NodeId(1), 1), (NodeId(2), 2), (NodeId(3), 4)], 1024).unwrap();
        let moves = plan_moves(&map, &capacities(&[1, 2, 0]), |_| PartitionLoad::default());
        assert!(moves.iter().all(|step| step.from == NodeId(3)));
        let counts = moved(&map, &moves).partition_counts();
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [341, 683]);
    }

    #[test]
    fn what_is_in_use_stays_then_what_a_user_has_placed_there() {
        let map = PartitionMap::one_node(NodeId(1), 16).unwrap();
        let load = |PartitionId(partition)| PartitionLoad {
            bytes: 100,
            placed_bytes: if partition < 8 { 50 } else { 0 },
            pins: u32::from(partition < 4),
        };
        let going = |capacity: u64| {
            let moves = plan_moves(&map, &capacities(&[16 - capacity, capacity]), load);
            moves.into_iter().map(|step| step.partition.0).collect::<BTreeSet<_>>()
        };
        assert_eq!(going(8), (8..16).collect());
        assert!(going(10).is_superset(&going(8)) && going(10).iter().all(|at| *at >= 4), "pins stay");
        assert_eq!(going(10).len(), 10);
        assert!(going(14).is_superset(&(4..16).collect()), "pins are the last");
        assert_eq!(going(16), (0..16).collect(), "a drained node keeps nothing");
    }

    #[test]
    fn no_partition_moves_twice_and_none_in_vain_whatever_nodes_come_and_go() {
        let mut random = Random::new(2);
        for _ in 0..200 {
            let nodes = 2 + random.below(6);
            let before: Vec<u64> = (0..nodes).map(|at| u64::from(at == 0) + random.below(4)).collect();
            let shares: Vec<(NodeId, u64)> = (1..).map(NodeId).zip(before).collect();
            let map = PartitionMap::proportional(&shares, 256).unwrap();
            let after: Vec<u64> = (0..nodes).map(|at| u64::from(at == 1) + random.below(4)).collect();
            let bytes: Vec<u64> = (0..256).map(|_| random.below(1 << 20)).collect();
            let load = |PartitionId(at)| PartitionLoad {
                bytes: bytes[usize::from(at)],
                pins: u32::from(at % 7 == 0),
                ..PartitionLoad::default()
            };
            let moves = plan_moves(&map, &capacities(&after), load);
            let partitions: BTreeSet<PartitionId> = moves.iter().map(|step| step.partition).collect();
            assert_eq!(partitions.len(), moves.len(), "each once");
            let (from, to): (BTreeSet<_>, BTreeSet<_>) = moves.iter().map(|step| (step.from, step.to)).unzip();
            assert!(from.is_disjoint(&to), "no node gets and gives");
            let counts = moved(&map, &moves).partition_counts();
            let wanted = partition_shares(&capacities(&after), 256, &map.partition_counts());
            assert!(wanted.iter().all(|(node, share)| counts.get(node).copied().unwrap_or(0) == *share));
            assert_eq!(plan_moves(&moved(&map, &moves), &capacities(&after), load), [], "nothing is left to do");
        }
    }

    #[test]
    fn a_node_whose_bytes_are_in_few_partitions_loses_its_share_of_them() {
        let map = PartitionMap::one_node(NodeId(1), 1024).unwrap();
        // A hundred stripes of equal length, anywhere.
        let load = |PartitionId(at)| PartitionLoad {
            bytes: if at % 10 == 3 { 1 << 20 } else { 100 },
            ..PartitionLoad::default()
        };
        for nodes in 2..8_usize {
            let moves = plan_moves(&map, &capacities(&vec![1; nodes]), load);
            let moved: u64 = moves.iter().map(|step| load(step.partition).bytes).sum();
            let exact = (103 << 20) * (nodes as u64 - 1) / nodes as u64;
            assert!(moved.abs_diff(exact) < 2 << 20, "{nodes}: {moved}, not {exact}");
        }
    }

    #[test]
    fn plans_that_are_made_anew_on_the_way_move_no_more_bytes_than_one() {
        let capacities = capacities(&[1; 3]);
        let shares = [(NodeId(1), 1), (NodeId(2), 1)];
        for every in [1, 7, 100] {
            let mut map = PartitionMap::proportional(&shares, 4096).unwrap();
            let bytes = |PartitionId(at): PartitionId| if at % 16 == 5 { 1 << 20 } else { 300 };
            let (mut moved_bytes, mut moves_made) = (0, 0);
            loop {
                // A node that has got a partition does not say yet what that holds.
                let load = |partition| PartitionLoad {
                    bytes: if map.node(partition) == Some(NodeId(3)) { 0 } else { bytes(partition) },
                    ..PartitionLoad::default()
                };
                let plan = plan_moves(&map, &capacities, load);
                let begun = &plan[..plan.len().min(every)];
                moved_bytes += begun.iter().map(|step| bytes(step.partition)).sum::<u64>();
                moves_made += begun.len();
                if begun.is_empty() {
                    break;
                }
                map = moved(&map, begun);
            }
            let exact = (256_u64 << 20) / 3;
            assert_eq!(moves_made, 1365);
            assert!(moved_bytes.abs_diff(exact) * 100 < exact * 10, "every {every}: {moved_bytes}, not {exact}");
        }
    }

    #[test]
    fn bytes_become_as_even_as_partitions_are_when_those_have_different_sizes() {
        let mut random = Random::new(3);
        for seed in 0..8 {
            let bytes: Vec<u64> = (0..4096).map(|_| (900 + random.below(200)) << 10).collect();
            let load = |PartitionId(at)| PartitionLoad { bytes: bytes[usize::from(at)], ..PartitionLoad::default() };
            let map = PartitionMap::proportional(&[(NodeId(1), 1), (NodeId(2), 1)], 4096).unwrap();
            let moves = plan_moves(&map, &capacities(&[1, 2, 4]), load);
            let after = moved(&map, &moves);
            let all: u64 = bytes.iter().sum();
            for (node, capacity) in [(NodeId(1), 1), (NodeId(2), 2), (NodeId(3), 4)] {
                let held = (0..4096).filter(|at| after.node(PartitionId(*at)) == Some(node));
                let held: u64 = held.map(|at| bytes[usize::from(at)]).sum();
                let exact = all * capacity / 7;
                assert!(held.abs_diff(exact) * 100 < exact * 2, "seed {seed}: node {node} has {held}, not {exact}");
            }
        }
    }
}
