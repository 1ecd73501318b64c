//! What a node tells a kernel's keeper to forget.

use placement::FileId;
use serde::{Deserialize, Serialize};

/// What a watching session was answered and may have kept, and must keep no longer: it has changed, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Recall {
    /// What `stat` shows of a file, its access rules with it.
    Attributes(FileId),
    /// Bytes of a file.
    Bytes(FileId),
    /// Names of a directory: those that are there, and those that are not.
    Names(FileId),
    /// An inode whose last name is gone. It stays for whoever is told so, until that one says that its kernel knows it no more.
    Removed(FileId),
    /// Everything that the session was ever answered: what it held has ended, with the connection over which it was told.
    All,
}
