//! Random choices of tests.

use std::fmt::Debug;

use base::SplitMix64;

/// Random choices that depend on the seed alone, so that a failure repeats.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Random choices; equal seeds give equal ones.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number of all 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, of any integer type, or 0 if `end` is 0.
    pub fn below<T: TryInto<u64> + TryFrom<u64>>(&mut self, end: T) -> T {
        let end = end.try_into().unwrap_or_else(|_| panic!("the end of a range from 0 is not negative"));
        T::try_from(self.0.below(end)).unwrap_or_else(|_| panic!("it is below a number of its type"))
    }

    /// True once in `times` on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.next_u64().to_le_bytes()[0]
    }

    /// `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }

    /// One of `choices`. Panics if there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_choose_alike_and_others_do_not() {
        let draw = |seed| (0..20).scan(Random::new(seed), |random, _| Some(random.below(1000))).collect::<Vec<u32>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn choices_are_in_their_range() {
        let mut random = Random::new(1);
        assert!((0..100).all(|_| random.below(3_u8) < 3));
        assert_eq!(random.below(0_usize), 0);
        assert!((0..100).all(|_| [4, 7].contains(&random.pick(&[4, 7]))));
        assert_eq!(random.bytes(9).len(), 9);
        assert!((0..100).any(|_| random.one_in(4)) && (0..100).any(|_| !random.one_in(4)));
    }
}
