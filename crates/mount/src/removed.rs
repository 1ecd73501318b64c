//! Prunes inodes that other sessions removed: makes this kernel forget them, so that their space is
//! freed.
//!
//! ```text
//!   node: "removed" --> noted --> PRUNE --> unused dentries dropped --> FORGET --> node: forgotten
//!                         ^------ again, until it is forgotten ---'
//! ```
//!
//! A reply that hands the inode to the kernel may be in flight while the kernel forgets its earlier
//! lookups, or while the removal notice arrives. So the node is told that an inode is forgotten
//! only after all requests that were in flight then have ended, and only if the kernel does not
//! know the inode then. This applies to inodes that were not removed as well.
//!
//! The kernel drops only dentries that are unused at that moment, and does not report the end of a
//! use. So the prune is repeated: soon at first, then rarely, and again soon after a close.
//!
//! After a time limit the node is told in any case. An inode that the kernel still holds then is in
//! one of three states. It is open, which keeps it in the pool anyway. Or only dentries lead to it
//! that are looked up again before they are used. Or it is a removed directory that is some
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

use crate::{known::Known, lookups::UnderWay};

/// First pause: time enough for the kernel to send its FORGET, and for a path walk that used the
/// inode to end.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// Longest pause, and so the longest time that space stays taken after the last use of a file
/// within [`USED_WAIT`].
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time after which a prune is given up: far longer than an operation takes between its lookup of a
/// name and its use of the inode.
const USED_WAIT: Duration = Duration::from_secs(5);

/// Inodes that one kernel should forget, and forgotten inodes that requests in flight may hand out
/// again.
#[derive(Debug, Default)]
pub(crate) struct Removed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    schedule: Mutex<Schedule>,
    /// True if anything is noted; readable without taking the lock.
    any: AtomicBool,
    changed: Condvar,
    ended: AtomicBool,
}

/// Times of the next prunes. Pure state machine.
#[derive(Debug, Default)]
struct Schedule {
    noted: HashMap<FileId, Noted>,
    /// Items by time; an entry is outdated and skipped if its inode now has another time.
    times: BTreeSet<(Instant, FileId)>,
}

#[derive(Debug, Clone)]
struct Noted {
    since: Instant,
    next: Instant,
    pause: Duration,
    /// True if another session removed the inode.
    removed: bool,
    /// Requests in flight that may hand the inode to the kernel, if the kernel did not know it.
    unknown: Option<UnderWay>,
}

/// Items that are due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Inodes to prune in the kernel.
    pub(crate) prune: Vec<FileId>,
    /// Inodes to report to the node as forgotten: the kernel has forgotten them, or the time limit
    /// is over.
    pub(crate) gone: Vec<FileId>,
}

impl Schedule {
    /// Notes a removed inode that the kernel knows, or that these requests in flight may hand out.
    fn note(&mut self, file: FileId, under_way: UnderWay, now: Instant) {
        let (removed, unknown) = (true, Some(under_way));
        self.put(file, Noted { since: now, next: now, pause: PAUSE_FIRST, removed, unknown });
    }

    /// Prunes soon after the end of a use: the kernel is about to release the dentry.
    fn closed(&mut self, file: FileId, now: Instant) {
        if let Some(noted) = self.noted.get(&file).cloned() {
            self.put(file, Noted { next: now + PAUSE_FIRST, pause: PAUSE_FIRST, ..noted });
        }
    }

    /// Notes that the kernel has forgotten all lookups. Returns true if requests in flight may hand
    /// the inode out again, so that the node must be told later.
    fn given_back(&mut self, file: FileId, under_way: UnderWay, now: Instant) -> bool {
        if under_way.is_over() {
            self.noted.remove(&file);
            return false;
        }
        let noted = self.noted.get(&file);
        let (since, removed) = noted.map_or((now, false), |noted| (noted.since, noted.removed));
        let unknown = Some(under_way);
        self.put(file, Noted { since, next: now + PAUSE_FIRST, pause: PAUSE_FIRST, removed, unknown });
        true
    }

