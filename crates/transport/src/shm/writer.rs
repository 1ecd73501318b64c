//! Writer's side of a write segment: memory of a node that this client fills, and the table that
//! tells which blocks it has claimed.
//!
//! `pwrite` fills fresh pages: it need not zero them first, and it fails if the system is out of
//! memory, where a store through a mapping would kill this process. Blocks that this client has
//! filled before are stored to through a mapping.

use crate::shm::map_mut::MappedSegmentMut;
use reactor::move_high;
use std::{
    fs::File,
    io, mem,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use store::{OFFER_SLOTS, OfferTable};
use wire::codec::{self, ShmPayload};

/// Most blocks whose earlier filling is recorded: as many as the longest segment has, with blocks
/// of 1 MiB.
const BLOCKS_MAX: u64 = 64 << 10;

/// Writer's side of a write segment.
#[derive(Debug)]
pub struct ShmWriter {
    file: File,
    table: OfferTable,
    layout: codec::WriteSegmentInfo,
    /// Index after the block that was claimed last.
    next: AtomicU32,
    /// `None` if the segment cannot be mapped.
    map: Option<MappedSegmentMut>,
    /// True for each block that this client has filled before.
    was_filled: Box<[AtomicBool]>,
}

/// Block that this client has claimed; dropping it offers the block again.
#[derive(Debug)]
pub struct ClaimedBlock<'a> {
    writer: &'a ShmWriter,
    block: u32,
    filled: ShmPayload,
}

impl ShmWriter {
    /// Maps a segment that the node has sent.
    pub fn new(file: OwnedFd, layout: codec::WriteSegmentInfo) -> io::Result<Self> {
        let file = File::from(move_high(file));
        let table = OfferTable::map(&file, layout.length)?;
        let map = MappedSegmentMut::map(&file, layout.length);
        let map =
            map.inspect_err(|error| tracing::debug!(%error, "no write segment: bytes go through the socket")).ok();
        let blocks = layout.length / u64::from(layout.block_bytes.max(1));
        let was_filled = (0..blocks.min(BLOCKS_MAX)).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { table, file, layout, next: AtomicU32::new(0), map, was_filled })
    }

    /// Returns whether `length` bytes are worth a block, and fit.
    pub fn fits(&self, length: usize) -> bool {
        (self.layout.least_bytes as usize..=self.layout.block_bytes as usize).contains(&length)
    }

    /// Copies bytes of a suitable length into a block. Returns `None` if no block is offered, or
    /// the system is out of memory.
    pub fn fill(&self, bytes: &[u8]) -> Option<ClaimedBlock<'_>> {
        let (slot, block) = self.table.claim(0..OFFER_SLOTS, self.next.load(Relaxed))?;
        self.next.store(block.wrapping_add(1), Relaxed);
        let filled = ShmPayload { slot, length: u32::try_from(bytes.len()).expect("at most a block") };
        let claimed = ClaimedBlock { writer: self, block, filled };
        let at = u64::from(block) * u64::from(self.layout.block_bytes);
        let written = self.store(block, at, bytes).unwrap_or_else(|| self.file.write_all_at(bytes, at));
        if written.is_ok()
            && let Some(was_filled) = self.was_filled.get(block as usize)
        {
            was_filled.store(true, Relaxed);
        }
        written
            .inspect_err(|error| tracing::debug!(%error, "the write segment is full: bytes go through the socket"))
            .ok()?;
        Some(claimed)
    }
}

impl ShmWriter {
    /// Stores bytes through the mapping into a block that was filled before. Returns `None` if it
    /// was not, or the store fails.
    fn store(&self, block: u32, at: u64, bytes: &[u8]) -> Option<io::Result<()>> {
        let map = self.map.as_ref()?;
        self.was_filled.get(block as usize).filter(|was_filled| was_filled.load(Relaxed))?;
        let stored = map.store(usize::try_from(at).ok()?, bytes);
        stored
            .inspect_err(|error| tracing::debug!(%error, "bytes could not be written to the write segment"))
            .ok()
            .map(Ok)
    }
}

impl ClaimedBlock<'_> {
    /// Slot and length to publish.
    pub fn filled(&self) -> ShmPayload {
        self.filled
    }

    /// Gives up the claim without offering the block again: the node has been sent it.
    pub fn published(self) {
        mem::forget(self);
    }
}

impl Drop for ClaimedBlock<'_> {
    fn drop(&mut self) {
        self.writer.table.unclaim(self.filled.slot, self.block);
    }
}
