//! The offer table of a write segment: the empty blocks that its writer may claim, in memory that
//! the engine and the writer share.
//!
//! Each slot is one word. Both sides change it by compare-and-swap, so only one of them succeeds at
//! a time:
//!
//! ```text
//!   empty --offer--> offered --begin--> begun --take--> empty      offer, take, revoke: the engine
//!                       |  ^---give up----+                        begin, give up: the writer
//!   empty <--revoke-----+
//! ```
//!
//! So the engine can revoke an offer that the writer has not claimed without asking, even if the
//! writer sleeps. A claimed block is the writer's until it says that it is done, or can write no
//! more. This is the only file of the crate that touches raw memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// The size of a table in bytes: one page of most machines.
pub const TABLE_BYTES: u64 = 4096;
/// The most blocks that can be on offer at a time.
pub const SLOTS: u32 = 64;

/// The number of low bits of a word that hold the slot's state. The bits above them are the block's
/// number.
const STATE_BITS: u32 = 2;
const NOTHING: u64 = 0;
const OFFERED: u64 = 1;
const BEGUN: u64 = 2;

/// A mapped offer table.
#[derive(Debug)]
pub struct Table(MmapRaw);

impl Table {
    /// Maps the table at byte `at` of `file`; `at` is a multiple of the page size. Children made by
    /// fork do not inherit the mapping.
    pub fn map(file: &File, at: u64) -> io::Result<Self> {
        // If the file were shorter, the first access would end this process with SIGBUS.
        if at.checked_add(TABLE_BYTES).is_none_or(|end| file.metadata().map_or(true, |told| told.len() < end)) {
            return Err(io::Error::other("a bay is shorter than it was said to be"));
        }
        let length = usize::try_from(TABLE_BYTES).expect("a page");
        let map = MmapOptions::new().offset(at).len(length).map_raw(file)?;
        map.advise(Advice::DontFork)?;
        Ok(Self(map))
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
    fn word(&self, slot: u32) -> &AtomicU64 {
        assert!(slot < SLOTS, "slot {slot} of {SLOTS}");
        let word = self.0.as_mut_ptr().cast::<u64>().wrapping_add(slot as usize);
        // SAFETY: the mapping has room for more than `SLOTS` words. It begins at a page, so each
        // word is aligned. It lives as long as the borrowed table. The file, and so the mapping, is
        // never cut. Every other process that has it mapped changes only whole words, by this type
        // or as the documentation of the protocol says.
        unsafe { AtomicU64::from_ptr(word) }
    }

    fn change(&self, slot: u32, from: u64, to: u64) -> bool {
        self.word(slot).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Offers a block in an empty slot.
    pub fn offer(&self, slot: u32, block: u32) {
        self.word(slot).store(word(block, OFFERED), Ordering::Release);
    }

    /// Revokes an offer. Returns false if the writer has claimed the block.
    pub fn revoke(&self, slot: u32, block: u32) -> bool {
        self.change(slot, word(block, OFFERED), NOTHING)
    }

    /// Takes the block that the writer has claimed in `slot`, and empties the slot. Returns false
    /// if the writer has not claimed `block` there.
    pub fn take(&self, slot: u32, block: u32) -> bool {
        self.change(slot, word(block, BEGUN), NOTHING)
    }

    /// For the writer: claims an offered block; returns its slot and its number, or `None` if no
    /// block is offered. Prefers block `next`, or else the nearest behind it, so that consecutive
    /// writes lie side by side.
    pub fn begin(&self, slots: Range<u32>, next: u32) -> Option<(u32, u32)> {
        let offered = |slot| {
            let seen = self.word(slot).load(Ordering::Relaxed);
            let block = u32::try_from(seen >> STATE_BITS).ok().filter(|block| seen == word(*block, OFFERED))?;
            Some((slot, block))
        };
        loop {
            let (slot, block) = slots.clone().filter_map(offered).min_by_key(|(_, block)| block.wrapping_sub(next))?;
            if self.change(slot, word(block, OFFERED), word(block, BEGUN)) {
                return Some((slot, block));
            }
        }
    }

    /// For the writer: returns a claimed block that it will not write to the offered state.
    pub fn give_up(&self, slot: u32, block: u32) {
        self.change(slot, word(block, BEGUN), word(block, OFFERED));
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

    /// Maps one table twice.
    fn tables() -> [Table; 2] {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidemill-table-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(3 * TABLE_BYTES).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(Table::map(&file, 3 * TABLE_BYTES).is_err(), "behind the end");
        [(); 2].map(|()| Table::map(&file, TABLE_BYTES).unwrap())
    }

    #[test]
    fn the_block_behind_the_last_is_begun_next_or_the_nearest_behind_that_or_else_the_first() {
        let [engine, writer] = tables();
        for (slot, block) in [(0, 12), (1, 5), (2, 10), (3, 4)] {
            engine.offer(slot, block);
        }
        let mut next = 5;
        let begun = [(); 4].map(|()| {
            let (_, block) = writer.begin(0..SLOTS, next).unwrap();
            next = block + 1;
            block
        });
        assert_eq!(begun, [5, 10, 12, 4]);
    }

    #[test]
    fn what_is_begun_is_not_revoked_and_what_is_revoked_is_not_begun() {
        let [engine, writer] = tables();
        assert_eq!(writer.begin(0..SLOTS, 0), None);
        engine.offer(3, 7);
        engine.offer(9, 0);
        assert_eq!(writer.begin(0..SLOTS, 1), Some((3, 7)));
        assert!(!engine.revoke(3, 7) && !engine.take(3, 6) && !engine.take(9, 0));
        assert!(engine.revoke(9, 0));
        assert_eq!(writer.begin(0..SLOTS, 0), None);
        writer.give_up(3, 7);
        assert_eq!(writer.begin(0..SLOTS, 0), Some((3, 7)));
        assert!(engine.take(3, 7) && !engine.take(3, 7));
    }

    #[test]
    fn of_a_writer_and_an_engine_that_want_the_same_block_one_gets_it() {
        let [engine, writer] = tables();
        let begun = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut begun = 0;
                while begun < 1000 {
                    if let Some((slot, block)) = writer.begin(0..1, 0) {
                        begun += 1;
                        assert_eq!((slot, block), (0, begun));
                        writer.give_up(slot, block + 1);
                        assert!(writer.take(slot, block), "nobody else had it");
                    }
                }
                begun
            });
            let mut offered = 1;
            while offered <= 1000 {
                engine.offer(0, offered);
                thread::yield_now();
                if !engine.revoke(0, offered) {
                    while engine.word(0).load(Ordering::Acquire) != NOTHING {
                        thread::yield_now();
                    }
                    offered += 1;
                }
            }
            writing.join().unwrap()
        });
        assert_eq!(begun, 1000);
    }
}
