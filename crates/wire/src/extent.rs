//! Extent files: one extent of one node holds all bytes of the file.

use crate::Timestamp;
use bytes::Bytes;
use placement::NodeId;
use serde::{Deserialize, Serialize};

/// A prepared file of a node's engine that holds all bytes of one file of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The node that has it.
    pub node: NodeId,
    /// Slot at that node. A slot's file descriptor stays the same while the slot is reused for
    /// other files.
    pub slot: u32,
    /// Generation of the slot: counts the files that it has held.
    pub generation: u32,
}

/// Times of a file that change with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Last read (atime).
    pub accessed: Timestamp,
    /// Last change of the bytes (mtime).
    pub modified: Timestamp,
    /// Last change of anything (ctime).
    pub changed: Timestamp,
}

/// Request to make a file an extent file when it is created or opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentRequest {
    /// Leave the choice as it is.
    #[default]
    None,
    /// Use an extent if the node has a free one. Clients send no other request than this and
    /// `Local`.
    Any,
    /// As `Any`, and the node is the client's local node: an extent is allowed under
    /// [`placement::Policy::Here`] too.
    Local,
    /// Use this extent, which the node has allocated. Sent only by nodes to their partitions.
    Allocated(Extent),
}

/// An operation on an extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentAction {
    /// Writes bytes; fewer than sent only if the pool is full. -> `ExtentWritten`
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Writes bytes at the current end of the file. Needs a request id, so that a resent append is
    /// done once. -> `ExtentWritten`
    Append {
        /// The bytes.
        data: Bytes,
    },
}
