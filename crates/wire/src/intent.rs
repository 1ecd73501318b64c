//! Intents: transactions over several partitions, by two-phase commit. They take effect in all of
//! the partitions or in none.
//!
//! ```text
//!   client               the others                 the coordinator
//!     | Prepare{parts} ------> |                          |   checked, locked, space reserved
//!     | Commit{parts, others} --------------------------> |   own parts applied: the commit point
//!     | Settle{commit} ------> |                          |   applied or discarded
//!     | ForgetIntent -----------------------------------> |   forgotten
//! ```
//!
//! A client that finds an object locked by an intent asks its coordinator. `Status` only reads the
//! outcome; `Decide` aborts the intent if it is not committed. Any client that has the decision may
//! settle the intent.

use crate::{Changes, DirEntry, InheritedAttributes, Kind, Name, NewInode, Session};
use bytes::Bytes;
use placement::{FileId, PartitionId};
use serde::{Deserialize, Serialize};

/// Id of a transaction over several partitions. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// Counted by the client that drives it. The first field, so that intents of all clients sort
    /// by age.
    pub number: u64,
    /// The session of that client.
    pub session: Session,
    /// The partition that decides: the transaction is committed if and only if it is committed
    /// there.
    pub coordinator: PartitionId,
}

/// Inode that an entry refers to, and its type.
pub type Target = (FileId, Kind);

/// One action of a transaction in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Creates, changes or removes an entry of a directory or fragment, or only locks it.
    Entry {
        /// The directory or fragment.
        directory: FileId,
        /// The name.
        name: Name,
        /// The target that the entry must have before.
        before: Option<Target>,
        /// The target that it has afterwards.
        after: Option<Target>,
    },
    /// Increments the link count of an inode.
    AddLink {
        /// The inode.
        file: FileId,
    },
    /// Decrements the link count of anything but a directory.
    DropLink {
        /// The inode.
        file: FileId,
    },
    /// Creates the inode of a new directory; the answer has its id.
    CreateDirectory {
        /// Its parent directory.
        parent: FileId,
        /// The inode to create.
        inode: NewInode,
        /// Attributes that it inherits from its parent.
        inherited: InheritedAttributes,
    },
    /// Removes an empty directory, or a fragment of one.
    Remove {
        /// The directory or fragment.
        directory: FileId,
        /// Its fragments, which parts of their own remove.
        fragments: Vec<FileId>,
    },
    /// Updates the ctime of a renamed inode, and the parent of a moved directory.
    Moved {
        /// The inode.
        file: FileId,
        /// The directory that it is in now.
        parent: FileId,
    },
    /// Locks the pool-wide lease for moving directories between directories. It is in the root's
    /// partition.
    MoveLease,
    /// Locks all entries of the directory until the transaction is decided.
    LockEntries {
        /// The directory.
        directory: FileId,
    },
    /// Marks a locked directory as split into fragments.
    Split {
        /// The directory.
        directory: FileId,
        /// All fragments, in hash order.
        fragments: Vec<FileId>,
    },
    /// Creates a fragment; the answer has its id.
    Fragment {
        /// The directory.
        directory: FileId,
        /// The directory's attributes that new inodes inherit from.
        inode: NewInode,
        /// Entries of the fragment.
        entries: Vec<DirEntry>,
    },
    /// Changes attributes of a split directory or of one of its fragments.
    Change {
        /// The directory or fragment.
        directory: FileId,
        /// The changes; never of the size.
        changes: Changes,
    },
    /// Sets an inheritable attribute of a split directory or of one of its fragments: an ACL or a
    /// placement.
    Xattr {
        /// The directory or fragment.
        directory: FileId,
        /// Name of the attribute, with its namespace.
        name: Bytes,
        /// The new value; `None` removes the attribute.
        value: Option<Bytes>,
        /// Set for an ACL that clears the set-group-id bit, because the caller is not in the file's
        /// group.
        kill_set_group_id: bool,
    },
}

/// Outcome of a transaction, as its coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Not committed yet, or forgotten long ago.
    Open,
    /// Committed; these partitions must be notified.
    Committed {
        /// The other partitions.
        others: Vec<PartitionId>,
    },
    /// Aborted for good.
    Aborted,
}
