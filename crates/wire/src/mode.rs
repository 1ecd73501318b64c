//! Permission bits as a program wants them, and what a directory adds to them.

use bytes::Bytes;
use placement::Placing;
use serde::{Deserialize, Serialize};

/// The set-group-id bit: new inodes take the group of a directory that has it, and new directories the bit.
pub const SET_GROUP_ID: u32 = 0o2000;

/// Permission bits of something new, and the caller's umask, which a default ACL of the directory sets aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mode {
    /// 07777.
    pub bits: u32,
    /// The bits that are taken away where the directory has no default ACL.
    pub umask: u32,
}

impl From<u32> for Mode {
    /// These bits, whatever the umask.
    fn from(bits: u32) -> Self {
        Self { bits, umask: 0 }
    }
}

/// What a directory hands down to what is made in it. Small, so that parts of a split directory hold a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heritage {
    /// The group, where the directory has its set-group-id bit; new directories then take the bit too.
    pub group: Option<u32>,
    /// The default ACL, as the kernel encodes it; empty where there is none.
    pub default_acl: Bytes,
    /// Where bytes are to lie.
    pub placing: Placing,
}

/// The ACLs of a new inode, as the kernel encodes them; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acls {
    /// Who may use it.
    pub access: Bytes,
    /// What it hands down; only of a directory.
    pub default: Bytes,
}
