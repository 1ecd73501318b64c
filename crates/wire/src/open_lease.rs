//! Open leases. An open lease is an open of a program that has a kernel file descriptor for it.
//!
//! The kernel decides how long the descriptor lives: programs duplicate it, inherit it, pass it on,
//! and close it. The node that gave the descriptor probes it in the kernel; clients only say when
//! to probe. An open with a lease may therefore outlive the session that opened it.

use crate::{Attributes, Extent, Kind, OpenFlags, PendingDelete, Session};
use placement::{FileId, NodeId};
use serde::{Deserialize, Serialize};

/// Id of an open lease. A node never reuses one while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpenLeaseId(pub u64);

impl OpenLeaseId {
    /// Number of low bits that hold the counter. The bits above hold the id of the node, as in a
    /// [`Session`].
    const COUNT_BITS: u32 = 48;

    /// Returns the `count`th lease of `node`. `None` if the node has no more numbers, or its id is
    /// too large.
    pub fn new(node: NodeId, count: u64) -> Option<Self> {
        Session::new(node, count).map(|Session(number)| Self(number))
    }

    /// Returns the node that gave the lease, and the node's counter for it.
    pub fn origin(self) -> (NodeId, u64) {
        Session(self.0).origin()
    }

    /// Offset of the byte that marks the lease: as long as it lives, its open file description has
    /// a lock on this byte of the descriptor's file.
    pub fn lock_offset(self) -> u64 {
        Self::FIRST_BYTE + (self.0 & ((1 << Self::COUNT_BITS) - 1))
    }

    /// The byte of counter 0: behind the end of any file.
    const FIRST_BYTE: u64 = 1 << 62;
}

/// The file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaseKind {
    /// The extent of an extent file of the node that gives the descriptor: the kernel does the I/O.
    Extent(Extent),
    /// A placeholder, for a file whose bytes are requested from the pool. Only its offset is
    /// usable.
    Bytes,
    /// An empty directory without a name: a placeholder for the working directory and for relative
    /// lookups.
    Directory,
}

impl LeaseKind {
    /// The set-user-id and set-group-id bits. A write must clear them; a direct write to the extent
    /// would not.
    const SET_ID: u32 = 0o6000;

    /// Chooses the descriptor for an open inode: its extent if it has one and this open may use it,
    /// else a placeholder.
    pub fn for_open(opened: &Attributes, flags: OpenFlags) -> Self {
        match opened.extent {
            _ if opened.kind == Kind::Directory => Self::Directory,
            Some(extent) if !flags.write || opened.mode & Self::SET_ID == 0 => Self::Extent(extent),
            _ => Self::Bytes,
        }
    }
}

/// A live open lease, as the node that gave the descriptor knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLease {
    /// Its id.
    pub id: OpenLeaseId,
    /// The open file.
    pub file: FileId,
    /// Flags of the open. The program may have changed `O_APPEND` since.
    pub flags: OpenFlags,
    /// The file behind the descriptor.
    pub kind: LeaseKind,
}

/// Result of probing an open lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseStatus {
    /// Some process still has the descriptor.
    Open,
    /// The lease has ended and the file is closed, now or earlier.
    Ended {
        /// Set if this close deleted the file: its stripes are to be removed.
        deleted: Option<PendingDelete>,
    },
    /// The lease has ended now. The client must tell another node to close the file for this
    /// session.
    EndedRemote {
        /// The file.
        file: FileId,
        /// The session that has the open. If that session has ended, the file is closed already.
        session: Session,
        /// True if the open may have locks at that node.
        locked: bool,
    },
}
