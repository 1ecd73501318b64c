//! Space accounting: blocks and reservations share one capacity, exact to the byte.
//!
//! The arena has more address space than capacity, because scattered free pages cannot form a large
//! block. Before a large block comes from cold memory, the same amount of warm free memory is given
//! back to the system. So fragmentation costs a few system calls and no space: **touched memory
//! plus reservations stay within the capacity, as the used bytes do.**
//!
//! Extent files take memory themselves, within a quota. The whole quota counts as used here.
//!
//! Write segments have pages of their own beside the arena's memory; all pages count together.

use std::collections::BTreeMap;

use crate::PAGE_BYTES;
use crate::buddy::{BlockRange, Buddy, PageNo, PageRun};

/// The memory that pages belong to: the number of a write segment, or [`OWN_MEMORY`].
pub type MemoryId = u32;
/// The arena's own memory. No write segment has this number.
pub const OWN_MEMORY: MemoryId = 0;

/// Allocated and reserved bytes, and the free pages.
pub struct Ledger {
    capacity: u64,
    reserved: u64,
    /// The quota of extent files in bytes.
    granted: u64,
    allocated_pages: u64,
    buddy: Buddy,
    segments: BTreeMap<MemoryId, SegmentPages>,
    /// Number of warm free pages of the write segments.
    segments_warm_pages: u64,
    /// The closed write segment in which pages were freed last; its free memory is given back.
    to_cool: Option<MemoryId>,
    /// True if memory can be given back to the system block by block.
    discards: bool,
}

/// The pages of a write segment.
struct SegmentPages {
    buddy: Buddy,
    allocated_pages: u64,
    /// True once no block of the segment is offered any more.
    closed: bool,
}

/// Error for a lack of space. Holds the bytes used at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSpace {
    pub used: u64,
}

impl Ledger {
    /// Creates a ledger with all of `capacity` bytes free, over the address space of `buddy`.
    pub fn new(capacity: u64, buddy: Buddy, discards: bool) -> Self {
        Self {
            capacity,
            reserved: 0,
            granted: 0,
            allocated_pages: 0,
            buddy,
            segments: BTreeMap::new(),
            segments_warm_pages: 0,
            to_cool: None,
            discards,
        }
    }

    /// Bytes of allocated blocks and reservations.
    pub fn committed(&self) -> u64 {
        self.allocated_pages * u64::from(PAGE_BYTES) + self.reserved
    }

    /// Bytes that are not available to others: allocated blocks, reservations and the extent quota.
    pub fn used(&self) -> u64 {
        self.committed() + self.granted
    }

    /// The quota of extent files in bytes.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Sets the quota of extent files, which must fit in the capacity.
    pub fn set_granted(&mut self, bytes: u64) {
        assert!(
            self.committed() + bytes <= self.capacity,
            "a grant of {bytes} bytes beside {} kept ones",
            self.committed()
        );
        self.granted = bytes;
    }

    /// Reserved bytes.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes of allocated blocks and of warm free blocks.
    pub fn touched(&self) -> u64 {
        (self.allocated_pages + self.buddy.warm_pages() + self.segments_warm_pages) * u64::from(PAGE_BYTES)
    }

    /// Allocates a block of `order`.
    pub fn allocate(&mut self, memory: MemoryId, order: u8) -> Result<BlockRange, NoSpace> {
        let pages = 1 << order;
        self.check_space(pages * u64::from(PAGE_BYTES))?;
        let range = self.with_buddy(memory, |buddy| buddy.allocate(order)).ok_or(NoSpace { used: self.used() })?;
        self.update_allocated(memory, |allocated| *allocated += pages);
        Ok(range)
    }

    /// Allocates a block of `order` in a contiguous row; see [`Buddy::allocate_in_row`].
    pub fn allocate_in_row(&mut self, memory: MemoryId, order: u8, next: PageNo) -> Result<BlockRange, NoSpace> {
        let pages = 1 << order;
        self.check_space(pages * u64::from(PAGE_BYTES))?;
        let range =
            self.with_buddy(memory, |buddy| buddy.allocate_in_row(order, next)).ok_or(NoSpace { used: self.used() })?;
        self.update_allocated(memory, |allocated| *allocated += pages);
        Ok(range)
    }

