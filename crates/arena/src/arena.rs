//! The storage engine: an index of stripes by key.
//!
//! The index is split into shards, so threads that work on different stripes rarely contend. A
//! shard's lock is held to look up, insert or remove, never while bytes are copied or space is
//! allocated. A stripe is written for the first time before it enters the index, so a refused first
//! write leaves no trace.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ByteSize;
use bytes::Bytes;
use parking_lot::RwLock;
use placement::PartitionId;
use store::{
    Engine, EngineError, EngineUsage, Extents, FreedHook, Generation, Placeholders, SharedMemory, StoreCompletion,
    StripeKey, StripeScan, StripeSnapshot, StripeStore,
};

use crate::PAGE_BYTES;
use crate::block::BlockPool;
use crate::extents::Slots;
use crate::scan::ArenaScan;
use crate::stripe::{Stripe, StripeWrite};

/// Shards of the index: many more than a node has threads, so two threads rarely want the same one.
const SHARDS: usize = 64;

/// The longest stripe that an arena can be made for, in bytes.
const STRIPE_BYTES_MAX: u32 = 1 << 30;

/// Parameters of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaOptions {
    /// Maximum bytes of stripes and reservations. No memory is taken from the system before its
    /// use.
    pub capacity: u64,
    /// The longest stripe and the largest block, in bytes: a power of two, at least 4096.
    pub stripe_bytes: u32,
    /// Also keep extent files if this process may create a tmpfs for them (`CAP_SYS_ADMIN`, or in a
    /// user namespace).
    pub extent_files: bool,
}

impl ArenaOptions {
    /// Options for an arena of `capacity` bytes with stripes of 1 MiB.
    pub fn with_capacity(capacity: u64) -> Self {
        Self { capacity, stripe_bytes: 1 << 20, extent_files: true }
    }
}

/// Reasons why an arena could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The stripe size is not a power of two or is out of range.
    #[error(
        "a stripe cannot have {0} bytes; choose a power of two from 4096 to {STRIPE_BYTES_MAX}, for example 1048576"
    )]
    StripeBytes(u32),
    /// The system refused the address space.
    #[error("cannot set aside {} of address space: {source}; ask for less memory, or raise the limit (ulimit -v)", ByteSize(*capacity))]
    Memory {
        /// Requested capacity in bytes.
        capacity: u64,
        /// The error of the system.
        source: io::Error,
    },
}

/// An in-memory engine for stripes.
pub struct Arena {
    pub(crate) pool: Arc<BlockPool>,
    pub(crate) stripe_bytes: u32,
    shards: Arc<[Shard]>,
    stripes: AtomicU64,
    /// Extent files; `None` if they were not requested or could not be set up.
    extents: Option<Arc<Slots>>,
}

/// A shard of the index.
pub type Shard = RwLock<HashMap<StripeKey, Arc<Stripe>>>;

impl Arena {
    /// Creates an empty arena. Takes address space, not memory.
    pub fn new(options: ArenaOptions) -> Result<Self, ArenaError> {
        let ArenaOptions { capacity, stripe_bytes, extent_files } = options;
        if !stripe_bytes.is_power_of_two() || !(PAGE_BYTES..=STRIPE_BYTES_MAX).contains(&stripe_bytes) {
            return Err(ArenaError::StripeBytes(stripe_bytes));
        }
        let pool = BlockPool::new(capacity, top_order(stripe_bytes))
            .map_err(|source| ArenaError::Memory { capacity, source })?;
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let extents = if extent_files { Slots::new(&pool).ok() } else { None };
        Ok(Self { pool, stripe_bytes, shards, stripes: AtomicU64::new(0), extents })
    }

    /// Bytes that the arena has from the system by its own count: allocated blocks and free ones
    /// kept for reuse.
    pub fn touched(&self) -> u64 {
        self.pool.touched()
    }

    /// Bytes that the arena has from the system by the system's count.
    pub fn resident(&self) -> io::Result<u64> {
        self.pool.resident()
    }

