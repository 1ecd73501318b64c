//! Permission bits of new inodes, and the attributes that they inherit from their directory.

use bytes::Bytes;
use placement::PlacementSpec;
use serde::{Deserialize, Serialize};

/// The set-group-id bit. New inodes take the group of a directory that has it, and new directories
/// also the bit.
pub const SET_GROUP_ID: u32 = 0o2000;

/// Permission bits of a new inode, and the caller's umask. A default ACL of the directory replaces
/// the umask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mode {
    /// Permission bits, 07777.
    pub bits: u32,
    /// Bits to clear if the directory has no default ACL.
    pub umask: u32,
}

impl From<u32> for Mode {
    /// These bits, without a umask.
    fn from(bits: u32) -> Self {
        Self { bits, umask: 0 }
    }
}

/// Attributes that new inodes inherit from a directory. Small, because each fragment of a split
/// directory holds a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedAttributes {
    /// The group, if the directory has its set-group-id bit; new directories then take the bit too.
    pub group: Option<u32>,
    /// The default ACL, in the kernel's encoding; empty if there is none.
    pub default_acl: Bytes,
    /// Placement of the bytes.
    pub placing: PlacementSpec,
}

/// The ACLs of a new inode, in the kernel's encoding; empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acls {
    /// The access ACL.
    pub access: Bytes,
    /// The default ACL; only of a directory.
    pub default: Bytes,
}
