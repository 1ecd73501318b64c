//! The quota of extent files within the capacity, computed without I/O.
//!
//! The kernel writes extent files past the node, so they get space in advance: a quota,
//! which is the size of their tmpfs. Nobody else can use the granted space. So the quota is
//! generous while much is free, and its unused part is taken back step by step when blocks, small
//! files or inodes need it. Every result keeps this rule:
//!
//! ```text
//!   used <= granted <= capacity - committed
//! ```

use crate::PAGE_BYTES;

/// One page: the smallest quota, since a tmpfs of size 0 has no limit.
const PAGE: u64 = PAGE_BYTES as u64;
/// The inverse of the share of free space that is left to others when the quota grows, so that not
/// every inode has to take some back.
const OTHERS_PART: u64 = 8;
/// The inverse of the share of the capacity by which the quota changes at least when it grows on
/// demand or shrinks. It limits how often the tmpfs is resized while an empty pool fills up.
const STEP_PART: u64 = 64;

/// The current use of the capacity, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// The capacity of the arena.
    pub capacity: u64,
    /// Blocks and reservations.
    pub committed: u64,
    /// The quota of extent files.
    pub granted: u64,
    /// The part of the quota that extent files use.
    pub used: u64,
}

impl Quota {
    /// Returns true if more than half of the capacity is used.
    pub fn is_mostly_used(&self) -> bool {
        self.committed + self.used > self.capacity / 2
    }

    /// Unused bytes, if `offered` bytes of `committed` are only offered to writers.
    pub fn free(&self, offered: u64) -> u64 {
        self.capacity - (self.committed - offered) - self.used
    }

    /// The quota before a file is opened for writing by the kernel: most of the free space, or the
    /// present quota if that suffices or more than half of the capacity is used.
    pub fn for_open(&self) -> u64 {
        let free = self.capacity - self.committed - self.used;
        let slack = free - free / OTHERS_PART;
        let enough = self.granted - self.used >= slack - slack / OTHERS_PART && self.granted > 0;
        if self.is_mostly_used() || enough { self.granted } else { self.round_to_pages(self.used + slack) }
    }

    /// The quota after a write request that needs `wanted` bytes beyond the unused part of the
    /// quota; the present quota if there is no more space.
    pub fn for_write(&self, wanted: u64) -> u64 {
        let lacking = wanted.saturating_sub(self.granted - self.used);
        let more = lacking.max(self.capacity / STEP_PART).next_multiple_of(PAGE);
        self.round_to_pages(self.granted.saturating_add(more)).max(self.granted)
    }

    /// The quota after others request `wanted` bytes that are not free.
    pub fn for_reclaim(&self, wanted: u64) -> u64 {
        let lacking = wanted.saturating_sub(self.capacity - self.committed - self.granted);
        let less = lacking.max(self.capacity / STEP_PART);
        let left = self.granted.saturating_sub(less).max(self.used).max(PAGE);
        left.next_multiple_of(PAGE).min(self.granted)
    }

    /// Rounds down to whole pages, at least one page and at most the space that is not
    /// committed.
    fn round_to_pages(&self, granted: u64) -> u64 {
        let most = (self.capacity - self.committed) / PAGE * PAGE;
        (granted / PAGE * PAGE).max(PAGE).min(most)
    }
}

#[cfg(test)]
mod tests {
    use test_support::Random;

    use super::*;

    fn check(quota: &Quota, granted: u64) {
        assert!(quota.used <= granted && granted <= quota.capacity - quota.committed, "{granted} of {quota:?}");
        assert!(granted == quota.granted || granted > 0 && granted.is_multiple_of(PAGE), "{granted} of {quota:?}");
    }

    /// Applies a random event to the pool.
    fn apply_event(quota: &mut Quota, random: &mut Random) {
        let free = quota.capacity - quota.committed - quota.granted;
        match random.below(6) {
            0 => quota.committed += random.below(free + 1),
            1 => quota.committed -= random.below(quota.committed + 1),
            2 => quota.used += random.below((quota.granted - quota.used) / PAGE + 1) * PAGE,
            3 => quota.used -= random.below(quota.used / PAGE + 1) * PAGE,
            4 => {
                let granted =
                    if random.below(2) == 0 { quota.for_open() } else { quota.for_write(random.below(1 << 22)) };
                check(quota, granted);
                assert!(granted >= quota.granted, "a write never shrinks the quota: {quota:?}");
                quota.granted = granted;
            }
            _ => {
                let granted = quota.for_reclaim(random.below(1 << 22));
                check(quota, granted);
                assert!(granted <= quota.granted, "a reclaim never raises the quota: {quota:?}");
                quota.granted = granted;
            }
        }
    }

    #[test]
    fn the_capacity_is_never_exceeded_in_whatever_order_things_happen() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let capacity = 1 + random.below(1 << 24);
            let mut quota = Quota { capacity, committed: 0, granted: 0, used: 0 };
            for _ in 0..300 {
                apply_event(&mut quota, &mut random);
                assert!(quota.committed + quota.granted <= quota.capacity && quota.used <= quota.granted, "{quota:?}");
            }
        }
    }

    #[test]
    fn what_is_not_used_is_all_taken_back_when_others_need_it() {
        let mut quota = Quota { capacity: 1 << 20, committed: 0, granted: 0, used: 0 };
        quota.granted = quota.for_open();
        assert_eq!(quota.granted, 7 << 17);
        quota.used = 100 * PAGE;
        let wanted = quota.capacity - quota.used;
        assert_eq!(quota.for_reclaim(wanted), quota.used, "in one step when so much is wanted");
        let mut steps = 0;
        while quota.granted > quota.used {
            quota.granted = quota.for_reclaim(quota.capacity - quota.committed - quota.granted + 1);
            steps += 1;
        }
        assert!((10..=STEP_PART).contains(&steps), "{steps} steps when little is wanted each time");
    }

    #[test]
    fn a_writer_that_asks_gets_what_is_there() {
        let quota = Quota { capacity: 100 * PAGE, committed: 30 * PAGE, granted: 10 * PAGE, used: 9 * PAGE };
        assert_eq!(quota.for_write(3 * PAGE), 12 * PAGE);
        assert_eq!(quota.for_write(1000 * PAGE), 70 * PAGE);
        let full = Quota { granted: 70 * PAGE, ..quota };
        assert_eq!(full.for_write(1000 * PAGE), full.granted);
    }

    #[test]
    fn nothing_is_granted_in_advance_while_more_than_half_is_used() {
        let quota = Quota { capacity: 100 * PAGE, committed: 51 * PAGE, granted: PAGE, used: 0 };
        assert!(quota.is_mostly_used());
        assert_eq!(quota.for_open(), PAGE);
    }
}