    /// Returns true if an allocation of `order` from the arena's own memory would be warm.
    pub fn has_warm(&self, order: u8) -> bool {
        self.buddy.has_warm(order)
    }

    /// Frees pages. Returns true if `memory` is a closed write segment without blocks, which is
    /// then removed.
    pub fn free(&mut self, memory: MemoryId, run: PageRun) -> bool {
        self.update_allocated(memory, |allocated| *allocated -= u64::from(run.pages));
        self.with_buddy(memory, |buddy| buddy.free(run));
        self.remove_if_empty(memory)
    }

    /// Enlarges pages in place to a block of `order`. Returns false if the space is not available.
    pub fn grow(&mut self, memory: MemoryId, run: PageRun, order: u8) -> bool {
        let added = (1_u64 << order) - u64::from(run.pages);
        let has_room = self.check_space(added * u64::from(PAGE_BYTES)).is_ok();
        let grown = has_room && self.with_buddy(memory, |buddy| buddy.grow(run, order));
        if grown {
            self.update_allocated(memory, |allocated| *allocated += added);
        }
        grown
    }

    /// Cuts pages in place to the first `pages`.
    pub fn shrink(&mut self, memory: MemoryId, run: PageRun, pages: u32) {
        self.update_allocated(memory, |allocated| *allocated -= u64::from(run.pages - pages));
        self.with_buddy(memory, |buddy| buddy.shrink(run, pages));
        self.remove_if_empty(memory);
    }

    /// Adds the pages of a new write segment.
    pub fn open_segment(&mut self, memory: MemoryId, buddy: Buddy) {
        assert!(memory != OWN_MEMORY, "the arena's own memory is no write segment");
        self.segments.insert(memory, SegmentPages { buddy, allocated_pages: 0, closed: false });
    }

    /// Closes a write segment: its memory is given back to the system now and as blocks are freed.
    /// Returns true if it has no block left; it is then removed.
    pub fn close_segment(&mut self, memory: MemoryId) -> bool {
        if let Some(segment) = self.segments.get_mut(&memory) {
            segment.closed = true;
        }
        self.remove_if_empty(memory)
    }

    /// Handles freed pages of a closed write segment: removes it and returns true if it has no
    /// block left, else schedules its free memory to be given back.
    fn remove_if_empty(&mut self, memory: MemoryId) -> bool {
        let Some(segment) = self.segments.get(&memory).filter(|segment| segment.closed) else { return false };
        let is_empty = segment.allocated_pages == 0;
        self.to_cool = (!is_empty).then_some(memory);
        if is_empty {
            self.segments_warm_pages -= segment.buddy.warm_pages();
            self.segments.remove(&memory);
        }
        is_empty
    }

    fn with_buddy<T>(&mut self, memory: MemoryId, act: impl FnOnce(&mut Buddy) -> T) -> T {
        if memory == OWN_MEMORY {
            return act(&mut self.buddy);
        }
        let buddy =
            &mut self.segments.get_mut(&memory).expect("a write segment exists as long as it has a block").buddy;
        let before = buddy.warm_pages();
        let done = act(buddy);
        self.segments_warm_pages = self.segments_warm_pages + buddy.warm_pages() - before;
        done
    }

    fn update_allocated(&mut self, memory: MemoryId, change: impl Fn(&mut u64)) {
        change(&mut self.allocated_pages);
        if let Some(segment) = self.segments.get_mut(&memory) {
            change(&mut segment.allocated_pages);
        }
    }

    /// Reserves `bytes` for memory that is kept elsewhere.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), NoSpace> {
        self.check_space(bytes)?;
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
    pub fn excess(&mut self) -> Option<(MemoryId, BlockRange)> {
        if !self.discards {
            return None;
        }
        if let Some(range) = self.to_cool.and_then(|memory| self.cool(memory)) {
            return Some(range);
        }
        self.to_cool = None;
        if self.touched() + self.reserved + self.granted <= self.capacity {
            return None;
        }
        let warm =
            self.segments.iter().filter(|(_, segment)| segment.buddy.warm_pages() > 0).map(|(memory, _)| *memory);
        let segment = warm.max_by_key(|memory| self.segments[memory].buddy.warm_pages());
        self.cool(OWN_MEMORY).or_else(|| self.cool(segment?))
    }

