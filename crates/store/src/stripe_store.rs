//! The trait of a store of stripes, between the storage of bytes (an engine) and their meaning (a
//! node).
//!
//! A store may be slow: an operation is submitted, and completes at once or later.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use placement::{FileId, PartitionId, StripeNo};

use crate::{EngineError, StoreCompletion};

/// The key of a stripe: a fixed-size piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StripeKey {
    /// The partition that has the stripe. It is part of the key, so that a scan finds what moves
    /// with a partition.
    pub partition: PartitionId,
    /// The file.
    pub file: FileId,
    /// The number of the stripe in the file, from 0.
    pub stripe: StripeNo,
}

impl StripeKey {
    /// A number whose upper bits differ between keys that are near each other: for the choice of a
    /// shard.
    pub fn mixed(self) -> u64 {
        // Fibonacci hashing (Knuth): multiplying by 2^64 / golden ratio spreads neighbours; the
        // upper bits are the best mixed.
        self.file.0.wrapping_add(self.stripe.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl fmt::Display for StripeKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "stripe {} of file {}", self.stripe, self.file)
    }
}

/// The number of times that a file was truncated, as far as a writer knew. It keeps a late write
/// from undoing a truncation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The space usage of an engine, in bytes unless said otherwise. `used` is never above `capacity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineUsage {
    /// The most that the engine may hold.
    pub capacity: u64,
    /// All space in use: blocks (those with views included), extent files, and reservations.
    pub used: u64,
    /// The part of `used` that was reserved by [`StripeStore::reserve`].
    pub reserved: u64,
    /// The number of stripes.
    pub stripes: u64,
    /// The space that extent files may still take without asking the engine. If it is exhausted, a
    /// process that writes to an extent file directly gets ENOSPC at once. `None` if no extent file
    /// has bytes.
    pub extent_free: Option<u64>,
}

impl EngineUsage {
    /// The bytes that are not used. A stripe may still not fit, because it takes whole blocks.
    pub fn free(&self) -> u64 {
        self.capacity - self.used
    }
}

/// A callback that a store runs after space was freed.
pub type FreedHook = Arc<dyn Fn() + Send + Sync>;

/// A stripe that a scan has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeEntry {
    /// The key.
    pub key: StripeKey,
    /// The generation.
    pub generation: Generation,
    /// The length in bytes. It is 0 for a stripe of which only the generation is remembered.
    pub length: u32,
}

/// A stripe at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeSnapshot {
    /// The generation.
    pub generation: Generation,
    /// All its bytes, as an immutable view.
    pub content: Bytes,
}

impl StripeSnapshot {
    /// Writes the stripe to a store that does not have it.
    pub fn write_to(&self, store: &dyn StripeStore, key: StripeKey) -> StoreCompletion<()> {
        if self.content.is_empty() {
            return store.truncate(key, self.generation, 0);
        }
        store.write(key, self.generation, 0, &self.content)
    }
}

/// A walk over all stripes of a store, in an order of its own, while the store is used.
pub trait StripeScan: Send + Sync {
    /// The next stripes, at most `limit`, which is not 0; `None` at the end.
    ///
    /// A stripe that exists from the beginning of the scan to its end is found, in rare cases
    /// twice. One that is made or removed meanwhile may be found. Generation and length are those
    /// of a moment at which the page was made.
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>>;
}

/// A walk over all stripes that leaves out those of other partitions.
struct PartitionScan {
    scan: Box<dyn StripeScan>,
    partition: PartitionId,
}

impl StripeScan for PartitionScan {
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>> {
        let partition = self.partition;
        let only_ours = move |page: Option<Vec<StripeEntry>>| {
            page.map(|entries| entries.into_iter().filter(|entry| entry.key.partition == partition).collect())
        };
        match self.scan.next_page(limit) {
            StoreCompletion::Ready(page) => StoreCompletion::Ready(page.map(only_ours)),
            StoreCompletion::Pending(page) => {
                StoreCompletion::Pending(Box::pin(async move { page.await.map(only_ours) }))
            }
        }
    }
}

/// A store of stripes by key.
///
/// An operation is *submitted* by the call, which is quick and does not block, so it may be made
/// under a lock. The operation is done even if its completion is dropped. It is atomic: others see
/// all of it or nothing. One that fails changes nothing.
///
/// Operations on one stripe take effect in the order in which they were submitted: a read sees all
/// writes that were submitted before it, and none that was submitted later, whether they are
/// complete or not. Operations on different stripes take effect in any order. Completions come in
/// any order.
///
/// The tests in [`crate::conformance`] check this contract; every store runs them.
pub trait StripeStore: Send + Sync + fmt::Debug {
    /// The longest length of a stripe in bytes: a power of two.
    fn stripe_bytes(&self) -> u32;