    fn put(&mut self, file: FileId, noted: Noted) {
        self.times.insert((noted.next, file));
        self.noted.insert(file, noted);
    }

    /// Time at which the next item may be due.
    fn next(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Items that are due. `is_known` says whether the kernel knows an inode, or a reply being sent
    /// hands it out.
    fn due(&mut self, now: Instant, is_known: impl Fn(FileId) -> bool) -> Due {
        let mut due = Due::default();
        while let Some((time, file)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            self.times.remove(&(time, file));
            let Some(noted) = self.noted.get(&file).cloned().filter(|noted| noted.next == time) else { continue };
            let (next, pause) = (now + noted.pause, (noted.pause * 2).min(PAUSE_MAX));
            // Checked before `is_known`: a request that hands the inode out counts the lookup
            // before it ends.
            let over = noted.unknown.as_ref().is_some_and(UnderWay::is_over);
            if is_known(file) {
                if !noted.removed {
                    // The inode was handed out again, so the kernel will forget it again.
                    self.noted.remove(&file);
                } else if now.duration_since(noted.since) > USED_WAIT {
                    self.noted.remove(&file);
                    due.gone.push(file);
                } else {
                    self.put(file, Noted { next, pause, ..noted });
                    due.prune.push(file);
                }
            } else if over {
                self.noted.remove(&file);
                due.gone.push(file);
            } else {
                self.put(file, Noted { next, pause, ..noted });
            }
        }
        due
    }
}

impl Removed {
    /// Notes a removed inode that this kernel may know, or that these requests in flight may hand
    /// out.
    pub(crate) fn note(&self, file: FileId, under_way: UnderWay) {
        self.change(|schedule| schedule.note(file, under_way, Instant::now()));
    }

    /// Notes that the kernel has released an open of this inode.
    pub(crate) fn closed(&self, file: FileId) {
        if self.0.any.load(SeqCst) {
            self.change(|schedule| schedule.closed(file, Instant::now()));
        }
    }

    /// Notes that the kernel has forgotten all lookups. Returns true if this module tells the node,
    /// after these requests in flight have ended.
    pub(crate) fn given_back(&self, file: FileId, under_way: UnderWay) -> bool {
        if under_way.is_over() && !self.0.any.load(SeqCst) {
            return false;
        }
        self.change(|schedule| schedule.given_back(file, under_way, Instant::now()))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Schedule) -> T) -> T {
        let mut schedule = self.0.schedule.lock();
        let changed = change(&mut schedule);
        if schedule.next().is_some() {
            self.0.any.store(true, SeqCst);
            self.0.changed.notify_one();
        }
        changed
    }

    /// Starts the thread that prunes the kernel of `known`, which contains this. The thread ends
    /// when this is dropped.
    pub(crate) fn start(&self, known: &Arc<Known>) -> io::Result<()> {
        let (shared, known) = (Arc::clone(&self.0), Arc::downgrade(known));
        thread::Builder::new().name("tidemill-prune".into()).spawn(move || run(&shared, &known)).map(drop)
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let _schedule = self.0.schedule.lock();
        self.0.ended.store(true, SeqCst);
        self.0.changed.notify_one();
    }
}

fn run(shared: &Shared, known: &Weak<Known>) {
    while shared.wait() {
        let Some(known) = known.upgrade() else { return };
        let due = shared.schedule.lock().due(Instant::now(), |file| known.is_known(file));
        known.let_go(&due);
    }
}

impl Shared {
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
    use crate::lookups::Looks;

    const FILE: FileId = FileId(7);

    /// Advances time until nothing is due. Returns the number of prunes, and the inodes reported to
    /// the node with the time of each.
    fn all_due(schedule: &mut Schedule, begin: Instant, is_known: bool) -> (usize, Vec<(Duration, FileId)>) {
        let (mut asked, mut gone) = (0, Vec::new());
        while let Some(time) = schedule.next() {
            let due = schedule.due(time, |_| is_known);
            asked += due.prune.len();
            gone.extend(due.gone.iter().map(|file| (time - begin, *file)));
        }
        (asked, gone)
    }

