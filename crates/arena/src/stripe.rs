//! One stripe: its generation, length and block; when to grow, write in place, or copy.
//!
//! A stripe is written in place if no view can see the change. Otherwise it moves to a new block,
//! so writers never wait for readers. Its block grows by powers of two, and early to full length
//! once the stripe is clearly being filled from front to back. Unused pages are freed when its
//! writer is done ([`StripeState::shrink_to_fit`]).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use store::{EngineError, Generation, StripeEntry, StripeKey, StripeSnapshot};

use crate::PAGE_BYTES;
use crate::block::{Block, BlockPool};

/// A file that was appended to beyond this many bytes is likely to fill its first stripe. Most
/// files are smaller; a larger file has copied fewer than this many bytes until then.
const EARLY_BYTES: u32 = 128 << 10;

/// The block is divided into this many parts; fitting frees the parts without bytes.
const FITTED_PARTS: u32 = 16;

/// A stripe behind its own lock.
pub struct Stripe {
    state: Mutex<StripeState>,
}

/// The state of a stripe, guarded by its lock.
pub struct StripeState {
    seen: Generation,
    /// Bytes stored; at most the size of the block.
    len: u32,
    block: Option<Block>,
    /// True once the stripe is removed from the index; a thread that holds it must look it up
    /// again.
    removed: bool,
}

/// The replaced block, to be dropped after the stripe's lock is released.
pub type ReplacedBlock = Option<Block>;

/// One write, already checked to end within the longest stripe.
#[derive(Clone, Copy)]
pub struct StripeWrite<'a> {
    pub key: StripeKey,
    pub generation: Generation,
    pub offset: u32,
    pub data: &'a [u8],
    /// The order of a block for a full-length stripe.
    pub top: u8,
}

impl StripeWrite<'_> {
    fn end(&self) -> u32 {
        self.offset + u32::try_from(self.data.len()).expect("a write ends within a stripe")
    }

    /// Block orders to try for a stripe of `len` bytes: first the full order if the stripe is being
    /// filled, then the smallest that fits.
    fn orders(&self, len: u32) -> impl Iterator<Item = u8> {
        let least = order_for(self.end().max(len));
        let fills = self.offset == len && (self.key.stripe.0 > 0 || self.end() > EARLY_BYTES);
        let early = (fills && least < self.top).then_some(self.top);
        early.into_iter().chain([least])
    }
}

impl Stripe {
    /// Creates a stripe from its first write. Fails without a trace if there is no space.
    pub fn written(pool: &Arc<BlockPool>, write: StripeWrite<'_>) -> Result<Self, EngineError> {
        let mut state = StripeState { seen: write.generation, len: 0, block: None, removed: false };
        state.write(pool, write)?;
        Ok(Self { state: Mutex::new(state) })
    }

    /// Creates an empty stripe that remembers the generation of a truncation.
    pub fn truncated(generation: Generation) -> Self {
        Self { state: Mutex::new(StripeState { seen: generation, len: 0, block: None, removed: false }) }
    }

    /// Creates a stripe of zeros.
    pub fn extended(
        pool: &Arc<BlockPool>,
        key: StripeKey,
        generation: Generation,
        len: u32,
        top: u8,
    ) -> Result<Self, EngineError> {
        let mut state = StripeState { seen: generation, len: 0, block: None, removed: false };
        state.extend(pool, key, generation, len, top)?;
        Ok(Self { state: Mutex::new(state) })
    }

    /// Locks the state; `None` if the stripe was removed.
    pub fn lock(&self) -> Option<MutexGuard<'_, StripeState>> {
        let state = self.state.lock();
        (!state.removed).then_some(state)
    }

    /// Marks the stripe removed and takes its block.
    pub fn remove(&self) -> ReplacedBlock {
        let mut state = self.state.lock();
        (state.removed, state.len) = (true, 0);
        state.block.take()
    }
}

impl StripeState {
    /// Does the whole write or nothing.
    pub fn write(&mut self, pool: &Arc<BlockPool>, write: StripeWrite<'_>) -> Result<ReplacedBlock, EngineError> {
        self.check_generation(write.key, write.generation)?;
        if write.data.is_empty() {
            return Ok(None);
        }
        if let Some(block) = self.adopt_block(pool, write) {
            self.len = write.end();
            self.seen = write.generation;
            return Ok(self.block.replace(block));
        }
        let replaced = self.prepare_block(pool, write)?;
        let block = self.block.as_mut().expect("the block was prepared");
        let failed = |source| EngineError::Io { key: write.key, action: "write", source };
        if write.offset > self.len {
            block.zero(self.len, write.offset - self.len).map_err(failed)?;
        }
        block.write(write.offset, write.data).map_err(failed)?;
        self.len = self.len.max(write.end());
        self.seen = write.generation;
        Ok(replaced)
    }

    /// Returns the block that already holds the bytes (a filled block of a writer or receive
    /// buffer), cut to size, if the write covers the whole stripe.
    fn adopt_block(&self, pool: &Arc<BlockPool>, write: StripeWrite<'_>) -> Option<Block> {
        let covers_stripe = write.offset == 0 && write.end() >= self.len;
        let mut block = covers_stripe.then(|| pool.write_segments.adopt(write.data)).flatten()?;
        let order = write.orders(self.len).next().expect("at least one order is tried");
        block.shrink(1 << order);
        Some(block)
    }