    fn cool(&mut self, memory: MemoryId) -> Option<(MemoryId, BlockRange)> {
        self.with_buddy(memory, Buddy::cool).map(|range| (memory, range))
    }

    /// Checks that `bytes` bytes are free.
    pub fn check_space(&self, bytes: u64) -> Result<(), NoSpace> {
        let used = self.used();
        if bytes <= self.capacity - used { Ok(()) } else { Err(NoSpace { used }) }
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
        let ranges: Vec<_> = (0..16).map(|_| ledger.allocate(OWN_MEMORY, 0).unwrap()).collect();
        assert_eq!(ledger.allocate(OWN_MEMORY, 0), Err(NoSpace { used: 16 * 4096 }));
        // Every second page is free: 8 pages, no two of them adjacent.
        ranges.into_iter().filter(|range| range.first % 2 == 1).for_each(|range| {
            ledger.free(OWN_MEMORY, range.into());
        });
        let large = ledger.allocate(OWN_MEMORY, 3).unwrap();
        assert_eq!(large.first, 16, "from address space that was not used yet");
        let mut given_back = 0;
        while let Some((_, range)) = ledger.excess() {
            given_back += range.pages();
        }
        assert_eq!((given_back, ledger.used()), (8, 16 * 4096));
    }

    #[test]
    fn a_reservation_takes_the_place_of_touched_memory() {
        let mut ledger = ledger();
        let ranges = [ledger.allocate(OWN_MEMORY, 3).unwrap(), ledger.allocate(OWN_MEMORY, 3).unwrap()];
        for range in ranges {
            ledger.free(OWN_MEMORY, range.into());
        }
        assert_eq!(ledger.excess(), None);
        ledger.reserve(1).unwrap();
        assert_eq!(ledger.excess().map(|(_, range)| range.pages()), Some(8));
        assert_eq!(ledger.excess(), None);
        assert!(ledger.allocate(OWN_MEMORY, 3).is_ok() && ledger.allocate(OWN_MEMORY, 3).is_err(), "a byte is missing");
    }

    #[test]
    fn growing_and_shrinking_are_counted() {
        let mut ledger = ledger();
        let range = ledger.allocate(OWN_MEMORY, 0).unwrap();
        assert!(ledger.grow(OWN_MEMORY, range.into(), 3));
        assert_eq!(ledger.used(), 8 * 4096);
        ledger.reserve(8 * 4096).unwrap();
        ledger.shrink(OWN_MEMORY, PageRun { first: range.first, pages: 8 }, 2);
        assert_eq!(ledger.used(), 10 * 4096);
        ledger.reserve(1).unwrap();
        assert!(
            !ledger.grow(OWN_MEMORY, PageRun { first: range.first, pages: 2 }, 3),
            "the reserved byte is in the way"
        );
    }

    #[test]
    fn write_segments_share_the_capacity_and_give_their_warm_memory_back() {
        let mut ledger = ledger();
        ledger.open_segment(7, Buddy::new(4, 3));
        let ranges = [ledger.allocate(7, 3).unwrap(), ledger.allocate(OWN_MEMORY, 3).unwrap()];
        assert!(ledger.allocate(7, 0).is_err(), "no byte is left");
        ledger.free(7, ranges[0].into());
        assert_eq!((ledger.excess(), ledger.touched()), (None, 16 * 4096));
        ledger.allocate(OWN_MEMORY, 3).unwrap();
        assert_eq!(ledger.excess().map(|(memory, range)| (memory, range.pages())), Some((7, 8)));
        assert_eq!((ledger.excess(), ledger.touched()), (None, 16 * 4096));
    }

    #[test]
    fn a_closed_write_segment_gives_its_memory_back_and_goes_with_its_last_block() {
        let mut ledger = ledger();
        ledger.open_segment(7, Buddy::new(4, 3));
        let (kept, freed) = (ledger.allocate(7, 0).unwrap(), ledger.allocate(7, 1).unwrap());
        assert!(!ledger.free(7, freed.into()) && ledger.excess().is_none());
        assert!(!ledger.close_segment(7), "it has a block");
        while ledger.excess().is_some() {}
        assert_eq!((ledger.touched(), ledger.used()), (4096, 4096));
        assert!(ledger.free(7, kept.into()), "it was the last");
        assert_eq!((ledger.touched(), ledger.used(), ledger.excess()), (0, 0, None));
    }
}
