//! Demotion: the bytes of a small, closed extent file move to its inode, and its extent returns to
//! the stock.
//!
//! Demotion is delayed ([`NodeSettings::closed_extents_max`](crate::NodeSettings)): small files are
//! often read, written or removed soon after they were made, and a kernel closes its file a moment
//! after it reported the close. So recently closed files wait in a queue, and each close checks the
//! one that has waited longest. A file that is still busy goes to the end of the queue.

use crate::{HostWork, Node, WorkerKind, clock};
use parking_lot::Mutex;
use partition::{CommandCaller, Effects, LogEntry, Partition};
use placement::FileId;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use store::Slot;
use wire::{Answer, Attributes, Command, Extent, INLINE_BYTES_MAX, OWN_NAMES, Outcome, Times};

/// Files that a turn of the worker tries.
const TURN_FILES_MAX: usize = 64;

/// Extent files that were closed recently.
#[derive(Debug, Default)]
pub struct DemotionQueue {
    queue: Mutex<VecDeque<(FileId, Extent)>>,
    /// Number of the node's last change of its own: demotions and others are numbered as a client's
    /// changes are.
    number: AtomicU64,
}

/// Result of an attempt to demote a file.
enum DemotionResult {
    /// The file is demoted, or need not be.
    Done,
    /// The file is busy, or there is no space for its bytes.
    Retry,
}

impl DemotionQueue {
    /// The next number for a change of the node's own. Must be called under the lock of the
    /// partition that it changes.
    pub fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// Lets the next number come after this one.
    pub fn begin_after(&self, number: u64) {
        self.number.fetch_max(number, Relaxed);
    }

    /// Adds files that may be closed.
    pub fn extend(&self, files: impl Iterator<Item = (FileId, Extent)>) {
        self.queue.lock().extend(files);
    }

    /// Number of files that wait.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }
}

impl Node {
    /// Acts on the effects that a partition reported beside its answer. The caller must not hold a
    /// partition's lock.
    pub(crate) fn run_effects(&self, effects: Effects) {
        for (file, extent) in effects.freed {
            if extent.node == self.id() {
                self.extents.free(extent);
            } else {
                self.hosted.push(HostWork::NoteUnused { node: extent.node, file });
            }
        }
        for (file, node) in effects.unbound.into_iter().filter(|(_, node)| *node != self.id()) {
            self.hosted.push(HostWork::NoteUnused { node, file });
        }
        // Large files are queued too: their size is checked when their turn comes.
        for closed in effects.closed {
            let (file, Extent { node, .. }) = closed;
            if node != self.id() {
                self.hosted.push(HostWork::NoteUnused { node, file });
                continue;
            }
            self.queue_thinning(closed);
            self.demotions.queue.lock().push_back(closed);
            // Two are checked for each that is queued, so that the queue shrinks again after many
            // were busy.
            let max = self.settings().closed_extents_max;
            self.turn_with(WorkerKind::Demotion, || self.demote_excess(max, 2));
        }
    }

    /// Reclaims space for a request that waits for it: ends opens that nobody has, retires freed
    /// extents, and demotes files. True if a freed extent is still busy.
    pub(crate) fn reclaim(&self) -> bool {
        self.scan_leases();
        let still_busy = self.extents.retire_idle();
        let waiting = self.demotions.len();
        self.turn_with(WorkerKind::Demotion, || self.demote_excess(0, waiting));
        still_busy
    }

    /// Demotes a file, if possible, before one of our own attributes of it is set or removed: where
    /// the bytes go can be set only for a file without an extent.
    pub(crate) fn demote_before(&self, command: &Command) {
        let (Command::SetXattr { file, name, .. } | Command::RemoveXattr { file, name }) = command else { return };
        let extent = || self.partitions.lock(file.partition())?.extent(*file).filter(|extent| extent.node == self.id());
        if name.starts_with(OWN_NAMES)
            && let Some(extent) = extent()
        {
            self.demote(*file, extent);
        }
    }

