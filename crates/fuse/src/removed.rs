//! Inodes that others removed: this kernel is made to let go of them, so that their space comes back.
//!
//! ```text
//!   node: "removed" --> noted --> PRUNE --> names that nobody uses go --> FORGET --> node: forgotten
//!                         ^------ again, as long as it was not forgotten ----'
//! ```
//!
//! An answer that tells of an inode may be on its way while the kernel gives back what it was told of it before, or while its removal
//! is heard. So the node is told that it is forgotten when all looks are through that were under way then, if it is not known after
//! those. That holds for what is not removed as well.
//!
//! The kernel drops only names that nobody uses at that moment, and does not tell when a use ends. So it is asked again: soon at
//! first, then rarely, and soon after a close.
//!
//! In the end the node is told in any case. What the kernel holds by then is open, which keeps it in the pool anyway; or only names
//! lead to it that are looked up anew before they are used; or a program stands in a removed directory, or the kernel keeps what is
//! not there below it.
//!
//! All this is done by a thread of its own: a kernel that drops an inode may wait for its pages, and nobody shall wait for that.
//! It does not decide what is removed, nor what is kept.

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

/// Enough for the kernel to tell that it has forgotten, and for a path walk that stood in the way.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// The longest that space stays taken after the last use of a file within [`USED_WAIT`].
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Far above what an operation takes between its look at a name and its use of the inode.
const USED_WAIT: Duration = Duration::from_secs(5);

/// What one kernel is to let go of, and what it has given back while it may have been told of it anew.
#[derive(Debug, Default)]
pub(crate) struct Removed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    schedule: Mutex<Schedule>,
    /// Something is noted: a look without the lock.
    any: AtomicBool,
    changed: Condvar,
    ended: AtomicBool,
}

/// When each is asked for again. Pure.
#[derive(Debug, Default)]
struct Schedule {
    noted: HashMap<FileId, Noted>,
    /// In the order of time; what is noted for another time by now is passed over.
    times: BTreeSet<(Instant, FileId)>,
}

#[derive(Debug, Clone)]
struct Noted {
    since: Instant,
    next: Instant,
    pause: Duration,
    /// Others removed it.
    removed: bool,
    /// The kernel does not know it, but may be told of it by these.
    unknown: Option<UnderWay>,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// The kernel is to let go of these.
    pub(crate) prune: Vec<FileId>,
    /// The node is to be told that these are forgotten: they were given back, or are waited for no longer.
    pub(crate) gone: Vec<FileId>,
}

impl Schedule {
    /// It is removed; the kernel knows it, or may be told of it by these.
    fn note(&mut self, file: FileId, under_way: UnderWay, now: Instant) {
        let (removed, unknown) = (true, Some(under_way));
        self.put(file, Noted { since: now, next: now, pause: PAUSE_FIRST, removed, unknown });
    }

    /// A use has ended: the kernel lets go of the name in a moment.
    fn closed(&mut self, file: FileId, now: Instant) {
        if let Some(noted) = self.noted.get(&file).cloned() {
            self.put(file, Noted { next: now + PAUSE_FIRST, pause: PAUSE_FIRST, ..noted });
        }
    }

    /// The kernel has given all back; says whether it may be told anew, so that the node is told later.
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

    /// When something may be due.
    fn next(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// What is due; `is_known` tells whether the kernel has an inode, or is about to.
    fn due(&mut self, now: Instant, is_known: impl Fn(FileId) -> bool) -> Due {
        let mut due = Due::default();
        while let Some((time, file)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            self.times.remove(&(time, file));
            let Some(noted) = self.noted.get(&file).cloned().filter(|noted| noted.next == time) else { continue };
            let (next, pause) = (now + noted.pause, (noted.pause * 2).min(PAUSE_MAX));
            // Whether all is through is asked before whether it is known: who tells of it has counted that before he ends.
            let over = noted.unknown.as_ref().is_some_and(UnderWay::is_over);
            if is_known(file) {
                if !noted.removed {
                    self.noted.remove(&file); // the kernel was told anew, and gives it back anew
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
    /// Others removed this, and this kernel may know it, or be told of it by these.
    pub(crate) fn note(&self, file: FileId, under_way: UnderWay) {
        self.change(|schedule| schedule.note(file, under_way, Instant::now()));
    }

    /// The kernel has let go of an open of this.
    pub(crate) fn closed(&self, file: FileId) {
        if self.0.any.load(SeqCst) {
            self.change(|schedule| schedule.closed(file, Instant::now()));
        }
    }

    /// The kernel has given back all that it was told of this; says whether the node is told of that from here, after these.
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

    /// Starts the thread that makes the kernel of `known`, whose part this is, let go of what is noted. It ends with this.
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
    /// Waits until something may be due; false at the end.
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

    /// Lets time go on until nothing is due any more; how often the kernel was asked, and what the node was told after which time.
    fn all_due(schedule: &mut Schedule, begin: Instant, is_known: bool) -> (usize, Vec<(Duration, FileId)>) {
        let (mut asked, mut gone) = (0, Vec::new());
        while let Some(time) = schedule.next() {
            let due = schedule.due(time, |_| is_known);
            asked += due.prune.len();
            gone.extend(due.gone.iter().map(|file| (time - begin, *file)));
        }
        (asked, gone)
    }

    /// A removed inode that the kernel knows, and was asked to let go of.
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
