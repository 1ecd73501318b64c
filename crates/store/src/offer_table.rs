//! The offer table of a write segment: the empty blocks that its writer may claim, in memory that
//! the engine and the writer share.
//!
//! Each slot is one word. Both sides change it by compare-and-swap, so only one of them succeeds at
//! a time:
//!
//! ```text
//!   empty --offer--> offered --claim--> claimed --take--> empty   offer, take, revoke: the engine
//!                       |  ^---unclaim------+                     claim, unclaim: the writer
//!   empty <--revoke-----+
//! ```
//!
//! So the engine can revoke an offer that the writer has not claimed without asking, even if the
//! writer sleeps. A claimed block is the writer's until it declares it filled, or can write no
//! more. This is the only file of the crate that touches raw memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// The size of a table in bytes: one page of most machines.
pub const OFFER_TABLE_BYTES: u64 = 4096;
/// The most blocks that can be on offer at a time.
pub const OFFER_SLOTS: u32 = 64;

/// The number of low bits of a word that hold the slot's state. The bits above them are the block's
/// number.
const STATE_BITS: u32 = 2;
const EMPTY: u64 = 0;
const OFFERED: u64 = 1;
const CLAIMED: u64 = 2;

/// A mapped offer table.
#[derive(Debug)]
pub struct OfferTable(MmapRaw);

impl OfferTable {
    /// Maps the table at byte `at` of `file`; `at` is a multiple of the page size. Children made by
    /// fork do not inherit the mapping.
    pub fn map(file: &File, at: u64) -> io::Result<Self> {
        // If the file were shorter, the first access would end this process with SIGBUS.
        if at.checked_add(OFFER_TABLE_BYTES).is_none_or(|end| file.metadata().map_or(true, |file| file.len() < end)) {
            return Err(io::Error::other("a write segment is shorter than announced"));
        }
        let length = usize::try_from(OFFER_TABLE_BYTES).expect("a page");
        let map = MmapOptions::new().offset(at).len(length).map_raw(file)?;
        map.advise(Advice::DontFork)?;
        Ok(Self(map))
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
    fn word(&self, slot: u32) -> &AtomicU64 {
        assert!(slot < OFFER_SLOTS, "slot {slot} of {OFFER_SLOTS}");
        let word = self.0.as_mut_ptr().cast::<u64>().wrapping_add(slot as usize);
        // SAFETY: the mapping has room for more than `OFFER_SLOTS` words. It begins at a page, so
        // each word is aligned. It lives as long as the borrowed table. The file, and so the
        // mapping, is never cut. Every other process that has it mapped changes only whole words,
        // by this type or as the documentation of the protocol says.
        unsafe { AtomicU64::from_ptr(word) }
    }

    fn compare_exchange(&self, slot: u32, from: u64, to: u64) -> bool {
        self.word(slot).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Offers a block in an empty slot.
    pub fn offer(&self, slot: u32, block: u32) {
        self.word(slot).store(word(block, OFFERED), Ordering::Release);
    }

    /// Revokes an offer. Returns false if the writer has claimed the block.
    pub fn revoke(&self, slot: u32, block: u32) -> bool {
        self.compare_exchange(slot, word(block, OFFERED), EMPTY)
    }

    /// Takes the block that the writer has claimed in `slot`, and empties the slot. Returns false
    /// if the writer has not claimed `block` there.
    pub fn take(&self, slot: u32, block: u32) -> bool {
        self.compare_exchange(slot, word(block, CLAIMED), EMPTY)
    }

    /// For the writer: claims an offered block; returns its slot and its number, or `None` if no
    /// block is offered. Prefers block `next`, or else the nearest behind it, so that consecutive
    /// writes lie side by side.
    pub fn claim(&self, slots: Range<u32>, next: u32) -> Option<(u32, u32)> {
        let offered = |slot| {
            let seen = self.word(slot).load(Ordering::Relaxed);
            let block = u32::try_from(seen >> STATE_BITS).ok().filter(|block| seen == word(*block, OFFERED))?;
            Some((slot, block))
        };
        loop {
            let (slot, block) = slots.clone().filter_map(offered).min_by_key(|(_, block)| block.wrapping_sub(next))?;
            if self.compare_exchange(slot, word(block, OFFERED), word(block, CLAIMED)) {
                return Some((slot, block));
            }
        }
    }

    /// For the writer: returns a claimed block that it will not write to the offered state.
    pub fn unclaim(&self, slot: u32, block: u32) {
        self.compare_exchange(slot, word(block, CLAIMED), word(block, OFFERED));
    }
}

fn word(block: u32, state: u64) -> u64 {
    u64::from(block) << STATE_BITS | state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::{env, fs, process, thread};
    use test_support::until;

    /// Maps one table twice.
    fn tables() -> [OfferTable; 2] {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidemill-table-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(3 * OFFER_TABLE_BYTES).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(OfferTable::map(&file, 3 * OFFER_TABLE_BYTES).is_err(), "behind the end");
        [(); 2].map(|()| OfferTable::map(&file, OFFER_TABLE_BYTES).unwrap())
    }

    #[test]
    fn the_block_behind_the_last_is_claimed_next_or_the_nearest_behind_that_or_else_the_first() {
        let [engine, writer] = tables();
        for (slot, block) in [(0, 12), (1, 5), (2, 10), (3, 4)] {
            engine.offer(slot, block);
        }
        let mut next = 5;
        let claimed = [(); 4].map(|()| {
            let (_, block) = writer.claim(0..OFFER_SLOTS, next).unwrap();
            next = block + 1;
            block
        });
        assert_eq!(claimed, [5, 10, 12, 4]);
    }

    #[test]
    fn what_is_claimed_is_not_revoked_and_what_is_revoked_is_not_claimed() {
        let [engine, writer] = tables();
        assert_eq!(writer.claim(0..OFFER_SLOTS, 0), None);
        engine.offer(3, 7);
        engine.offer(9, 0);
        assert_eq!(writer.claim(0..OFFER_SLOTS, 1), Some((3, 7)));
        assert!(!engine.revoke(3, 7) && !engine.take(3, 6) && !engine.take(9, 0));
        assert!(engine.revoke(9, 0));
        assert_eq!(writer.claim(0..OFFER_SLOTS, 0), None);
        writer.unclaim(3, 7);
        assert_eq!(writer.claim(0..OFFER_SLOTS, 0), Some((3, 7)));
        assert!(engine.take(3, 7) && !engine.take(3, 7));
    }

    #[test]
    fn of_a_writer_and_an_engine_that_want_the_same_block_one_gets_it() {
        let [engine, writer] = tables();
        let claimed = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut claimed = 0;
                while claimed < 1000 {
                    if let Some((slot, block)) = writer.claim(0..1, 0) {
                        claimed += 1;
                        assert_eq!((slot, block), (0, claimed));
                        writer.unclaim(slot, block + 1);
                        assert!(writer.take(slot, block), "nobody else had it");
                    }
                }
                claimed
            });
            let mut offered = 1;
            while offered <= 1000 {
                engine.offer(0, offered);
                thread::yield_now();
                if !engine.revoke(0, offered) {
                    until("the writer has taken it", || engine.word(0).load(Ordering::Acquire) == EMPTY);
                    offered += 1;
                }
            }
            writing.join().unwrap()
        });
        assert_eq!(claimed, 1000);
    }
}
