//! Memory of a node that this client writes into: a copy, and a word that says where it is.
//!
//! Bytes go into fresh memory by `pwrite`, which fills pages without clearing them first, and fails where the system has no memory left: a store
//! through a mapping would end this process. Into a block that this client has filled before they are stored.

use crate::{own::moved, window::Window};
use std::{
    fs::File,
    io, mem,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use store::{SLOTS, Table};
use wire::codec::{self, Filled};

/// So many blocks at most are known to have been filled: those of a bay as long as the longest, of blocks of 1 MiB.
const BLOCKS_MAX: u64 = 64 << 10;

/// A client's side of a bay.
#[derive(Debug)]
pub struct Bay {
    file: File,
    table: Table,
    shape: codec::Bay,
    /// The block behind the one that was begun last.
    next: AtomicU32,
    /// None where it cannot be mapped.
    window: Option<Window>,
    /// Which blocks this client has filled before.
    touched: Box<[AtomicBool]>,
}

/// A block that this client has begun; offered again when this is dropped.
#[derive(Debug)]
pub struct Begun<'a> {
    bay: &'a Bay,
    block: u32,
    filled: Filled,
}

impl Bay {
    /// What came as one.
    pub fn new(file: OwnedFd, shape: codec::Bay) -> io::Result<Self> {
        let file = File::from(moved(file));
        let table = Table::map(&file, shape.length)?;
        let window = Window::map(&file, shape.length);
        let window = window.inspect_err(|error| tracing::debug!(%error, "nothing is stored into a bay")).ok();
        let blocks = shape.length / u64::from(shape.block_bytes.max(1));
        let touched = (0..blocks.min(BLOCKS_MAX)).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { table, file, shape, next: AtomicU32::new(0), window, touched })
    }

    /// Whether so many bytes are worth a block, and fit.
    pub fn suits(&self, length: usize) -> bool {
        (self.shape.least_bytes as usize..=self.shape.block_bytes as usize).contains(&length)
    }

    /// Copies bytes that suit into a block; none when none is offered, or the system has no memory left.
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
    /// Stores bytes into a block that was filled before; none where it was not, or that fails.
    fn store(&self, block: u32, at: u64, bytes: &[u8]) -> Option<io::Result<()>> {
        let window = self.window.as_ref()?;
        self.touched.get(block as usize).filter(|touched| touched.load(Relaxed))?;
        let stored = window.store(usize::try_from(at).ok()?, bytes);
        stored.inspect_err(|error| tracing::debug!(%error, "bytes could not be stored into a bay")).ok().map(Ok)
    }
}

impl Begun<'_> {
    /// Where the bytes are.
    pub fn filled(&self) -> Filled {
        self.filled
    }

    /// The node is told of it: it is no longer ours.
    pub fn published(self) {
        mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.bay.table.give_up(self.filled.slot, self.block);
    }
}
