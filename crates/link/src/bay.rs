//! Memory of a node that this client writes into: a copy, and a word that says where it is.
//!
//! Bytes go in by `pwrite`, which fills fresh pages without clearing them first, and fails where the system has no memory left: a store
//! through a mapping would end this process.

use crate::own::moved;
use std::{
    fs::File,
    io, mem,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use store::{SLOTS, Table};
use wire::codec::{self, Filled};

/// A client's side of a bay.
#[derive(Debug)]
pub struct Bay {
    file: File,
    table: Table,
    shape: codec::Bay,
    /// The block behind the one that was begun last.
    next: AtomicU32,
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
        Ok(Self { table: Table::map(&file, shape.length)?, file, shape, next: AtomicU32::new(0) })
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
        let written = self.file.write_all_at(bytes, at);
        written.inspect_err(|error| tracing::debug!(%error, "bytes are sent that could not be put down")).ok()?;
        Some(begun)
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
