//! Parts of answers: contents of reads, work that clients finish, the answer to a hello.

use crate::{Extent, HostFile, Intent, Session, StripeRuns, codec::ShmRange};
use bytes::Bytes;
use placement::{FileId, Layout, NodeId, PartitionMap};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The bytes of a read, or their location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The bytes. Missing bytes at the end read as zeros.
    Bytes(Bytes),
    /// In stripes with this layout.
    Striped(Layout),
    /// In a file of the host. Only within a node, which reads it: never sent to clients.
    Bound(Arc<HostFile>),
    /// In an extent. Only within a node, which reads it: never sent to clients.
    Extent(Extent),
    /// In these ranges of the node's shared memory, in order; at most
    /// [`RUNS_MAX`](crate::codec::RUNS_MAX). They stay unchanged until the client returns the lease
    /// that has the request's id.
    Shm(Vec<ShmRange>),
    /// Views of the node's memory, in order: for callers in the node's process, or callers to
    /// which the ranges can be sent. Never sent.
    #[serde(skip)]
    Pieces(Vec<Bytes>),
}

/// Maximum number of deleted files in one answer: with their stripes they fit into a frame. The
/// others remain in [`UnfinishedWork`].
pub const PENDING_DELETES_MAX: usize = 4096;

/// A pending delete: the inode is deleted, its stripes still have to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDelete {
    /// The file.
    pub file: FileId,
    /// Layout of the stripes.
    pub layout: Layout,
    /// Stripes that may exist.
    pub stripes: StripeRuns,
}

/// A pending truncation: stripes to truncate before the file may grow again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTruncate {
    /// Layout of the stripes.
    pub layout: Layout,
    /// Generation after the truncation.
    pub generation: u32,
    /// Remaining length of the file, bytes.
    pub length: u64,
    /// Stripes that reach beyond that length.
    pub stripes: StripeRuns,
}

/// Unfinished work in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedWork {
    /// Transactions that are prepared and not settled.
    pub prepared: Vec<Intent>,
    /// Transactions that committed in this partition, their coordinator, and are not forgotten yet.
    pub committed: Vec<Intent>,
    /// Deleted files whose stripes may still exist, at most [`PENDING_DELETES_MAX`]. Purge them to
    /// see more.
    pub deleted: Vec<PendingDelete>,
}

/// Answer to a client's `Hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// The node that answers.
    pub node: NodeId,
    /// The client's session; it is the same at all nodes of the pool.
    pub session: Session,
    /// Partition map: the node of each partition.
    pub map: Arc<PartitionMap>,
    /// Seed of all placement hashes.
    pub seed: u64,
    /// Length of a stripe, bytes.
    pub stripe_bytes: u32,
}

/// The bytes of a read as a client gets them, or their location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadableContent {
    /// The bytes. Missing bytes at the end read as zeros.
    Bytes(Bytes),
    /// In stripes with this layout.
    Striped(Layout),
}
