//! Traits of an engine's memory: segments that other processes map, write segments, and receive
//! buffers.

use std::{fmt, io, os::fd::OwnedFd};

use bytes::Bytes;

/// A position in an engine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentPosition {
    /// The number of the segment.
    pub segment: u32,
    /// The offset in the segment, in bytes.
    pub offset: u64,
}

/// An engine's memory as files that processes of this host can map.
///
/// The bytes of a view of [`StripeStore::read`](crate::StripeStore::read) stay in place as long as
/// the view is held. After that their memory is reused.
pub trait SharedMemory: Send + Sync + fmt::Debug {
    /// The lengths, in bytes, of the segments that always exist; they are numbered from 0. Write
    /// segments have higher numbers, which are never reused.
    fn lengths(&self) -> Vec<u64>;

    /// The length of any segment, in bytes; `None` if it does not exist, or no longer does.
    fn length(&self, segment: u32) -> Option<u64>;

    /// A descriptor that allows reading and mapping for reading only.
    fn open(&self, segment: u32) -> io::Result<OwnedFd>;

    /// The position of `bytes`; `None` if they are not in the engine's memory.
    fn locate(&self, bytes: &[u8]) -> Option<SegmentPosition>;

    /// The number of write segments that have been removed. A process that has mapped some checks
    /// its mappings when this number has changed.
    fn closed_segments(&self) -> u64;

    /// Creates a write segment for a process that will write into it.
    fn create_write_segment(&self) -> io::Result<Box<dyn WriteSegment>>;

    /// A receive buffer for `length` bytes; `None` if it is better to receive them elsewhere and
    /// then write them.
    fn recv_buffer(&self, length: u32) -> Option<Box<dyn RecvBuffer>>;
}

/// A receive buffer in the engine's memory. It counts as used space until it is dropped.
pub trait RecvBuffer: Send + Sync + fmt::Debug {
    /// The whole buffer, to be filled with the received bytes. Its initial content is unspecified.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Finishes the buffer, after all of it was filled. If all the returned bytes are
    /// [written](crate::StripeStore::write) as the whole of a stripe, the stripe takes over the
    /// buffer's block without a copy. Otherwise the block is free again when the last of these
    /// bytes is dropped.
    fn freeze(self: Box<Self>) -> Bytes;
}

/// A write segment: memory that one process of this host writes into, and whose blocks the engine
/// takes over without a copy.
///
/// The engine offers empty blocks in an [`OfferTable`](crate::OfferTable). The writer claims a
/// block, fills it from its beginning, and never touches it again once the engine has taken it. A
/// block that is offered and not claimed still counts as free space: the engine revokes it when the
/// space is wanted.
///
/// Dropping the segment declares that the process writes no more. Blocks that became stripes stay
/// stripes.
pub trait WriteSegment: Send + Sync + fmt::Debug {
    /// The number of the segment.
    fn segment(&self) -> u32;

    /// The length of all its blocks, in bytes; the table is behind them.
    fn length(&self) -> u64;

    /// The length of a block, in bytes.
    fn block_bytes(&self) -> u32;

    /// A descriptor that allows writing.
    fn open(&self) -> io::Result<OwnedFd>;

    /// Offers blocks until `blocks` are on offer, at most [`OFFER_SLOTS`](crate::OFFER_SLOTS), or
    /// until there is no more space.
    fn offer(&self, blocks: u32);

    /// Takes the first `length` bytes of the block that the writer claimed in `slot`; `None` if it
    /// has claimed none there. If all of them are [written](crate::StripeStore::write) as the whole
    /// of a stripe, the stripe takes over the block without a copy. Otherwise the block is free
    /// again when the last of these bytes is dropped.
    fn take(&self, slot: u32, length: u32) -> Option<Bytes>;
}
