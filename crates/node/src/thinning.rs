//! Thinning: frees the unwritten parts of huge pages of a closed extent file.
//!
//! A sample at the close of a file decides whether it may have such parts; then it waits in a
//! queue. A piece of a file is thinned whenever usage is queried or a request waits for space, and
//! each second where the node is served to others. That is done under the partition's lock, so that
//! nobody opens the file meanwhile.

use crate::{Node, extents::ExtentSlots};
use parking_lot::Mutex;
use placement::FileId;
use std::collections::VecDeque;
use store::Slot;
use wire::Extent;

/// Files that are worked on in a turn.
const FILES_MAX: usize = 4;

/// Closed files that are to be thinned.
#[derive(Debug, Default)]
pub struct ThinningQueue(Mutex<VecDeque<ThinningItem>>);

#[derive(Clone, Copy, Debug)]
struct ThinningItem {
    file: FileId,
    extent: Extent,
    /// The offset up to which it is thinned.
    done: u64,
}

impl ThinningQueue {
    /// Number of files that wait.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Node {
    /// Handles the last close of an extent file: no writer past the node is left. Queues it for
    /// thinning if a sample shows need.
    pub(crate) fn queue_thinning(&self, (file, extent): (FileId, Extent)) {
        let Some(pin) = ExtentSlots::pin(&*self.extents, extent) else { return };
        self.extents.engine().end_direct_writes(pin.slot());
        if self.extents.engine().has_slack(pin.slot()) {
            self.thinning_queue.0.lock().push_back(ThinningItem { file, extent, done: 0 });
        }
    }

    /// Thins a piece of each of the next few files; returns how many of them are finished.
    pub(crate) fn thin_next(&self) -> u64 {
        let mut finished = 0;
        for _ in 0..self.thinning_queue.len().min(FILES_MAX) {
            let Some(next) = self.thinning_queue.0.lock().pop_front() else { break };
            match self.thin(&next) {
                Some(done) => self.thinning_queue.0.lock().push_back(ThinningItem { done, ..next }),
                None => finished += 1,
            }
        }
        finished
    }

    /// Thins a piece; returns the new offset if there is more to do.
    fn thin(&self, ThinningItem { file, extent, done }: &ThinningItem) -> Option<u64> {
        let mut partition = self.partitions.lock(file.partition())?;
        if !partition.is_closed(*file, *extent) {
            return None;
        }
        if !self.extents.end_unpinned(*extent) {
            return Some(*done);
        }
        let idle = self.extents.is_idle(*extent);
        let next = if idle { self.extents.engine().thin(Slot(extent.slot), *done) } else { Some(*done) };
        self.extents.revive(*extent);
        if idle {
            self.invalidate_attributes(&mut partition, *file);
        }
        next
    }
}
