//! Objects: files that are put and got as a whole, by name.

use crate::{Attributes, Timestamp, command_table::BulkField};
use bytes::Bytes;
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Version of an object. Each put, and each change of its bytes through a file operation, makes a
/// new one. Versions are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The file. Each put creates a new one.
    pub file: FileId,
    /// [`Attributes::version`]: counts changes of its bytes by file operations since then.
    pub change: u64,
}

impl fmt::Display for Version {
    /// Formats the version as one word, for frontends that show it as text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.file.0, self.change)
    }
}

/// The text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a version of an object; give a version that this pool returned, unchanged")]
pub struct InvalidVersion;

impl FromStr for Version {
    type Err = InvalidVersion;

    /// Parses the output of `Display`.
    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| InvalidVersion);
        let (file, change) = text.split_once('-').ok_or(InvalidVersion)?;
        let version = Self { file: FileId(number(file)?), change: number(change)? };
        if version.to_string() == text { Ok(version) } else { Err(InvalidVersion) }
    }
}

/// Metadata of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// Current version.
    pub version: Version,
    /// Length, bytes.
    pub size: u64,
    /// Last change of the bytes.
    pub modified: Timestamp,
}

impl From<&Attributes> for ObjectMeta {
    fn from(Attributes { file, version, size, modified, .. }: &Attributes) -> Self {
        Self { version: Version { file: *file, change: *version }, size: *size, modified: *modified }
    }
}

/// Precondition of a put or delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// No condition.
    Always,
    /// The name does not exist.
    Absent,
    /// The object has this version.
    Is(Version),
}

/// The bytes of a new object, or their location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// The bytes: at most [`INLINE_BYTES_MAX`](crate::INLINE_BYTES_MAX).
    Inline(Bytes),
    /// In the stripes of a reserved file.
    Striped {
        /// The file, which becomes the object's.
        file: FileId,
        /// Length, bytes.
        size: u64,
        /// All bytes, if they fit into stripe 0 and that is stored at the node of the name: the
        /// node then writes them first. Otherwise empty, and the bytes are in the stripes already.
        first: Bytes,
    },
}

impl BulkField for Contents {
    fn bulk(&self) -> &Bytes {
        match self {
            Self::Inline(bytes) | Self::Striped { first: bytes, .. } => bytes,
        }
    }

    fn bulk_mut(&mut self) -> &mut Bytes {
        match self {
            Self::Inline(bytes) | Self::Striped { first: bytes, .. } => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_shown_and_has_one_spelling() {
        let version = Version { file: FileId(0xab_0000_0000_0012), change: 7 };
        assert_eq!(version.to_string().parse(), Ok(version));
        for other in ["", "1", "1-", "-1", "01-2", "1-2-3", "+1-2", "1-G", "1-A"] {
            assert_eq!(other.parse::<Version>(), Err(InvalidVersion), "{other}");
        }
    }
}
