//! Rare attributes: extended attributes and locks. They take one word in inodes that have none.

use crate::{inode::Inode, locks::Locks, weight, xattr::Xattrs};
use serde::{Deserialize, Serialize};

/// Attributes that few inodes have.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Extra {
    pub xattrs: Xattrs,
    pub locks: Locks,
}

impl Extra {
    /// Returns the memory cost, bytes.
    pub fn weight(&self) -> u64 {
        weight::EXTRA_BYTES + self.xattrs.weight() + self.locks.weight()
    }
}

impl Inode {
    /// Returns the rare attributes, created on demand. Call [`Self::tidy_extra`] after removing
    /// one.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Frees the rare attributes if they are empty.
    pub fn tidy_extra(&mut self) {
        self.extra.take_if(|extra| extra.xattrs.is_empty() && extra.locks.is_empty());
    }
}
