//! Cache policy: how long the kernel may cache names and attributes.

use std::time::Duration;

use fuse_transport::FuseEntry;
use wire::Attributes;

use crate::translate;

/// Inode generation. File ids are never reused, so one generation is enough.
const GENERATION: u64 = 0;
/// Lifetime for entries without an expiry.
const LASTING: Duration = Duration::from_secs(1 << 31);

/// Mount options that the operations need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// Lifetime of cached names and attributes.
    pub(crate) keeps: Keeps,
    /// Locks are held in the pool, so each close needs a flush.
    pub(crate) pool_locks: bool,
}

/// Lifetime of names and attributes in the kernel's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Fixed time; there are no invalidations.
    For(Duration),
    /// Until they are invalidated.
    UntilRecalled,
}

impl Manners {
    /// Reply entry with attributes and cache lifetimes.
    pub(crate) fn entry(&self, found: &Attributes) -> FuseEntry {
        FuseEntry {
            inode: found.file.0,
            generation: GENERATION,
            attributes: translate::attributes(found),
            entry_valid: self.names_valid(),
            attributes_valid: self.attributes_valid(found),
        }
    }

    /// Lifetime of a cached name, or of its cached absence.
    pub(crate) fn names_valid(&self) -> Duration {
        match self.keeps {
            Keeps::For(time) => time,
            Keeps::UntilRecalled => LASTING,
        }
    }

    /// True if the kernel may cache that a name does not exist.
    pub(crate) fn keeps_absence(&self) -> bool {
        self.keeps == Keeps::UntilRecalled
    }

    /// Lifetime of cached attributes.
    pub(crate) fn attributes_valid(&self, found: &Attributes) -> Duration {
        match self.keeps {
            // An extent file's attributes are those of its extent, which changes without notice to
            // this process.
            Keeps::For(_) if found.extent.is_some() => Duration::ZERO,
            Keeps::For(time) => time,
            Keeps::UntilRecalled if found.cacheable => LASTING,
            Keeps::UntilRecalled => Duration::ZERO,
        }
    }
}
