//! Space accounting: blocks and reservations share one capacity, exact to the byte.
//!
//! The arena has more address space than capacity, because scattered free pages cannot form a large
//! block. Before a large block comes from cold memory, the same amount of warm free memory is given
//! back to the system. So fragmentation costs a few system calls and no space: **touched memory
//! plus reservations stay within the capacity, as the used bytes do.**
//!
//! Extent files take memory themselves, within a quota. The whole quota counts as used here.
//!
//! Write segments ("bays") have pages of their own beside the arena's memory; all pages count
//! together.

use std::collections::BTreeMap;

use crate::PAGE_BYTES;
use crate::buddy::{Buddy, Page, PageRun, Span};

/// The memory that pages belong to: the number of a write segment, or [`OWN`].
pub type Home = u32;
/// The arena's own memory. No write segment has this number.
pub const OWN: Home = 0;

/// Allocated and reserved bytes, and the free pages.
pub struct Ledger {
    capacity: u64,
    reserved: u64,
    /// The quota of extent files in bytes.
    granted: u64,
    held_pages: u64,
    buddy: Buddy,
    bays: BTreeMap<Home, Bay>,
    /// Number of warm free pages of the write segments.
    bays_warm: u64,
    /// The closed write segment in which pages were freed last; its free memory is given back.
    to_cool: Option<Home>,
    /// True if memory can be given back to the system block by block.
    discards: bool,
}

/// The pages of a write segment.
struct Bay {
    buddy: Buddy,
    held_pages: u64,
    /// True once no block of the segment is offered any more.
    closed: bool,
}

/// There is not enough space. Holds the bytes used at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    pub used: u64,
}

impl Ledger {
    /// Creates a ledger with all of `capacity` bytes free, over the address space of `buddy`.
    pub fn new(capacity: u64, buddy: Buddy, discards: bool) -> Self {
        Self {
            capacity,
            reserved: 0,
            granted: 0,
            held_pages: 0,
            buddy,
            bays: BTreeMap::new(),
            bays_warm: 0,
            to_cool: None,
            discards,
        }
    }

    /// Bytes of allocated blocks and reservations.
    pub fn kept(&self) -> u64 {
        self.held_pages * u64::from(PAGE_BYTES) + self.reserved
    }

    /// Bytes that are not available to others: allocated blocks, reservations and the extent quota.
    pub fn used(&self) -> u64 {
        self.kept() + self.granted
    }

    /// The quota of extent files in bytes.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Sets the quota of extent files, which must fit in the capacity.
    pub fn grant(&mut self, bytes: u64) {
        assert!(self.kept() + bytes <= self.capacity, "a grant of {bytes} bytes beside {} kept ones", self.kept());
        self.granted = bytes;
    }

    /// Reserved bytes.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes of allocated blocks and of warm free blocks.
    pub fn touched(&self) -> u64 {
        (self.held_pages + self.buddy.warm_pages() + self.bays_warm) * u64::from(PAGE_BYTES)
    }

    /// Allocates a block of `order`.
    pub fn take(&mut self, home: Home, order: u8) -> Result<Span, NoRoom> {
        let pages = 1 << order;
        self.check_room(pages * u64::from(PAGE_BYTES))?;
        let span = self.at(home, |buddy| buddy.take(order)).ok_or(NoRoom { used: self.used() })?;
        self.count(home, |held| *held += pages);
        Ok(span)
    }

    /// Allocates a block of `order` in a contiguous row; see [`Buddy::take_in_row`].
    pub fn take_in_row(&mut self, home: Home, order: u8, next: Page) -> Result<Span, NoRoom> {
        let pages = 1 << order;
        self.check_room(pages * u64::from(PAGE_BYTES))?;
        let span = self.at(home, |buddy| buddy.take_in_row(order, next)).ok_or(NoRoom { used: self.used() })?;
        self.count(home, |held| *held += pages);
        Ok(span)
    }

    /// Returns true if an allocation of `order` from the arena's own memory would be warm.
    pub fn has_warm(&self, order: u8) -> bool {
        self.buddy.has_warm(order)
    }

