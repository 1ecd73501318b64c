//! A running median.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most numbers that are kept. When there are more, every second one in order is forgotten, so
/// that the numbers that come next count twice as much.
const KEPT_MAX: usize = 4096;

/// The median of a stream of numbers, by two heaps that meet at the median. Adding a number costs
/// O(log of those that are kept), reading the median O(1).
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
        if self.len() > KEPT_MAX {
            self.thin();
        }
    }

    /// Forgets every second number.
    fn thin(&mut self) {
        let low = std::mem::take(&mut self.low).into_sorted_vec();
        let high = std::mem::take(&mut self.high).into_sorted_vec();
        let all = low.into_iter().chain(high.into_iter().rev().map(|Reverse(number)| number));
        let kept: Vec<u64> = all.step_by(2).collect();
        let middle = kept.len().div_ceil(2);
        self.low = kept[..middle].to_vec().into();
        self.high = kept[middle..].iter().copied().map(Reverse).collect();
    }

    /// The number of numbers that are kept.
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

    #[test]
    fn of_many_numbers_a_part_is_kept_and_the_median_stays_near() {
        let (mut median, mut random) = (RunningMedian::default(), Random::new(2));
        for count in 0..100_000 {
            median.push(random.below(1000));
            let near = median.get().is_some_and(|median| (400..600).contains(&median));
            assert!(count < 1000 || near, "{:?} of {count}", median.get());
            assert!(median.len() <= KEPT_MAX);
        }
        let before = median.get();
        (0..2 * KEPT_MAX).for_each(|_| median.push(5000));
        assert!(before < Some(600) && median.get() == Some(5000), "what came last counts more");
    }
}