    fn shard(&self, key: StripeKey) -> &Shard {
        &self.shards[shard_of(key.partition)]
    }

    fn find(&self, key: StripeKey) -> Option<Arc<Stripe>> {
        self.shard(key).read().get(&key).cloned()
    }

    /// Inserts a new stripe into the index. Returns false if another thread inserted it first.
    fn insert(&self, key: StripeKey, stripe: Stripe) -> bool {
        let mut shard = self.shard(key).write();
        let Entry::Vacant(place) = shard.entry(key) else {
            drop(shard);
            return false;
        };
        place.insert(Arc::new(stripe));
        self.stripes.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn remove_entry(&self, key: StripeKey) -> Option<Arc<Stripe>> {
        let mut shard = self.shard(key).write();
        let stripe = shard.remove(&key)?;
        self.stripes.fetch_sub(1, Ordering::Relaxed);
        Some(stripe)
    }

    fn write_checked(&self, write: StripeWrite<'_>) -> Result<(), EngineError> {
        // Retries only if another thread inserted or removed this stripe meanwhile.
        loop {
            let Some(stripe) = self.find(write.key) else {
                if write.data.is_empty() || self.insert(write.key, Stripe::written(&self.pool, write)?) {
                    return Ok(());
                }
                continue;
            };
            // The lock is released at the end of this statement, before the replaced block is
            // dropped and its space announced.
            let answer = stripe.lock().map(|mut state| state.write(&self.pool, write));
            if let Some(answer) = answer {
                return answer.map(drop);
            }
        }
    }
}

/// The operations of a store in memory, whose results need no completion.
impl Arena {
    /// Writes, as [`StripeStore::write`] does, at once.
    pub fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError> {
        let end = u64::from(offset) + data.len() as u64;
        if end > u64::from(self.stripe_bytes) {
            return Err(EngineError::TooLong { key, end, limit: self.stripe_bytes });
        }
        let is_filled = self.pool.write_segments.has_filled(data);
        let done = self.write_checked(StripeWrite { key, generation, offset, data, top: top_order(self.stripe_bytes) });
        if is_filled {
            self.pool.notify(); // the write may have freed part of the filled block
        }
        done
    }

    /// Reads, as [`StripeStore::read`] does, at once.
    pub fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError> {
        let Some(stripe) = self.find(key) else { return Ok(Bytes::new()) };
        let view = stripe.lock().map(|mut state| state.read(offset, len));
        Ok(view.unwrap_or_default())
    }

    /// Truncates, as [`StripeStore::truncate`] does, at once.
    pub fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        loop {
            let Some(stripe) = self.find(key) else {
                if self.insert(key, Stripe::truncated(generation)) {
                    return Ok(());
                }
                continue;
            };
            let answer = stripe.lock().map(|mut state| state.truncate(key, generation, len));
            if let Some(answer) = answer {
                let (_replaced, freed) = answer?;
                if freed {
                    self.pool.notify();
                }
                return Ok(());
            }
        }
    }

    /// Fills with zeros, as [`StripeStore::zero`] does, at once.
    pub fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError> {
        let (top, range) = (top_order(self.stripe_bytes), offset..offset.saturating_add(len));
        loop {
            let Some(stripe) = self.find(key) else {
                if self.insert(key, Stripe::truncated(generation)) {
                    return Ok(());
                }
                continue;
            };
            let zeroed = stripe.lock().map(|mut state| state.zero(&self.pool, key, generation, range.clone(), top));
            if let Some(answer) = zeroed {
                let (_replaced, freed) = answer?;
                if freed {
                    self.pool.notify();
                }
                return Ok(());
            }
        }
    }

