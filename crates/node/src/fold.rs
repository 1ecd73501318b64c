//! Folding: a small whole file that nobody has open any more comes back to its inode, and its extent to the stock.
//!
//! Not at once ([`Settings::closed_kept`](crate::Settings)): who makes small files often reads, writes or removes them soon after, and a kernel lets go of what it had open
//! a moment after it told us. So the files that were closed last wait in a queue, and the one that has waited longest is looked
//! at when another is closed. One that is not quiet yet goes to the end of the queue.

use crate::{Node, clock};
use parking_lot::Mutex;
use partition::{Asker, Partition, Told};
use placement::FileId;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use store::Slot;
use wire::{Answer, Attributes, Command, Extent, INLINE_BYTES_MAX, OWN_NAMES, Session, Stamp, Times};

/// Whole files that were closed lately.
#[derive(Debug, Default)]
pub struct Folds {
    queue: Mutex<VecDeque<(FileId, Extent)>>,
    /// Folds are numbered as the changes of a client are; they are the node's own, as some others are.
    number: AtomicU64,
}

/// What came of looking at a file.
enum Looked {
    /// It is folded, or needs not be.
    Done,
    /// Somebody still uses it, or there is no space for its bytes.
    Later,
}

impl Folds {
    /// The number of a change of the node's own. To be taken under the lock of the partition that it changes.
    pub fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }
}

impl Node {
    /// Does what a partition told beside its answer. No lock of a partition is held.
    pub(crate) fn heed(&self, told: Told) {
        for extent in told.freed {
            self.whole.free(extent);
        }
        // Large ones too: what they are is asked when their turn comes.
        for closed in told.closed {
            self.shape_closed(closed);
            self.folds.queue.lock().push_back(closed);
            // Two for each that comes: the queue comes down again after many were not quiet.
            self.fold_beyond(self.settings().closed_kept, 2);
        }
    }

    /// Ends opens that nobody has, folds what it can, and looks at freed extents again: where space is wanted.
    pub(crate) fn relieve(&self) -> bool {
        self.look_around();
        let loud = self.whole.sweep();
        let waiting = self.folds.queue.lock().len();
        self.fold_beyond(0, waiting);
        loud
    }

    /// Brings a file home, if that can be, before it is said where its bytes are to lie: that is said of what has no extent.
    pub(crate) fn fold_before(&self, command: &Command) {
        let (Command::SetXattr { file, name, .. } | Command::RemoveXattr { file, name }) = command else { return };
        let whole = || self.partitions.get(file.partition())?.lock().extent(*file);
        if name.starts_with(OWN_NAMES)
            && let Some(extent) = whole()
        {
            self.fold(*file, extent);
        }
    }

    /// Looks at the `most` files that have waited longest, as long as more than `kept` wait.
    fn fold_beyond(&self, kept: usize, most: usize) {
        for _ in 0..most {
            let oldest = {
                let mut queue = self.folds.queue.lock();
                if queue.len() > kept { queue.pop_front() } else { None }
            };
            let Some((file, extent)) = oldest else { return };
            if matches!(self.fold(file, extent), Looked::Later) {
                self.folds.queue.lock().push_back((file, extent));
            }
        }
    }

    fn fold(&self, file: FileId, extent: Extent) -> Looked {
        let Some(partition) = self.partitions.get(file.partition()) else { return Looked::Done };
        let mut partition = partition.lock();
        if !partition.is_closed(file, extent) {
            return Looked::Done;
        }
        let Some(small) = self.small(&mut partition, file, extent) else { return Looked::Done };
        if !self.whole.end_unpinned(extent) {
            return Looked::Later;
        }
        if self.whole.is_quiet(extent) && self.bring_home(&mut partition, file, extent, &small) {
            drop(partition);
            self.whole.give_back(extent);
            return Looked::Done;
        }
        self.whole.revive(extent);
        Looked::Later
    }

    /// What a whole file shows, when it is small enough to be folded.
    fn small(&self, partition: &mut Partition, file: FileId, extent: Extent) -> Option<Attributes> {
        let Ok(Answer::Attributes(mut found)) = partition.apply(None, Command::Stat { file }, clock::now()) else {
            return None;
        };
        self.fill(&mut found, extent).ok()?;
        (found.size <= INLINE_BYTES_MAX.into()).then_some(found)
    }

    /// Moves the bytes; false when that cannot be done now.
    fn bring_home(&self, partition: &mut Partition, file: FileId, extent: Extent, small: &Attributes) -> bool {
        let Ok(bytes) = self.whole.extents().read_at(Slot(extent.slot), 0, INLINE_BYTES_MAX) else { return false };
        let wanted = Partition::fold_bytes_max(small.size);
        let times = Times { accessed: small.accessed, modified: small.modified, changed: small.changed };
        if wanted > 0 && self.engine.reserve(wanted).is_err() {
            return false;
        }
        let before = partition.bytes();
        let number = self.folds.next_number();
        let stamp = Stamp { session: Session::NONE, number, settled: number };
        let folded = partition.apply(Some(stamp), Command::Fold { file, extent, bytes, times }, clock::now());
        let unneeded = before + wanted - partition.bytes();
        if unneeded > 0 {
            self.engine.release(unneeded);
        }
        if folded.is_ok() {
            self.tell_if_shrunk(partition, small);
        }
        folded.is_ok()
    }

    /// What was a hole, or taken beforehand, counts otherwise now. All else is as kernels may keep it.
    fn tell_if_shrunk(&self, partition: &mut Partition, before: &Attributes) {
        let file = before.file;
        let now = partition.apply(None, Command::Stat { file }, clock::now());
        if !matches!(now, Ok(Answer::Attributes(now)) if now.allocated == before.allocated) {
            partition.recall_attributes(file);
            self.watches.tell(Asker::default(), &partition.take_notes());
        }
    }
}
