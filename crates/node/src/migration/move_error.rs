//! The error of a move that its source has given up.

use wire::Failure;

/// Why a partition stays at its node, as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MoveError {
    /// The node does not serve it.
    #[error("this node does not serve the partition")]
    NotServed,
    /// It is being moved already.
    #[error("the partition is being moved already")]
    Moving,
    /// The managers asked for it by an entry of the map that this node does not know.
    #[error("the partition has another epoch at this node")]
    OtherEpoch,
    /// A session with a kernel that caches is not subscribed at the other node.
    #[error("a session that caches is not subscribed at the other node")]
    NotSubscribed,
    /// A kernel did not acknowledge an invalidation.
    #[error("a kernel does not acknowledge invalidations")]
    NoAck,
    /// The managers have given up the move.
    #[error("the move was given up")]
    Cancelled,
    /// Bytes here could not be read.
    #[error("the partition cannot be read: {0}")]
    Unreadable(String),
    /// The other node has refused it, or does not answer.
    #[error("the other node: {0}")]
    Target(Failure),
    /// The other node has not answered whether it is ready: the managers decide.
    #[error("the other node may be ready, and has not said so: {0}")]
    Unknown(Failure),
}
