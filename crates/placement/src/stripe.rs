//! The partition of a stripe: a hash of the file, plus the stripe's number.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{FileId, PartitionId};

/// The number of a stripe in its file, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StripeNo(pub u64);

impl fmt::Display for StripeNo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The partition of a stripe of a striped file, in a pool of `partitions` partitions (a power of
/// two) whose hash seed is `seed`.
///
/// The result depends on the arguments only, so that all clients and nodes compute the same one.
/// The first stripe's partition is XXH3 (64 bits) of the file id (8 bytes, little-endian). Each
/// further stripe lies in the partition after that of its predecessor.
///
/// [`PartitionMap::proportional`](crate::PartitionMap::proportional) distributes any run of
/// partitions in proportion to the nodes' memory, so one file fills all nodes evenly. A hash of
/// each stripe would not: of 1,000 stripes it gives one of four nodes 8 % too many.
pub fn stripe_partition(seed: u64, file: FileId, stripe: StripeNo, partitions: u32) -> PartitionId {
    let first = xxh3_64_with_seed(&file.0.to_le_bytes(), seed);
    PartitionId::from_hash(first.wrapping_add(stripe.0), partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, PartitionMap};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn stripes_of_one_file_spread_evenly_over_all_partitions() {
        let mut shares = [0_u32; 64];
        for stripe in 0..64_000 {
            shares[usize::from(stripe_partition(7, FileId::ROOT, StripeNo(stripe), 64).0)] += 1;
        }
        assert_eq!(shares, [1000; 64]);
    }

    #[test]
    fn a_file_fills_nodes_of_any_memory_in_proportion_from_its_first_stripes_on() {
        for memory in [&[1, 1, 1, 1][..], &[1, 1, 1], &[64, 16, 16, 4], &[1, 7]] {
            let nodes: Vec<_> = (1..).map(NodeId).zip(memory.iter().copied()).collect();
            let map = PartitionMap::proportional(&nodes, 4096).unwrap();
            let all: u64 = memory.iter().sum();
            for file in 0..20 {
                let mut held = BTreeMap::<NodeId, u64>::new();
                for stripe in 0..1000 {
                    *held
                        .entry(map.node(stripe_partition(7, FileId(file), StripeNo(stripe), 4096)).unwrap())
                        .or_default() += 1;
                    let fair = |(node, share): &(NodeId, u64)| {
                        let (has, due) = (held.get(node).copied().unwrap_or(0) * all, (stripe + 1) * share);
                        has.abs_diff(due) <= 3 * all
                    };
                    assert!(nodes.iter().all(fair), "{stripe} stripes over {memory:?}: {held:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_stripes_of_many_files_spread_too() {
        let mut shares = [0_u32; 64];
        for counter in 0..64_000 {
            shares[usize::from(stripe_partition(7, FileId(counter), StripeNo(0), 64).0)] += 1;
        }
        assert!(shares.iter().all(|share| (840..1160).contains(share)), "{shares:?}");
    }

    #[test]
    fn the_place_of_a_stripe_is_the_same_in_every_build() {
        let place = |seed, file, stripe| stripe_partition(seed, FileId(file), StripeNo(stripe), 4096).0;
        assert_eq!(
            [place(0, 1, 0), place(0, 1, 1), place(1, 1, 0), place(0, 1 << 48 | 5, 9)],
            [2350, 2351, 3765, 4054]
        );
    }

    proptest! {
        #[test]
        fn a_stripes_partition_is_one_of_the_pools(seed: u64, file: u64, stripe: u64, bits in 0_u32..=16) {
            let partitions = 1 << bits;
            let chosen = stripe_partition(seed, FileId(file), StripeNo(stripe), partitions);
            prop_assert!(u32::from(chosen.0) < partitions);
        }
    }
}
