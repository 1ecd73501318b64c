//! How long the kernel may keep what it is told.

use std::time::Duration;

use kernel::Entry;
use wire::Attributes;

use crate::translate;

/// File ids are never reused, so one generation is enough.
const GENERATION: u64 = 0;
/// As good as for ever.
const LASTING: Duration = Duration::from_secs(1 << 31);

/// What of the options the operations need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// What the kernel may keep.
    pub(crate) keeps: Keeps,
    /// Whether locks are the pool's, so that each close must tell of them.
    pub(crate) pool_locks: bool,
}

/// What the kernel may keep of names and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// For so long; nobody tells when they change.
    For(Duration),
    /// Until it is told that they change.
    UntilRecalled,
}

impl Manners {
    /// An entry with its attributes, and how long the kernel may keep them.
    pub(crate) fn entry(&self, found: &Attributes) -> Entry {
        Entry {
            inode: found.file.0,
            generation: GENERATION,
            attributes: translate::attributes(found),
            entry_valid: self.names_valid(),
            attributes_valid: self.attributes_valid(found),
        }
    }

    /// How long a name leads to its inode, or is known not to be there.
    pub(crate) fn names_valid(&self) -> Duration {
        match self.keeps {
            Keeps::For(time) => time,
            Keeps::UntilRecalled => LASTING,
        }
    }

    /// Whether the kernel may keep that a name is not there.
    pub(crate) fn keeps_absence(&self) -> bool {
        self.keeps == Keeps::UntilRecalled
    }

    /// How long attributes may be kept.
    pub(crate) fn attributes_valid(&self, found: &Attributes) -> Duration {
        match self.keeps {
            // Those of a whole file are its backing's, which changes without our knowing.
            Keeps::For(_) if found.whole.is_some() => Duration::ZERO,
            Keeps::For(time) => time,
            Keeps::UntilRecalled if found.lasting => LASTING,
            Keeps::UntilRecalled => Duration::ZERO,
        }
    }
}
