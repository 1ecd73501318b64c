//! The one clock: what the node stamps with, and what the kernel stamps the files with that it writes past the node.
//!
//! Bytes of a whole file may be written through its backing, where the kernel notes the time by its coarse clock. A finer clock
//! here would be up to a tick ahead of it, so that such a write would look older than what was there before. So all stamps come
//! from the coarse clock, which is also the cheapest to read. They never go back, even when the machine's clock is set back: the
//! order of changes stays what it was, and stamps stand still until the clock has caught up.
//!
//! From Linux 6.13 on the kernel has a finer stamp for a change after one that somebody saw (multigrain timestamps): such a stamp
//! is ahead of the coarse clock. A stamp of ours that comes after it is then taken from the kernel in the same way, by changing a
//! file of our own: so it is later than what was shown, and what the kernel stamps afterwards is not before it.
//!
//! An inode is stamped by its own node alone, so its stamps never go back in a pool of several hosts either. Nothing is promised
//! of stamps from two hosts but what these hosts' clocks promise.

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

/// Nanoseconds since 1970 that were stamped last. All nodes of a process share it, as they share the clock.
static LAST: AtomicI64 = AtomicI64::new(0);

/// The latest stamp that the kernel gave to a file and that was shown to anybody, likewise.
static SHOWN: AtomicI64 = AtomicI64::new(0);

/// A file that nobody else sees, for what its stamps tell.
static STAMPED: LazyLock<Option<OwnedFd>> = LazyLock::new(|| memfd_create("tidemill-clock", MemfdFlags::CLOEXEC).ok());

/// Enough changes of a file that was looked at to be given a later stamp, where the kernel has such.
const STAMPS_TRIED: usize = 2;

/// The moment to stamp a change with: never before one that was given, and after all that were shown, where the kernel has a finer stamp or a tick lies
/// between.
pub fn now() -> Timestamp {
    let read = coarse();
    let shown = SHOWN.load(Relaxed);
    if read > shown {
        return later_of(&LAST, read);
    }
    let last = LAST.load(Relaxed);
    if last > shown {
        // It was taken from the kernel since.
        return timestamp(last);
    }
    later_of(&LAST, kernels(shown).unwrap_or(read))
}

/// A stamp that the kernel gave to a file is about to be shown: stamps from now on are after it.
pub fn shown(stamp: Timestamp) {
    let nanos = nanos_of(stamp.secs, stamp.nanos.into());
    if SHOWN.load(Relaxed) < nanos {
        SHOWN.fetch_max(nanos, Relaxed);
    }
}

/// A stamp of any kind is about to be shown. One of ours that was taken from the kernel counts as its own: the coarse clock stands behind it still.
pub fn told(stamp: Timestamp) {
    if nanos_of(stamp.secs, stamp.nanos.into()) > coarse() {
        shown(stamp);
    }
}

fn later_of(last: &AtomicI64, read: i64) -> Timestamp {
    // Most changes come within the same tick: a look spares them the exchange.
    let before = last.load(Relaxed);
    timestamp(if read <= before { before } else { last.fetch_max(read, Relaxed).max(read) })
}

fn timestamp(nanos: i64) -> Timestamp {
    Timestamp {
        secs: nanos.div_euclid(NANOS_PER_SECOND),
        nanos: u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).expect("below a second"),
    }
}

/// The kernel's stamp of a change made now; after `shown` unless the clock was set back.
fn kernels(shown: i64) -> Option<i64> {
    let file = STAMPED.as_ref()?;
    let mut stamp = None;
    for _ in 0..STAMPS_TRIED {
        fchmod(file, Mode::RUSR).ok()?;
        let told = fstat(file).ok()?;
        stamp = Some(nanos_of(told.st_ctime, i64::try_from(told.st_ctime_nsec).ok()?));
        if stamp > Some(shown) {
            break;
        }
    }
    stamp
}

fn nanos_of(secs: i64, nanos: i64) -> i64 {
    secs.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos)
}

fn coarse() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    nanos_of(time.tv_sec, time.tv_nsec)
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

    /// A file that the kernel stamps, and when it was changed last.
    fn stamped(file: &std::fs::File) -> Timestamp {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        let told = file.metadata().unwrap();
        Timestamp { secs: told.ctime(), nanos: u32::try_from(told.ctime_nsec()).unwrap() }
    }

    #[test]
    fn a_change_is_after_what_was_stamped_and_shown_and_not_after_what_the_kernel_stamps_next() {
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        let finer = (0..50).any(|_| stamped(&file) > later_of(&AtomicI64::new(0), coarse()));
        for _ in 0..2000 {
            let before = stamped(&file);
            shown(before);
            let change = now();
            assert!(if finer { change > before } else { change >= before }, "{change:?} after {before:?}");
            let ahead = nanos_of(change.secs, change.nanos.into()) > coarse();
            told(change);
            let next = now();
            assert!(if finer && ahead { next > change } else { next >= change }, "{next:?} after {change:?}");
            assert!(stamped(&file) >= next);
        }
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
