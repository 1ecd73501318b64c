//! Descriptors of ours in a program that does not know of them: at high numbers that it does not
//! expect to use, and recognizable.

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, getrlimit},
};
use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Lowest number of our descriptors: `exec 5< FILE` of a shell replaces descriptor 5, and bash
/// keeps its own from 255 down. By default a process may have 1,024.
const FIRST: RawFd = 400;
/// If a process may have fewer, our descriptors are among this many last ones: as many as a pool of
/// some nodes takes.
const LAST: RawFd = 32;
/// Numbers that [`is_reserved`] can recognize: a bit for each, in words of 64.
pub const RESERVED_FDS: Range<RawFd> = 0..1472;

static RESERVED: [AtomicU64; RESERVED_FDS.end as usize / 64] =
    [const { AtomicU64::new(0) }; RESERVED_FDS.end as usize / 64];

/// Descriptor of ours.
#[derive(Debug)]
pub struct ReservedFd(OwnedFd);

impl ReservedFd {
    /// Moves the descriptor to a number from 400, or among the last that the process may have; if
    /// none is free it stays where it is. It is close-on-exec.
    pub fn new(descriptor: OwnedFd) -> Self {
        let moved = move_high(descriptor);
        if let Some((word, bit)) = bit_of(moved.as_raw_fd()) {
            word.fetch_or(bit, Relaxed);
        }
        Self(moved)
    }
}

/// Moves a descriptor without reserving it, for users that can do without if the program closes it.
pub fn move_high(descriptor: OwnedFd) -> OwnedFd {
    let from = |number| fcntl_dupfd_cloexec(&descriptor, number).ok();
    let moved = from(FIRST).or_else(|| {
        let most = RawFd::try_from(getrlimit(Resource::Nofile).current?).ok()?;
        from(most.checked_sub(LAST).filter(|last| *last > 0)?)
    });
    moved.unwrap_or(descriptor)
}

impl AsFd for ReservedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ReservedFd {
    fn drop(&mut self) {
        if let Some((word, bit)) = bit_of(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Relaxed);
        }
    }
}

/// Returns whether a descriptor is ours. A program that closes all descriptors that it does not
/// know must leave ours open.
pub fn is_reserved(descriptor: RawFd) -> bool {
    bit_of(descriptor).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

fn bit_of(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(descriptor).ok()?;
    RESERVED.get(at / 64).map(|word| (word, 1 << (at % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_ours_while_it_lives_and_lies_behind_those_of_programs() {
        let reserved =
            ReservedFd::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("one more"));
        let number = reserved.as_fd().as_raw_fd();
        assert!(number >= FIRST && is_reserved(number));
        assert!(!is_reserved(0) && !is_reserved(-1) && !is_reserved(RawFd::MAX));
        drop(reserved);
        assert!(!is_reserved(number));
    }
}
