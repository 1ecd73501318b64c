//! Cache policy: how long the kernel may cache names and attributes.

use std::time::Duration;

use fuse_transport::FuseEntry;
use wire::Attributes;

use crate::translate;

/// Inode generation. File ids are never reused, so one generation is enough.
const GENERATION: u64 = 0;
/// Lifetime for entries without an expiry.
const NO_EXPIRY: Duration = Duration::from_secs(1 << 31);

/// Mount options that the operations need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachePolicy {
    /// Lifetime of cached names and attributes.
    pub(crate) ttl: Ttl,
    /// Locks are held in the pool, so each close needs a flush.
    pub(crate) pool_locks: bool,
}

/// Lifetime of names and attributes in the kernel's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ttl {
    /// Fixed time; there are no invalidations.
    Fixed(Duration),
    /// Until they are invalidated.
    UntilInvalidated,
}

impl CachePolicy {
    /// Reply entry with attributes and cache lifetimes.
    pub(crate) fn entry(&self, found: &Attributes) -> FuseEntry {
        FuseEntry {
            inode: found.file.0,
            generation: GENERATION,
            attributes: translate::attributes(found),
            entry_valid: self.name_ttl(),
            attributes_valid: self.attributes_valid(found),
        }
    }

    /// Lifetime of a cached name, or of its cached absence.
    pub(crate) fn name_ttl(&self) -> Duration {
        match self.ttl {
            Ttl::Fixed(time) => time,
            Ttl::UntilInvalidated => NO_EXPIRY,
        }
    }

    /// True if the kernel may cache that a name does not exist.
    pub(crate) fn caches_absence(&self) -> bool {
        self.ttl == Ttl::UntilInvalidated
    }

    /// Lifetime of cached attributes.
    pub(crate) fn attributes_valid(&self, found: &Attributes) -> Duration {
        match self.ttl {
            // An extent file's attributes are those of its extent, which changes without notice to
            // this process.
            Ttl::Fixed(_) if found.extent.is_some() => Duration::ZERO,
            Ttl::Fixed(time) => time,
            Ttl::UntilInvalidated if found.cacheable => NO_EXPIRY,
            Ttl::UntilInvalidated => Duration::ZERO,
        }
    }
}