    /// Frees pages. Returns true if `home` is a closed write segment without blocks, which is then
    /// removed.
    pub fn give(&mut self, home: Home, run: PageRun) -> bool {
        self.count(home, |held| *held -= u64::from(run.pages));
        self.at(home, |buddy| buddy.give(run));
        self.ends(home)
    }

    /// Enlarges pages in place to a block of `order`. Returns false if the space is not available.
    pub fn grow(&mut self, home: Home, run: PageRun, order: u8) -> bool {
        let added = (1_u64 << order) - u64::from(run.pages);
        let has_room = self.check_room(added * u64::from(PAGE_BYTES)).is_ok();
        let grown = has_room && self.at(home, |buddy| buddy.grow(run, order));
        if grown {
            self.count(home, |held| *held += added);
        }
        grown
    }

    /// Cuts pages in place to the first `pages`.
    pub fn shrink(&mut self, home: Home, run: PageRun, pages: u32) {
        self.count(home, |held| *held -= u64::from(run.pages - pages));
        self.at(home, |buddy| buddy.shrink(run, pages));
        self.ends(home);
    }

    /// Adds the pages of a new write segment.
    pub fn open_bay(&mut self, home: Home, buddy: Buddy) {
        assert!(home != OWN, "the arena's own memory is no bay");
        self.bays.insert(home, Bay { buddy, held_pages: 0, closed: false });
    }

    /// Closes a write segment: its memory is given back to the system now and as blocks are freed.
    /// Returns true if it has no block left; it is then removed.
    pub fn close_bay(&mut self, home: Home) -> bool {
        if let Some(bay) = self.bays.get_mut(&home) {
            bay.closed = true;
        }
        self.ends(home)
    }

    /// Handles freed pages of a closed write segment: removes it and returns true if it has no
    /// block left, else schedules its free memory to be given back.
    fn ends(&mut self, home: Home) -> bool {
        let Some(bay) = self.bays.get(&home).filter(|bay| bay.closed) else { return false };
        let ends = bay.held_pages == 0;
        self.to_cool = (!ends).then_some(home);
        if ends {
            self.bays_warm -= bay.buddy.warm_pages();
            self.bays.remove(&home);
        }
        ends
    }

    fn at<T>(&mut self, home: Home, act: impl FnOnce(&mut Buddy) -> T) -> T {
        if home == OWN {
            return act(&mut self.buddy);
        }
        let buddy = &mut self.bays.get_mut(&home).expect("a bay is there as long as a block of it").buddy;
        let before = buddy.warm_pages();
        let done = act(buddy);
        self.bays_warm = self.bays_warm + buddy.warm_pages() - before;
        done
    }

    fn count(&mut self, home: Home, change: impl Fn(&mut u64)) {
        change(&mut self.held_pages);
        if let Some(bay) = self.bays.get_mut(&home) {
            change(&mut bay.held_pages);
        }
    }

