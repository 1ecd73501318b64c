//! The memory of the pool over time. Of neighbouring samples the highest is kept, so that no peak
//! is lost.

use crate::Seconds;
use crate::samples::{Sample, Samples};
use serde::{Deserialize, Serialize};

/// One sample: the time, the bytes used, the capacity in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PoolSample(pub Seconds, pub u64, pub u64);

impl Sample for PoolSample {
    fn time(&self) -> Seconds {
        self.0
    }

    fn merge(self, later: Self) -> Self {
        if later.1 > self.1 { later } else { self }
    }
}

/// The memory of the pool over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolUsage {
    /// The most bytes that were used at any moment. The pool records this peak itself, so that
    /// peaks between two samples are included. It is never less than the true peak, and at most a
    /// thousandth of the capacity more.
    pub peak_bytes: u64,
    /// The least peak that was found in random orders of the same tasks, with their real file sizes
    /// and in as many slots; none if not all tasks succeeded. A run can hardly need less.
    #[serde(default)]
    pub least_peak_bytes: Option<u64>,
    /// The number of orders that were tried.
    #[serde(default)]
    pub least_peak_orders: u32,
    /// The samples `[seconds, bytes used, bytes of capacity]` in the order of time; at most
    /// `SAMPLES_MAX`.
    pub samples: Samples<PoolSample>,
}

impl PoolUsage {
    /// Adds a sample at `time`; times must not go backwards.
    pub fn push(&mut self, time: Seconds, used_bytes: u64, capacity_bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(used_bytes);
        self.samples.push(PoolSample(time, used_bytes, capacity_bytes));
    }

    /// Updates the peak with the one that the pool recorded itself.
    pub fn record_peak(&mut self, peak_bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(peak_bytes);
    }

    /// Adds the last sample, so that the curve ends with the run.
    pub fn close(&mut self) {
        self.samples.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SAMPLES_MAX;

    fn filled(count: u32, used: impl Fn(u32) -> u64) -> PoolUsage {
        let mut pool = PoolUsage::default();
        (0..count).for_each(|index| pool.push(Seconds(f64::from(index)), used(index), 1 << 30));
        pool.close();
        pool
    }

    #[test]
    fn a_million_samples_become_two_thousand_evenly_spread() {
        let pool = filled(1_000_000, u64::from);
        assert!((SAMPLES_MAX / 3..=SAMPLES_MAX).contains(&pool.samples.list().len()));
        let gaps: Vec<f64> = pool.samples.list().windows(2).map(|pair| pair[1].0.0 - pair[0].0.0).collect();
        let widest = gaps.iter().copied().fold(0.0, f64::max);
        assert!(widest <= 2.0 * gaps[0], "{widest} against {}", gaps[0]);
    }

    #[test]
    fn the_peak_and_the_last_sample_are_kept() {
        let pool = filled(123_457, |index| if index == 77_777 { 1 << 29 } else { u64::from(index % 7) });
        assert_eq!(pool.peak_bytes, 1 << 29);
        assert!(pool.samples.list().contains(&PoolSample(Seconds(77_777.0), 1 << 29, 1 << 30)));
        assert_eq!(pool.samples.list().last().unwrap().0, Seconds(123_456.0));
        assert!(pool.samples.list().windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
