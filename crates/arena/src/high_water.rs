//! The peak usage, extent files included, although the kernel writes them past the node.
//!
//! Extent files grow without notice but shrink only by our own calls. If their usage is sampled
//! before every such call, it never exceeds the next sample between two samples. All other usage is
//! known at every moment. Only large falls of it trigger a sample, so that not every freed block
//! costs one.

/// The inverse of the share of the capacity by which other usage must fall to trigger a sample; the
/// peak may be too high by this much.
const FALL_PART: u64 = 1024;

/// The peak so far, and the usage since the last sample.
#[derive(Debug)]
pub struct HighWater {
    peak: u64,
    /// Maximum of blocks and reservations since the last sample, in bytes.
    kept_most: u64,
    fall: u64,
}

impl HighWater {
    /// Starts with the peak 0, for a pool of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { peak: 0, kept_most: 0, fall: capacity / FALL_PART }
    }

    /// Records `kept` bytes of blocks and reservations. Returns true if extent files should be
    /// sampled.
    pub fn note(&mut self, kept: u64) -> bool {
        self.kept_most = self.kept_most.max(kept);
        self.kept_most - kept > self.fall
    }

    /// Records a sample: `whole` bytes of extent files and `kept` other bytes. Returns the peak.
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
