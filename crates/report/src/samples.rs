//! Amounts over time: any number of samples in, at most `SAMPLES_MAX` out.
//!
//! When the list is full, each two neighbours become one, and from then on twice as many samples are taken together; so
//! samples stay evenly spread over the run. What becomes of two neighbours is the sample's own business.

use crate::Seconds;
use serde::{Deserialize, Serialize};

/// More points than a wide screen has pixels across.
pub const SAMPLES_MAX: usize = 2_000;

/// What was seen at one moment.
pub trait Sample: Copy {
    /// The moment.
    fn time(&self) -> Seconds;

    /// What stands for this one and the one after it.
    #[must_use]
    fn joined(self, later: Self) -> Self;
}

/// Samples in the order of time, at most `SAMPLES_MAX`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples<T> {
    kept: Vec<T>,
    /// How many samples given to `push` become one that is kept.
    #[serde(skip, default = "one")]
    stride: usize,
    /// What stands for the samples that are not kept yet, and how many they are.
    #[serde(skip, default = "none")]
    open: Option<(T, usize)>,
    /// The last sample given to `push`.
    #[serde(skip, default = "none")]
    last: Option<T>,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, open: None, last: None }
    }
}

impl<T: Sample> Samples<T> {
    /// Adds what was seen; times must not go backwards.
    pub fn push(&mut self, sample: T) {
        self.last = Some(sample);
        let (joined, count) = self.open.take().map_or((sample, 1), |(open, count)| (open.joined(sample), count + 1));
        if count < self.stride {
            self.open = Some((joined, count));
            return;
        }
        self.kept.push(joined);
        // Two places stay free for `close`.
        if self.kept.len() == SAMPLES_MAX - 2 {
            self.halve();
        }
    }

    /// Keeps what is still open and the very last sample, so that the curve ends where the run did.
    pub fn close(&mut self) {
        for sample in [self.open.take().map(|(joined, _)| joined), self.last.take()].into_iter().flatten() {
            if self.kept.last().is_none_or(|kept| kept.time() < sample.time()) {
                self.kept.push(sample);
            }
        }
    }

    /// The samples that are kept.
    pub fn list(&self) -> &[T] {
        &self.kept
    }

    fn halve(&mut self) {
        let pairs = self.kept.chunks(2);
        self.kept = pairs.map(|pair| pair.iter().copied().reduce(T::joined).expect("not empty")).collect();
        self.stride *= 2;
    }
}

fn one() -> usize {
    1
}

fn none<T>() -> Option<T> {
    None
}
