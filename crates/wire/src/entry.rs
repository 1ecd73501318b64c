//! Entries of directories, and how they move.

use crate::{Kind, Name};
use placement::FileId;
use serde::{Deserialize, Serialize};

/// Every cookie of an entry is at least this and fits a signed 64-bit offset, so faces may use small numbers for `.`
/// and `..`, and 0 for the start.
pub const COOKIE_FIRST: u64 = 1 << 62;

/// One entry, as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// What it refers to.
    pub file: FileId,
    /// What that is.
    pub kind: Kind,
    /// Where to go on after it: stays right while entries come and go.
    pub cookie: u64,
}

/// The entry that a rename takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameFrom {
    /// Directory.
    pub parent: FileId,
    /// Name in it.
    pub name: Name,
}

/// The place that a rename gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameTo {
    /// Directory.
    pub parent: FileId,
    /// Name in it.
    pub name: Name,
}

/// What a rename does with an entry that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Refuses with `Exists` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Gives it the old name (`RENAME_EXCHANGE`); it must be there.
    Exchange,
}
