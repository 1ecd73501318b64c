//! File locks: fcntl(2) locks of processes, locks of open file descriptions, flock(2) locks.

use crate::OpenLeaseId;
use placement::NodeId;
use serde::{Deserialize, Serialize};

/// Mode of a lock, or its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared: others may have read locks.
    Read,
    /// Exclusive: others may have no lock.
    Write,
    /// Releases the owner's locks in the range.
    Unlock,
}

/// Range of a lock. Only locks of the same style can conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawLockStyle")]
pub enum LockStyle {
    /// A byte range: `fcntl` and open file description locks. The two differ only in their owner.
    Range {
        /// The first byte.
        start: u64,
        /// The last byte; `i64::MAX` or above for a lock up to the end of the file.
        end: u64,
    },
    /// The whole file: `flock`. It never conflicts with a range lock.
    Whole,
}

/// Range of a lock in a message, not yet validated.
#[derive(Deserialize)]
#[serde(rename = "LockStyle")]
enum RawLockStyle {
    Range { start: u64, end: u64 },
    Whole,
}

impl TryFrom<RawLockStyle> for LockStyle {
    type Error = &'static str;

    fn try_from(read: RawLockStyle) -> Result<Self, Self::Error> {
        match read {
            RawLockStyle::Range { start, end } if start > end => Err("a lock ends before it starts"),
            RawLockStyle::Range { start, end } => Ok(Self::Range { start, end }),
            RawLockStyle::Whole => Ok(Self::Whole),
        }
    }
}

impl LockStyle {
    /// The range that covers all range locks.
    pub const EVERYWHERE: Self = Self::Range { start: 0, end: u64::MAX };
}

/// Owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// A number that the session chooses; it means nothing to other sessions. The lock ends with
    /// the session.
    Session(u64),
    /// A process, as for `fcntl`. The lock survives the session, for example over an exec, and ends
    /// with the process.
    Process {
        /// A node of the process's host, which notices its end.
        node: NodeId,
        /// The id of the process. A client sends 0; that node knows the connected process, and
        /// fills in its id.
        process: u32,
    },
    /// An open with an open lease, as for open file description locks and `flock`, whichever
    /// process has its descriptor. The lock ends with the open.
    Open(OpenLeaseId),
}

impl LockOwner {
    /// The process that asks. Client and node fill in which one that is.
    pub const THIS_PROCESS: Self = Self::Process { node: NodeId(0), process: 0 };

    /// Returns the node that notices the end of an owner that outlives sessions.
    pub fn host(self) -> Option<NodeId> {
        match self {
            Self::Session(_) => None,
            Self::Process { node, .. } => Some(node),
            Self::Open(lease) => Some(lease.origin().0),
        }
    }
}

impl Lock {
    /// Returns what releases all locks of an owner on a file.
    pub fn all_released(owner: LockOwner) -> [Self; 2] {
        [LockStyle::EVERYWHERE, LockStyle::Whole].map(|style| Self { owner, kind: LockKind::Unlock, style, pid: 0 })
    }
}

/// A lock to test, set or release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Owner.
    pub owner: LockOwner,
    /// Mode.
    pub kind: LockKind,
    /// Range.
    pub style: LockStyle,
    /// Process id for `F_GETLK`.
    pub pid: u32,
}
