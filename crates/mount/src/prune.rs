//! Prunes inodes that other sessions removed: makes this kernel forget them, so that their space is
//! freed.
//!
//! ```text
//!   node: "removed" --> pending -> PRUNE -> unused dentries dropped --> FORGET --> node: forgotten
//!                         ^------ again, until it is forgotten ---'
//! ```
//!
//! A reply that hands the inode to the kernel may be in flight while the kernel forgets its earlier
//! lookups, or while the removal notice arrives. So the node is notified that an inode is forgotten
//! only after all requests that were in flight then have ended, and only if the kernel does not
//! know the inode then. This applies to inodes that were not removed as well. The kernel may learn
//! of the inode again even after that check, so an inode stays here until it was really reported
//! (see `forget_reports`).
//!
//! The kernel drops only dentries that are unused at that moment, and does not report the end of a
//! use. So the prune is repeated: soon at first, then rarely, and again soon after a close.
//!
//! After a time limit the node is notified in any case. An inode that the kernel still holds then
//! is in one of three states. It is open, which keeps it in the pool anyway. Or only dentries lead
//! to it that are looked up again before they are used. Or it is a removed directory that is some
//! program's working directory, or below which the kernel caches absent names.
//!
//! A separate thread sends the prunes: a kernel that drops an inode may wait for its pages, and
//! nothing else should wait for that. This module decides neither which inodes are removed nor
//! which ones the pool retains.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use placement::FileId;

use crate::{kernel_state::KernelState, lookup_counts::InFlightSnapshot};

/// First pause: time enough for the kernel to send its FORGET, and for a path walk that used the
/// inode to end.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// Longest pause, and so the longest time that space stays taken after the last use of a file
/// within [`PRUNE_TIMEOUT`].
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time after which a prune is given up: far longer than an operation takes between its lookup of a
/// name and its use of the inode.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(5);

/// Inodes that one kernel should forget, and forgotten inodes that requests in flight may hand out
/// again.
#[derive(Debug, Default)]
pub(crate) struct Pruner(Arc<PrunerState>);

#[derive(Debug, Default)]
struct PrunerState {
    schedule: Mutex<PruneSchedule>,
    /// True if anything is pending; readable without taking the lock.
    any: AtomicBool,
    changed: Condvar,
    ended: AtomicBool,
}

/// Times of the next prunes. Pure state machine.
#[derive(Debug, Default)]
struct PruneSchedule {
    pending: HashMap<FileId, PendingPrune>,
    /// Items by time; an entry is outdated and skipped if its inode now has another time.
    times: BTreeSet<(Instant, FileId)>,
}

#[derive(Debug, Clone)]
struct PendingPrune {
    since: Instant,
    next: Instant,
    pause: Duration,
    /// True if another session removed the inode.
    removed: bool,
    /// Requests in flight that may hand the inode to the kernel, if the kernel did not know it.
    in_flight: Option<InFlightSnapshot>,
}

/// Items that are due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DueItems {
    /// Inodes to prune in the kernel.
    pub(crate) prune: Vec<FileId>,
    /// Inodes to report to the node as forgotten, if the kernel does not know them again by then.
    pub(crate) forgotten: Vec<FileId>,
    /// Inodes to report in any case: the time limit is over.
    pub(crate) overdue: Vec<FileId>,
}

impl PruneSchedule {
    /// Adds a removed inode that the kernel knows, or that these requests in flight may hand out.
    fn add(&mut self, file: FileId, in_flight: InFlightSnapshot, now: Instant) {
        let (removed, in_flight) = (true, Some(in_flight));
        self.insert(file, PendingPrune { since: now, next: now, pause: PAUSE_FIRST, removed, in_flight });
    }

    /// Prunes soon after the end of a use: the kernel is about to release the dentry.
    fn on_closed(&mut self, file: FileId, now: Instant) {
        if let Some(pending) = self.pending.get(&file).cloned() {
            self.insert(file, PendingPrune { next: now + PAUSE_FIRST, pause: PAUSE_FIRST, ..pending });
        }
    }

    /// Handles that the kernel has forgotten all lookups while these requests in flight may hand
    /// the inode out again.
    fn on_forgotten(&mut self, file: FileId, in_flight: InFlightSnapshot, now: Instant) {
        let pending = self.pending.get(&file);
        let (since, removed) = pending.map_or((now, false), |pending| (pending.since, pending.removed));
        let in_flight = Some(in_flight);
        self.insert(file, PendingPrune { since, next: now + PAUSE_FIRST, pause: PAUSE_FIRST, removed, in_flight });
    }

    /// Handles that the inode is reported to the node as forgotten.
    fn on_reported(&mut self, file: FileId) {
        self.pending.remove(&file);
    }

    fn insert(&mut self, file: FileId, pending: PendingPrune) {
        self.times.insert((pending.next, file));
        self.pending.insert(file, pending);
    }