    /// Reserves `bytes` for memory that is kept elsewhere.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), NoRoom> {
        self.check_room(bytes)?;
        self.reserved += bytes;
        Ok(())
    }

    /// Releases part of the reservations.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.reserved, "released {bytes} bytes of {} reserved ones", self.reserved);
        self.reserved -= bytes;
    }

    /// Returns a free block whose memory must be given back to the system before more is touched;
    /// `None` if touched memory is within the capacity.
    ///
    /// To be called until it returns `None`, under the same lock, after every call that allocates,
    /// frees or reserves.
    pub fn excess(&mut self) -> Option<(Home, Span)> {
        if !self.discards {
            return None;
        }
        if let Some(span) = self.to_cool.and_then(|home| self.cool(home)) {
            return Some(span);
        }
        self.to_cool = None;
        if self.touched() + self.reserved + self.granted <= self.capacity {
            return None;
        }
        let warm = self.bays.iter().filter(|(_, bay)| bay.buddy.warm_pages() > 0).map(|(home, _)| *home);
        let bay = warm.max_by_key(|home| self.bays[home].buddy.warm_pages());
        self.cool(OWN).or_else(|| self.cool(bay?))
    }

    fn cool(&mut self, home: Home) -> Option<(Home, Span)> {
        self.at(home, Buddy::cool).map(|span| (home, span))
    }

    /// Checks that `bytes` bytes are free.
    pub fn check_room(&self, bytes: u64) -> Result<(), NoRoom> {
        let used = self.used();
        if bytes <= self.capacity - used { Ok(()) } else { Err(NoRoom { used }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capacity for two blocks of 8 pages, over the address space of four.
    fn ledger() -> Ledger {
        Ledger::new(16 * 4096, Buddy::new(4, 3), true)
    }

    #[test]
    fn scattered_free_pages_still_make_room_for_a_large_block() {
        let mut ledger = ledger();
        let held: Vec<_> = (0..16).map(|_| ledger.take(OWN, 0).unwrap()).collect();
        assert_eq!(ledger.take(OWN, 0), Err(NoRoom { used: 16 * 4096 }));
        // Every second page is free: 8 pages, no two of them adjacent.
        held.into_iter().filter(|span| span.first % 2 == 1).for_each(|span| {
            ledger.give(OWN, span.into());
        });
        let large = ledger.take(OWN, 3).unwrap();
        assert_eq!(large.first, 16, "from address space that was not used yet");
        let mut given_back = 0;
        while let Some((_, span)) = ledger.excess() {
            given_back += span.pages();
        }
        assert_eq!((given_back, ledger.used()), (8, 16 * 4096));
    }

    #[test]
    fn a_reservation_takes_the_place_of_touched_memory() {
        let mut ledger = ledger();
        let spans = [ledger.take(OWN, 3).unwrap(), ledger.take(OWN, 3).unwrap()];
        for span in spans {
            ledger.give(OWN, span.into());
        }
        assert_eq!(ledger.excess(), None);
        ledger.reserve(1).unwrap();
        assert_eq!(ledger.excess().map(|(_, span)| span.pages()), Some(8));
        assert_eq!(ledger.excess(), None);
        assert!(ledger.take(OWN, 3).is_ok() && ledger.take(OWN, 3).is_err(), "a byte is missing");
    }

    #[test]
    fn growing_and_shrinking_are_counted() {
        let mut ledger = ledger();
        let span = ledger.take(OWN, 0).unwrap();
        assert!(ledger.grow(OWN, span.into(), 3));
        assert_eq!(ledger.used(), 8 * 4096);
        ledger.reserve(8 * 4096).unwrap();
        ledger.shrink(OWN, PageRun { first: span.first, pages: 8 }, 2);
        assert_eq!(ledger.used(), 10 * 4096);
        ledger.reserve(1).unwrap();
        assert!(!ledger.grow(OWN, PageRun { first: span.first, pages: 2 }, 3), "the reserved byte is in the way");
    }

    #[test]
    fn bays_share_the_capacity_and_what_is_warm_of_them_makes_way() {
        let mut ledger = ledger();
        ledger.open_bay(7, Buddy::new(4, 3));
        let spans = [ledger.take(7, 3).unwrap(), ledger.take(OWN, 3).unwrap()];
        assert!(ledger.take(7, 0).is_err(), "no byte is left");
        ledger.give(7, spans[0].into());
        assert_eq!((ledger.excess(), ledger.touched()), (None, 16 * 4096));
        ledger.take(OWN, 3).unwrap();
        assert_eq!(ledger.excess().map(|(home, span)| (home, span.pages())), Some((7, 8)));
        assert_eq!((ledger.excess(), ledger.touched()), (None, 16 * 4096));
    }

    #[test]
    fn a_closed_bay_gives_all_back_and_goes_with_its_last_block() {
        let mut ledger = ledger();
        ledger.open_bay(7, Buddy::new(4, 3));
        let (kept, freed) = (ledger.take(7, 0).unwrap(), ledger.take(7, 1).unwrap());
        assert!(!ledger.give(7, freed.into()) && ledger.excess().is_none());
        assert!(!ledger.close_bay(7), "it has a block");
        while ledger.excess().is_some() {}
        assert_eq!((ledger.touched(), ledger.used()), (4096, 4096));
        assert!(ledger.give(7, kept.into()), "it was the last");
        assert_eq!((ledger.touched(), ledger.used(), ledger.excess()), (0, 0, None));
    }
}
