//! Receive buffers: blocks that bytes are received into and that become stripes without a copy.
//!
//! A receive buffer is allocated from touched memory only: a store into fresh memory clears it
//! first, which takes longer than the copy that is saved. All receive buffers together take only a
//! part of the free space, so they do not get in the way when the pool fills up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use store::RecvBuffer;

use crate::block::{Block, BlockPool, order_bytes};
use crate::stripe::order_for;

/// Minimum length. Copying shorter payloads takes no longer than allocating a block twice, and
/// leaves no part of a block unused.
const BYTES_MIN: u32 = 32 << 10;
/// The inverse of the share of free space that receive buffers may take together.
const RECV_PART: u64 = 8;

/// Bytes of receive buffers, including those received whose bytes are not yet a stripe's.
#[derive(Default)]
pub struct RecvBytes(AtomicU64);

impl RecvBytes {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A block for a payload that is being received.
pub struct RecvBlock {
    block: Block,
    length: u32,
    quota: RecvQuota,
}

/// A share of the bytes counted as receive buffers, released on drop.
pub struct RecvQuota {
    pool: Arc<BlockPool>,
    bytes: u64,
}

impl RecvBlock {
    /// Allocates a buffer of `length` bytes. Returns `None` if the length is below the minimum or
    /// above a block of order `top`, if no warm block is free, or if the buffers would exceed their
    /// share.
    pub fn new(pool: &Arc<BlockPool>, length: u32, top: u8) -> Option<Self> {
        let order = order_for(length);
        if length < BYTES_MIN || order > top {
            return None;
        }
        let bytes = u64::from(order_bytes(order));
        let recv_bytes = &pool.recv_bytes;
        let may = |free: u64| recv_bytes.bytes() + bytes <= (free + recv_bytes.bytes()) / RECV_PART;
        let block = pool.allocate_warm(order, may)?;
        recv_bytes.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Self { block, length, quota: RecvQuota { pool: pool.clone(), bytes } })
    }
}

impl RecvBuffer for RecvBlock {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.slice_mut(0, self.length)
    }

    fn freeze(self: Box<Self>) -> Bytes {
        let Self { block, length, quota } = *self;
        let pool = quota.pool.clone();
        pool.register_filled(block, length, Some(quota))
    }
}

impl Drop for RecvQuota {
    fn drop(&mut self) {
        self.pool.recv_bytes.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for RecvBlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RecvBlock").field("length", &self.length).finish_non_exhaustive()
    }
}
