//! Entries of directories, and how they move.

use crate::{Kind, Name, Object, Outcome, Refusal, Target};
use placement::{FRAGMENT_BITS, FileId};
use serde::{Deserialize, Serialize};

/// Every cookie of an entry is at least this and fits a signed 64-bit offset, so faces may use small numbers for `.`
/// and `..`, and 0 for the start.
pub const COOKIE_FIRST: u64 = 1 << 62;

/// The fragment that an entry with this cookie is in, when its directory is split: the highest bits of the hash in it.
pub fn fragment_of_cookie(cookie: u64) -> usize {
    let hash = cookie & (COOKIE_FIRST - 1);
    usize::try_from(hash >> (COOKIE_FIRST.trailing_zeros() - FRAGMENT_BITS)).expect("a few bits")
}

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

impl RenameMode {
    /// Whether a rename of `moved` over what is `taken` changes anything, or why it cannot be. `to` names the new place.
    ///
    /// Two names of one inode stay both, as POSIX asks.
    pub fn judge(self, moved: Target, taken: Option<Target>, to: impl FnOnce() -> Object) -> Outcome<bool> {
        let Some(taken) = taken else {
            return if self == Self::Exchange { Err(Refusal::NotFound(to())) } else { Ok(true) };
        };
        match (self, moved.1 == Kind::Directory, taken.1 == Kind::Directory) {
            (Self::NoReplace, ..) => Err(Refusal::Exists(to())),
            _ if taken.0 == moved.0 => Ok(false),
            (Self::Replace, true, false) => Err(Refusal::NotDirectory(to())),
            (Self::Replace, false, true) => Err(Refusal::IsDirectory(to())),
            _ => Ok(true),
        }
    }
}
