//! Partitions of new files and directories, by a hash of the parent directory and the name.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{FileId, PartitionId};

/// Multiplier for directory ids: 2^64 / golden ratio (Knuth), so that neighbouring ids give distant
/// values.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// XXH3 (64 bits) of the name, seeded with the pool's seed and the directory.
fn home_hash(seed: u64, directory: FileId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed ^ directory.0.wrapping_mul(MIX))
}

/// The partition for all stripes of a file made with this name in this directory, if its policy is
/// `single`: all bytes at one node, which a hash chooses.
pub fn single_partition(seed: u64, directory: FileId, name: &[u8], partitions: u32) -> PartitionId {
    PartitionId::from_hash(home_hash(seed, directory, name), partitions)
}

/// The partition of a new directory's inode. It uses other bits of the hash than
/// [`single_partition`], so that directories and files of the same names do not lie together.
///
/// It is computed only when the directory is made: afterwards the directory's [`FileId`] contains
/// its partition.
pub fn directory_partition(seed: u64, parent: FileId, name: &[u8], partitions: u32) -> PartitionId {
    PartitionId::from_hash(home_hash(seed, parent, name) >> 32, partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, PartitionMap};
    use proptest::prelude::*;

    #[test]
    fn files_that_are_each_at_one_node_spread_evenly_over_partitions_and_nodes() {
        let shares: Vec<(NodeId, u64)> = (1..=8).map(|node| (NodeId(node), 1)).collect();
        let map = PartitionMap::proportional(&shares, 4096).unwrap();
        let (mut partitions, mut nodes) = ([0_u32; 64], [0_u32; 8]);
        for number in 0..64_000_u64 {
            let (directory, name) = (FileId(number % 1000), format!("part-{:05}.fits", number / 1000));
            partitions[usize::from(single_partition(7, directory, name.as_bytes(), 64).0)] += 1;
            let home = map.node(single_partition(7, directory, name.as_bytes(), 4096)).unwrap();
            nodes[home.0 as usize - 1] += 1;
        }
        // 1,000 and 8,000 expected each: five standard deviations either way.
        assert!(partitions.iter().all(|share| (840..1160).contains(share)), "{partitions:?}");
        assert!(nodes.iter().all(|share| (7_550..8_450).contains(share)), "{nodes:?}");
    }

    #[test]
    fn directories_spread_over_the_partitions() {
        let mut shares = [0_u32; 16];
        for number in 0..1600 {
            let name = format!("d{number}");
            shares[usize::from(directory_partition(1, FileId::ROOT, name.as_bytes(), 16).0)] += 1;
        }
        assert!(shares.iter().all(|share| (50..150).contains(share)), "{shares:?}");
    }

    proptest! {
        #[test]
        fn a_place_is_one_of_the_pools_partitions(seed: u64, directory: u64, name: Vec<u8>, bits in 0_u32..=16) {
            let chosen = single_partition(seed, FileId(directory), &name, 1 << bits);
            prop_assert!(u32::from(chosen.0) < 1 << bits);
        }
    }
}