    /// A removed inode that the kernel knows and that was pruned once.
    fn noted() -> (Schedule, Instant) {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.note(FILE, UnderWay::default(), now);
        assert_eq!(schedule.due(now, |_| true), Due { prune: vec![FILE], gone: Vec::new() });
        assert_eq!(schedule.due(now, |_| true), Due::default());
        (schedule, now)
    }

    #[test]
    fn what_was_given_back_is_told_at_once_when_nothing_is_under_way() {
        let (mut schedule, now) = noted();
        assert!(
            !schedule.given_back(FILE, UnderWay::default(), now)
                && !schedule.given_back(FileId(8), UnderWay::default(), now)
        );
        assert_eq!(all_due(&mut schedule, now, false), (0, Vec::new()));
    }

    #[test]
    fn what_was_given_back_is_told_when_all_is_through_that_was_under_way() {
        for removed in [true, false] {
            let (looks, (mut schedule, now)) =
                (Looks::default(), if removed { noted() } else { (Schedule::default(), Instant::now()) });
            let look = looks.begin();
            assert!(schedule.given_back(FILE, looks.under_way(), now));
            assert_eq!(schedule.due(now + PAUSE_MAX, |_| false), Due::default());
            drop(look);
            assert_eq!(schedule.due(now + PAUSE_MAX * 2, |_| false), Due { prune: Vec::new(), gone: vec![FILE] });
            assert_eq!(all_due(&mut schedule, now, false), (0, Vec::new()));
        }
    }

    #[test]
    fn what_an_answer_told_of_meanwhile_is_to_be_given_back_again() {
        for removed in [true, false] {
            let (looks, (mut schedule, now)) =
                (Looks::default(), if removed { noted() } else { (Schedule::default(), Instant::now()) });
            let _look = looks.begin();
            schedule.given_back(FILE, looks.under_way(), now);
            let due = schedule.due(now + PAUSE_FIRST, |_| true);
            assert_eq!(due, Due { prune: if removed { vec![FILE] } else { Vec::new() }, gone: Vec::new() });
            assert_eq!(schedule.noted.contains_key(&FILE), removed);
        }
    }

    #[test]
    fn what_the_kernel_does_not_know_yet_is_waited_for_until_all_is_through_that_may_tell_of_it() {
        let (looks, mut schedule, now) = (Looks::default(), Schedule::default(), Instant::now());
        let look = looks.begin();
        schedule.note(FILE, looks.under_way(), now);
        assert_eq!(schedule.due(now, |_| false), Due::default());
        drop(look);
        assert_eq!(all_due(&mut schedule, now, false), (0, vec![(PAUSE_FIRST, FILE)]));
    }

    #[test]
    fn what_a_kernel_holds_on_to_is_asked_for_ever_more_rarely_and_given_up_in_the_end() {
        let (mut schedule, now) = noted();
        let (asked, gone) = all_due(&mut schedule, now, true);
        assert!((8..25).contains(&asked), "{asked} times");
        assert!(matches!(gone[..], [(after, FILE)] if after > USED_WAIT && after <= USED_WAIT + PAUSE_MAX), "{gone:?}");
        assert!(schedule.noted.is_empty());
    }

    #[test]
    fn after_a_close_it_is_asked_soon_again() {
        let (mut schedule, now) = noted();
        let mut time = now;
        while time - now < USED_WAIT / 2 {
            time = schedule.next().expect("it is noted");
            schedule.due(time, |_| true);
        }
        schedule.closed(FILE, time);
        assert_eq!(schedule.due(time + PAUSE_FIRST, |_| true).prune, [FILE]);
        let (_, gone) = all_due(&mut schedule, now, true);
        assert_eq!(gone.len(), 1, "once, though it was to be asked at two times");
    }
}
