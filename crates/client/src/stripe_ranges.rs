//! Pieces of a byte range, each within one stripe.

use placement::StripeNo;
use std::ops::Range;

/// Most pieces of one range in flight: nodes work on some while others travel.
pub const RANGES_IN_FLIGHT_MAX: usize = 8;

/// A piece of a range, within one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeRange {
    pub stripe: StripeNo,
    /// Offset in the stripe, bytes.
    pub offset: u32,
    /// The part of the whole range, bytes.
    pub range: Range<usize>,
}

/// The pieces of `length` bytes at `offset`, in order.
pub fn stripe_ranges(offset: u64, length: usize, stripe_bytes: u32) -> impl Iterator<Item = StripeRange> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = u32::try_from(at % u64::from(stripe_bytes)).expect("below the length of a stripe");
        let range = done..length.min(done + (stripe_bytes - within) as usize);
        done = range.end;
        (!range.is_empty()).then(|| StripeRange {
            stripe: StripeNo(at / u64::from(stripe_bytes)),
            offset: within,
            range,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_and_cross_no_stripe() {
        let whole: Vec<StripeRange> = stripe_ranges(6, 13, 8).collect();
        let expected = [(0, 6, 0..2), (1, 0, 2..10), (2, 0, 10..13)];
        let expected = expected.map(|(stripe, offset, range)| StripeRange { stripe: StripeNo(stripe), offset, range });
        assert_eq!(whole, expected);
        assert_eq!(stripe_ranges(7, 0, 8).count(), 0);
        assert_eq!(stripe_ranges(8, 8, 8).count(), 1);
    }
}
