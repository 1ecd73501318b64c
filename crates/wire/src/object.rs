//! Objects: files that are put and got as one, by name.

use crate::{Attributes, Timestamp};
use bytes::Bytes;
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One state of an object: another with each put, and with each change of its bytes by whatever way. Never one that it had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The file. Each put makes a new one.
    pub file: FileId,
    /// [`Attributes::version`]: how its bytes were changed since, through files' verbs.
    pub change: u64,
}

impl fmt::Display for Version {
    /// As one word, for faces that tell versions as text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.file.0, self.change)
    }
}

/// A text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a version of an object; give one that this pool has told, as it was told")]
pub struct VersionRefused;

impl FromStr for Version {
    type Err = VersionRefused;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, VersionRefused> {
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| VersionRefused);
        let (file, change) = text.split_once('-').ok_or(VersionRefused)?;
        let version = Self { file: FileId(number(file)?), change: number(change)? };
        if version.to_string() == text { Ok(version) } else { Err(VersionRefused) }
    }
}

/// What is known of an object besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its state.
    pub version: Version,
    /// Length, bytes.
    pub size: u64,
    /// Last change of its bytes.
    pub modified: Timestamp,
}

impl From<&Attributes> for Head {
    fn from(Attributes { file, version, size, modified, .. }: &Attributes) -> Self {
        Self { version: Version { file: *file, change: *version }, size: *size, modified: *modified }
    }
}

/// What must be so for an object to be put or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is nothing of this name.
    Absent,
    /// It is in this state.
    Is(Version),
}

/// The bytes of a new object, or where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// Here: at most [`INLINE_BYTES_MAX`](crate::INLINE_BYTES_MAX).
    Inline(Bytes),
    /// In the stripes of a file that was reserved.
    Striped {
        /// Which; it becomes the object's.
        file: FileId,
        /// Length, bytes.
        size: u64,
        /// All the bytes, when they are in stripe 0 and that lives where the name does: the node puts them there first. Else they are there already.
        first: Bytes,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_told_and_has_one_spelling() {
        let version = Version { file: FileId(0xab_0000_0000_0012), change: 7 };
        assert_eq!(version.to_string().parse(), Ok(version));
        for other in ["", "1", "1-", "-1", "01-2", "1-2-3", "+1-2", "1-G", "1-A"] {
            assert_eq!(other.parse::<Version>(), Err(VersionRefused), "{other}");
        }
    }
}
