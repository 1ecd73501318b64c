//! Who may have how much: blocks and reservations share one capacity, to the byte.
//!
//! The arena has more address space than capacity, because free pages that are scattered can make no large block. When a large
//! block must come from cold memory, as much warm free memory is given back to the system first, so fragmentation costs a few
//! system calls and never room: **touched memory plus reservations stay within the capacity, as what is used does.**
//!
//! Whole files take their memory themselves, out of a grant: it counts as used here, whatever of it they have.

use crate::PAGE_BYTES;
use crate::buddy::{Buddy, Span};

/// What is held, what is reserved, and which pages are free.
pub struct Ledger {
    capacity: u64,
    reserved: u64,
    /// What whole files may take by themselves, without asking here.
    granted: u64,
    held_pages: u64,
    buddy: Buddy,
    /// Whether memory can be given back to the system block by block.
    discards: bool,
}

/// There is no room; what was used then, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    pub used: u64,
}

impl Ledger {
    /// All of `capacity` bytes free, over the address space of `buddy`.
    pub fn new(capacity: u64, buddy: Buddy, discards: bool) -> Self {
        Self { capacity, reserved: 0, granted: 0, held_pages: 0, buddy, discards }
    }

    /// Blocks held plus reservations, in bytes.
    pub fn kept(&self) -> u64 {
        self.held_pages * u64::from(PAGE_BYTES) + self.reserved
    }

    /// What nobody else may have: blocks held, reservations and the grant, in bytes.
    pub fn used(&self) -> u64 {
        self.kept() + self.granted
    }

    /// What whole files may take, in bytes.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Lets whole files take so much, which must have room.
    pub fn grant(&mut self, bytes: u64) {
        assert!(self.kept() + bytes <= self.capacity, "a grant of {bytes} bytes beside {} kept ones", self.kept());
        self.granted = bytes;
    }

    /// Bytes reserved.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes of blocks that are held, and of free ones that are warm.
    pub fn touched(&self) -> u64 {
        (self.held_pages + self.buddy.warm_pages()) * u64::from(PAGE_BYTES)
    }

    /// A block of `order`.
    pub fn take(&mut self, order: u8) -> Result<Span, NoRoom> {
        let pages = 1 << order;
        self.check_room(pages * u64::from(PAGE_BYTES))?;
        let span = self.buddy.take(order).ok_or(NoRoom { used: self.used() })?;
        self.held_pages += pages;
        Ok(span)
    }

    /// Takes back a block.
    pub fn give(&mut self, span: Span) {
        self.held_pages -= span.pages();
        self.buddy.give(span);
    }

    /// Enlarges a block where it stands; false when there is no room for that.
    pub fn grow(&mut self, span: Span, order: u8) -> bool {
        let added = (1_u64 << order) - span.pages();
        let grown = self.check_room(added * u64::from(PAGE_BYTES)).is_ok() && self.buddy.grow(span, order);
        if grown {
            self.held_pages += added;
        }
        grown
    }

    /// Cuts a block where it stands.
    pub fn shrink(&mut self, span: Span, order: u8) {
        self.held_pages -= span.pages() - (1 << order);
        self.buddy.shrink(span, order);
    }

    /// Counts `bytes` that are kept elsewhere.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), NoRoom> {
        self.check_room(bytes)?;
        self.reserved += bytes;
        Ok(())
    }

    /// Ends a reservation.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.reserved, "released {bytes} bytes of {} reserved ones", self.reserved);
        self.reserved -= bytes;
    }

    /// A free block whose memory must be given back to the system before more is touched; none when all is well.
    ///
    /// To be asked, and obeyed, under the same lock after every call that takes, gives or reserves.
    pub fn excess(&mut self) -> Option<Span> {
        if !self.discards || self.touched() + self.reserved + self.granted <= self.capacity {
            return None;
        }
        self.buddy.cool()
    }

    /// Whether so many bytes are free.
    pub fn check_room(&self, bytes: u64) -> Result<(), NoRoom> {
        let used = self.used();
        if bytes <= self.capacity - used { Ok(()) } else { Err(NoRoom { used }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for two blocks of 8 pages, over the address space of four.
    fn ledger() -> Ledger {
        Ledger::new(16 * 4096, Buddy::new(4, 3), true)
    }

    #[test]
    fn scattered_free_pages_still_make_room_for_a_large_block() {
        let mut ledger = ledger();
        let held: Vec<_> = (0..16).map(|_| ledger.take(0).unwrap()).collect();
        assert_eq!(ledger.take(0), Err(NoRoom { used: 16 * 4096 }));
        // Every second page is free: 8 pages, none beside another.
        held.into_iter().filter(|span| span.first % 2 == 1).for_each(|span| ledger.give(span));
        let large = ledger.take(3).unwrap();
        assert_eq!(large.first, 16, "from address space that was not used yet");
        let mut given_back = 0;
        while let Some(span) = ledger.excess() {
            given_back += span.pages();
        }
        assert_eq!((given_back, ledger.used()), (8, 16 * 4096));
    }

    #[test]
    fn a_reservation_takes_the_place_of_touched_memory() {
        let mut ledger = ledger();
        let spans = [ledger.take(3).unwrap(), ledger.take(3).unwrap()];
        for span in spans {
            ledger.give(span);
        }
        assert_eq!(ledger.excess(), None);
        ledger.reserve(1).unwrap();
        assert_eq!(ledger.excess().map(Span::pages), Some(8));
        assert_eq!(ledger.excess(), None);
        assert!(ledger.take(3).is_ok() && ledger.take(3).is_err(), "a byte is missing");
    }

    #[test]
    fn growing_and_shrinking_are_counted() {
        let mut ledger = ledger();
        let span = ledger.take(0).unwrap();
        assert!(ledger.grow(span, 3));
        assert_eq!(ledger.used(), 8 * 4096);
        ledger.reserve(8 * 4096).unwrap();
        ledger.shrink(Span { order: 3, ..span }, 1);
        assert_eq!(ledger.used(), 10 * 4096);
        ledger.reserve(1).unwrap();
        assert!(!ledger.grow(Span { order: 1, ..span }, 3), "the reserved byte is in the way");
    }
}
