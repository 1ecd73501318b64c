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

    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.low.len() + self.high.len()
    }

    /// The median; the smaller of the two middle numbers if their count is even. `None` if no
    /// number was added.
    pub fn get(&self) -> Option<u64> {
        self.low.peek().copied()
    }
}

#[cfg(test)]
mod tests {
    use test_support::Random;

    use super::*;

    #[test]
    fn the_median_is_that_of_all_numbers_so_far() {
        let (mut median, mut all, mut random) = (RunningMedian::default(), Vec::new(), Random::new(1));
        assert_eq!(median.get(), None);
        for _ in 0..500 {
            let number = random.below(64);
            median.push(number);
            all.push(number);
            all.sort_unstable();
            assert_eq!(median.get(), Some(all[(all.len() - 1) / 2]));
        }
    }
}
