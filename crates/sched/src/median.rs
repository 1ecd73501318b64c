//! A running median.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The median of a stream of numbers, by two heaps that meet at the median. Adding a number costs
/// O(log n), reading the median O(1).
#[derive(Debug, Default)]
pub struct RunningMedian {
    /// The smaller half, with the median on top.
    low: BinaryHeap<u64>,
    high: BinaryHeap<Reverse<u64>>,
}

impl RunningMedian {
    /// Adds a number.
    pub fn push(&mut self, number: u64) {
        if self.low.peek().is_some_and(|median| number > *median) {
            self.high.push(Reverse(number));
        } else {
            self.low.push(number);
        }
        if self.high.len() > self.low.len() {
            self.low.extend(self.high.pop().map(|Reverse(number)| number));
        } else if self.low.len() > self.high.len() + 1 {
            self.high.extend(self.low.pop().map(Reverse));
        }
    }

    /// The median; the smaller of the two middle numbers if their count is even. `None` if no
    /// number was added.
    pub fn get(&self) -> Option<u64> {
        self.low.peek().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_all_numbers_so_far() {
        let (mut median, mut all, mut state) = (RunningMedian::default(), Vec::new(), 1_u64);
        assert_eq!(median.get(), None);
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            median.push(state >> 58);
            all.push(state >> 58);
            all.sort_unstable();
            assert_eq!(median.get(), Some(all[(all.len() - 1) / 2]));
        }
    }
}
