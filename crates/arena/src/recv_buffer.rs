//! Receive buffers: blocks that bytes are received into and that become stripes without a copy.
//!
//! A receive buffer is allocated from touched memory only: a store into fresh memory clears it
//! first, which takes longer than the copy that is saved. All receive buffers together take only a
//! part of the free space, so they do not get in the way when the pool fills up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use store::Landing;

use crate::block::{Block, Pool, bytes_of};
use crate::stripe::order_for;

/// Minimum length. Copying shorter payloads takes no longer than allocating a block twice, and
/// leaves no part of a block unused.
const LEAST_BYTES: u32 = 32 << 10;
/// The inverse of the share of free space that receive buffers may take together.
const LANDING_PART: u64 = 8;

/// Bytes of receive buffers, including those received whose bytes are not yet a stripe's.
#[derive(Default)]
pub struct Landed(AtomicU64);

impl Landed {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A block for a payload that is being received.
pub struct Runway {
    block: Block,
    length: u32,
    counted: Counted,
}

/// A share of the bytes counted as receive buffers, released on drop.
pub struct Counted {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Runway {
    /// Allocates a buffer of `length` bytes. Returns `None` if the length is below the minimum or
    /// above a block of order `top`, if no warm block is free, or if the buffers would exceed their
    /// share.
    pub fn new(pool: &Arc<Pool>, length: u32, top: u8) -> Option<Self> {
        let order = order_for(length);
        if length < LEAST_BYTES || order > top {
            return None;
        }
        let bytes = u64::from(bytes_of(order));
        let landed = &pool.landed;
        let may = |free: u64| landed.bytes() + bytes <= (free + landed.bytes()) / LANDING_PART;
        let block = pool.take_warm(order, may)?;
        landed.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Self { block, length, counted: Counted { pool: pool.clone(), bytes } })
    }
}

impl Landing for Runway {
    fn room(&mut self) -> &mut [u8] {
        self.block.space(0, self.length)
    }

    fn landed(self: Box<Self>) -> Bytes {
        let Self { block, length, counted } = *self;
        let pool = counted.pool.clone();
        pool.put_down(block, length, Some(counted))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pool.landed.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Runway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Runway").field("length", &self.length).finish_non_exhaustive()
    }
}
