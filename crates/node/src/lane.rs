//! One thread's queue of recalls: posted under a partition's lock, taken in batches, told, and waited for.
//!
//! Who changes a thing that was recalled a moment ago, and finds it no more in the queue, must be able to rely on its having been
//! heard; that look takes no lock while nothing is queued. `tests/model.rs` tries every order of the threads' steps.

use crate::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use crate::timer::sleep_until;
use std::{collections::BTreeSet, time::Instant};
use tokio::sync::Notify;
use wire::Recall;

/// What is to be told, in batches, by one thread.
#[derive(Debug, Default)]
pub struct Lane {
    state: Mutex<State>,
    /// Something is queued or being told: a look without the lock.
    busy: AtomicBool,
    work: Condvar,
    heard: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: BTreeSet<Recall>,
    /// What is being told.
    batch: Vec<Recall>,
    /// Batches that were taken, and of these, how many were heard.
    taken: u64,
    heard: u64,
    ended: bool,
}

impl Lane {
    /// Queues a recall; the batch that it will be told with.
    pub fn post(&self, recall: Recall) -> u64 {
        let mut state = self.state.lock();
        self.busy.store(true, SeqCst);
        if state.queue.insert(recall) && state.queue.len() == 1 {
            self.work.notify_one();
        }
        state.taken + 1
    }

    /// The batch that an earlier recall of the same is told with, when that was not heard yet.
    pub fn find(&self, recall: Recall) -> Option<u64> {
        if !self.busy.load(SeqCst) {
            return None;
        }
        let state = self.state.lock();
        if state.queue.contains(&recall) {
            return Some(state.taken + 1);
        }
        state.batch.contains(&recall).then_some(state.taken)
    }

    /// The last batch that was not heard yet.
    pub fn last(&self) -> Option<u64> {
        let state = self.state.lock();
        let last = state.taken + u64::from(!state.queue.is_empty());
        (last > state.heard).then_some(last)
    }

    /// Nobody listens any more: nobody waits.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.work.notify_all();
        self.heard.notify_waiters();
    }

    /// Takes all that is queued, when something is; none at the end.
    pub fn take(&self) -> Option<Vec<Recall>> {
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

    /// What was taken last was heard.
    pub fn done(&self) {
        let mut state = self.state.lock();
        state.heard = state.taken;
        state.batch.clear();
        if state.queue.is_empty() {
            self.busy.store(false, SeqCst);
        }
        drop(state);
        self.heard.notify_waiters();
    }

    pub fn has_heard(&self, batch: u64) -> bool {
        let state = self.state.lock();
        state.ended || state.heard >= batch
    }

    /// False when the time was over before.
    pub async fn wait(&self, batch: u64, end: Instant) -> bool {
        loop {
            let heard = self.heard.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            if self.has_heard(batch) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::select! {
                () = heard => {}
                () = sleep_until(end) => {}
            }
        }
    }
}