    /// Returns a view of the stored bytes of the range.
    pub fn read(&mut self, offset: u32, len: u32) -> Bytes {
        let (start, end) = (offset.min(self.len), offset.saturating_add(len).min(self.len));
        match &mut self.block {
            Some(block) if start < end => block.view(start, end),
            _ => Bytes::new(),
        }
    }

    /// The generation and all bytes.
    pub fn snapshot(&mut self) -> StripeSnapshot {
        StripeSnapshot { generation: self.seen, content: self.read(0, u32::MAX) }
    }

    /// The entry of a scan.
    pub fn entry(&self, key: StripeKey) -> StripeEntry {
        StripeEntry { key, generation: self.seen, length: self.len }
    }

    /// Truncates to `len` bytes. Also returns whether pages were freed immediately.
    pub fn truncate(
        &mut self,
        key: StripeKey,
        generation: Generation,
        len: u32,
    ) -> Result<(ReplacedBlock, bool), EngineError> {
        self.check_generation(key, generation)?;
        self.seen = generation;
        if len >= self.len {
            return Ok((None, false));
        }
        self.len = len;
        Ok(if len == 0 { (self.block.take(), false) } else { (None, self.shrink_to_fit()) })
    }

    /// Fills the stored part of the range with zeros, or truncates if the range reaches the end.
    /// Returns what [`Self::truncate`] returns.
    pub fn zero(
        &mut self,
        pool: &Arc<BlockPool>,
        key: StripeKey,
        generation: Generation,
        range: Range<u32>,
        top: u8,
    ) -> Result<(ReplacedBlock, bool), EngineError> {
        if range.is_empty() || range.end >= self.len {
            return self.truncate(key, generation, if range.is_empty() { u32::MAX } else { range.start });
        }
        let zeros = vec![0; range.len()];
        let write = StripeWrite { key, generation, offset: range.start, data: &zeros, top };
        self.write(pool, write).map(|replaced| (replaced, false))
    }

    /// Extends the stripe with zeros to at least `len` bytes.
    pub fn extend(
        &mut self,
        pool: &Arc<BlockPool>,
        key: StripeKey,
        generation: Generation,
        len: u32,
        top: u8,
    ) -> Result<ReplacedBlock, EngineError> {
        self.check_generation(key, generation)?;
        if len <= self.len {
            return Ok(None);
        }
        let zeros = vec![0; (len - self.len) as usize];
        self.write(pool, StripeWrite { key, generation, offset: self.len, data: &zeros, top })
    }

    /// Frees the pages of the block behind the stored bytes, unless they are viewed. Returns
    /// whether any were freed.
    pub fn shrink_to_fit(&mut self) -> bool {
        let pages = fitted_pages(self.len);
        self.block.as_mut().is_some_and(|block| block.shrink(pages))
    }

    fn check_generation(&self, key: StripeKey, given: Generation) -> Result<(), EngineError> {
        if given < self.seen { Err(EngineError::Stale { key, given, seen: self.seen }) } else { Ok(()) }
    }

    /// Makes the block large enough for the write and ensures that no view sees the written bytes:
    /// in place if possible, else in a new block.
    fn prepare_block(&mut self, pool: &Arc<BlockPool>, write: StripeWrite<'_>) -> Result<ReplacedBlock, EngineError> {
        let changed_from = write.offset.min(self.len);
        let mut in_place = self.block.as_mut().and_then(|block| block.is_writable(changed_from).then_some(block));
        if in_place.as_ref().is_some_and(|block| block.bytes() >= write.end()) {
            return Ok(None);
        }
        let mut full = None;
        for order in write.orders(self.len) {
            if in_place.as_mut().is_some_and(|block| block.grow(order)) {
                return Ok(None);
            }
            match pool.allocate(order) {
                Ok(block) => {
                    let failed = |source| EngineError::Io { key: write.key, action: "copy", source };
                    return self.move_to(block, write).map_err(failed);
                }
                Err(error) => full = Some(error),
            }
        }
        Err(full.expect("at least one order is tried"))
    }

    /// Copies the bytes that the write does not overwrite to `block` and makes it the stripe's.
    fn move_to(&mut self, mut block: Block, write: StripeWrite<'_>) -> io::Result<ReplacedBlock> {
        if let Some(old) = &self.block {
            block.write(0, old.content(0, write.offset.min(self.len)))?;
            if write.end() < self.len {
                block.write(write.end(), old.content(write.end(), self.len))?;
            }
        }
        Ok(self.block.replace(block))
    }
}

/// Pages that a fitted stripe of `len` bytes keeps: at most a sixteenth of its block more than it
/// needs. So a stripe that grows by small appends and is fitted after each is not copied each time.
fn fitted_pages(len: u32) -> u32 {
    let pages = len.div_ceil(PAGE_BYTES).max(1);
    pages.next_multiple_of((pages.next_power_of_two() / FITTED_PARTS).max(1))
}

/// Returns the order of the smallest block for `len` bytes.
pub fn order_for(len: u32) -> u8 {
    let pages = len.div_ceil(PAGE_BYTES).max(1);
    u8::try_from(pages.next_power_of_two().trailing_zeros()).expect("at most 32")
}
