//! Subscribers: sessions whose kernels cache what they were answered. Each has threads that deliver
//! cache invalidations to its callback.
//!
//! ```text
//!   a change, under the partition's lock      the subscriber's thread        the change's answer
//!     post(recall) -> batch number              takes all that is queued
//!                                               hear(batch): its kernel
//!                                                 drops what it cached
//!                                               ack of the batch ----------> is sent
//! ```
//!
//! Each subscriber has two queues with a thread each. The **swift** queue carries attributes and
//! names, which a kernel drops without waiting for anything. It also carries notices of removed
//! inodes, which nobody waits for. The **slow** queue carries bytes: a kernel drops a page only
//! after the read or write of it that is in progress, and that write may wait for space. With two
//! queues, a removal, which may free that space, never waits behind such a page.
//!
//! **Answers in flight.** An invalidation may reach a kernel before an answer that was made
//! earlier. A FUSE kernel copes with that by itself. It takes attributes of an inode that it knows
//! only if no notification came since they were asked for. It checks names again if the dentry
//! epoch has moved since they were asked for. It drops a page that is being read when the page
//! arrives. For what it does not cope with (answers that it did not ask for, inodes that it does
//! not know yet), either no grant is made, or the frontend keeps track: see `partition::grants` and
//! the invalidation code of the frontend.
//!
//! **Bounds.** An invalidation that is queued twice is delivered once, and a grant is taken back
//! only once, so a queue is never longer than the number of grants. No change waits longer than
//! [`HEAR_WAIT`]. After that it is answered, with a warning in the log, because a kernel that does
//! not react must not stop the pool; the invalidation stays queued. Nobody waits for a subscriber
//! that has ended or whose callback panicked.

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

/// Cache-invalidation callback. When it returns, the kernel has dropped what it was told to.
pub type Hear = Arc<dyn Fn(&[Recall]) + Send + Sync>;

/// Longest time that a change waits for the ack of a subscriber: far above what a busy machine
/// takes for a system call.
const HEAR_WAIT: Duration = Duration::from_secs(10);

/// A subscriber: its two queues.
#[derive(Debug)]
pub struct Watch {
    swift: Arc<Lane>,
    slow: Arc<Lane>,
}

/// The acks that an answer waits for: queues and batch numbers.
#[derive(Debug)]
pub struct Hearing(Vec<(Arc<Lane>, u64)>);

impl Watch {
    /// Starts the two threads.
    pub fn start(hear: &Hear) -> io::Result<Self> {
        let watch = Self { swift: Arc::default(), slow: Arc::default() };
        for (name, lane) in [("tidemill-recall", &watch.swift), ("tidemill-bytes", &watch.slow)] {
            let (lane, hear) = (lane.clone(), hear.clone());
            thread::Builder::new().name(name.into()).spawn(move || run(&lane, &hear))?;
        }
        Ok(watch)
    }

    /// Both queues.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        [&self.swift, &self.slow].into_iter()
    }

    /// The queue that carries this invalidation.
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
    /// Waits for these batches; `None` if there are none.
    pub fn of(waits: Vec<(Arc<Lane>, u64)>) -> Option<Self> {
        (!waits.is_empty()).then_some(Self(waits))
    }

    /// Waits until all batches are acked, or the time is over.
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

/// Set once the warning about a missing ack has been logged.
static OVERDUE: AtomicBool = AtomicBool::new(false);

/// Ends its queue when the thread ends, also by a panic.
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
