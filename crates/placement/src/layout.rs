//! Where the stripes of one file lie: what its metadata keeps of a policy once that is decided.
//!
//! A layout names partitions and never a node: partitions are what moves.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{FileId, PARTITIONS_MAX, PartitionId, Placing, Policy, StripeNo, StripeSize, stripe_partition};

/// What the seed of a place is multiplied with: 2^64 / golden ratio (Knuth), so that neighbours fall far apart.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where stripes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Spread {
    /// Over all partitions, by a hash of the file and the stripe.
    Striped,
    /// All in one partition.
    In(PartitionId),
}

/// Where the stripes of a file lie, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "LayoutAsRead")]
pub struct Layout {
    /// Of a stripe, bytes: a power of two.
    stripe_bytes: u32,
    /// So many stripes in a row lie together, where the file asks for longer pieces than engines keep: a power of two.
    together: u32,
    spread: Spread,
}

/// A layout as it stands in a message or snapshot, not yet checked.
#[derive(Deserialize)]
#[serde(rename = "Layout")]
struct LayoutAsRead {
    stripe_bytes: u32,
    together: u32,
    spread: Spread,
}

impl TryFrom<LayoutAsRead> for Layout {
    type Error = &'static str;

    fn try_from(LayoutAsRead { stripe_bytes, together, spread }: LayoutAsRead) -> Result<Self, Self::Error> {
        if stripe_bytes.is_power_of_two() && together.is_power_of_two() {
            Ok(Self { stripe_bytes, together, spread })
        } else {
            Err("lengths of stripes are powers of two")
        }
    }
}

impl Layout {
    /// As files usually lie in a pool whose engines keep stripes of `usual` bytes (a power of two).
    pub const fn striped(usual: u32) -> Self {
        Self { stripe_bytes: usual, together: 1, spread: Spread::Striped }
    }

    /// With pieces of this length: in shorter stripes, or with several stripes together.
    #[must_use]
    pub fn sized(usual: u32, size: StripeSize) -> Self {
        let stripe_bytes = usual.min(size.bytes());
        Self { stripe_bytes, together: size.bytes() / stripe_bytes, spread: Spread::Striped }
    }

    /// The same with all stripes in one partition.
    #[must_use]
    pub const fn in_partition(self, partition: PartitionId) -> Self {
        Self { spread: Spread::In(partition), ..self }
    }

    /// The length of a stripe, bytes.
    pub const fn stripe_bytes(self) -> u32 {
        self.stripe_bytes
    }

    /// Where stripes lie.
    pub const fn spread(self) -> Spread {
        self.spread
    }

    /// The partition of a stripe, in a pool of `partitions` whose hashing was given `seed`.
    pub fn partition(self, seed: u64, file: FileId, stripe: StripeNo, partitions: u32) -> PartitionId {
        match self.spread {
            Spread::Striped => stripe_partition(seed, file, StripeNo(stripe.0 / u64::from(self.together)), partitions),
            Spread::In(partition) => partition,
        }
    }
}

/// Where the stripes of a file will lie: what was asked for, as far as a hash can answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// How they will lie.
    pub layout: Layout,
    /// A client has still to say in which partition, by this; until then the layout names the one that a hash chose.
    pub by: Option<Policy>,
}

impl Placed {
    /// What is asked for comes to this, in a pool whose engines keep stripes of `usual` bytes and where a hash chooses `by_hash`.
    pub fn of(usual: u32, placing: Placing, by_hash: PartitionId) -> Self {
        let spread = placing.stripe_size.map_or(Layout::striped(usual), |size| Layout::sized(usual, size));
        match placing.policy {
            None | Some(Policy::Striped) => Self { layout: spread, by: None },
            Some(Policy::Whole) => Self { layout: spread.in_partition(by_hash), by: None },
            by @ Some(Policy::Here | Policy::At(_) | Policy::Balanced) => {
                Self { layout: spread.in_partition(by_hash), by }
            }
        }
    }

    /// Whether stripes that lie so, in a partition that a client chose by that, are where this wants them.
    pub fn is_met_by(self, layout: Layout, by: Option<Policy>) -> bool {
        match (self.by, layout.spread) {
            (None, _) => layout == self.layout,
            (Some(policy), Spread::In(chosen)) => by == Some(policy) && layout == self.layout.in_partition(chosen),
            (Some(_), Spread::Striped) => false,
        }
    }
}

