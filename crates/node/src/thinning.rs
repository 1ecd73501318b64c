//! Thinning: a closed whole file that has huge pages for little gives back what of them nobody wrote.
//!
//! Files that are suspected of it, by a sample at their close, wait in a queue. A piece of one is done whenever somebody asks how full
//! the pool is or wants space, and each second where the node is served to others: under its partition's lock, so that nobody opens it
//! meanwhile.

use crate::{Node, whole::Wholes};
use parking_lot::Mutex;
use partition::Asker;
use placement::FileId;
use std::collections::VecDeque;
use store::Slot;
use wire::Extent;

/// So many files are looked at in a turn.
const FILES_MAX: usize = 4;

/// Closed files that are to be thinned.
#[derive(Debug, Default)]
pub struct Thinnings(Mutex<VecDeque<Thinning>>);

#[derive(Clone, Copy, Debug)]
struct Thinning {
    file: FileId,
    extent: Extent,
    /// So much of it is done.
    done: u64,
}

impl Node {
    /// A whole file was closed for the last time: nobody writes to it past us any more.
    pub(crate) fn shape_closed(&self, (file, extent): (FileId, Extent)) {
        let Some(pin) = Wholes::pin(&*self.whole, extent) else { return };
        self.whole.extents().forget(pin.slot());
        if self.whole.extents().is_loose(pin.slot()) {
            self.thinnings.0.lock().push_back(Thinning { file, extent, done: 0 });
        }
    }

    /// Thins a piece of some files that wait for it.
    pub(crate) fn thin_some(&self) {
        let due = self.thinnings.0.lock().len().min(FILES_MAX);
        for _ in 0..due {
            let Some(next) = self.thinnings.0.lock().pop_front() else { return };
            if let Some(done) = self.thin(&next) {
                self.thinnings.0.lock().push_back(Thinning { done, ..next });
            }
        }
    }

    /// Thins a piece; how much of the file is done then, if there is more to do.
    fn thin(&self, Thinning { file, extent, done }: &Thinning) -> Option<u64> {
        let mut partition = self.partitions.get(file.partition())?.lock();
        if !partition.is_closed(*file, *extent) {
            return None;
        }
        if !self.whole.end_unpinned(*extent) {
            return Some(*done);
        }
        let quiet = self.whole.is_quiet(*extent);
        let next = if quiet { self.whole.extents().thin(Slot(extent.slot), *done) } else { Some(*done) };
        self.whole.revive(*extent);
        if quiet {
            partition.recall_attributes(*file);
            self.watches.tell(Asker::default(), &partition.take_notes());
        }
        next
    }
}
