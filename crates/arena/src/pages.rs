//! The size of the pages of whole files: small as long as one of them is hollow, huge else. Who looks at them, and when.
//!
//! What is extended by a call is known before the call. What a kernel writes past us is not: so a thread looks, as long as somebody
//! has a file open for writing; every 10 ms at those that were opened just now or are hollow, each second at all.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use store::{Extents, Slot};

use crate::extents::Slots;
use crate::hollow::{Fill, Hollows};

/// Between looks at what may need small pages, or huge ones again, soon: 64 MiB take longer.
const SOON: Duration = Duration::from_millis(10);
/// Between looks at all.
const LATER: Duration = Duration::from_secs(1);
/// More files are not looked at one after the other; each costs half a microsecond.
const LOOKED_MAX: usize = 4096;

/// What slots are watched, and the pages that they have for that.
#[derive(Debug, Default)]
pub struct Pages {
    state: Mutex<PageState>,
    /// There is something to look at soon, or nothing any more at all.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PageState {
    hollows: Hollows,
    are_small: bool,
    /// The thread is there.
    is_looking: bool,
}

impl Pages {
    /// Does something to what is known, and has the pages follow it: when this returns they are what they must be.
    fn change(&self, slots: &Slots, what: impl FnOnce(&mut Hollows)) {
        let mut state = self.state.lock();
        what(&mut state.hollows);
        let small = state.hollows.any_hollow();
        // Where the system refuses, holes take what they take, and are thinned later.
        if small != state.are_small && slots.home().set_huge(!small).is_ok() {
            state.are_small = small;
        }
    }

    /// Somebody past us writes to a slot from now on.
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

    /// Nobody past us writes to it any more.
    pub fn forget(&self, slots: &Slots, slot: Slot) {
        self.change(slots, |hollows| hollows.forget(slot.0));
    }

    /// It is about to be so long.
    pub fn extend(&self, slots: &Slots, slot: Slot, length: u64) {
        let Some(fill) = fill(slots, slot) else { return };
        if length > fill.length {
            self.change(slots, |hollows| hollows.extend(slot.0, Fill { length, ..fill }));
        }
    }

    /// The thread: ends when there is nothing to look at.
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

    /// Whether there is something to look at; comes back when it is time for that.
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