    /// Writes all of `data` at `offset`, or nothing; a gap before it reads as zeros. Writing no
    /// bytes changes nothing.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`].
    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()>;

    /// Reads the stored bytes of a range. The result is short if the stripe ends before the range
    /// does, and empty if the stripe is absent.
    ///
    /// The result is an immutable view: its bytes never change, whatever happens to the stripe. The
    /// space counts as used until the last view is dropped.
    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes>;

    /// Cuts the stripe to `len` bytes; a shorter stripe keeps its length. Bytes that were cut never
    /// come back: later gaps read as zeros.
    ///
    /// The store remembers the generation until [`Self::remove`], even if the stripe is now empty
    /// or was absent, so that a late write gets [`EngineError::Stale`]. Never results in
    /// [`EngineError::Full`].
    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()>;

    /// Fills the range with zeros as far as the stripe has bytes there. Never makes the stripe
    /// longer: a range that reaches its end is cut off. Remembers the generation as
    /// [`Self::truncate`] does.
    ///
    /// Results in [`EngineError::Full`] only if a view holds bytes in the middle of the stripe that
    /// must be kept.
    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()>;

    /// Extends the stripe with zeros to at least `len` bytes. Later writes to them take no new
    /// space, unless a view holds the bytes that they overwrite.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`].
    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()>;

    /// Removes the stripe and forgets its generation. An absent stripe is not an error.
    fn remove(&self, key: StripeKey) -> StoreCompletion<()>;

    /// Frees the space that the stripe holds beyond its bytes, if that takes no new space. For a
    /// stripe that will not grow soon.
    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()>;

    /// The stripe at the moment at which this takes effect; `None` if it is absent. Snapshots of
    /// several stripes are of several moments.
    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>>;

    /// Begins a walk over all stripes.
    fn scan(&self) -> Box<dyn StripeScan>;

    /// Begins a walk over the stripes of a partition. A page may be empty.
    fn scan_partition(&self, partition: PartitionId) -> Box<dyn StripeScan> {
        Box::new(PartitionScan { scan: self.scan(), partition })
    }

    /// Makes all operations durable that were complete when this was called: they are found again
    /// after a restart. What is in memory is as durable as it can be.
    fn sync(&self) -> StoreCompletion<()> {
        StoreCompletion::Ready(Ok(()))
    }

    /// Counts `bytes` of the caller's own memory against the capacity, or returns
    /// [`EngineError::Full`].
    fn reserve(&self, bytes: u64) -> Result<(), EngineError>;

    /// Ends a reservation of `bytes`. Panics if they are more than was reserved.
    fn release(&self, bytes: u64);

    /// The current space usage; cheap.
    fn usage(&self) -> EngineUsage;

    /// The most memory that was used so far, in bytes: never less than the true peak, and at most a
    /// thousandth of the capacity more. For a store that does not record it, the current `used`.
    fn peak(&self) -> u64 {
        self.usage().used
    }

    /// Sets the callback that runs whenever space was freed by any means, including the drop of the
    /// last view. A second hook replaces the first.
    ///
    /// It runs after the space is free, on the thread that freed it. It must be quick, must not
    /// block, and must not call the store: one that is made of several may hold a lock.
    fn on_freed(&self, hook: FreedHook);
}

/// Defines the operations of a [`StripeStore`] that completes them at once, by the type's own
/// methods of the same names, which return results.
#[macro_export]
macro_rules! complete_at_once {
    () => {
        fn write(
            &self,
            key: $crate::StripeKey,
            generation: $crate::Generation,
            offset: u32,
            data: &bytes::Bytes,
        ) -> $crate::StoreCompletion<()> {
            self.write(key, generation, offset, data).into()
        }

        fn read(&self, key: $crate::StripeKey, offset: u32, len: u32) -> $crate::StoreCompletion<bytes::Bytes> {
            self.read(key, offset, len).into()
        }

        fn truncate(
            &self,
            key: $crate::StripeKey,
            generation: $crate::Generation,
            len: u32,
        ) -> $crate::StoreCompletion<()> {
            self.truncate(key, generation, len).into()
        }

        fn zero(
            &self,
            key: $crate::StripeKey,
            generation: $crate::Generation,
            offset: u32,
            len: u32,
        ) -> $crate::StoreCompletion<()> {
            self.zero(key, generation, offset, len).into()
        }

        fn extend(
            &self,
            key: $crate::StripeKey,
            generation: $crate::Generation,
            len: u32,
        ) -> $crate::StoreCompletion<()> {
            self.extend(key, generation, len).into()
        }

        fn remove(&self, key: $crate::StripeKey) -> $crate::StoreCompletion<()> {
            self.remove(key).into()
        }

        fn shrink_to_fit(&self, key: $crate::StripeKey) -> $crate::StoreCompletion<()> {
            self.shrink_to_fit(key).into()
        }
    };
}
