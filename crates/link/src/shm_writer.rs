//! Writer's side of a write segment: memory of a node that this client fills, and the table that
//! tells which blocks it has claimed.
//!
//! `pwrite` fills fresh pages: it need not zero them first, and it fails if the system is out of
//! memory, where a store through a mapping would kill this process. Blocks that this client has
//! filled before are stored to through a mapping.

use crate::{reserved_fd::moved, shm_map_mut::Window};
use std::{
    fs::File,
    io, mem,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use store::{SLOTS, Table};
use wire::codec::{self, Filled};

/// Most blocks whose earlier filling is recorded: as many as the longest segment has, with blocks
/// of 1 MiB.
const BLOCKS_MAX: u64 = 64 << 10;

/// Writer's side of a write segment.
#[derive(Debug)]
pub struct Bay {
    file: File,
    table: Table,
    shape: codec::Bay,
    /// Index after the block that was claimed last.
    next: AtomicU32,
    /// `None` if the segment cannot be mapped.
    window: Option<Window>,
    /// True for each block that this client has filled before.
    touched: Box<[AtomicBool]>,
}

/// Block that this client has claimed; dropping it offers the block again.
#[derive(Debug)]
pub struct Begun<'a> {
    bay: &'a Bay,
    block: u32,
    filled: Filled,
}

impl Bay {
    /// Maps a segment that the node has sent.
    pub fn new(file: OwnedFd, shape: codec::Bay) -> io::Result<Self> {
        let file = File::from(moved(file));
        let table = Table::map(&file, shape.length)?;
        let window = Window::map(&file, shape.length);
        let window = window.inspect_err(|error| tracing::debug!(%error, "nothing is stored into a bay")).ok();
        let blocks = shape.length / u64::from(shape.block_bytes.max(1));
        let touched = (0..blocks.min(BLOCKS_MAX)).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { table, file, shape, next: AtomicU32::new(0), window, touched })
    }

    /// Returns whether `length` bytes are worth a block, and fit.
    pub fn suits(&self, length: usize) -> bool {
        (self.shape.least_bytes as usize..=self.shape.block_bytes as usize).contains(&length)
    }

    /// Copies bytes of a suitable length into a block. Returns `None` if no block is offered, or
    /// the system is out of memory.
    pub fn fill(&self, bytes: &[u8]) -> Option<Begun<'_>> {
        let (slot, block) = self.table.begin(0..SLOTS, self.next.load(Relaxed))?;
        self.next.store(block.wrapping_add(1), Relaxed);
        let filled = Filled { slot, length: u32::try_from(bytes.len()).expect("at most a block") };
        let begun = Begun { bay: self, block, filled };
        let at = u64::from(block) * u64::from(self.shape.block_bytes);
        let written = self.store(block, at, bytes).unwrap_or_else(|| self.file.write_all_at(bytes, at));
        if written.is_ok()
            && let Some(touched) = self.touched.get(block as usize)
        {
            touched.store(true, Relaxed);
        }
        written.inspect_err(|error| tracing::debug!(%error, "bytes are sent that could not be put down")).ok()?;
        Some(begun)
    }
}

impl Bay {
    /// Stores bytes through the mapping into a block that was filled before. Returns `None` if it
    /// was not, or the store fails.
    fn store(&self, block: u32, at: u64, bytes: &[u8]) -> Option<io::Result<()>> {
        let window = self.window.as_ref()?;
        self.touched.get(block as usize).filter(|touched| touched.load(Relaxed))?;
        let stored = window.store(usize::try_from(at).ok()?, bytes);
        stored.inspect_err(|error| tracing::debug!(%error, "bytes could not be stored into a bay")).ok().map(Ok)
    }
}

impl Begun<'_> {
    /// Slot and length to publish.
    pub fn filled(&self) -> Filled {
        self.filled
    }

    /// Gives up the claim without offering the block again: the node has been sent it.
    pub fn published(self) {
        mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.bay.table.give_up(self.filled.slot, self.block);
    }
}
