//! Blocks that bytes are received into, which become stripes where they are.
//!
//! Only memory that was touched before is given out for this: a store into fresh memory clears it first, which takes longer than the copy
//! that is spared. And only a part of what is free: what is being received is in nobody's way when the pool fills up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use store::Landing;

use crate::block::{Block, Pool, bytes_of};
use crate::stripe::order_for;

/// Shorter bytes are copied: that takes no longer than looking for a block twice, and leaves no part of one unused.
const LEAST_BYTES: u32 = 32 << 10;
/// At most this part of what is free is being received into, by all together.
const LANDING_PART: u64 = 8;

/// Bytes of blocks that are being received into, or whose bytes are no stripe's yet.
#[derive(Default)]
pub struct Landed(AtomicU64);

impl Landed {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A block for bytes that are on their way.
pub struct Runway {
    block: Block,
    length: u32,
    counted: Counted,
}

/// What counts as being received; until this is dropped.
pub struct Counted {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Runway {
    /// Room for so many bytes, where a block for them is free, warm and no longer than `top`, and few are on their way.
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
