//! The log of entries: what replicas of partitions, or a disk, need to follow them.

use partition::{LogEntry, Partition};
use std::fmt::Debug;

/// A log of the entries that change the partitions of a node. Its methods are called under the
/// lock of the partition, so they see the entries of each in order; they must not call the node.
pub trait EntryLog: Debug + Send + Sync {
    /// Begins the log of a partition, with its state now.
    fn begin(&self, partition: &Partition);

    /// Adds an entry that changed the partition, which has applied it already.
    fn append(&self, partition: &Partition, entry: LogEntry);
}
