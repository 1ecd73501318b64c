//! Snapshots: the durable state of a partition as bytes, in the format of
//! `docs/formats/partition.md`.
//!
//! Equal durable states have equal snapshots. Soft state is not in them: another node that serves
//! begins without grants.

use crate::{Partition, inode::Inode};
use placement::{BuildNumberHasher, FileId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use wire::PROTOCOL_VERSION;

/// The first bytes of a snapshot.
const MAGIC: [u8; 8] = *b"TIDEPART";
/// The version of the format: it grows with each change of a type of this crate in it. The second
/// number is the version of the protocol, whose types are in it too.
pub const VERSION: SnapshotVersion = SnapshotVersion(2, PROTOCOL_VERSION);
/// Length of what is before the state, bytes.
const HEAD: usize = MAGIC.len() + 4;

/// A version of snapshots, and the version of the protocol whose types they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotVersion(pub u16, pub u16);

impl fmt::Display for SnapshotVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Why bytes are no snapshot of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// They begin otherwise.
    NoSnapshot,
    /// The version is another one.
    Version(SnapshotVersion),
    /// They end too early, or have values that are not possible.
    Damaged,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSnapshot => f.write_str("this is no snapshot of a partition"),
            Self::Version(found) => {
                write!(f, "the snapshot has version {found}; this Tidemill reads version {VERSION}")
            }
            Self::Damaged => f.write_str("the snapshot is damaged"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl Partition {
    /// Returns the durable state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.0.to_le_bytes());
        bytes.extend(VERSION.1.to_le_bytes());
        postcard::to_extend(self, bytes).expect("every state can be encoded")
    }

    /// Returns the partition of a snapshot. It has no soft state.
    pub fn restore(snapshot: &[u8]) -> Result<Self, SnapshotError> {
        let (head, state) = snapshot.split_at_checked(HEAD).ok_or(SnapshotError::NoSnapshot)?;
        let &[low, high, protocol_low, protocol_high] = head.strip_prefix(&MAGIC).unwrap_or_default() else {
            return Err(SnapshotError::NoSnapshot);
        };
        let number = |low, high| u16::from_le_bytes([low, high]);
        let version = SnapshotVersion(number(low, high), number(protocol_low, protocol_high));
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        match postcard::take_from_bytes::<Self>(state) {
            Ok((mut partition, [])) => {
                partition.note_arrival();
                Ok(partition)
            }
            _ => Err(SnapshotError::Damaged),
        }
    }
}

/// Serializes inodes in the order of their ids.
pub mod inodes {
    use super::{BTreeMap, BuildNumberHasher, FileId, HashMap, Inode};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Inodes = HashMap<FileId, Box<Inode>, BuildNumberHasher>;

    pub fn serialize<S: Serializer>(inodes: &Inodes, serializer: S) -> Result<S::Ok, S::Error> {
        inodes.iter().collect::<BTreeMap<_, _>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Inodes, D::Error> {
        Inodes::deserialize(deserializer)
    }
}
