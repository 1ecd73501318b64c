//! Recalls: cache invalidations that a node sends to the client of a kernel.

use placement::{FileId, NodeId};
use serde::{Deserialize, Serialize};

/// A cache entry that a subscribed session must drop, because it has changed or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Recall {
    /// Attributes of a file, including its permissions.
    Attributes(FileId),
    /// Cached bytes of a file.
    Bytes(FileId),
    /// Names of a directory, including negative entries.
    Names(FileId),
    /// An inode that has lost its last name. It is kept until each notified session reports that
    /// its kernel has forgotten it.
    Removed(FileId),
    /// Nothing to drop: say hello to this node and subscribe there, because a partition moves to
    /// it.
    Greet(NodeId),
    /// Everything: the session's grants have ended with the connection that carried its
    /// invalidations.
    All,
}
