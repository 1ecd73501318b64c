//! Directory entries, and renames of them.

use crate::{Kind, Name, Object, Outcome, Refusal, Target};
use placement::{FRAGMENT_BITS, FileId};
use serde::{Deserialize, Serialize};

/// Lowest cookie of an entry. All cookies fit a signed 64-bit offset. Frontends may use smaller
/// numbers for `.` and `..`, and 0 for the start.
pub const COOKIE_FIRST: u64 = 1 << 62;

/// Returns the index of the fragment that has the entry with this cookie if its directory is split:
/// the highest bits of the name's hash, which the cookie contains.
pub fn fragment_of_cookie(cookie: u64) -> usize {
    let hash = cookie & (COOKIE_FIRST - 1);
    usize::try_from(hash >> (COOKIE_FIRST.trailing_zeros() - FRAGMENT_BITS)).expect("a few bits")
}

/// A directory entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// The inode that it refers to.
    pub file: FileId,
    /// Type of that inode.
    pub kind: Kind,
    /// Position after this entry, to continue a listing. It stays valid while entries are added and
    /// removed.
    pub cookie: u64,
}

/// The entry to rename.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameFrom {
    /// Its directory.
    pub parent: FileId,
    /// Its name.
    pub name: Name,
}

/// The new place of a renamed entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameTo {
    /// The directory.
    pub parent: FileId,
    /// The name.
    pub name: Name,
}

/// Behavior of a rename if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replaces the existing entry.
    Replace,
    /// Refuses with `Exists` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two entries (`RENAME_EXCHANGE`); the new name must exist.
    Exchange,
}

impl RenameMode {
    /// Checks a rename of `moved` over the entry `taken`; `to` names the new place. Returns whether
    /// the rename changes anything.
    ///
    /// If both names refer to the same inode, both stay, as POSIX requires.
    pub fn check(self, moved: Target, taken: Option<Target>, to: impl FnOnce() -> Object) -> Outcome<bool> {
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
