//! The quota of extent files within the capacity, computed without I/O.
//!
//! The kernel writes extent files past the node, so they get space in advance: a quota (*grant*),
//! which is the size of their tmpfs. Nobody else can use the granted space. So the quota is
//! generous while much is free, and its unused part is taken back step by step when blocks, small
//! files or inodes need it. Every result keeps this rule:
//!
//! ```text
//!   used <= grant <= capacity - kept
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
pub struct Room {
    /// The capacity of the arena.
    pub capacity: u64,
    /// Blocks and reservations.
    pub kept: u64,
    /// The quota of extent files.
    pub granted: u64,
    /// The part of the quota that extent files use.
    pub used: u64,
}

impl Room {
    /// Returns true if more than half of the capacity is used.
    pub fn is_crowded(&self) -> bool {
        self.kept + self.used > self.capacity / 2
    }

    /// Unused bytes, if `offered` bytes of `kept` are only offered to writers.
    pub fn free(&self, offered: u64) -> u64 {
        self.capacity - (self.kept - offered) - self.used
    }

    /// The quota before a file is opened for writing by the kernel: most of the free space, or the
    /// present quota if that suffices or more than half of the capacity is used.
    pub fn when_opened(&self) -> u64 {
        let free = self.capacity - self.kept - self.used;
        let slack = free - free / OTHERS_PART;
        let enough = self.granted - self.used >= slack - slack / OTHERS_PART && self.granted > 0;
        if self.is_crowded() || enough { self.granted } else { self.rounded(self.used + slack) }
    }

    /// The quota after a write request that needs `wanted` bytes beyond the unused part of the
    /// quota; the present quota if there is no more space.
    pub fn when_written(&self, wanted: u64) -> u64 {
        let lacking = wanted.saturating_sub(self.granted - self.used);
        let more = lacking.max(self.capacity / STEP_PART).next_multiple_of(PAGE);
        self.rounded(self.granted.saturating_add(more)).max(self.granted)
    }

    /// The quota after others request `wanted` bytes that are not free.
    pub fn when_short(&self, wanted: u64) -> u64 {
        let lacking = wanted.saturating_sub(self.capacity - self.kept - self.granted);
        let less = lacking.max(self.capacity / STEP_PART);
        let left = self.granted.saturating_sub(less).max(self.used).max(PAGE);
        left.next_multiple_of(PAGE).min(self.granted)
    }

    /// Rounds down to whole pages, at least one page and at most the space that is not kept.
    fn rounded(&self, grant: u64) -> u64 {
        let most = (self.capacity - self.kept) / PAGE * PAGE;
        (grant / PAGE * PAGE).max(PAGE).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deterministic random number generator.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if end == 0 { 0 } else { (self.0 >> 16) % end }
        }
    }

    fn check(room: &Room, grant: u64) {
        assert!(room.used <= grant && grant <= room.capacity - room.kept, "{grant} of {room:?}");
        assert!(grant == room.granted || grant > 0 && grant.is_multiple_of(PAGE), "{grant} of {room:?}");
    }

    /// Applies a random event to the pool.
    fn happen(room: &mut Room, dice: &mut Dice) {
        let free = room.capacity - room.kept - room.granted;
        match dice.below(6) {
            0 => room.kept += dice.below(free + 1),
            1 => room.kept -= dice.below(room.kept + 1),
            2 => room.used += dice.below((room.granted - room.used) / PAGE + 1) * PAGE,
            3 => room.used -= dice.below(room.used / PAGE + 1) * PAGE,
            4 => {
                let grant =
                    if dice.below(2) == 0 { room.when_opened() } else { room.when_written(dice.below(1 << 22)) };
                check(room, grant);
                assert!(grant >= room.granted, "who writes never loses: {room:?}");
                room.granted = grant;
            }
            _ => {
                let grant = room.when_short(dice.below(1 << 22));
                check(room, grant);
                assert!(grant <= room.granted, "who asks back never gives: {room:?}");
                room.granted = grant;
            }
        }
    }

    #[test]
    fn the_capacity_is_never_exceeded_in_whatever_order_things_happen() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let capacity = 1 + dice.below(1 << 24);
            let mut room = Room { capacity, kept: 0, granted: 0, used: 0 };
            for _ in 0..300 {
                happen(&mut room, &mut dice);
                assert!(room.kept + room.granted <= room.capacity && room.used <= room.granted, "{room:?}");
            }
        }
    }

    #[test]
    fn what_is_not_used_is_all_taken_back_when_others_need_it() {
        let mut room = Room { capacity: 1 << 20, kept: 0, granted: 0, used: 0 };
        room.granted = room.when_opened();
        assert_eq!(room.granted, 7 << 17);
        room.used = 100 * PAGE;
        let wanted = room.capacity - room.used;
        assert_eq!(room.when_short(wanted), room.used, "in one step when so much is wanted");
        let mut steps = 0;
        while room.granted > room.used {
            room.granted = room.when_short(room.capacity - room.kept - room.granted + 1);
            steps += 1;
        }
        assert!((10..=STEP_PART).contains(&steps), "{steps} steps when little is wanted each time");
    }

    #[test]
    fn a_writer_that_asks_gets_what_is_there() {
        let room = Room { capacity: 100 * PAGE, kept: 30 * PAGE, granted: 10 * PAGE, used: 9 * PAGE };
        assert_eq!(room.when_written(3 * PAGE), 12 * PAGE);
        assert_eq!(room.when_written(1000 * PAGE), 70 * PAGE);
        let full = Room { granted: 70 * PAGE, ..room };
        assert_eq!(full.when_written(1000 * PAGE), full.granted);
    }

    #[test]
    fn nothing_is_granted_in_advance_while_more_than_half_is_used() {
        let room = Room { capacity: 100 * PAGE, kept: 51 * PAGE, granted: PAGE, used: 0 };
        assert!(room.is_crowded());
        assert_eq!(room.when_opened(), PAGE);
    }
}
