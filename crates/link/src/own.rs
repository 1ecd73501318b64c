//! Descriptors of our own in a program that does not know of them: behind the numbers that it counts with, and told apart from its own.

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, getrlimit},
};
use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// They begin here: `exec 5< FILE` of a shell replaces what is at 5, and bash keeps its own from 255 down. A process may have 1,024 unless told
/// otherwise.
const FIRST: RawFd = 400;
/// Where a process may not have so many, they are among the last so many that it may have: as many as a pool of some nodes takes.
const LAST: RawFd = 32;
/// The numbers that [`is_own`] may say it of: a bit for each, in words of 64.
pub const OWN_NUMBERS: Range<RawFd> = 0..1472;

static TAKEN: [AtomicU64; OWN_NUMBERS.end as usize / 64] = [const { AtomicU64::new(0) }; OWN_NUMBERS.end as usize / 64];

/// A descriptor of ours.
#[derive(Debug)]
pub struct Own(OwnedFd);

impl Own {
    /// Moves it behind the numbers of the program, or among the last that the process may have; it stays where it is if there is none. It is not handed on to
    /// other programs.
    pub fn new(descriptor: OwnedFd) -> Self {
        let moved = moved(descriptor);
        if let Some((word, bit)) = place(moved.as_raw_fd()) {
            word.fetch_or(bit, Relaxed);
        }
        Self(moved)
    }
}

/// Only moves it, for what can do without when a program closes it.
pub fn moved(descriptor: OwnedFd) -> OwnedFd {
    let from = |number| fcntl_dupfd_cloexec(&descriptor, number).ok();
    let moved = from(FIRST).or_else(|| {
        let most = RawFd::try_from(getrlimit(Resource::Nofile).current?).ok()?;
        from(most.checked_sub(LAST).filter(|last| *last > 0)?)
    });
    moved.unwrap_or(descriptor)
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Relaxed);
        }
    }
}

/// Whether a descriptor is ours: a program that closes all that it does not know must leave it alone.
pub fn is_own(descriptor: RawFd) -> bool {
    place(descriptor).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

fn place(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(descriptor).ok()?;
    TAKEN.get(at / 64).map(|word| (word, 1 << (at % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_ours_while_it_lives_and_lies_behind_those_of_programs() {
        let own = Own::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("one more"));
        let number = own.as_fd().as_raw_fd();
        assert!(number >= FIRST && is_own(number));
        assert!(!is_own(0) && !is_own(-1) && !is_own(RawFd::MAX));
        drop(own);
        assert!(!is_own(number));
    }
}
