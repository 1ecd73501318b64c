//! Marks: opens of programs that have a descriptor of the system's for them.
//!
//! Such a descriptor lives as the system says: copied, inherited, passed on, closed by whoever has it last. The node that gave it asks the
//! system whether it lives on; clients only tell it when to look. So an open with a mark may outlive the session that began it.

use crate::{Attributes, Extent, Gone, Kind, OpenFlags, Session};
use placement::{FileId, NodeId};
use serde::{Deserialize, Serialize};

/// The number of an open whose descriptor a node has given. Never given twice by the same node, as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark(pub u64);

impl Mark {
    /// Above the lowest bits, which count, stands the id of the node, as in a [`Session`].
    const COUNT_BITS: u32 = 48;

    /// The one that a node gives as its `count`th. None when there are no more: of that node, or because its id is too large.
    pub fn of(node: NodeId, count: u64) -> Option<Self> {
        Session::of(node, count).map(|Session(number)| Self(number))
    }

    /// Which node gave it, and as which.
    pub fn origin(self) -> (NodeId, u64) {
        Session(self.0).origin()
    }

    /// The byte of a descriptor on which its open has a lock of the open file description as long as it lives, in the file of that descriptor.
    pub fn byte(self) -> u64 {
        Self::FIRST_BYTE + (self.0 & ((1 << Self::COUNT_BITS) - 1))
    }

    /// The byte of count 0: behind the end of any file.
    const FIRST_BYTE: u64 = 1 << 62;
}

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lent {
    /// The extent of a whole file of the node that gives it: its bytes are the system's business.
    Extent(Extent),
    /// Nothing: it stands for a file whose bytes are asked of the pool. Its offset can be moved, and that is all.
    Bytes,
    /// A directory that is empty and has no name, to stand in and to look relative to.
    Directory,
}

impl Lent {
    /// Set-user-id and set-group-id. Who writes takes them away, but not who writes past us.
    const SET_ID: u32 = 0o6000;

    /// What the best descriptor of something is that was opened so: of the extent where there is one, a stand-in else.
    pub fn of(opened: &Attributes, flags: OpenFlags) -> Self {
        match opened.whole {
            _ if opened.kind == Kind::Directory => Self::Directory,
            Some(extent) if !flags.write || opened.mode & Self::SET_ID == 0 => Self::Extent(extent),
            _ => Self::Bytes,
        }
    }
}

/// An open that lives, as the node knows it that gave the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Its number.
    pub mark: Mark,
    /// What is open.
    pub file: FileId,
    /// As it was opened. A program may have changed since whether writes go to the end.
    pub flags: OpenFlags,
    /// What the descriptor is of.
    pub lent: Lent,
}

/// What came of looking at a mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Looked {
    /// Somebody has it.
    Held,
    /// It has ended, and the file is closed: now, or some time before.
    Ended {
        /// The file went with its last close: its stripes are to be removed.
        gone: Option<Gone>,
    },
    /// It has ended now, and another node has to be told to close the file, by this session.
    EndedElsewhere {
        /// Which file.
        file: FileId,
        /// Whose open it is. Of a session that has ended it is closed already.
        session: Session,
    },
}
