//! Time series with a limit: any number of samples is pushed, at most `SAMPLES_MAX` are kept.
//!
//! When the list is full, each pair of neighbours is joined into one sample, and from then on twice
//! as many pushed samples are joined. So samples stay evenly spread over the run. The type of the
//! sample defines how two are joined.

use crate::Seconds;
use serde::{Deserialize, Serialize};

/// The most samples that are kept: more than a wide screen has pixels across.
pub const SAMPLES_MAX: usize = 2_000;

/// A sample of a time series.
pub trait Sample: Copy {
    /// The time of the sample.
    fn time(&self) -> Seconds;

    /// Joins this sample and the one after it.
    #[must_use]
    fn merge(self, later: Self) -> Self;
}

/// Samples in the order of time, at most `SAMPLES_MAX`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples<T> {
    kept: Vec<T>,
    /// The number of pushed samples that are joined into one that is kept.
    #[serde(skip, default = "one")]
    stride: usize,
    /// The joined sample of those that are not kept yet, and their number.
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
    /// Adds a sample; times must not go backwards.
    pub fn push(&mut self, sample: T) {
        self.last = Some(sample);
        let (joined, count) = self.open.take().map_or((sample, 1), |(open, count)| (open.merge(sample), count + 1));
        if count < self.stride {
            self.open = Some((joined, count));
            return;
        }
        self.kept.push(joined);
        // Two entries stay free for `close`.
        if self.kept.len() == SAMPLES_MAX - 2 {
            self.halve();
        }
    }

    /// Keeps the unfinished joined sample and the very last sample, so that the curve ends with the
    /// run.
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
        self.kept = pairs.map(|pair| pair.iter().copied().reduce(T::merge).expect("not empty")).collect();
        self.stride *= 2;
    }
}

fn one() -> usize {
    1
}

fn none<T>() -> Option<T> {
    None
}
