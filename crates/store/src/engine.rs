//! The engine trait, between the storage of bytes (an engine) and their meaning (a node).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use placement::{FileId, StripeNo};

use crate::{EngineError, Extents, LeaseNumber, PlaceholderHandle, PlaceholderKind, Segments};

/// The key of a stripe: a fixed-size piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StripeKey {
    /// The file.
    pub file: FileId,
    /// The number of the stripe in the file, from 0.
    pub stripe: StripeNo,
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
    /// The part of `used` that was reserved by [`Engine::reserve`].
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

/// A callback that an engine runs after space was freed.
pub type FreedHook = Arc<dyn Fn() + Send + Sync>;

/// An engine: the bytes of stripes by key. Every call is atomic: another thread sees all of it or
/// nothing.
///
/// The tests in [`crate::conformance`] check this contract; every engine runs them.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The longest length of a stripe in bytes: a power of two.
    fn stripe_bytes(&self) -> u32;

    /// Writes all of `data` at `offset`, or nothing; a gap before it reads as zeros. Writing no
    /// bytes changes nothing.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`] leave the
    /// stripe unchanged.
    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError>;

    /// Reads the stored bytes of a range. The result is short if the stripe ends before the range
    /// does, and empty if the stripe is absent.
    ///
    /// The result is an immutable view: its bytes never change, whatever happens to the stripe. The
    /// space counts as used until the last view is dropped.
    fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError>;

    /// Cuts the stripe to `len` bytes; a shorter stripe keeps its length. Bytes that were cut never
    /// come back: later gaps read as zeros.
    ///
    /// The engine remembers the generation until [`Engine::remove`], even if the stripe is now
    /// empty or was absent, so that a late write gets [`EngineError::Stale`]. Never returns
    /// [`EngineError::Full`].
    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError>;

    /// Fills the range with zeros as far as the stripe has bytes there. Never makes the stripe
    /// longer: a range that reaches its end is cut off. Remembers the generation as
    /// [`Engine::truncate`] does.
    ///
    /// Returns [`EngineError::Full`], which leaves the stripe unchanged, only if a view holds bytes
    /// in the middle of the stripe that must be kept.
    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError>;

    /// Extends the stripe with zeros to at least `len` bytes. Later writes to them take no new
    /// space, unless a view holds the bytes that they overwrite.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`] leave the
    /// stripe unchanged.
    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError>;

    /// Removes the stripe and forgets its generation. An absent stripe is not an error.
    fn remove(&self, key: StripeKey) -> Result<(), EngineError>;

    /// Frees the space that the stripe holds beyond its bytes, if that takes no new space. For a
    /// stripe that will not grow soon.
    fn shrink_to_fit(&self, key: StripeKey) -> Result<(), EngineError>;

    /// Counts `bytes` of the caller's own data against the capacity, or returns
    /// [`EngineError::Full`].
    fn reserve(&self, bytes: u64) -> Result<(), EngineError>;

    /// Ends a reservation of `bytes`. Panics if they are more than was reserved.
    fn release(&self, bytes: u64);

    /// The current space usage; cheap.
    fn usage(&self) -> EngineUsage;

    /// The highest `used` so far, in bytes: never less than the true peak, and at most a thousandth
    /// of the capacity more. For an engine that does not record it, the current `used`.
    fn peak(&self) -> u64 {
        self.usage().used
    }

    /// The extent files; `None` if the engine has none.
    fn extents(&self) -> Option<Arc<dyn Extents>> {
        None
    }

    /// The engine's memory, for other processes to map; `None` if they cannot.
    fn segments(&self) -> Option<Arc<dyn Segments>> {
        None
    }

    /// Creates a placeholder descriptor for an open that has no file of the engine, under `lease`;
    /// also returns the handle that tells whether a copy of it is still open. If the system has no
    /// nameless directory to offer, a placeholder for a directory is like one for a file. The
    /// descriptor is closed on exec.
    ///
    /// Fails if the system has no more descriptors, or if the engine has no placeholders.
    fn create_placeholder(
        &self,
        kind: PlaceholderKind,
        lease: LeaseNumber,
    ) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
        let _ = (kind, lease);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the callback that runs whenever space was freed by any means, including the drop of the
    /// last view. A second hook replaces the first.
    ///
    /// It runs after the space is free, on the thread that freed it, with none of the engine's
    /// locks held. It must be quick and must not block.
    fn on_freed(&self, hook: FreedHook);
}
