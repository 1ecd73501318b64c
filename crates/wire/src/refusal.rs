//! Errors, by meaning, with the object named. Frontends map them to errnos, status codes and
//! exceptions.

use crate::{Intent, Name, Version};
use base::ByteSize;
use placement::{FileId, NodeId, PartitionEntry, PartitionId};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// Result of a call.
pub type Outcome<T> = Result<T, Refusal>;

/// Maximum length of a text in messages, bytes. Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 300;

/// The object that an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Object {
    /// An inode.
    File(FileId),
    /// A name in a directory.
    Entry {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Name,
    },
    /// An open file.
    Handle(u64),
    /// A path, an invalid name, or a host file.
    Text(String),
    /// The pool as a whole.
    Pool,
}

impl Object {
    /// Creates an [`Object::Entry`].
    pub fn entry(parent: FileId, name: &Name) -> Self {
        Self::Entry { parent, name: name.clone() }
    }

    /// Creates an [`Object::Text`] of bytes that are no valid name, such as a path. Truncates very
    /// long ones.
    pub fn text(bytes: &[u8]) -> Self {
        let cut = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
        Self::Text(String::from_utf8_lossy(cut).into_owned())
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "file {file}"),
            Self::Entry { parent, name } => write!(f, "`{name}` in directory {parent}"),
            Self::Handle(handle) => write!(f, "handle {handle}"),
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Pool => f.write_str("the pool"),
        }
    }
}

/// Space usage at the time of an out-of-space error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceShortage {
    /// The full node. `None` if it is the whole pool, or the pool has one node.
    pub node: Option<NodeId>,
    /// Capacity, bytes.
    pub capacity: u64,
    /// Used space, bytes.
    pub used: u64,
    /// Additional space that was requested, bytes.
    pub wanted: u64,
    /// Time that the request waited for space.
    pub waited: Duration,
}

impl fmt::Display for SpaceShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = self.node.map_or_else(|| "the pool".to_owned(), |node| format!("node {node} of the pool"));
        if self.wanted > self.capacity {
            let (wanted, capacity) = (ByteSize(self.wanted), ByteSize(self.capacity));
            return write!(
                f,
                "{full} is too small: it holds at most {capacity}, and {wanted} are wanted; give it more memory"
            );
        }
        write!(
            f,
            "{full} is full: {} of {} used, {} more wanted, waited {:.1} s for space; \
             give the pool more memory, or delete files that are no longer needed",
            ByteSize(self.used),
            ByteSize(self.capacity),
            ByteSize(self.wanted),
            self.waited.as_secs_f64()
        )
    }
}

/// A partition whose entry of the map the client does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Its entry, as the node knows it.
    pub entry: PartitionEntry,
}