    /// Time at which the next item may be due.
    fn next(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Items that are due. `is_known` says whether the kernel knows an inode, or a reply being sent
    /// hands it out.
    fn take_due(&mut self, now: Instant, is_known: impl Fn(FileId) -> bool) -> DueItems {
        let mut due = DueItems::default();
        while let Some((time, file)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            self.times.remove(&(time, file));
            let Some(pending) = self.pending.get(&file).cloned().filter(|pending| pending.next == time) else {
                continue;
            };
            let (next, pause) = (now + pending.pause, (pending.pause * 2).min(PAUSE_MAX));
            // Checked before `is_known`: a request that hands the inode out counts the lookup
            // before it ends.
            let finished = pending.in_flight.as_ref().is_some_and(InFlightSnapshot::is_finished);
            if is_known(file) {
                if !pending.removed {
                    // The inode was handed out again, so the kernel will forget it again.
                    self.pending.remove(&file);
                } else if now.duration_since(pending.since) > PRUNE_TIMEOUT {
                    self.pending.remove(&file);
                    due.overdue.push(file);
                } else {
                    self.insert(file, PendingPrune { next, pause, ..pending });
                    due.prune.push(file);
                }
            } else {
                self.insert(file, PendingPrune { next, pause, ..pending });
                if finished {
                    due.forgotten.push(file);
                }
            }
        }
        due
    }
}

impl Pruner {
    /// Schedules a removed inode that this kernel may know, or that these requests in flight may
    /// hand out.
    pub(crate) fn schedule(&self, file: FileId, in_flight: InFlightSnapshot) {
        self.update(|schedule| schedule.add(file, in_flight, Instant::now()));
    }

    /// Handles that the kernel has released an open of this inode.
    pub(crate) fn on_closed(&self, file: FileId) {
        if self.0.any.load(SeqCst) {
            self.update(|schedule| schedule.on_closed(file, Instant::now()));
        }
    }

    /// Handles that the kernel has forgotten all lookups. The node is notified after these requests
    /// in flight have ended.
    pub(crate) fn on_forgotten(&self, file: FileId, in_flight: InFlightSnapshot) {
        self.update(|schedule| schedule.on_forgotten(file, in_flight, Instant::now()));
    }

    /// Handles that the inode is reported to the node as forgotten. Called before the report is
    /// sent: a removal that the node notifies of later is not meant.
    pub(crate) fn on_reported(&self, file: FileId) {
        if self.0.any.load(SeqCst) {
            self.0.schedule.lock().on_reported(file);
        }
    }

    fn update(&self, update: impl FnOnce(&mut PruneSchedule)) {
        let mut schedule = self.0.schedule.lock();
        update(&mut schedule);
        if schedule.next().is_some() {
            self.0.any.store(true, SeqCst);
            self.0.changed.notify_one();
        }
    }

