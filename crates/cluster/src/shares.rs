//! The number of partitions of each node, in proportion to its capacity (paper 004, section 3.3.2:
//! share 1 for each node).

use placement::NodeId;
use std::collections::BTreeMap;

/// Returns the number of partitions that each node should have. `capacities` are in any unit, 0 for
/// a node that is to have none; `current` are the numbers now. Each number is the exact share,
/// rounded down or up; the sum is `partitions`. Of all such numbers these need the fewest moves.
///
/// Panics if all capacities are 0.
pub fn partition_shares(
    capacities: &BTreeMap<NodeId, u64>,
    partitions: u32,
    current: &BTreeMap<NodeId, u32>,
) -> BTreeMap<NodeId, u32> {
    let all: u128 = capacities.values().map(|capacity| u128::from(*capacity)).sum();
    assert!(all > 0, "a pool has a node with capacity");
    let exact = |capacity: u64| u128::from(capacity) * u128::from(partitions);
    let below = |capacity: u64| u32::try_from(exact(capacity) / all).expect("at most all partitions");
    let mut shares: BTreeMap<NodeId, u32> =
        capacities.iter().map(|(node, capacity)| (*node, below(*capacity))).collect();
    let left = partitions - shares.values().sum::<u32>();
    // A node that has more than its share rounded down keeps one of them, rather than another gets
    // one; then those whose shares are cut off most.
    let mut nodes: Vec<_> = capacities.iter().filter(|(_, capacity)| exact(**capacity) % all > 0).collect();
    nodes.sort_by_key(|(node, capacity)| {
        let keeps = current.get(node).is_some_and(|held| *held > shares[node]);
        (!keeps, u128::MAX - exact(**capacity) % all, **node)
    });
    for (node, _) in nodes.into_iter().take(left as usize) {
        *shares.get_mut(node).expect("each node has a share") += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    fn of<V: Copy>(values: &[V]) -> BTreeMap<NodeId, V> {
        (1..).map(NodeId).zip(values.iter().copied()).collect()
    }

    #[test]
    fn shares_are_the_exact_ones_rounded_and_keep_what_is_there() {
        let none = BTreeMap::new();
        assert_eq!(partition_shares(&of(&[7, 7, 7]), 64, &none), of(&[22, 21, 21]));
        assert_eq!(partition_shares(&of(&[7, 7, 7]), 64, &of(&[21, 21, 22])), of(&[21, 21, 22]), "nothing moves");
        assert_eq!(partition_shares(&of(&[1, 2, 4]), 4096, &none), of(&[585, 1170, 2341]));
        assert_eq!(partition_shares(&of(&[5, 0, 5]), 64, &of(&[0, 64, 0])), of(&[32, 0, 32]), "a node is drained");
        assert_eq!(partition_shares(&of(&[u64::MAX, u64::MAX]), 65_536, &none), of(&[32_768, 32_768]));
    }

    #[test]
    fn every_share_is_within_one_partition_of_the_exact_one_and_no_other_rounding_moves_less() {
        let mut random = Random::new(1);
        for _ in 0..3000 {
            let nodes = 1 + random.below(6);
            let mut capacities: Vec<u64> = (0..nodes).map(|_| random.below(5)).collect();
            capacities[0] += 1;
            let partitions = 1 << random.below(8);
            let mut current = vec![0; nodes];
            (0..partitions).for_each(|_| current[random.below(nodes)] += 1);
            let shares = partition_shares(&of(&capacities), partitions, &of(&current));
            assert_eq!(shares.values().sum::<u32>(), partitions);
            let all: u64 = capacities.iter().sum();
            for (share, capacity) in shares.values().zip(&capacities) {
                let exact = capacity * u64::from(partitions);
                let (low, high) = (exact / all, exact.div_ceil(all));
                assert!((low..=high).contains(&u64::from(*share)), "{capacities:?} {shares:?}");
            }
            let shares: Vec<u32> = shares.into_values().collect();
            assert_eq!(moves(&current, &shares), fewest(&current, &capacities, partitions), "{capacities:?}");
        }
    }

    fn moves(current: &[u32], shares: &[u32]) -> u32 {
        current.iter().zip(shares).map(|(held, share)| held.saturating_sub(*share)).sum()
    }

    /// The fewest moves to any rounding of the exact shares.
    fn fewest(current: &[u32], capacities: &[u64], partitions: u32) -> u32 {
        let all: u64 = capacities.iter().sum();
        let exact: Vec<u64> = capacities.iter().map(|capacity| capacity * u64::from(partitions)).collect();
        let roundings = 0..1_u32 << capacities.len();
        let rounded = roundings.filter_map(|up| {
            let share = |at: usize| {
                let is_up = up >> at & 1 == 1;
                let below = u32::try_from(exact[at] / all).unwrap();
                (!is_up || !exact[at].is_multiple_of(all)).then_some(below + u32::from(is_up))
            };
            let shares: Option<Vec<u32>> = (0..capacities.len()).map(share).collect();
            shares.filter(|shares| shares.iter().sum::<u32>() == partitions)
        });
        rounded.map(|shares| moves(current, &shares)).min().expect("some rounding has the sum")
    }
}
