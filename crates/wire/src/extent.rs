//! Whole files: one extent of one node holds all the bytes.

use crate::Timestamp;
use bytes::Bytes;
use placement::NodeId;
use serde::{Deserialize, Serialize};

/// A prepared file of a node's engine that holds all the bytes of one file of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Who holds it.
    pub node: NodeId,
    /// Which of that node's: its descriptor stays the same for all its lives.
    pub slot: u32,
    /// Which of its lives: one for each file that it has held.
    pub generation: u32,
}

/// The times of a file that change with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the bytes.
    pub modified: Timestamp,
    /// Last change of anything.
    pub changed: Timestamp,
}

/// Whether a file that is made or opened shall be whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// It stays, or becomes, what files usually are.
    #[default]
    No,
    /// If the node has an extent to give. Clients say this, and no more.
    Wanted,
    /// The same of the client's own node.
    Home,
    /// The node has given this one. Only nodes say so, to their partitions.
    Given(Extent),
}

/// What to do with an extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentAction {
    /// Put bytes; fewer than given are put only when the pool is full. -> `Put`
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: Bytes,
    },
    /// Put bytes at the end, wherever it is by then. Needs a stamp, so that it is done once. -> `Put`
    Append {
        /// What.
        data: Bytes,
    },
}