    /// Starts the thread that prunes `kernel`, which contains this. The thread ends
    /// when this is dropped.
    pub(crate) fn start(&self, kernel: &Arc<KernelState>) -> io::Result<()> {
        let (shared, kernel) = (Arc::clone(&self.0), Arc::downgrade(kernel));
        thread::Builder::new().name("tidemill-prune".into()).spawn(move || run(&shared, &kernel)).map(drop)
    }
}

impl Drop for Pruner {
    fn drop(&mut self) {
        let _schedule = self.0.schedule.lock();
        self.0.ended.store(true, SeqCst);
        self.0.changed.notify_one();
    }
}

fn run(shared: &PrunerState, kernel: &Weak<KernelState>) {
    while shared.wait() {
        let Some(kernel) = kernel.upgrade() else { return };
        let due = shared.schedule.lock().take_due(Instant::now(), |file| kernel.is_known(file));
        kernel.prune_due(&due);
    }
}

impl PrunerState {
    /// Waits until an item may be due; false at the end.
    fn wait(&self) -> bool {
        let mut schedule = self.schedule.lock();
        loop {
            if self.ended.load(SeqCst) {
                return false;
            }
            match schedule.next() {
                Some(time) if time <= Instant::now() => return true,
                Some(time) => drop(self.changed.wait_until(&mut schedule, time)),
                None => {
                    self.any.store(false, SeqCst);
                    self.changed.wait(&mut schedule);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup_counts::InFlightSet;

    const FILE: FileId = FileId(7);

    /// Advances time until nothing is due, and reports what is to be reported. Returns the number
    /// of prunes, and the inodes reported to the node with the time of each.
    fn all_due(schedule: &mut PruneSchedule, begin: Instant, is_known: bool) -> (usize, Vec<(Duration, FileId)>) {
        let (mut prunes, mut forgotten) = (0, Vec::new());
        while let Some(time) = schedule.next() {
            assert!(time - begin < PRUNE_TIMEOUT * 2, "it ends");
            let due = schedule.take_due(time, |_| is_known);
            assert!(!is_known || due.forgotten.is_empty(), "what is known is told only in any case");
            prunes += due.prune.len();
            due.forgotten.iter().for_each(|file| schedule.on_reported(*file));
            forgotten.extend(due.forgotten.iter().chain(&due.overdue).map(|file| (time - begin, *file)));
        }
        (prunes, forgotten)
    }

    /// A removed inode that the kernel knows and that was pruned once.
    fn pending() -> (PruneSchedule, Instant) {
        let (mut schedule, now) = (PruneSchedule::default(), Instant::now());
        schedule.add(FILE, InFlightSnapshot::default(), now);
        assert_eq!(schedule.take_due(now, |_| true), DueItems { prune: vec![FILE], ..DueItems::default() });
        assert_eq!(schedule.take_due(now, |_| true), DueItems::default());
        (schedule, now)
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let (mut schedule, now) = pending();
        schedule.on_reported(FILE);
        assert_eq!(all_due(&mut schedule, now, false), (0, Vec::new()));
    }

    #[test]
    fn what_is_known_again_when_it_was_to_be_told_stays_noted_if_it_is_removed() {
        for removed in [true, false] {
            let (mut schedule, now) = if removed { pending() } else { (PruneSchedule::default(), Instant::now()) };
            schedule.on_forgotten(FILE, InFlightSnapshot::default(), now);
            let due = schedule.take_due(now + PAUSE_FIRST, |_| false);
            assert_eq!(due, DueItems { forgotten: vec![FILE], ..DueItems::default() });
            // An answer hands it out before the report, which is not sent then.
            let due = schedule.take_due(now + PAUSE_MAX, |_| true);
            assert_eq!(due, DueItems { prune: if removed { vec![FILE] } else { Vec::new() }, ..DueItems::default() });
            assert_eq!(all_due(&mut schedule, now, false).1.len(), usize::from(removed), "in the end");
        }
    }

    #[test]
    fn what_was_given_back_is_told_when_all_is_through_that_was_under_way() {
        for removed in [true, false] {
            let (requests, (mut schedule, now)) =
                (InFlightSet::default(), if removed { pending() } else { (PruneSchedule::default(), Instant::now()) });
            let request = requests.begin();
            schedule.on_forgotten(FILE, requests.snapshot(), now);
            assert_eq!(schedule.take_due(now + PAUSE_MAX, |_| false), DueItems::default());
            drop(request);
            assert_eq!(
                schedule.take_due(now + PAUSE_MAX * 2, |_| false),
                DueItems { forgotten: vec![FILE], ..DueItems::default() }
            );
            schedule.on_reported(FILE);
            assert_eq!(all_due(&mut schedule, now, false), (0, Vec::new()));
        }
    }

    #[test]
    fn what_an_answer_told_of_meanwhile_is_to_be_given_back_again() {
        for removed in [true, false] {
            let (requests, (mut schedule, now)) =
                (InFlightSet::default(), if removed { pending() } else { (PruneSchedule::default(), Instant::now()) });
            let _request = requests.begin();
            schedule.on_forgotten(FILE, requests.snapshot(), now);
            let due = schedule.take_due(now + PAUSE_FIRST, |_| true);
            assert_eq!(due, DueItems { prune: if removed { vec![FILE] } else { Vec::new() }, ..DueItems::default() });
            assert_eq!(schedule.pending.contains_key(&FILE), removed);
        }
    }

    #[test]
    fn what_the_kernel_does_not_know_yet_is_waited_for_until_all_is_through_that_may_tell_of_it() {
        let (requests, mut schedule, now) = (InFlightSet::default(), PruneSchedule::default(), Instant::now());
        let request = requests.begin();
        schedule.add(FILE, requests.snapshot(), now);
        assert_eq!(schedule.take_due(now, |_| false), DueItems::default());
        drop(request);
        assert_eq!(all_due(&mut schedule, now, false), (0, vec![(PAUSE_FIRST, FILE)]));
    }

    #[test]
    fn what_a_kernel_holds_on_to_is_asked_for_ever_more_rarely_and_given_up_in_the_end() {
        let (mut schedule, now) = pending();
        let (prunes, forgotten) = all_due(&mut schedule, now, true);
        assert!((8..25).contains(&prunes), "{prunes} times");
        assert!(
            matches!(forgotten[..], [(after, FILE)] if after > PRUNE_TIMEOUT && after <= PRUNE_TIMEOUT + PAUSE_MAX),
            "{forgotten:?}"
        );
        assert!(schedule.pending.is_empty());
    }

    #[test]
    fn after_a_close_it_is_asked_soon_again() {
        let (mut schedule, now) = pending();
        let mut time = now;
        while time - now < PRUNE_TIMEOUT / 2 {
            time = schedule.next().expect("it is noted");
            schedule.take_due(time, |_| true);
        }
        schedule.on_closed(FILE, time);
        assert_eq!(schedule.take_due(time + PAUSE_FIRST, |_| true).prune, [FILE]);
        let (_, forgotten) = all_due(&mut schedule, now, true);
        assert_eq!(forgotten.len(), 1, "once, though it was to be asked at two times");
    }
}
