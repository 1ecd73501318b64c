//! The trait between who keeps bytes (an engine) and who knows what they are (a node).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use placement::{FileId, StripeNo};

use crate::{EngineError, Extents, Held, Mark, Segments, StandIn};

/// Names a stripe: a fixed-size piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StripeKey {
    /// The file.
    pub file: FileId,
    /// Which piece of it, from 0.
    pub stripe: StripeNo,
}

impl fmt::Display for StripeKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "stripe {} of file {}", self.stripe, self.file)
    }
}

/// How many times a file was truncated, as the writer knew it. It keeps a late write from undoing a truncation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What an engine holds, in bytes unless said otherwise. `used` is never above `capacity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// What it may hold at most.
    pub capacity: u64,
    /// Blocks held, viewed ones included, whole files, and what is reserved.
    pub used: u64,
    /// The part of `used` that was reserved by [`Engine::reserve`].
    pub reserved: u64,
    /// How many stripes there are.
    pub stripes: u64,
    /// What whole files may still take without asking; whoever writes to one past the engine is refused when it is gone. None
    /// where there is no whole file that has bytes.
    pub own_room: Option<u64>,
}

impl Usage {
    /// Bytes that are not used. A stripe may still not fit: it takes whole blocks.
    pub fn free(&self) -> u64 {
        self.capacity - self.used
    }
}

/// Called after an engine's space was given back.
pub type FreedHook = Arc<dyn Fn() + Send + Sync>;

/// Bytes of stripes by key. Every call is atomic: another thread sees all of it or nothing.
///
/// The promises are proven by [`crate::conformance`], which every engine runs in its tests.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The longest that a stripe can be, in bytes: a power of two.
    fn stripe_bytes(&self) -> u32;

    /// Puts `data` at `offset`, all of it or nothing; a gap before it reads as zeros. Writing nothing changes nothing.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`] leave the stripe as it was.
    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError>;

    /// The stored bytes of the range: short when the stripe ends before, empty when it is absent.
    ///
    /// The answer is a view that stays the same bytes however long it is held, whatever happens to the stripe; its space
    /// counts as used until the last view is dropped.
    fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError>;

    /// Cuts the stripe to `len` bytes; a shorter one keeps its length. What was cut never comes back: later gaps are zeros.
    ///
    /// The generation is remembered until [`Engine::remove`], also of a stripe that is now empty or was absent, so that a late
    /// write is [`EngineError::Stale`]. Never [`EngineError::Full`].
    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError>;

    /// Fills what the stripe has of the range with zeros, and never makes it longer: a range that reaches its end is cut off. The
    /// generation is remembered as by [`Engine::truncate`].
    ///
    /// [`EngineError::Full`], which leaves the stripe as it was, only where a view must keep what is in the middle of it.
    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError>;

    /// Makes the stripe at least `len` bytes long, by zeros. Later writes there take no new space, unless a view must keep what
    /// they overwrite.
    ///
    /// Errors: [`EngineError::Full`], [`EngineError::Stale`] and [`EngineError::TooLong`] leave the stripe as it was.
    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError>;

    /// Forgets the stripe and its generation. An absent one is fine.
    fn remove(&self, key: StripeKey) -> Result<(), EngineError>;

    /// Gives back what the stripe holds beyond its bytes, where that takes no new space: for a stripe that will not grow soon.
    fn fit(&self, key: StripeKey) -> Result<(), EngineError>;

    /// Counts `bytes` that the caller keeps itself against this capacity, or answers [`EngineError::Full`].
    fn reserve(&self, bytes: u64) -> Result<(), EngineError>;

    /// Ends a reservation of `bytes`. Releasing more than was reserved is a broken promise.
    fn release(&self, bytes: u64);

    /// What is held now; cheap.
    fn usage(&self) -> Usage;

    /// The most that was ever used, in bytes: never less than it was, and more by a thousandth of the capacity at most. Of an engine that
    /// does not keep it, what is used now.
    fn peak(&self) -> u64 {
        self.usage().used
    }

    /// Its whole files; none when it keeps none.
    fn extents(&self) -> Option<Arc<dyn Extents>> {
        None
    }

    /// Its memory, for other processes to look at; none when they cannot.
    fn segments(&self) -> Option<Arc<dyn Segments>> {
        None
    }

    /// A descriptor that stands for something, under a mark, and what tells whether it is open. Where no directory can be had without a
    /// name, what stands for one is as for a file. Not kept over an exec.
    ///
    /// Fails where the system has no more descriptors, and of an engine that has none to give.
    fn stand_in(&self, kind: StandIn, mark: Mark) -> io::Result<(OwnedFd, Box<dyn Held>)> {
        let _ = (kind, mark);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// From now on calls `hook` whenever space was given back, by whatever way, the last drop of a view included. A second
    /// hook replaces the first.
    ///
    /// It is called after the space is free, on the thread that gave it back, with none of the engine's locks held. It must be
    /// quick and must not block.
    fn on_freed(&self, hook: FreedHook);
}
