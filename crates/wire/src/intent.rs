//! Intents: changes that touch several partitions, and take effect in all of them or in none.
//!
//! ```text
//!   client               the others                 the coordinator
//!     | Prepare{parts} ------> |                          |    checked, marked, space set aside; nothing shows
//!     | Commit{parts, others} --------------------------> |    its own parts checked and done: this decides
//!     | Settle{commit} ------> |                          |    done, or dropped
//!     | Ended ------------------------------------------> |    forgotten
//! ```
//!
//! Who meets a mark asks the coordinator: `Status` only looks; `Decide` makes sure that what is not committed never will be.
//! Whoever has the decision may settle.

use crate::{Changes, DirEntry, Heritage, Kind, Name, NewInode, Session};
use bytes::Bytes;
use placement::{FileId, PartitionId};
use serde::{Deserialize, Serialize};

/// One change over several partitions. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// Counted by the client that drives it. First, so that older intents of all clients are smaller.
    pub number: u64,
    /// That client.
    pub session: Session,
    /// The partition that decides: whether it was done there is whether it was done.
    pub coordinator: PartitionId,
}

/// What an entry refers to.
pub type Target = (FileId, Kind);

/// What an intent does in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// An entry of a directory or fragment that is here: made, changed, removed, or only held as it is.
    Entry {
        /// The directory or fragment.
        directory: FileId,
        /// The name.
        name: Name,
        /// What it must refer to before.
        was: Option<Target>,
        /// What it refers to afterwards.
        becomes: Option<Target>,
    },
    /// One name more for an inode.
    Name {
        /// The inode.
        file: FileId,
    },
    /// One name less for anything but a directory.
    Unname {
        /// The inode.
        file: FileId,
    },
    /// The inode of a new directory; the answer tells its id.
    Make {
        /// The directory in which it will stand.
        parent: FileId,
        /// What is made.
        inode: NewInode,
        /// What that directory hands down.
        heritage: Heritage,
    },
    /// An empty directory, or fragment of one, goes.
    Remove {
        /// Which.
        directory: FileId,
        /// Its fragments, which go with it in parts of their own.
        fragments: Vec<FileId>,
    },
    /// An inode has got another name; a directory stands elsewhere.
    Moved {
        /// The inode.
        file: FileId,
        /// The directory in which it stands now.
        parent: FileId,
    },
    /// The pool's one right to move directories from one into another; in the root's partition.
    MoveLease,
    /// No entry of the directory changes until this is decided.
    Shut {
        /// The directory.
        directory: FileId,
    },
    /// The entries of a directory that was shut are in fragments.
    Divide {
        /// The directory.
        directory: FileId,
        /// All of them, in the order of hashes.
        fragments: Vec<FileId>,
    },
    /// A new fragment; the answer tells its id.
    Fragment {
        /// The directory.
        directory: FileId,
        /// What of the directory new inodes inherit from.
        inode: NewInode,
        /// Its entries.
        entries: Vec<DirEntry>,
    },
    /// Attributes of a directory that is split, or of a fragment of it.
    Change {
        /// Which.
        directory: FileId,
        /// What; never the size.
        changes: Changes,
    },
    /// An attribute of a directory that is split, or of a fragment of it, which it hands down: an ACL, where bytes lie.
    Xattr {
        /// Which.
        directory: FileId,
        /// Of the attribute, with its namespace.
        name: Bytes,
        /// What it will hold; none takes it away.
        value: Option<Bytes>,
        /// An ACL that takes the set-group-id bit away, because its setter is not of the group.
        kill_set_group_id: bool,
    },
}

/// What became of an intent, as its coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// It was not committed, and may still be; or it has ended long ago.
    Open,
    /// Done; these partitions are to be told.
    Committed {
        /// They.
        others: Vec<PartitionId>,
    },
    /// It will never be done.
    Aborted,
}
