//! Counts of the moves of partitions from and to a node, and the progress of those under way.

use crate::Node;
use placement::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of moves in one direction, since the node started.
#[derive(Debug, Default)]
pub struct MoveCounters {
    begun: AtomicU64,
    ended: AtomicU64,
    given_up: AtomicU64,
    bytes: AtomicU64,
}

/// What [`MoveCounters`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Moves that have begun.
    pub begun: u64,
    /// Moves after which the target serves.
    pub ended: u64,
    /// Moves that were given up: the source serves on.
    pub given_up: u64,
    /// Bytes of stripes that were moved, also by moves that were given up.
    pub bytes: u64,
}

/// Counts of moves from a node and to it.
#[derive(Debug, Default)]
pub struct NodeMoves {
    pub outgoing: MoveCounters,
    pub incoming: MoveCounters,
}

impl MoveCounters {
    pub fn begin(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    pub fn end(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    pub fn give_up(&self) {
        self.given_up.fetch_add(1, Relaxed);
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// What was counted until now.
    pub fn counts(&self) -> MoveCounts {
        let [begun, ended, given_up, bytes] =
            [&self.begun, &self.ended, &self.given_up, &self.bytes].map(|counter| counter.load(Relaxed));
        MoveCounts { begun, ended, given_up, bytes }
    }
}

/// The bytes of one move, from its estimate on.
#[derive(Debug, Default)]
pub struct CopiedBytes {
    total: AtomicU64,
    copied: AtomicU64,
}

impl CopiedBytes {
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Relaxed);
    }

    pub fn add(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Relaxed);
    }

    /// The progress of the move of this partition. Changes are copied too, so more may be copied
    /// than was estimated: then that much is the estimate.
    pub fn progress(&self, partition: PartitionId, to: NodeId) -> MoveProgress {
        let copied = self.copied.load(Relaxed);
        MoveProgress { partition, to, copied, total: self.total.load(Relaxed).max(copied) }
    }
}

/// The progress of a move from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveProgress {
    /// The partition.
    pub partition: PartitionId,
    /// Its target.
    pub to: NodeId,
    /// Bytes that the target has.
    pub copied: u64,
    /// Bytes that it is to have, as estimated at the beginning.
    pub total: u64,
}

impl Node {
    /// The moves from this node that are under way.
    pub fn departing(&self) -> Vec<MoveProgress> {
        self.departures.progress()
    }

    /// Number of partitions that move to this node, and are not served here yet.
    pub fn arriving(&self) -> usize {
        self.arrivals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_move_never_exceeds_its_whole() {
        let copied = CopiedBytes::default();
        copied.set_total(100);
        copied.add(60);
        let progress = |copied, total| MoveProgress { partition: PartitionId(1), to: NodeId(2), copied, total };
        assert_eq!(copied.progress(PartitionId(1), NodeId(2)), progress(60, 100));
        copied.add(60);
        assert_eq!(copied.progress(PartitionId(1), NodeId(2)), progress(120, 120));
    }
}
