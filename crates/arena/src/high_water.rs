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
    committed_max: u64,
    fall: u64,
}

impl HighWater {
    /// Starts with the peak 0, for a pool of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { peak: 0, committed_max: 0, fall: capacity / FALL_PART }
    }

    /// Records `committed` bytes of blocks and reservations. Returns true if extent files should be
    /// sampled.
    pub fn record(&mut self, committed: u64) -> bool {
        self.committed_max = self.committed_max.max(committed);
        self.committed_max - committed > self.fall
    }

    /// Records a sample: `extents` bytes of extent files and `committed` other bytes. Returns the
    /// peak.
    pub fn sample(&mut self, committed: u64, extents: u64) -> u64 {
        self.peak = self.peak.max(self.committed_max.max(committed) + extents);
        self.committed_max = committed;
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use test_support::Random;

    use super::*;

    #[test]
    fn the_peak_is_never_below_what_was_used_and_above_by_little() {
        for seed in 0..300_u64 {
            let (mut random, capacity) = (Random::new(seed), 1 << 20);
            let (mut high_water, mut committed, mut extents, mut peak) = (HighWater::new(capacity), 0, 0, 0);
            for _ in 0..1000 {
                match random.below(4) {
                    0 => committed += random.below(capacity / 100),
                    1 => committed -= random.below(capacity / 100).min(committed),
                    2 => extents += random.below(capacity / 100),
                    _ => {
                        high_water.sample(committed, extents);
                        extents -= random.below(capacity / 10).min(extents);
                    }
                }
                peak = peak.max(committed + extents);
                if high_water.record(committed) {
                    high_water.sample(committed, extents);
                }
            }
            let reported = high_water.sample(committed, extents);
            assert!((peak..=peak + capacity / FALL_PART).contains(&reported), "{reported} of {peak}");
        }
    }
}
