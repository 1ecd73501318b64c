//! Where things are put: new directories, and the pieces of a range of bytes.

use placement::{FileId, PartitionId, StripeNo};
use std::ops::Range;
use wire::Name;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The partition of a new directory's inode: by a hash of where it stands, so that directories spread evenly.
///
/// The place is only computed when it is made; afterwards its `FileId` says where it is.
pub fn directory_partition(seed: u64, parent: FileId, name: &Name, partitions: u32) -> PartitionId {
    let hash = xxh3_64_with_seed(name.as_bytes(), seed ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let chosen = (hash >> 32) & u64::from(partitions - 1);
    PartitionId(u16::try_from(chosen).expect("masked below the count of partitions, at most 2^16"))
}

/// So many pieces of one range are on their way at once: nodes are busy with some while others travel.
pub const PIECES_UNDER_WAY: usize = 8;

/// A piece of a range, within one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stripe: StripeNo,
    /// Where in the stripe, bytes.
    pub offset: u32,
    /// Which part of the whole range, bytes.
    pub part: Range<usize>,
}

/// The pieces of `length` bytes at `offset`, in order.
pub fn pieces(offset: u64, length: usize, stripe_bytes: u32) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = u32::try_from(at % u64::from(stripe_bytes)).expect("below the length of a stripe");
        let part = done..length.min(done + (stripe_bytes - within) as usize);
        done = part.end;
        (!part.is_empty()).then(|| Piece { stripe: StripeNo(at / u64::from(stripe_bytes)), offset: within, part })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_and_cross_no_stripe() {
        let whole: Vec<Piece> = pieces(6, 13, 8).collect();
        let expected = [(0, 6, 0..2), (1, 0, 2..10), (2, 0, 10..13)];
        let expected = expected.map(|(stripe, offset, part)| Piece { stripe: StripeNo(stripe), offset, part });
        assert_eq!(whole, expected);
        assert_eq!(pieces(7, 0, 8).count(), 0);
        assert_eq!(pieces(8, 8, 8).count(), 1);
    }

    #[test]
    fn directories_spread_over_the_partitions() {
        let mut shares = [0_u32; 16];
        for number in 0..1600 {
            let name = Name::new(format!("d{number}").as_bytes()).unwrap();
            shares[usize::from(directory_partition(1, FileId::ROOT, &name, 16).0)] += 1;
        }
        assert!(shares.iter().all(|share| (50..150).contains(share)), "{shares:?}");
    }
}
