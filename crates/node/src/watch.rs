//! Watchers' threads: what is recalled from a session, heard by it, and waited for.
//!
//! ```text
//!   a change, under the partition's lock      the watcher's thread           the change's answer
//!     post(recall) -> batch number              take all that is queued
//!                                               hear(batch): its kernel
//!                                                 forgets
//!                                               heard(batch number) -------> goes out
//! ```
//!
//! Each watcher has two lanes with a thread each. On the **swift** one are attributes and names: a kernel forgets them without
//! waiting for anything; there it is told of removed inodes too, which nobody waits for. On the **slow** one are bytes: a kernel drops a page after the read or write of it that is under way, and
//! that write may wait for space. So a removal, which may be what makes the space, never stands behind it.
//!
//! **An answer on its way.** A recall may reach a kernel before an answer that was made earlier. A FUSE kernel puts that right by
//! itself: attributes of an inode it knows are taken only when no notification came since they were asked for; names are
//! checked again when the epoch has moved since they were asked for; a page that is being read is dropped when it has come. What
//! it does not put right (answers that it takes unasked, an inode it does not know yet) is not granted, or is the face's to
//! watch: see `partition::grants` and the face's recalls.
//!
//! **Bounds.** A recall that is queued twice is told once, and a grant that was taken back is not taken again, so a queue is never
//! longer than there are grants. No change waits longer than [`HEAR_WAIT`]: then it is answered with a warning in the log,
//! because a kernel that does not listen must not stop the pool, and the recall stays queued. A watcher that has ended, or whose
//! `hear` panics, is waited for no longer.

use crate::lane::Lane;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use wire::Recall;

/// Told what to forget; has made its kernel forget it when it returns.
pub type Hear = Arc<dyn Fn(&[Recall]) + Send + Sync>;

/// The longest that a change waits until a watcher has heard of it: far above what a busy machine takes for a system call.
const HEAR_WAIT: Duration = Duration::from_secs(10);

/// A watcher: its two lanes.
#[derive(Debug)]
pub struct Watch {
    swift: Arc<Lane>,
    slow: Arc<Lane>,
}

/// What an answer waits for.
#[derive(Debug)]
pub struct Hearing(Vec<(Arc<Lane>, u64)>);

impl Watch {
    /// Starts the threads.
    pub fn start(hear: &Hear) -> io::Result<Self> {
        let watch = Self { swift: Arc::default(), slow: Arc::default() };
        for (name, lane) in [("tidemill-recall", &watch.swift), ("tidemill-bytes", &watch.slow)] {
            let (lane, hear) = (lane.clone(), hear.clone());
            thread::Builder::new().name(name.into()).spawn(move || run(&lane, &hear))?;
        }
        Ok(watch)
    }

    /// Both.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        [&self.swift, &self.slow].into_iter()
    }

    /// Where this is told.
    pub fn lane(&self, recall: Recall) -> &Arc<Lane> {
        match recall {
            Recall::Attributes(_) | Recall::Names(_) | Recall::Removed(_) | Recall::All => &self.swift,
            Recall::Bytes(_) => &self.slow,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.swift.end();
        self.slow.end();
    }
}

impl Hearing {
    /// Of these batches; none when there are none.
    pub fn of(waits: Vec<(Arc<Lane>, u64)>) -> Option<Self> {
        (!waits.is_empty()).then_some(Self(waits))
    }

    /// Ends when all have heard, or the time is over.
    pub async fn heard(self) {
        let end = Instant::now() + HEAR_WAIT;
        for (lane, batch) in self.0 {
            if !lane.wait(batch, end).await && !OVERDUE.swap(true, Relaxed) {
                tracing::warn!(
                    "a mount's kernel has not forgotten what changed for {} s: programs there may see an old state",
                    HEAR_WAIT.as_secs()
                );
            }
        }
    }
}

/// It was said once that somebody does not hear.
static OVERDUE: AtomicBool = AtomicBool::new(false);

/// Ends its lane when the thread does, also by a panic.
struct Ending<'a>(&'a Lane);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run(lane: &Lane, hear: &Hear) {
    let _ending = Ending(lane);
    while let Some(batch) = lane.take() {
        hear(&batch);
        lane.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::FileId;

    const ONE: Recall = Recall::Attributes(FileId::ROOT);

    #[test]
    fn what_is_queued_twice_is_told_once_and_both_wait_for_it() {
        let lane = Lane::default();
        assert_eq!((lane.post(ONE), lane.post(ONE), lane.find(ONE)), (1, 1, Some(1)));
        assert_eq!(lane.take(), Some(vec![ONE]));
        assert_eq!((lane.find(ONE), lane.has_heard(1)), (Some(1), false), "it is being told");
        assert_eq!(lane.post(ONE), 2, "what comes while it is told is told again");
        lane.done();
        assert_eq!((lane.has_heard(1), lane.has_heard(2), lane.find(ONE)), (true, false, Some(2)));
    }

    #[test]
    fn nobody_waits_for_a_watcher_whose_thread_has_panicked() {
        let hear: Hear = Arc::new(|_: &[Recall]| panic!("as a face that is broken"));
        let watch = Watch::start(&hear).unwrap();
        let lane = watch.lane(ONE).clone();
        let batch = lane.post(ONE);
        let waited = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(waited.block_on(lane.wait(batch, Instant::now() + HEAR_WAIT)), "it was let go before its time");
    }

    #[test]
    fn nobody_waits_longer_than_the_bound() {
        let lane = Lane::default();
        let batch = lane.post(ONE);
        let waited = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(!waited.block_on(lane.wait(batch, Instant::now() + Duration::from_millis(5))));
    }
}
