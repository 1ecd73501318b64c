//! The one clock: what the node stamps with, and what the kernel stamps the files with that it writes past the node.
//!
//! Bytes of a whole file may be written through its backing, where the kernel notes the time by its coarse clock. A finer clock
//! here would be up to a tick ahead of it, so that such a write would look older than what was there before. So all stamps come
//! from the coarse clock, which is also the cheapest to read. They never go back, even when the machine's clock is set back: the
//! order of changes stays what it was, and stamps stand still until the clock has caught up.
//!
//! An inode is stamped by its own node alone, so its stamps never go back in a pool of several hosts either. Nothing is promised
//! of stamps from two hosts but what these hosts' clocks promise.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use wire::Timestamp;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Nanoseconds since 1970 that were stamped last. All nodes of a process share it, as they share the clock.
static LAST: AtomicI64 = AtomicI64::new(0);

/// The moment to stamp a change with: never before one that was given.
pub fn now() -> Timestamp {
    later_of(&LAST, coarse())
}

fn later_of(last: &AtomicI64, read: i64) -> Timestamp {
    // Most changes come within the same tick: a look spares them the exchange.
    let before = last.load(Relaxed);
    let nanos = if read <= before { before } else { last.fetch_max(read, Relaxed).max(read) };
    Timestamp {
        secs: nanos.div_euclid(NANOS_PER_SECOND),
        nanos: u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).expect("below a second"),
    }
}

fn coarse() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec.saturating_mul(NANOS_PER_SECOND).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_never_go_back_when_the_clock_does() {
        let last = AtomicI64::new(0);
        let stamps = [5, 1_500_000_000, 7, 1_500_000_001].map(|read| later_of(&last, read));
        assert!(stamps.is_sorted(), "{stamps:?}");
        assert_eq!(stamps[2], Timestamp { secs: 1, nanos: 500_000_000 }, "it stood still");
    }

    #[test]
    fn a_file_that_the_kernel_writes_is_never_older_than_a_stamp_given_before() {
        for _ in 0..200 {
            let stamp = now();
            let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
            assert!(Timestamp::from(file.metadata().unwrap().modified().unwrap()) >= stamp);
        }
    }
}
