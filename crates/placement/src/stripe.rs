//! Where a stripe lives: a hash of the file and the stripe's number.

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

/// The partition of a stripe of a striped file, in a pool of `partitions` (a power of two) whose hashing was given `seed`.
///
/// Everyone who knows the seed computes the same answer, on any machine: the hash is XXH3 (64 bits) over the file and the
/// stripe, each as 8 bytes, little-endian.
pub fn stripe_partition(seed: u64, file: FileId, stripe: StripeNo, partitions: u32) -> PartitionId {
    let mut hashed = [0; 16];
    hashed[..8].copy_from_slice(&file.0.to_le_bytes());
    hashed[8..].copy_from_slice(&stripe.0.to_le_bytes());
    PartitionId::by_hash(xxh3_64_with_seed(&hashed, seed), partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stripes_of_one_file_spread_evenly_over_all_partitions() {
        let mut shares = [0_u32; 64];
        for stripe in 0..64_000 {
            shares[usize::from(stripe_partition(7, FileId::ROOT, StripeNo(stripe), 64).0)] += 1;
        }
        // 1,000 expected each, standard deviation 32: five of them either way.
        assert!(shares.iter().all(|share| (840..1160).contains(share)), "{shares:?}");
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
        assert_eq!([place(0, 1, 0), place(0, 1, 1), place(1, 1, 0), place(0, 1 << 48 | 5, 9)], [17, 2214, 1392, 1002]);
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
