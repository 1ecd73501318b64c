//! Subscribers: sessions whose kernels cache what they were answered. Each has threads that deliver
//! cache invalidations to its callback.
//!
//! ```text
//!   a change, under the partition's lock      the subscriber's thread        the change's answer
//!     post(recall) -> batch number              takes all that is queued
//!                                               on_invalidate(batch): its
//!                                                 kernel drops what it cached
//!                                               ack of the batch ----------> is sent
//! ```
//!
//! Each subscriber has two queues with a thread each. The **metadata** queue carries attributes and
//! names, which a kernel drops without waiting for anything. It also carries notices of removed
//! inodes, which nobody waits for. The **data** queue carries bytes: a kernel drops a page only
//! after the read or write of it that is in progress, and that write may wait for space. With two
//! queues, a removal, which may free that space, never waits behind such a page.
//!
//! **Answers in flight.** An invalidation may reach a kernel before an answer that was made
//! earlier. A FUSE kernel copes with that by itself. It takes attributes of an inode that it knows
//! only if no notification came since they were asked for. It checks names again if the dentry
//! epoch has moved since they were asked for. It drops a page that is being read when the page
//! arrives. For what it does not cope with (answers that it did not ask for, inodes that it does
//! not know yet), either no grant is made, or the frontend keeps track: see
//! `partition::cache_grants` and the invalidation code of the frontend.
//!
//! **Bounds.** An invalidation that is queued twice is delivered once, and a grant is taken back
//! only once, so a queue is never longer than the number of grants. No change waits longer than
//! [`ACK_WAIT_MAX`]. After that it is answered, with a warning in the log, because a kernel that
//! does not react must not stop the pool; the invalidation stays queued. Nobody waits for a
//! subscriber that has ended or whose callback panicked.

use crate::invalidation_sender::InvalidationSender;
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

/// Cache-invalidation callback. When it returns, the kernel has dropped the invalidated state.
pub type OnInvalidate = Arc<dyn Fn(&[Recall]) + Send + Sync>;

/// Longest time that a change waits for the ack of a subscriber: far above what a busy machine
/// takes for a system call.
const ACK_WAIT_MAX: Duration = Duration::from_secs(10);

/// A subscriber: its two queues.
#[derive(Debug)]
pub struct SubscriberQueues {
    metadata: Arc<InvalidationSender>,
    data: Arc<InvalidationSender>,
}

/// The acks that an answer waits for: queues and batch numbers.
#[derive(Debug)]
pub struct AckWait(Vec<(Arc<InvalidationSender>, u64)>);

impl SubscriberQueues {
    /// Starts the two threads.
    pub fn start(on_invalidate: &OnInvalidate) -> io::Result<Self> {
        let queues = Self { metadata: Arc::default(), data: Arc::default() };
        for (name, sender) in [("tidemill-recall", &queues.metadata), ("tidemill-bytes", &queues.data)] {
            let (sender, on_invalidate) = (sender.clone(), on_invalidate.clone());
            thread::Builder::new().name(name.into()).spawn(move || run(&sender, &on_invalidate))?;
        }
        Ok(queues)
    }

    /// Both queues.
    pub fn senders(&self) -> impl Iterator<Item = &Arc<InvalidationSender>> {
        [&self.metadata, &self.data].into_iter()
    }

    /// The queue that carries this invalidation.
    pub fn sender(&self, recall: Recall) -> &Arc<InvalidationSender> {
        match recall {
            Recall::Attributes(_) | Recall::Names(_) | Recall::Removed(_) | Recall::Greet(_) | Recall::All => {
                &self.metadata
            }
            Recall::Bytes(_) => &self.data,
        }
    }
}

impl Drop for SubscriberQueues {
    fn drop(&mut self) {
        self.metadata.end();
        self.data.end();
    }
}

impl AckWait {
    /// Waits for these batches; `None` if there are none.
    pub fn new(waits: Vec<(Arc<InvalidationSender>, u64)>) -> Option<Self> {
        (!waits.is_empty()).then_some(Self(waits))
    }

    /// Waits until all batches are acked, or the time is over.
    pub async fn wait(self) {
        let end = Instant::now() + ACK_WAIT_MAX;
        for (sender, batch) in self.0 {
            if !sender.wait_acked(batch, end).await && !OVERDUE.swap(true, Relaxed) {
                tracing::warn!(
                    "a mount's kernel has not acknowledged a cache invalidation for {} s: programs there may see old data",
                    ACK_WAIT_MAX.as_secs()
                );
            }
        }
    }
}

/// Set once the warning about a missing ack has been logged.
static OVERDUE: AtomicBool = AtomicBool::new(false);

/// Ends its queue when the thread ends, also by a panic.
struct EndOnDrop<'a>(&'a InvalidationSender);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run(sender: &InvalidationSender, on_invalidate: &OnInvalidate) {
    let _end_on_drop = EndOnDrop(sender);
    while let Some(batch) = sender.take_batch() {
        on_invalidate(&batch);
        sender.ack();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::FileId;

    const ONE: Recall = Recall::Attributes(FileId::ROOT);

    #[test]
    fn what_is_queued_twice_is_delivered_once_and_both_wait_for_it() {
        let sender = InvalidationSender::default();
        assert_eq!((sender.post(ONE), sender.post(ONE), sender.find_batch(ONE)), (1, 1, Some(1)));
        assert_eq!(sender.take_batch(), Some(vec![ONE]));
        assert_eq!((sender.find_batch(ONE), sender.is_acked(1)), (Some(1), false), "it is being delivered");
        assert_eq!(
            sender.post(ONE),
            2,
            "an invalidation that is posted while an equal one is delivered is delivered again"
        );
        sender.ack();
        assert_eq!((sender.is_acked(1), sender.is_acked(2), sender.find_batch(ONE)), (true, false, Some(2)));
    }

    #[test]
    fn nobody_waits_for_a_subscriber_whose_thread_has_panicked() {
        let on_invalidate: OnInvalidate = Arc::new(|_: &[Recall]| panic!("as a broken frontend"));
        let queues = SubscriberQueues::start(&on_invalidate).unwrap();
        let sender = queues.sender(ONE).clone();
        let batch = sender.post(ONE);
        let waited = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(
            waited.block_on(sender.wait_acked(batch, Instant::now() + ACK_WAIT_MAX)),
            "it was let go before its time"
        );
    }

    #[test]
    fn nobody_waits_longer_than_the_bound() {
        let sender = InvalidationSender::default();
        let batch = sender.post(ONE);
        let waited = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(!waited.block_on(sender.wait_acked(batch, Instant::now() + Duration::from_millis(5))));
    }
}
