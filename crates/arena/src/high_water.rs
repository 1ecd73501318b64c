//! The most that was ever used, whole files included, which are written past us.
//!
//! What whole files hold grows without a word to us, but it falls by our doing alone. So between two looks at it, it is at most what the
//! second look tells, if there is a look before every fall. What else is used is known at every moment; of its falls only those count that
//! are large, so that not every block that is given back costs a look.

/// A fall of this part of the capacity costs a look, and by so much the mark may be too high.
const FALL_PART: u64 = 1024;

/// The mark, and what has happened since the last look.
#[derive(Debug)]
pub struct HighWater {
    peak: u64,
    /// The most that was kept since then: blocks and reservations, bytes.
    kept_most: u64,
    fall: u64,
}

impl HighWater {
    /// Of a pool of so many bytes, in which nothing is used.
    pub fn new(capacity: u64) -> Self {
        Self { peak: 0, kept_most: 0, fall: capacity / FALL_PART }
    }

    /// So much is kept now; whether it is time for a look at whole files.
    pub fn note(&mut self, kept: u64) -> bool {
        self.kept_most = self.kept_most.max(kept);
        self.kept_most - kept > self.fall
    }

    /// Whole files hold so much now, and so much else is kept; the mark so far.
    pub fn look(&mut self, kept: u64, whole: u64) -> u64 {
        self.peak = self.peak.max(self.kept_most.max(kept) + whole);
        self.kept_most = kept;
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_never_below_what_was_used_and_above_by_little() {
        for seed in 0..300_u64 {
            let mut state = seed;
            let mut below = move |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % end
            };
            let capacity = 1 << 20;
            let (mut mark, mut kept, mut whole, mut peak) = (HighWater::new(capacity), 0, 0, 0);
            for _ in 0..1000 {
                match below(4) {
                    0 => kept += below(capacity / 100),
                    1 => kept -= below(capacity / 100).min(kept),
                    2 => whole += below(capacity / 100),
                    _ => {
                        mark.look(kept, whole);
                        whole -= below(capacity / 10).min(whole);
                    }
                }
                peak = peak.max(kept + whole);
                if mark.note(kept) {
                    mark.look(kept, whole);
                }
            }
            let told = mark.look(kept, whole);
            assert!((peak..=peak + capacity / FALL_PART).contains(&told), "{told} of {peak}");
        }
    }
}
