//! The traits of memory that other processes look at, of memory that one of them writes, and of memory that bytes are received into.

use std::{fmt, io, os::fd::OwnedFd};

use bytes::Bytes;

/// Where bytes are in an engine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which of its segments.
    pub segment: u32,
    /// Where in it, bytes.
    pub offset: u64,
}

/// An engine's memory as files, which processes of this host can map.
///
/// What a view of [`Engine::read`](crate::Engine::read) shows is there as long as the view is held, and then becomes something else.
pub trait Segments: Send + Sync + fmt::Debug {
    /// The lengths of those that are always there, bytes; they are numbered from 0. Bays have the numbers behind them, each its own
    /// for ever.
    fn lengths(&self) -> Vec<u64>;

    /// The length of any of them, bytes; none when there is no such segment, or no more.
    fn length(&self, segment: u32) -> Option<u64>;

    /// A descriptor that can only be read and mapped.
    fn open(&self, segment: u32) -> io::Result<OwnedFd>;

    /// Where these bytes are; none when they are not in the engine's memory.
    fn place(&self, bytes: &[u8]) -> Option<Place>;

    /// How many bays have gone: who has mapped some looks for them when it is another number than before.
    fn gone(&self) -> u64;

    /// Makes a bay for a process that will write into it.
    fn bay(&self) -> io::Result<Box<dyn Bay>>;

    /// Memory for so many bytes that are about to be received; none where they are better received elsewhere, and written.
    fn landing(&self, length: u32) -> Option<Box<dyn Landing>>;
}

/// Memory of an engine that bytes are received into: used space, until it is dropped.
pub trait Landing: Send + Sync + fmt::Debug {
    /// Where they are to go, as long as they are. What is in it before is unspecified.
    fn room(&mut self) -> &mut [u8];

    /// All of it is filled. When [`Engine::write`](crate::Engine::write) is given all of it, to be the whole of a stripe, its block becomes
    /// the stripe's, and nothing is copied; else it is free again with the last of these bytes.
    fn landed(self: Box<Self>) -> Bytes;
}

/// Memory that one process of this host writes into, and whose blocks the engine takes over as they are.
///
/// Empty blocks are offered in a [`Table`](crate::Table); the writer fills what it has begun from its beginning, and never touches it
/// again once that was taken. What is offered and not begun is free space all the same: the engine takes it back when it is wanted.
///
/// Dropping it says that the process writes no more. Blocks that became stripes stay what they are.
pub trait Bay: Send + Sync + fmt::Debug {
    /// Which segment it is.
    fn segment(&self) -> u32;

    /// The length of all its blocks, bytes; its table stands behind them.
    fn length(&self) -> u64;

    /// The length of a block, bytes.
    fn block_bytes(&self) -> u32;

    /// A descriptor that can be written to.
    fn open(&self) -> io::Result<OwnedFd>;

    /// Offers blocks until there are so many, at most [`SLOTS`](crate::SLOTS), or as many as there is room for.
    fn offer(&self, blocks: u32);

    /// Takes the first `length` bytes of the block that was begun in a slot; none where that was none. When
    /// [`Engine::write`](crate::Engine::write) is given all of them, to be the whole of a stripe, the block becomes the stripe's, and
    /// nothing is copied; else it is free again with the last of them.
    fn take(&self, slot: u32, length: u32) -> Option<Bytes>;
}
