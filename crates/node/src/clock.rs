//! The one clock: its timestamps agree with those that the kernel gives to files that it writes
//! past the node.
//!
//! Bytes of an extent file may be written through its backing, where the kernel notes the time by
//! its coarse clock. A finer clock here would be up to a tick ahead, so that such a write would
//! look older than the state before it. So all timestamps come from the coarse clock, which is also
//! the cheapest to read. They never go back, even when the machine's clock is set back: the order
//! of changes stays, and timestamps stand still until the clock has caught up.
//!
//! From Linux 6.13 on, the kernel gives a finer timestamp to a change that comes after a timestamp
//! was queried (multigrain timestamps). It is ahead of the coarse clock. A timestamp of ours that
//! must follow it is then obtained from the kernel in the same way, by changing a file of our own.
//! So it is later than the one that was shown, and the kernel's next timestamps are not before it.
//!
//! An inode gets timestamps from its own node alone, so they never go back in a pool of several
//! hosts either. Timestamps of two hosts compare as the clocks of those hosts do.

use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, Mode, fchmod, fstat, memfd_create},
    time::{ClockId, clock_gettime},
};
use std::sync::{
    LazyLock,
    atomic::{AtomicI64, Ordering::Relaxed},
};
use wire::Timestamp;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The last timestamp that was given, in nanoseconds since 1970. All nodes of a process share it,
/// as they share the clock.
static LAST: AtomicI64 = AtomicI64::new(0);

/// The latest timestamp that the kernel gave to a file and that was shown to anybody, in
/// nanoseconds since 1970.
static KERNEL_LAST: AtomicI64 = AtomicI64::new(0);

/// A private file whose timestamps are read.
static PROBE_FILE: LazyLock<Option<OwnedFd>> =
    LazyLock::new(|| memfd_create("tidemill-clock", MemfdFlags::CLOEXEC).ok());

/// Number of changes to a file whose time was queried that suffice to get a later timestamp, if the
/// kernel has finer ones.
const PROBES_MAX: usize = 2;

/// Returns the timestamp for a change. It is never before an earlier one. It is after all kernel
/// timestamps that were shown, if the kernel has finer timestamps or a tick lies between.
pub fn now() -> Timestamp {
    let read = coarse_now();
    let shown = KERNEL_LAST.load(Relaxed);
    if read > shown {
        return advance(&LAST, read);
    }
    let last = LAST.load(Relaxed);
    if last > shown {
        // The last timestamp was obtained from the kernel since then.
        return timestamp(last);
    }
    advance(&LAST, kernel_timestamp(shown).unwrap_or(read))
}

/// Notes that a timestamp of the kernel is about to be shown: later ones of ours are after it.
pub fn note_kernel_time(time: Timestamp) {
    let nanos = nanos_of(time.secs, time.nanos.into());
    if KERNEL_LAST.load(Relaxed) < nanos {
        KERNEL_LAST.fetch_max(nanos, Relaxed);
    }
}

/// Notes that a timestamp of either origin is about to be shown. One of ours that is ahead of the
/// coarse clock was obtained from the kernel and counts as the kernel's.
pub fn note_shown(time: Timestamp) {
    if nanos_of(time.secs, time.nanos.into()) > coarse_now() {
        note_kernel_time(time);
    }
}

fn advance(last: &AtomicI64, read: i64) -> Timestamp {
    // Most changes come within one tick: this check saves them the exchange.
    let before = last.load(Relaxed);
    timestamp(if read <= before { before } else { last.fetch_max(read, Relaxed).max(read) })
}

fn timestamp(nanos: i64) -> Timestamp {
    Timestamp {
        secs: nanos.div_euclid(NANOS_PER_SECOND),
        nanos: u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).expect("below a second"),
    }
}

/// The kernel's timestamp of a change made now; after `shown` unless the clock was set back.
fn kernel_timestamp(shown: i64) -> Option<i64> {
    let file = PROBE_FILE.as_ref()?;
    let mut time = None;
    for _ in 0..PROBES_MAX {
        fchmod(file, Mode::RUSR).ok()?;
        let probed = fstat(file).ok()?;
        time = Some(nanos_of(probed.st_ctime, i64::try_from(probed.st_ctime_nsec).ok()?));
        if time > Some(shown) {
            break;
        }
    }
    time
}

fn nanos_of(secs: i64, nanos: i64) -> i64 {
    secs.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos)
}

fn coarse_now() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    nanos_of(time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_never_go_back_when_the_clock_does() {
        let last = AtomicI64::new(0);
        let times = [5, 1_500_000_000, 7, 1_500_000_001].map(|read| advance(&last, read));
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(times[2], Timestamp { secs: 1, nanos: 500_000_000 }, "it stood still");
    }

    /// Lets the kernel give a file a new timestamp, and returns it.
    fn touched(file: &std::fs::File) -> Timestamp {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        let probed = file.metadata().unwrap();
        Timestamp { secs: probed.ctime(), nanos: u32::try_from(probed.ctime_nsec()).unwrap() }
    }

    #[test]
    fn a_change_is_after_the_kernel_times_that_were_shown_and_not_after_the_next_one() {
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        let finer = (0..50).any(|_| touched(&file) > advance(&AtomicI64::new(0), coarse_now()));
        for _ in 0..2000 {
            let before = touched(&file);
            note_kernel_time(before);
            let change = now();
            assert!(if finer { change > before } else { change >= before }, "{change:?} after {before:?}");
            let ahead = nanos_of(change.secs, change.nanos.into()) > coarse_now();
            note_shown(change);
            let next = now();
            assert!(if finer && ahead { next > change } else { next >= change }, "{next:?} after {change:?}");
            assert!(touched(&file) >= next);
        }
    }

    #[test]
    fn a_file_that_the_kernel_writes_is_never_older_than_an_earlier_timestamp() {
        for _ in 0..200 {
            let time = now();
            let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
            assert!(Timestamp::from(file.metadata().unwrap().modified().unwrap()) >= time);
        }
    }
}
