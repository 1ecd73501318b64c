//! The invalidation queue of one thread: posted under a partition's lock, taken in batches,
//! delivered, and waited for.
//!
//! A request that changes something after an earlier invalidation of it, and no longer finds that
//! invalidation here, must be able to rely on its ack. That check takes no lock while nothing is
//! queued. `tests/model.rs` checks every interleaving of the threads' steps.

use crate::loom_shim::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use crate::timer::sleep_until;
use std::{collections::BTreeSet, time::Instant};
use tokio::sync::Notify;
use wire::Recall;

/// A queue of invalidations that one thread delivers in batches.
#[derive(Debug, Default)]
pub struct InvalidationSender {
    state: Mutex<SenderState>,
    /// True while something is queued or being delivered; readable without the lock.
    busy: AtomicBool,
    work: Condvar,
    acked: Notify,
}

#[derive(Debug, Default)]
struct SenderState {
    queue: BTreeSet<Recall>,
    /// The batch that is being delivered.
    batch: Vec<Recall>,
    /// Number of batches that were taken, and how many of them were acked.
    taken: u64,
    acked: u64,
    ended: bool,
}

impl InvalidationSender {
    /// Queues an invalidation; returns the number of the batch that will carry it.
    pub fn post(&self, recall: Recall) -> u64 {
        let mut state = self.state.lock();
        self.busy.store(true, SeqCst);
        if state.queue.insert(recall) && state.queue.len() == 1 {
            self.work.notify_one();
        }
        state.taken + 1
    }

    /// Returns the number of the batch that carries an equal invalidation, if one is queued or
    /// being delivered.
    pub fn find_batch(&self, recall: Recall) -> Option<u64> {
        if !self.busy.load(SeqCst) {
            return None;
        }
        let state = self.state.lock();
        if state.queue.contains(&recall) {
            return Some(state.taken + 1);
        }
        state.batch.contains(&recall).then_some(state.taken)
    }

    /// Returns the number of the last batch that is not acked yet, if there is one.
    pub fn last_unacked_batch(&self) -> Option<u64> {
        let state = self.state.lock();
        let last = state.taken + u64::from(!state.queue.is_empty());
        (last > state.acked).then_some(last)
    }

    /// Ends the queue: nothing more is delivered, so nobody waits.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.work.notify_all();
        self.acked.notify_waiters();
    }

    /// Waits for invalidations and takes all that are queued; `None` once the queue has ended.
    pub fn take_batch(&self) -> Option<Vec<Recall>> {
        let mut state = self.state.lock();
        while state.queue.is_empty() && !state.ended {
            self.work.wait(&mut state);
        }
        if state.ended {
            return None;
        }
        state.batch = std::mem::take(&mut state.queue).into_iter().collect();
        state.taken += 1;
        Some(state.batch.clone())
    }

    /// Acks the batch that was taken last.
    pub fn ack(&self) {
        let mut state = self.state.lock();
        state.acked = state.taken;
        state.batch.clear();
        if state.queue.is_empty() {
            self.busy.store(false, SeqCst);
        }
        drop(state);
        self.acked.notify_waiters();
    }

    pub fn is_acked(&self, batch: u64) -> bool {
        let state = self.state.lock();
        state.ended || state.acked >= batch
    }

    /// Waits for the ack of a batch; false if `end` passed before it.
    pub async fn wait_acked(&self, batch: u64, end: Instant) -> bool {
        loop {
            let acked = self.acked.notified();
            tokio::pin!(acked);
            acked.as_mut().enable();
            if self.is_acked(batch) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::select! {
                () = acked => {}
                () = sleep_until(end) => {}
            }
        }
    }
}
