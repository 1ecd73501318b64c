//! Fragments of a directory that is split: which one a name is in, and where each lives.

use crate::{FileId, PartitionId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// So many bits of a name's hash choose its fragment.
pub const FRAGMENT_BITS: u32 = 4;
/// A directory that is split has so many fragments.
pub const FRAGMENTS: usize = 1 << FRAGMENT_BITS;

/// The hash of a name, by which entries are ordered and split.
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed)
}

/// The fragment of a name with this hash: its highest bits, so that one fragment after the other is the order of hashes.
pub fn fragment_of(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - FRAGMENT_BITS)).expect("four bits")
}

/// The partition of a new fragment. Like a directory's, it is computed once; afterwards the fragment's id says where it is.
pub fn fragment_partition(seed: u64, directory: FileId, fragment: usize, partitions: u32) -> PartitionId {
    let mut hashed = [0; 17];
    hashed[..8].copy_from_slice(&directory.0.to_le_bytes());
    hashed[8..16].copy_from_slice(&(fragment as u64).to_le_bytes());
    // The last byte tells a fragment from a stripe with the same numbers.
    hashed[16] = 1;
    PartitionId::by_hash(xxh3_64_with_seed(&hashed, seed), partitions)
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
