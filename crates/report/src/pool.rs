//! Memory of the pool over time: thousands of samples in, at most `POOL_SAMPLES_MAX` out.
//!
//! When the list is full, each two neighbours become the higher one, and from then on twice as many samples are taken
//! together; so samples stay evenly spread over the run, and no peak is lost.

use crate::Seconds;
use serde::{Deserialize, Serialize};

/// More points than a wide screen has pixels across.
pub const POOL_SAMPLES_MAX: usize = 2_000;

/// One sample: when, bytes used, bytes of capacity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PoolSample(pub Seconds, pub u64, pub u64);

/// The memory of the pool over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The most that was used at any sample, in bytes.
    pub peak_bytes: u64,
    /// `[seconds, bytes used, bytes of capacity]`, in the order of time; at most `POOL_SAMPLES_MAX`.
    pub samples: Vec<PoolSample>,
    /// How many samples given to `push` become one that is kept.
    #[serde(skip, default = "one")]
    stride: usize,
    /// The highest of the samples that are not kept yet, and how many they are.
    #[serde(skip)]
    open: Option<(PoolSample, usize)>,
    /// The last sample given to `push`.
    #[serde(skip)]
    last: Option<PoolSample>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { peak_bytes: 0, samples: Vec::new(), stride: 1, open: None, last: None }
    }
}

impl Pool {
    /// Adds what was seen at `time`; times must not go backwards.
    pub fn push(&mut self, time: Seconds, used_bytes: u64, capacity_bytes: u64) {
        let sample = PoolSample(time, used_bytes, capacity_bytes);
        self.peak_bytes = self.peak_bytes.max(used_bytes);
        self.last = Some(sample);
        let (highest, count) = self.open.take().map_or((sample, 1), |(open, count)| (higher(open, sample), count + 1));
        if count < self.stride {
            self.open = Some((highest, count));
            return;
        }
        self.samples.push(highest);
        // Two places stay free for `close`.
        if self.samples.len() == POOL_SAMPLES_MAX - 2 {
            self.halve();
        }
    }

    /// Keeps what is still open and the very last sample, so that the curve ends where the run did.
    pub fn close(&mut self) {
        for sample in [self.open.take().map(|(highest, _)| highest), self.last.take()].into_iter().flatten() {
            if self.samples.last().is_none_or(|kept| kept.0 < sample.0) {
                self.samples.push(sample);
            }
        }
    }

    fn halve(&mut self) {
        self.samples =
            self.samples.chunks(2).map(|pair| pair.iter().copied().reduce(higher).expect("not empty")).collect();
        self.stride *= 2;
    }
}

fn one() -> usize {
    1
}

fn higher(first: PoolSample, second: PoolSample) -> PoolSample {
    if second.1 > first.1 { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32, used: impl Fn(u32) -> u64) -> Pool {
        let mut pool = Pool::default();
        (0..count).for_each(|index| pool.push(Seconds(f64::from(index)), used(index), 1 << 30));
        pool.close();
        pool
    }

    #[test]
    fn a_million_samples_become_two_thousand_evenly_spread() {
        let pool = filled(1_000_000, u64::from);
        assert!((POOL_SAMPLES_MAX / 3..=POOL_SAMPLES_MAX).contains(&pool.samples.len()));
        let gaps: Vec<f64> = pool.samples.windows(2).map(|pair| pair[1].0.0 - pair[0].0.0).collect();
        let widest = gaps.iter().copied().fold(0.0, f64::max);
        assert!(widest <= 2.0 * gaps[0], "{widest} against {}", gaps[0]);
    }

    #[test]
    fn the_peak_and_the_last_sample_are_kept() {
        let pool = filled(123_457, |index| if index == 77_777 { 1 << 29 } else { u64::from(index % 7) });
        assert_eq!(pool.peak_bytes, 1 << 29);
        assert!(pool.samples.contains(&PoolSample(Seconds(77_777.0), 1 << 29, 1 << 30)));
        assert_eq!(pool.samples.last().unwrap().0, Seconds(123_456.0));
        assert!(pool.samples.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
