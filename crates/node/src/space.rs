//! Waiting for space in a full pool: bounded in time and number, woken when space is freed.

use crate::timer::{now, sleep_until};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::Notify;
use wire::{Refusal, Shortage};

/// More requests do not wait at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;

/// Who waits for space, and how often that was so.
pub struct Space {
    freed: Notify,
    wait: Duration,
    waiting: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
}

/// The engine had no room.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    pub capacity: u64,
    pub used: u64,
    pub wanted: u64,
}

/// Counts one who waits, for as long as it lives.
struct Waiting<'a>(&'a Space);

impl Space {
    pub fn new(wait: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { freed: Notify::new(), wait, waiting: zero(), waited: zero(), refused: zero() }
    }

    /// Space was given back: all who wait try again.
    pub fn freed(&self) {
        self.freed.notify_waiters();
    }

    /// Requests that wait now, that ever waited, that were refused.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.waiting.load(Relaxed), self.waited.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Tries until it works or the time is over.
    ///
    /// An attempt also says when it is worth another though nothing was announced.
    pub async fn wait_for<T>(
        &self,
        mut attempt: impl FnMut() -> (Result<T, Full>, Option<Duration>),
    ) -> Result<T, Refusal> {
        let start = now();
        let waiting = self.enter();
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
                () = sleep_until(wake(start + self.wait, again)) => {}
            }
        }
    }

    fn enter(&self) -> Option<Waiting<'_>> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(self);
        if before == 0 {
            tracing::info!("the pool is full: writers wait for space");
        }
        self.waited.fetch_add(1, Relaxed);
        (before < WAITING_MAX).then_some(waiting)
    }

    fn refuse(&self, full: Full, waited: Duration) -> Refusal {
        self.refused.fetch_add(1, Relaxed);
        let Full { capacity, used, wanted } = full;
        let refusal = Refusal::NoSpace(Shortage { node: None, capacity, used, wanted, waited });
        tracing::warn!("{refusal}");
        refusal
    }
}

/// When to try again, at the latest.
fn wake(end: Instant, again: Option<Duration>) -> Instant {
    again.map_or(end, |again| end.min(now() + again))
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("counts", &self.counts()).field("wait", &self.wait).finish_non_exhaustive()
    }
}
