//! Waiting for space in a full pool: bounded in time and number, woken when space is freed.

use crate::timer::{now, sleep_until};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, futures::Notified};
use wire::{Refusal, SpaceShortage};

/// Most requests that wait for space at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;
/// Interval between retries of a request that waits for space while a kernel still uses extents of
/// removed files: that kernel does not announce when it lets go of them.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The requests that wait for space, with counts.
pub struct SpaceWaiters {
    freed: Notify,
    wait: Duration,
    /// Milliseconds for which requests wait while the pool may grow, if that is longer.
    growth_wait: AtomicU64,
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

/// A request that waits for space.
pub struct SpaceWait<'a> {
    waiters: &'a SpaceWaiters,
    start: Instant,
    /// `None` if too many wait.
    guard: Option<WaitingGuard<'a>>,
    /// There may still be something to reclaim.
    reclaims: bool,
}

/// Counts one waiting request for as long as it lives.
struct WaitingGuard<'a>(&'a SpaceWaiters);

impl SpaceWaiters {
    pub fn new(wait: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self { freed: Notify::new(), wait, growth_wait: zero(), waiting: zero(), waited: zero(), refused: zero() }
    }

    /// Lets requests wait for so long from now on, also those that wait already; zero if the pool
    /// does not grow by itself.
    pub fn set_growth_wait(&self, wait: Duration) {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        if self.growth_wait.swap(millis, Relaxed) != millis {
            // Those who wait find out when their time is over.
            self.freed.notify_waiters();
        }
    }

    /// The time for which a request waits.
    fn patience(&self) -> Duration {
        self.wait.max(Duration::from_millis(self.growth_wait.load(Relaxed)))
    }

    /// Wakes all waiting requests after space was freed.
    pub fn notify_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Numbers of requests that wait now, that ever waited, and that were refused.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.waiting.load(Relaxed), self.waited.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Begins to wait. The first attempt comes before the first pause.
    pub fn begin(&self) -> SpaceWait<'_> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let guard = WaitingGuard(self);
        if before == 0 {
            tracing::info!("the pool is full: writers wait for space");
        }
        self.waited.fetch_add(1, Relaxed);
        let guard = (before < WAITING_MAX).then_some(guard);
        SpaceWait { waiters: self, start: now(), guard, reclaims: true }
    }

    fn refuse(&self, full: EngineFull, waited: Duration) -> Refusal {
        self.refused.fetch_add(1, Relaxed);
        let EngineFull { capacity, used, wanted } = full;
        let refusal = Refusal::NoSpace(SpaceShortage { node: None, capacity, used, wanted, waited });
        tracing::warn!("{refusal}");
        refusal
    }
}

impl<'a> SpaceWait<'a> {
    /// Comes before each attempt: reclaims what can be reclaimed; `reclaim` returns true as long as
    /// there may be more soon. Returns the announcement of space that is freed from now on.
    pub fn prepare(&mut self, reclaim: impl FnOnce() -> bool) -> Notified<'a> {
        let freed = self.waiters.freed.notified();
        self.reclaims = self.reclaims && reclaim();
        freed
    }

    /// Comes after an attempt that found no space: waits until it is time for the next one. Refuses
    /// when the time is over.
    pub async fn pause(&self, freed: Notified<'_>, full: EngineFull) -> Result<(), Refusal> {
        let end = self.start + self.waiters.patience();
        if self.guard.is_none() || now() >= end {
            return Err(self.waiters.refuse(full, now() - self.start));
        }
        let retry = if self.reclaims { end.min(now() + RETRY_INTERVAL) } else { end };
        tokio::select! {
            () = freed => {}
            () = sleep_until(retry) => {}
        }
        Ok(())
    }
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