/// The one partition of a file that is made at this place, where all its bytes are to lie at one node chosen by a hash: XXH3 (64 bits)
/// over the name, seeded with the pool's seed and the directory.
pub fn whole_partition(seed: u64, directory: FileId, name: &[u8], partitions: u32) -> PartitionId {
    assert!(partitions.is_power_of_two() && partitions <= PARTITIONS_MAX, "{partitions} partitions");
    let chosen = xxh3_64_with_seed(name, seed ^ directory.0.wrapping_mul(MIX)) & u64::from(partitions - 1);
    PartitionId(u16::try_from(chosen).expect("masked below PARTITIONS_MAX, which is 2^16"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, PartitionMap};
    use proptest::prelude::*;

    const MIB: u32 = 1 << 20;

    fn sized(size: u32) -> Layout {
        Layout::sized(MIB, StripeSize::new(size).unwrap())
    }

    #[test]
    fn files_that_are_each_at_one_node_spread_evenly_over_partitions_and_nodes() {
        let shares: Vec<(NodeId, u64)> = (1..=8).map(|node| (NodeId(node), 1)).collect();
        let map = PartitionMap::dealt(&shares, 4096).unwrap();
        let (mut partitions, mut nodes) = ([0_u32; 64], [0_u32; 8]);
        for number in 0..64_000_u64 {
            let (directory, name) = (FileId(number % 1000), format!("part-{:05}.fits", number / 1000));
            partitions[usize::from(whole_partition(7, directory, name.as_bytes(), 64).0)] += 1;
            let home = map.node(whole_partition(7, directory, name.as_bytes(), 4096)).unwrap();
            nodes[home.0 as usize - 1] += 1;
        }
        // 1,000 and 8,000 expected each: five standard deviations either way.
        assert!(partitions.iter().all(|share| (840..1160).contains(share)), "{partitions:?}");
        assert!(nodes.iter().all(|share| (7_550..8_450).contains(share)), "{nodes:?}");
    }

    #[test]
    fn longer_pieces_are_stripes_that_lie_together_and_shorter_ones_are_shorter_stripes() {
        let (usual, long, short) = (Layout::striped(MIB), sized(4 * MIB), sized(MIB / 16));
        assert_eq!([usual, long, short].map(Layout::stripe_bytes), [MIB, MIB, MIB / 16]);
        let at = |layout: Layout, stripe| layout.partition(7, FileId(5), StripeNo(stripe), 4096);
        for stripe in 0..400 {
            assert_eq!(at(usual, stripe), stripe_partition(7, FileId(5), StripeNo(stripe), 4096));
            assert_eq!(at(long, stripe), stripe_partition(7, FileId(5), StripeNo(stripe / 4), 4096));
            assert_eq!(at(long.in_partition(PartitionId(9)), stripe), PartitionId(9));
        }
        assert_eq!(sized(MIB), usual);
    }

    #[test]
    fn a_layout_survives_json_and_one_that_would_divide_by_nothing_is_refused() {
        let layout = sized(4 * MIB).in_partition(PartitionId(3));
        let json = serde_json::to_string(&layout).unwrap();
        assert_eq!(serde_json::from_str::<Layout>(&json).unwrap(), layout);
        for wrong in [json.replace("\"together\":4", "\"together\":0"), json.replace("1048576", "0")] {
            assert!(wrong != json && serde_json::from_str::<Layout>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stripes_meet_what_is_asked_when_a_hash_or_the_same_policy_chose_their_place() {
        let placed = |policy, size: Option<u32>| {
            let stripe_size = size.map(|size| StripeSize::new(size).unwrap());
            Placed::of(MIB, Placing { policy, stripe_size }, PartitionId(5))
        };
        let (plain, whole) = (placed(None, None), placed(Some(Policy::Whole), None));
        assert!(
            plain.is_met_by(Layout::striped(MIB), None) && plain.is_met_by(Layout::striped(MIB), Some(Policy::Here))
        );
        assert!(
            placed(Some(Policy::Striped), Some(MIB)).is_met_by(Layout::striped(MIB), None),
            "the same in other words"
        );
        let there = |partition| Layout::striped(MIB).in_partition(PartitionId(partition));
        assert!(!plain.is_met_by(there(5), None) && !plain.is_met_by(sized(2 * MIB), None));
        assert!(whole.is_met_by(there(5), None) && !whole.is_met_by(there(6), None));
        let at = placed(Some(Policy::At(NodeId(2))), None);
        assert!(at.is_met_by(there(6), Some(Policy::At(NodeId(2)))), "clients know where nodes are");
        assert!(!at.is_met_by(there(6), Some(Policy::At(NodeId(3)))) && !at.is_met_by(there(5), None));
        assert!(!at.is_met_by(Layout::striped(MIB), Some(Policy::At(NodeId(2)))));
        assert!(!at.is_met_by(sized(2 * MIB).in_partition(PartitionId(6)), Some(Policy::At(NodeId(2)))));
    }

    proptest! {
        #[test]
        fn a_place_is_one_of_the_pools_partitions(seed: u64, directory: u64, name: Vec<u8>, bits in 0_u32..=16) {
            let chosen = whole_partition(seed, FileId(directory), &name, 1 << bits);
            prop_assert!(u32::from(chosen.0) < 1 << bits);
        }
    }
}
