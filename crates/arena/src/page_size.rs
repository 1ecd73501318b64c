//! The page size of extent files: small while one of them is sparse, else huge.
//!
//! Length changes by our calls are known in advance, but writes by the kernel are not. So a thread
//! checks the files while any is open for writing: every 10 ms those that were just opened or are
//! sparse, and every second all of them.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use store::{Extents, PageChecks, Slot};

use crate::extents::Slots;
use crate::sparse::{FileUsage, SparseFiles};

/// Interval of checks of newly opened and sparse files. 64 MiB take longer to write.
const URGENT_INTERVAL: Duration = Duration::from_millis(10);
/// Interval of checks of all files.
const FULL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of files checked in one round; each check costs half a microsecond.
const CHECKS_MAX: usize = 4096;

/// The watched files and the present page size.
#[derive(Debug, Default)]
pub struct PageSizeMonitor {
    state: Mutex<MonitorState>,
    /// Signals that a file should be checked soon.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MonitorState {
    files: SparseFiles,
    are_small: bool,
    /// True while the checking thread runs.
    is_running: bool,
    rounds: u64,
    checked: u64,
}

impl PageSizeMonitor {
    /// Updates the watched files and then sets the page size accordingly before it returns.
    fn update(&self, slots: &Slots, change: impl FnOnce(&mut SparseFiles)) {
        let mut state = self.state.lock();
        change(&mut state.files);
        let small = state.files.any_sparse();
        // If the system refuses, holes take huge pages and are thinned later.
        if small != state.are_small && slots.tmpfs().set_huge(!small).is_ok() {
            state.are_small = small;
        }
    }

    /// Starts watching a slot that the kernel may write to.
    pub fn watch(self: &Arc<Self>, slots: &Slots, weak_slots: &Weak<Slots>, slot: Slot) {
        let Some(usage) = file_usage(slots, slot) else { return };
        self.update(slots, |files| files.watch(slot.0, usage));
        let mut state = self.state.lock();
        if !state.is_running {
            let (monitor, slots) = (Arc::clone(self), weak_slots.clone());
            let started = thread::Builder::new().name("tidemill-pages".into()).spawn(move || monitor.run(&slots));
            state.is_running = started.is_ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Stops watching a slot.
    pub fn unwatch(&self, slots: &Slots, slot: Slot) {
        self.update(slots, |files| files.unwatch(slot.0));
    }

    /// Notes that a slot is about to grow to `length`.
    pub fn extend(&self, slots: &Slots, slot: Slot, length: u64) {
        let Some(usage) = file_usage(slots, slot) else { return };
        if length > usage.length {
            self.update(slots, |files| files.extend(slot.0, FileUsage { length, ..usage }));
        }
    }

    /// Runs the checking thread; it ends when no file is watched.
    fn run(&self, slots: &Weak<Slots>) {
        let mut all_at = Instant::now() + FULL_INTERVAL;
        while self.is_needed(slots) {
            thread::sleep(URGENT_INTERVAL);
            let all = Instant::now() >= all_at;
            if all {
                all_at = Instant::now() + FULL_INTERVAL;
            }
            let due = self.state.lock().files.due(all);
            let Some(slots) = slots.upgrade() else { continue };
            let checked = due.len().min(CHECKS_MAX) as u64;
            due.into_iter().take(CHECKS_MAX).for_each(|slot| self.check(&slots, Slot(slot)));
            let mut state = self.state.lock();
            (state.rounds, state.checked) = (state.rounds + 1, state.checked + checked);
        }
    }

    /// Returns what the thread has done.
    pub fn page_checks(&self) -> PageChecks {
        let MonitorState { files, is_running, rounds, checked, .. } = &*self.state.lock();
        PageChecks { running: *is_running, rounds: *rounds, checked: *checked, watched: files.len() as u64 }
    }

    /// Waits until a check is due. Returns false if no file is watched or the slots are gone.
    fn is_needed(&self, slots: &Weak<Slots>) -> bool {
        let mut state = self.state.lock();
        if !state.files.any_urgent() {
            self.changed.wait_for(&mut state, FULL_INTERVAL);
        }
        state.is_running = !state.files.is_empty() && slots.strong_count() > 0;
        state.is_running
    }

    fn check(&self, slots: &Slots, slot: Slot) {
        let Some(usage) = file_usage(slots, slot) else { return };
        let is_dense = || slots.is_dense(slot, usage.allocated);
        self.update(slots, |files| files.record(slot.0, usage, is_dense));
    }
}

fn file_usage(slots: &Slots, slot: Slot) -> Option<FileUsage> {
    slots.state(slot).ok().map(|state| FileUsage { length: state.length, allocated: state.allocated })
}
