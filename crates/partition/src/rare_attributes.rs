//! Rare attributes: extended attributes and locks. They take one word in inodes that have none.

use crate::{inode::Inode, locks::FileLocks, memory_cost, xattr::Xattrs};
use serde::{Deserialize, Serialize};

/// Attributes that few inodes have.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RareAttributes {
    pub xattrs: Xattrs,
    pub locks: FileLocks,
}

impl RareAttributes {
    /// Returns the memory cost, bytes.
    pub fn memory_cost(&self) -> u64 {
        memory_cost::RARE_ATTRIBUTES_BYTES + self.xattrs.memory_cost() + self.locks.memory_cost()
    }
}

impl Inode {
    /// Returns the rare attributes, created on demand. Call [`Self::free_empty_rare_attributes`]
    /// after removing one.
    pub fn rare_attributes_mut(&mut self) -> &mut RareAttributes {
        self.rare.get_or_insert_default()
    }

    /// Frees the rare attributes if they are empty.
    pub fn free_empty_rare_attributes(&mut self) {
        self.rare.take_if(|rare| rare.xattrs.is_empty() && rare.locks.is_empty());
    }
}
