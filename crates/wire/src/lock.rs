//! Locks of programs on files: fcntl(2), open file descriptions, flock(2).

use crate::Mark;
use serde::{Deserialize, Serialize};

/// What a lock allows to others, or that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Others may have read locks.
    Read,
    /// Others may have none.
    Write,
    /// Ends what the owner has there.
    Unlock,
}

/// Which locks meet each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "LockStyleAsRead")]
pub enum LockStyle {
    /// Of a range of bytes: `fcntl` and open file descriptions. They differ only in who the owner is.
    Range {
        /// The first byte.
        start: u64,
        /// The last byte; of a lock to the end of the file `i64::MAX` or above.
        end: u64,
    },
    /// Of the whole file: `flock`. It never meets a lock of a range.
    Whole,
}

/// A lock's place as it stands in a message, not yet checked.
#[derive(Deserialize)]
#[serde(rename = "LockStyle")]
enum LockStyleAsRead {
    Range { start: u64, end: u64 },
    Whole,
}

impl TryFrom<LockStyleAsRead> for LockStyle {
    type Error = &'static str;

    fn try_from(read: LockStyleAsRead) -> Result<Self, Self::Error> {
        match read {
            LockStyleAsRead::Range { start, end } if start > end => Err("a lock ends before it starts"),
            LockStyleAsRead::Range { start, end } => Ok(Self::Range { start, end }),
            LockStyleAsRead::Whole => Ok(Self::Whole),
        }
    }
}

impl LockStyle {
    /// All locks of ranges.
    pub const EVERYWHERE: Self = Self::Range { start: 0, end: u64::MAX };
}

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// Of a session, by a number that it gives, which means nothing to others. It ends with the session.
    Session(u64),
    /// Of a process of the node's host, as those of `fcntl` are: it outlives the session, as over an exec, and ends with the process. The node
    /// that is asked knows which one asks, and writes its number here; a client says 0.
    Process(u32),
    /// Of an open with a mark, whoever has that, as those of open file descriptions and of `flock` are. It ends with the open.
    Open(Mark),
}

impl LockOwner {
    /// Whether it is more than a session's: then only a client of the node's host may say so.
    pub fn outlives_sessions(self) -> bool {
        !matches!(self, Self::Session(_))
    }
}

/// A lock that is wanted, held or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Whose.
    pub owner: LockOwner,
    /// What it allows.
    pub kind: LockKind,
    /// Where, and which others it meets.
    pub style: LockStyle,
    /// The process that asked, as `F_GETLK` tells it.
    pub pid: u32,
}
