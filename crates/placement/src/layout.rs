//! Layouts: where the stripes of one file lie. A file's metadata keeps its layout once the
//! placement policy has been decided.
//!
//! A layout names partitions, never nodes, because partitions move between nodes.

use serde::{Deserialize, Serialize};

use crate::{FileId, PartitionId, PlacementSpec, Policy, StripeNo, StripeSize, stripe_partition};

/// The distribution of a file's stripes over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Distribution {
    /// Over all partitions, by a hash of the file and the stripe number.
    Striped,
    /// All stripes in one partition.
    Single(PartitionId),
}

/// The length of a file's stripes, and their distribution over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawLayout")]
pub struct Layout {
    /// The length of a stripe in bytes: a power of two.
    stripe_bytes: u32,
    /// The number of consecutive stripes in one partition: a power of two. It is above 1 if the
    /// file asks for a stripe size above that of the engines.
    stripes_per_group: u32,
    distribution: Distribution,
}

/// A decoded layout that has not been checked yet.
#[derive(Deserialize)]
#[serde(rename = "Layout")]
struct RawLayout {
    stripe_bytes: u32,
    stripes_per_group: u32,
    distribution: Distribution,
}

impl TryFrom<RawLayout> for Layout {
    type Error = &'static str;

    fn try_from(RawLayout { stripe_bytes, stripes_per_group, distribution }: RawLayout) -> Result<Self, Self::Error> {
        if stripe_bytes.is_power_of_two() && stripes_per_group.is_power_of_two() {
            Ok(Self { stripe_bytes, stripes_per_group, distribution })
        } else {
            Err("lengths of stripes are powers of two")
        }
    }
}

impl Layout {
    /// The default layout, in a pool whose engines keep stripes of `usual` bytes (a power of two).
    pub const fn striped(usual: u32) -> Self {
        Self { stripe_bytes: usual, stripes_per_group: 1, distribution: Distribution::Striped }
    }

    /// A layout with stripes of `size`. If that is longer than `usual`, several stripes of `usual`
    /// bytes lie together in one partition.
    #[must_use]
    pub fn sized(usual: u32, size: StripeSize) -> Self {
        let stripe_bytes = usual.min(size.bytes());
        Self { stripe_bytes, stripes_per_group: size.bytes() / stripe_bytes, distribution: Distribution::Striped }
    }

    /// Returns this layout with all stripes in `partition`.
    #[must_use]
    pub const fn in_partition(self, partition: PartitionId) -> Self {
        Self { distribution: Distribution::Single(partition), ..self }
    }

    /// The length of a stripe in bytes.
    pub const fn stripe_bytes(self) -> u32 {
        self.stripe_bytes
    }

    /// The distribution of the stripes.
    pub const fn distribution(self) -> Distribution {
        self.distribution
    }

    /// The partition of a stripe, in a pool of `partitions` partitions whose hash seed is `seed`.
    pub fn partition(self, seed: u64, file: FileId, stripe: StripeNo, partitions: u32) -> PartitionId {
        match self.distribution {
            Distribution::Striped => {
                stripe_partition(seed, file, StripeNo(stripe.0 / u64::from(self.stripes_per_group)), partitions)
            }
            Distribution::Single(partition) => partition,
        }
    }
}

/// A placement decision for a file's stripes: the requested placement, as far as a hash alone can
/// decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementDecision {
    /// The layout of the stripes.
    pub layout: Layout,
    /// The policy by which a client must still choose the partition. Until it has, `layout` names
    /// the partition that a hash chose. `None` if `layout` is final.
    pub pending_policy: Option<Policy>,
}

impl PlacementDecision {
    /// Decides `spec` in a pool whose engines keep stripes of `usual` bytes; `by_hash` is the
    /// partition that a hash chose for this file.
    pub fn new(usual: u32, spec: PlacementSpec, by_hash: PartitionId) -> Self {
        let layout = spec.stripe_size.map_or(Layout::striped(usual), |size| Layout::sized(usual, size));
        match spec.policy {
            None | Some(Policy::Striped) => Self { layout, pending_policy: None },
            Some(Policy::Single) => Self { layout: layout.in_partition(by_hash), pending_policy: None },
            pending_policy @ Some(Policy::Here | Policy::At(_) | Policy::Balanced) => {
                Self { layout: layout.in_partition(by_hash), pending_policy }
            }
        }
    }

    /// Returns whether stripes with `layout`, in a partition that a client chose by policy `by`,
    /// satisfy this decision.
    pub fn is_satisfied_by(self, layout: Layout, by: Option<Policy>) -> bool {
        match (self.pending_policy, layout.distribution) {
            (None, _) => layout == self.layout,
            (Some(policy), Distribution::Single(chosen)) => {
                by == Some(policy) && layout == self.layout.in_partition(chosen)
            }
            (Some(_), Distribution::Striped) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    const MIB: u32 = 1 << 20;

    fn sized(size: u32) -> Layout {
        Layout::sized(MIB, StripeSize::new(size).unwrap())
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
        for wrong in [json.replace("\"stripes_per_group\":4", "\"stripes_per_group\":0"), json.replace("1048576", "0")]
        {
            assert!(wrong != json && serde_json::from_str::<Layout>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stripes_meet_what_is_asked_when_a_hash_or_the_same_policy_chose_their_place() {
        let placed = |policy, size: Option<u32>| {
            let stripe_size = size.map(|size| StripeSize::new(size).unwrap());
            PlacementDecision::new(MIB, PlacementSpec { policy, stripe_size }, PartitionId(5))
        };
        let (plain, single) = (placed(None, None), placed(Some(Policy::Single), None));
        assert!(
            plain.is_satisfied_by(Layout::striped(MIB), None)
                && plain.is_satisfied_by(Layout::striped(MIB), Some(Policy::Here))
        );
        assert!(
            placed(Some(Policy::Striped), Some(MIB)).is_satisfied_by(Layout::striped(MIB), None),
            "the same in other words"
        );
        let there = |partition| Layout::striped(MIB).in_partition(PartitionId(partition));
        assert!(!plain.is_satisfied_by(there(5), None) && !plain.is_satisfied_by(sized(2 * MIB), None));
        assert!(single.is_satisfied_by(there(5), None) && !single.is_satisfied_by(there(6), None));
        let at = placed(Some(Policy::At(NodeId(2))), None);
        assert!(at.is_satisfied_by(there(6), Some(Policy::At(NodeId(2)))), "clients know where nodes are");
        assert!(!at.is_satisfied_by(there(6), Some(Policy::At(NodeId(3)))) && !at.is_satisfied_by(there(5), None));
        assert!(!at.is_satisfied_by(Layout::striped(MIB), Some(Policy::At(NodeId(2)))));
        assert!(!at.is_satisfied_by(sized(2 * MIB).in_partition(PartitionId(6)), Some(Policy::At(NodeId(2)))));
    }
}
