//! Waiting for space in a full pool: bounded in time and number, woken when space is freed.

use crate::timer::{now, sleep_until};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use wire::{Refusal, SpaceShortage};

/// Most requests that wait for space at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;

/// The requests that wait for space, with counts.
pub struct SpaceWaiters {
    freed: Notify,
    wait: Duration,
    waiting: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
}

/// The engine had no space.
#[derive(Clone, Copy, Debug)]
pub struct EngineFull {
    pub capacity: u64,
    pub used: u64,
    pub wanted: u64,
}

/// Counts one waiting request for as long as it lives.
struct WaitingGuard<'a>(&'a SpaceWaiters);

impl SpaceWaiters {
    pub fn new(wait: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { freed: Notify::new(), wait, waiting: zero(), waited: zero(), refused: zero() }
    }

    /// Wakes all waiting requests after space was freed.
    pub fn notify_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Numbers of requests that wait now, that ever waited, and that were refused.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.waiting.load(Relaxed), self.waited.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Retries until the attempt succeeds or the time is over.
    ///
    /// An attempt also returns the delay after which a retry makes sense even if no freed space was
    /// announced.
    pub async fn wait_for<T>(
        &self,
        mut attempt: impl FnMut() -> (Result<T, EngineFull>, Option<Duration>),
    ) -> Result<T, Refusal> {
        let start = now();
        let waiting = self.begin_wait();
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let (full, again) = match attempt() {
                (Ok(done), _) => return Ok(done),
                (Err(full), again) => (full, again),
            };
            if waiting.is_none() || (now() - start) >= self.wait {
                return Err(self.refuse(full, now() - start));
            }
            tokio::select! {
                () = freed => {}
                () = sleep_until(next_retry(start + self.wait, again)) => {}
            }
        }
    }

    fn begin_wait(&self) -> Option<WaitingGuard<'_>> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = WaitingGuard(self);
        if before == 0 {
            tracing::info!("the pool is full: writers wait for space");
        }
        self.waited.fetch_add(1, Relaxed);
        (before < WAITING_MAX).then_some(waiting)
    }

    fn refuse(&self, full: EngineFull, waited: Duration) -> Refusal {
        self.refused.fetch_add(1, Relaxed);
        let EngineFull { capacity, used, wanted } = full;
        let refusal = Refusal::NoSpace(SpaceShortage { node: None, capacity, used, wanted, waited });
        tracing::warn!("{refusal}");
        refusal
    }
}

/// The latest time of the next retry.
fn next_retry(end: Instant, again: Option<Duration>) -> Instant {
    again.map_or(end, |again| end.min(now() + again))
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for SpaceWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceWaiters").field("counts", &self.counts()).field("wait", &self.wait).finish_non_exhaustive()
    }
}
