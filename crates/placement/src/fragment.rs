//! Fragments of a split directory: the fragment of a name, and the partition of a fragment.

use crate::{FileId, PartitionId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of bits of a name's hash that select its fragment.
pub const FRAGMENT_BITS: u32 = 4;
/// The number of fragments of a split directory.
pub const FRAGMENTS: usize = 1 << FRAGMENT_BITS;

/// Hashes a name. Entries are ordered, and directories split, by this hash.
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed)
}

/// Returns the fragment of a name with this hash. It is the hash's highest bits, so listing the
/// fragments in order lists the names in order of their hashes.
pub fn fragment_of(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - FRAGMENT_BITS)).expect("four bits")
}

/// Computes the partition of a new fragment. It is computed only once: afterwards the fragment's id
/// contains its partition.
pub fn fragment_partition(seed: u64, directory: FileId, fragment: usize, partitions: u32) -> PartitionId {
    let mut hashed = [0; 17];
    hashed[..8].copy_from_slice(&directory.0.to_le_bytes());
    hashed[8..16].copy_from_slice(&(fragment as u64).to_le_bytes());
    // Distinguishes the hash input of a fragment from that of a stripe with the same numbers.
    hashed[16] = 1;
    PartitionId::from_hash(xxh3_64_with_seed(&hashed, seed), partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_spread_over_all_fragments_and_fragments_over_partitions() {
        let mut shares = [0_u32; FRAGMENTS];
        for number in 0..16_000 {
            shares[fragment_of(name_hash(7, format!("n{number}").as_bytes()))] += 1;
        }
        assert!(shares.iter().all(|share| (840..1160).contains(share)), "{shares:?}");
        let mut homes = [0_u32; 16];
        for directory in 1..=1000 {
            for fragment in 0..FRAGMENTS {
                homes[usize::from(fragment_partition(7, FileId(directory), fragment, 16).0)] += 1;
            }
        }
        assert!(homes.iter().all(|share| (840..1160).contains(share)), "{homes:?}");
    }
}
