//! What few inodes have: extended attributes and locks. One word in all others.

use crate::{inode::Inode, locks::Locks, weight, xattr::Xattrs};
use serde::{Deserialize, Serialize};

/// What few inodes have.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Extra {
    pub xattrs: Xattrs,
    pub locks: Locks,
}

impl Extra {
    /// What it counts for in the pool, bytes.
    pub fn weight(&self) -> u64 {
        weight::EXTRA_BYTES + self.xattrs.weight() + self.locks.weight()
    }
}

impl Inode {
    /// Made when it is not there; followed by [`Self::tidy_extra`] where something was taken out.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Gives it back when there is nothing in it.
    pub fn tidy_extra(&mut self) {
        self.extra.take_if(|extra| extra.xattrs.is_empty() && extra.locks.is_empty());
    }
}