    /// Extends, as [`StripeStore::extend`] does, at once.
    pub fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        if len > self.stripe_bytes {
            return Err(EngineError::TooLong { key, end: len.into(), limit: self.stripe_bytes });
        }
        let top = top_order(self.stripe_bytes);
        loop {
            let Some(stripe) = self.find(key) else {
                if len == 0 || self.insert(key, Stripe::extended(&self.pool, key, generation, len, top)?) {
                    return Ok(());
                }
                continue;
            };
            let extended = stripe.lock().map(|mut state| state.extend(&self.pool, key, generation, len, top));
            if let Some(answer) = extended {
                return answer.map(drop);
            }
        }
    }

    /// Removes, as [`StripeStore::remove`] does, at once.
    pub fn remove(&self, key: StripeKey) -> Result<(), EngineError> {
        if let Some(stripe) = self.remove_entry(key) {
            drop(stripe.remove());
        }
        Ok(())
    }

    /// Frees unused space, as [`StripeStore::shrink_to_fit`] does, at once.
    pub fn shrink_to_fit(&self, key: StripeKey) -> Result<(), EngineError> {
        let Some(stripe) = self.find(key) else { return Ok(()) };
        let freed = stripe.lock().is_some_and(|mut state| state.shrink_to_fit());
        if freed {
            self.pool.notify();
        }
        Ok(())
    }
}

impl StripeStore for Arena {
    fn stripe_bytes(&self) -> u32 {
        self.stripe_bytes
    }

    store::complete_at_once!();

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        let stripe = self.find(key);
        Ok(stripe.and_then(|stripe| stripe.lock().map(|mut state| state.snapshot()))).into()
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        Box::new(ArenaScan::new(Arc::clone(&self.shards)))
    }

    fn scan_partition(&self, partition: PartitionId) -> Box<dyn StripeScan> {
        Box::new(ArenaScan::of_partition(Arc::clone(&self.shards), shard_of(partition), partition))
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.pool.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.pool.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        let (capacity, used, reserved) = self.pool.account();
        let (stripes, extent_free) = (self.stripes.load(Ordering::Relaxed), self.pool.extent_free());
        EngineUsage { capacity, used, reserved, stripes, extent_free }
    }

    fn peak(&self) -> u64 {
        self.pool.peak()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.pool.set_hook(hook);
    }
}

impl Engine for Arena {
    fn stripes(self: Arc<Self>) -> Arc<dyn StripeStore> {
        self
    }

    fn shared_memory(self: Arc<Self>) -> Option<Arc<dyn SharedMemory>> {
        Some(self)
    }

    fn extents(&self) -> Option<Arc<dyn Extents>> {
        self.extents.clone().map(|slots| slots as Arc<dyn Extents>)
    }

    fn placeholders(self: Arc<Self>) -> Option<Arc<dyn Placeholders>> {
        Some(self)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Arena")
            .field("stripe_bytes", &self.stripe_bytes)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

/// Returns the number of the shard of a partition, so that a partition is found without a look at
/// all stripes. Consecutive partitions, of one file's stripes, are in different shards.
fn shard_of(partition: PartitionId) -> usize {
    usize::from(partition.0) % SHARDS
}

/// Returns the order of a block for a full-length stripe.
pub fn top_order(stripe_bytes: u32) -> u8 {
    u8::try_from((stripe_bytes / PAGE_BYTES).trailing_zeros()).expect("at most 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    store::conformance_tests!(small);

    /// An arena with space for `stripes` stripes of 64 KiB.
    fn small(stripes: u64) -> Arena {
        Arena::new(ArenaOptions { stripe_bytes: 1 << 16, ..ArenaOptions::with_capacity(stripes << 16) }).unwrap()
    }

    #[test]
    fn a_stripe_size_that_cannot_be_is_refused_by_its_number() {
        for stripe_bytes in [0, 1, 2048, 4097, 3 << 20, 1 << 31] {
            let refused =
                Arena::new(ArenaOptions { stripe_bytes, ..ArenaOptions::with_capacity(1 << 20) }).unwrap_err();
            assert!(refused.to_string().contains(&stripe_bytes.to_string()), "{refused}");
        }
    }
}