impl fmt::Display for MovedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionEntry { epoch, server, .. } = &self.entry;
        write!(f, "node {server} serves partition {}, as of epoch {epoch} of its entry: ask there", self.partition)
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// No such file, or no such entry.
    #[error("{0}: no such file or directory")]
    NotFound(Object),
    /// The name is taken.
    #[error("{0}: exists already")]
    Exists(Object),
    /// A directory was needed.
    #[error("{0}: not a directory")]
    NotDirectory(Object),
    /// Something other than a directory was needed.
    #[error("{0}: is a directory")]
    IsDirectory(Object),
    /// The directory holds entries.
    #[error("{0}: directory not empty")]
    NotEmpty(Object),
    /// The name is longer than 255 bytes, or a link's target longer than 4,095.
    #[error("{0}: name too long (at most 255 bytes, 4095 for a link's target)")]
    NameTooLong(Object),
    /// The object is a bound input, which cannot be changed.
    #[error("{0}: is a bound input, which is read-only")]
    ReadOnly(Object),
    /// The pool is full.
    #[error("{0}")]
    NoSpace(SpaceShortage),
    /// The file would grow beyond the limit, or a count would overflow.
    #[error("{object}: too large, the limit is {limit}")]
    TooLarge {
        /// The object that would grow.
        object: Object,
        /// Its maximum size.
        limit: u64,
    },
    /// The arguments are invalid.
    #[error("{object}: {why}")]
    Invalid {
        /// The object of the operation.
        object: Object,
        /// The problem.
        why: Cow<'static, str>,
    },
    /// The caller may not do this.
    #[error("{0}: not permitted")]
    NotPermitted(Object),
    /// The handle is not open, or not open for this operation.
    #[error("{0}: not open for this")]
    BadHandle(Object),
    /// Too many files are open, or too many sessions of the pool.
    #[error("{object}: too many {}, at most {limit}", if *object == Object::Pool { "sessions or mounts" } else { "open files" })]
    TooManyOpen {
        /// The file to open; the pool, for a session.
        object: Object,
        /// Maximum number of open files or sessions.
        limit: u64,
    },
    /// Another change of the object is in progress and did not end in time.
    #[error("{0}: another change of it is under way; try again")]
    Busy(Object),
    /// A prepared transaction has locked the object. Clients settle the transaction and retry:
    /// frontends never see this.
    #[error("a change over several partitions (number {} of client {}) holds it", .intent.number, .intent.session.0)]
    LockedByIntent {
        /// The transaction.
        intent: Intent,
    },
    /// The directory's entries are in fragments, or must be moved there first. Clients follow:
    /// frontends never see this.
    #[error("the entries of directory {directory} are in {} fragments", 1_u32 << .bits)]
    Split {
        /// The directory.
        directory: FileId,
        /// Number of hash bits that select a name's fragment. 0 if the directory is full and not
        /// split yet.
        bits: u8,
    },
    /// The inode has the maximum number of names.
    #[error("{object}: has {limit} names, which is the limit")]
    TooManyLinks {
        /// The inode.
        object: Object,
        /// Maximum number of names.
        limit: u32,
    },
    /// The request refers to a past state: an older generation, or a request id that is already
    /// settled.
    #[error("{0}: the request refers to a state that no longer exists")]
    Stale(Object),
    /// The session has ended, or has not sent `Hello` to this node on this connection. Clients
    /// start a new session: frontends see this only for files and locks of the old one.
    #[error("the session has ended, with its open files and locks: open the file again")]
    SessionEnded,
    /// The connection broke during a change and the session ended with it. The change is not
    /// resent.
    #[error(
        "{0}: the connection broke while it was changed; it is not known whether the change was made: check before you repeat it"
    )]
    OutcomeUnknown(Object),
    /// The object is not in the expected version. Nothing was done.
    #[error("{object}: {}", changed(*.present))]
    VersionMismatch {
        /// The object.
        object: Object,
        /// Its current version. `None` if it does not exist.
        present: Option<Version>,
    },
    /// The two names of a rename or link are in different pools.
    #[error("both names must be in one pool")]
    CrossesPools,
    /// The object's node did not answer. The change may have been made.
    #[error("{object}: its node does not answer ({tries} tries): {why}; see that the node runs, then try again")]
    Unavailable {
        /// The object of the operation.
        object: Object,
        /// Number of tries.
        tries: u32,
        /// The last error.
        why: Cow<'static, str>,
    },
    /// The placement of a file cannot change: it already has bytes in stripes.
    #[error("{0}: it has bytes, so its placement cannot change; copy it to a file that has the new placement")]
    AlreadyPlaced(Object),
    /// The inode has no such extended attribute.
    #[error("{0}: no such attribute")]
    NoAttribute(Object),
    /// The name or value of an extended attribute is too long.
    #[error("{object}: attribute too long, at most {limit} bytes")]
    AttributeTooLong {
        /// The object that has the attribute.
        object: Object,
        /// Maximum length, bytes.
        limit: usize,
    },
    /// The names of an inode's extended attributes would not fit into one list.
    #[error("{0}: too many attributes, their names take at most 64 KiB together")]
    TooManyAttributes(Object),
    /// Another owner holds a conflicting lock.
    #[error("{0}: locked by another owner")]
    Locked(Object),
    /// Waiting would deadlock: the lock's holder waits for the caller, directly or through others.
    #[error("{0}: waiting for this lock would never end (a deadlock)")]
    Deadlock(Object),
    /// The file has the maximum number of locks, or the node the maximum number of lock waiters.
    #[error("{object}: too many locks, at most {limit}")]
    TooManyLocks {
        /// The file.
        object: Object,
        /// The maximum.
        limit: u64,
    },
    /// No data at or after this offset.
    #[error("{0}: nothing there, the offset is at or behind the end")]
    BeyondEnd(Object),
    /// The operation timed out.
    #[error("{0}: took too long")]
    TimedOut(Object),
    /// The caller was interrupted.
    #[error("{0}: interrupted")]
    Interrupted(Object),
    /// This pool does not support the operation.
    #[error("{object}: {what} is not supported")]
    Unsupported {
        /// The object of the operation.
        object: Object,
        /// The operation.
        what: Cow<'static, str>,
    },
    /// The node rejects this client: its token is not the pool's, or its user may not reach the
    /// node.
    #[error("{why}")]
    NotAdmitted {
        /// The place, the problem and the remedy.
        why: Cow<'static, str>,
    },
    /// The node and this client share no protocol version.
    #[error("{why}")]
    Incompatible {
        /// The place, the versions and the remedy.
        why: Cow<'static, str>,
    },
    /// The host's disk or the engine failed.
    #[error("{object}: {why}")]
    Io {
        /// The object that was read or written.
        object: Object,
        /// The problem and the remedy.
        why: Cow<'static, str>,
    },
    /// The node does not serve the partition, or does so as of a later entry of the map. Clients
    /// send the request again by the entry.
    #[error("{0}")]
    Moved(Box<MovedPartition>),
}

impl Refusal {
    /// Creates a [`Refusal::Invalid`] for `object`.
    pub fn invalid(object: Object, why: &'static str) -> Self {
        Self::Invalid { object, why: why.into() }
    }
}

fn changed(present: Option<Version>) -> String {
    match present {
        Some(version) => format!("is not in the expected version, but in {version}; get it, then try again"),
        None => "does not exist, and was expected in a certain version; see whether it was deleted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_says_how_full_and_what_to_do() {
        let shortage = SpaceShortage {
            node: None,
            capacity: 1 << 30,
            used: 1 << 30,
            wanted: 4096,
            waited: Duration::from_millis(1500),
        };
        let text = Refusal::NoSpace(shortage).to_string();
        assert!(text.contains("1.5 s") && text.contains("more memory"), "{text}");
    }

    #[test]
    fn refusals_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Refusal>() <= 64, "{}", size_of::<Refusal>());
    }
}