    /// Demotes files that are too many, as after many were busy when they were closed.
    pub(crate) fn demote_due(&self) -> u64 {
        self.demote_excess(self.settings().closed_extents_max, TURN_FILES_MAX)
    }

    /// Tries to demote up to `limit` files, those that have waited longest first, as long as more
    /// than `keep` wait. Returns how many left the queue.
    fn demote_excess(&self, keep: usize, limit: usize) -> u64 {
        let mut done = 0;
        for _ in 0..limit {
            let oldest = {
                let mut queue = self.demotions.queue.lock();
                if queue.len() > keep { queue.pop_front() } else { None }
            };
            let Some((file, extent)) = oldest else { break };
            match self.demote(file, extent) {
                DemotionResult::Done => done += 1,
                DemotionResult::Retry => self.demotions.queue.lock().push_back((file, extent)),
            }
        }
        done
    }

    fn demote(&self, file: FileId, extent: Extent) -> DemotionResult {
        let Some(mut partition) = self.partitions.lock(file.partition()) else { return DemotionResult::Done };
        if !partition.is_demotable(file, extent) {
            return DemotionResult::Done;
        }
        let Some(small) = self.demotable_attributes(&mut partition, file, extent) else { return DemotionResult::Done };
        if !self.extents.end_unpinned(extent) {
            return DemotionResult::Retry;
        }
        if self.extents.is_idle(extent) && self.move_to_inode(&mut partition, file, extent, &small) {
            drop(partition);
            self.extents.return_to_stock(extent);
            return DemotionResult::Done;
        }
        self.extents.revive(extent);
        DemotionResult::Retry
    }

    /// The attributes of an extent file that is small enough to be demoted.
    fn demotable_attributes(&self, partition: &mut Partition, file: FileId, extent: Extent) -> Option<Attributes> {
        let Ok(Answer::Attributes(mut found)) = stat(partition, file) else { return None };
        self.fill_from_extent(&mut found, extent).ok()?;
        (found.size <= INLINE_BYTES_MAX.into()).then_some(found)
    }

    /// Moves the bytes to the inode; false if that is not possible now.
    fn move_to_inode(&self, partition: &mut Partition, file: FileId, extent: Extent, small: &Attributes) -> bool {
        let Ok(bytes) = self.extents.engine().read_at(Slot(extent.slot), 0, INLINE_BYTES_MAX) else { return false };
        let wanted = Partition::demote_bytes_max(small.size);
        let times = Times { accessed: small.accessed, modified: small.modified, changed: small.changed };
        if wanted > 0 && self.engine.reserve(wanted).is_err() {
            return false;
        }
        let (demoted, _) = self.apply_own(partition, Command::Demote { file, extent, bytes, times }, wanted);
        if demoted.is_ok() {
            self.invalidate_if_resized(partition, small);
        }
        demoted.is_ok()
    }

    /// Invalidates attributes if the allocated space has changed: holes and preallocated space
    /// count differently in an inode. All other attributes stay as kernels may cache them.
    fn invalidate_if_resized(&self, partition: &mut Partition, before: &Attributes) {
        let file = before.file;
        let now = stat(partition, file);
        if !matches!(now, Ok(Answer::Attributes(now)) if now.allocated == before.allocated) {
            self.invalidate_attributes(partition, file);
        }
    }

    /// Invalidates attributes that no request has changed.
    pub(crate) fn invalidate_attributes(&self, partition: &mut Partition, file: FileId) {
        if let Some(invalidation) = partition.invalidate_attributes(file) {
            self.subscribers.invalidate(CommandCaller::default(), &[invalidation]);
        }
    }
}

fn stat(partition: &mut Partition, file: FileId) -> Outcome<Answer> {
    partition.apply(LogEntry::command(None, Command::Stat { file }, clock::now())).answer
}
