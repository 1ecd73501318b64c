//! The page size of extent files: small while one of them is sparse, else huge.
//!
//! Length changes by our calls are known in advance, but writes by the kernel are not. So a thread
//! checks the files while any is open for writing: every 10 ms those that were just opened or are
//! sparse, and every second all of them.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use store::{Extents, Slot};

use crate::extents::Slots;
use crate::sparse::{Fill, Hollows};

/// Interval of checks of newly opened and sparse files. 64 MiB take longer to write.
const SOON: Duration = Duration::from_millis(10);
/// Interval of checks of all files.
const LATER: Duration = Duration::from_secs(1);
/// Maximum number of files checked in one round; each check costs half a microsecond.
const LOOKED_MAX: usize = 4096;

/// The watched files and the present page size.
#[derive(Debug, Default)]
pub struct Pages {
    state: Mutex<PageState>,
    /// Signals that a file should be checked soon.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PageState {
    hollows: Hollows,
    are_small: bool,
    /// True while the checking thread runs.
    is_looking: bool,
}

impl Pages {
    /// Updates the watched files and then sets the page size accordingly before it returns.
    fn change(&self, slots: &Slots, what: impl FnOnce(&mut Hollows)) {
        let mut state = self.state.lock();
        what(&mut state.hollows);
        let small = state.hollows.any_hollow();
        // If the system refuses, holes take huge pages and are thinned later.
        if small != state.are_small && slots.home().set_huge(!small).is_ok() {
            state.are_small = small;
        }
    }

    /// Starts watching a slot that the kernel may write to.
    pub fn watch(self: &Arc<Self>, slots: &Slots, me: &Weak<Slots>, slot: Slot) {
        let Some(fill) = fill(slots, slot) else { return };
        self.change(slots, |hollows| hollows.watch(slot.0, fill));
        let mut state = self.state.lock();
        if !state.is_looking {
            let (pages, slots) = (Arc::clone(self), me.clone());
            let started = thread::Builder::new().name("tidemill-pages".into()).spawn(move || pages.look(&slots));
            state.is_looking = started.is_ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Stops watching a slot.
    pub fn forget(&self, slots: &Slots, slot: Slot) {
        self.change(slots, |hollows| hollows.forget(slot.0));
    }

    /// Notes that a slot is about to grow to `length`.
    pub fn extend(&self, slots: &Slots, slot: Slot, length: u64) {
        let Some(fill) = fill(slots, slot) else { return };
        if length > fill.length {
            self.change(slots, |hollows| hollows.extend(slot.0, Fill { length, ..fill }));
        }
    }

    /// Runs the checking thread; it ends when no file is watched.
    fn look(&self, slots: &Weak<Slots>) {
        let mut all_at = Instant::now() + LATER;
        while self.is_needed(slots) {
            thread::sleep(SOON);
            let all = Instant::now() >= all_at;
            if all {
                all_at = Instant::now() + LATER;
            }
            let due = self.state.lock().hollows.due(all);
            let Some(slots) = slots.upgrade() else { continue };
            due.into_iter().take(LOOKED_MAX).for_each(|slot| self.look_at(&slots, Slot(slot)));
        }
    }

    /// Waits until a check is due. Returns false if no file is watched or the slots are gone.
    fn is_needed(&self, slots: &Weak<Slots>) -> bool {
        let mut state = self.state.lock();
        if !state.hollows.any_urgent() {
            self.changed.wait_for(&mut state, LATER);
        }
        state.is_looking = !state.hollows.is_empty() && slots.strong_count() > 0;
        state.is_looking
    }

    fn look_at(&self, slots: &Slots, slot: Slot) {
        let Some(fill) = fill(slots, slot) else { return };
        let is_dense = || slots.lies_in_long_runs(slot, fill.allocated);
        self.change(slots, |hollows| hollows.see(slot.0, fill, is_dense));
    }
}

fn fill(slots: &Slots, slot: Slot) -> Option<Fill> {
    slots.state(slot).ok().map(|state| Fill { length: state.length, allocated: state.allocated })
}
