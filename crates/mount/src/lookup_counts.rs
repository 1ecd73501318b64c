//! Lookup counts: how often each inode was handed to the kernel. When the kernel has forgotten all
//! its lookups, it no longer knows the inode.
//!
//! Lookups are counted before the reply is sent, so a count is never below the kernel's own.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use placement::FileId;

/// Number of shards: a power of two, well above the number of threads that serve requests.
const SHARDS: usize = 32;

/// Lookup counts of the inodes that one kernel knows.
#[derive(Debug)]
pub(crate) struct LookupCounts {
    shards: Box<[Mutex<HashMap<FileId, u64>>]>,
}

/// Guard of a request that may hand inodes to the kernel; the request is in flight as long as the
/// guard lives. Shares the number of its generation.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<u64>);

/// Requests in flight that may hand inodes to the kernel, by generation.
#[derive(Debug, Default)]
pub(crate) struct InFlightSet(Mutex<Generations>);

/// Generations of requests; a generation ends with its last request. Their numbers are the clock of
/// the requests: a moment is the number of the first generation after it.
#[derive(Debug, Default)]
struct Generations {
    /// Number of the generation that requests join now; one reference more than it has requests.
    current: Arc<u64>,
    /// Generations that had requests when they were closed, in order.
    earlier: Vec<Weak<u64>>,
}

/// Snapshot of the requests in flight at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightSnapshot(Vec<Weak<u64>>);

impl InFlightSet {
    /// Starts a request, before the pool is asked.
    pub(crate) fn begin(&self) -> InFlight {
        InFlight(Arc::clone(&self.0.lock().current))
    }

    /// The requests in flight now.
    pub(crate) fn snapshot(&self) -> InFlightSnapshot {
        let mut generations = self.0.lock();
        generations.close_current();
        InFlightSnapshot(generations.earlier.clone())
    }

    /// The moment between all requests that have begun and all that begin later.
    pub(crate) fn now(&self) -> u64 {
        let mut generations = self.0.lock();
        generations.close_current();
        *generations.current
    }

    /// The latest moment that all requests in flight began after.
    pub(crate) fn oldest(&self) -> u64 {
        let generations = self.0.lock();
        let oldest = generations.earlier.iter().find_map(Weak::upgrade);
        oldest.map_or(*generations.current, |oldest| *oldest)
    }
}

impl Generations {
    /// Closes the current generation if it has requests.
    fn close_current(&mut self) {
        self.earlier.retain(|earlier| earlier.strong_count() > 0);
        if Arc::strong_count(&self.current) > 1 {
            let next = Arc::new(*self.current + 1);
            let closed = std::mem::replace(&mut self.current, next);
            self.earlier.push(Arc::downgrade(&closed));
        }
    }
}

impl InFlight {
    /// True if the request began before this moment.
    pub(crate) fn began_before(&self, moment: u64) -> bool {
        *self.0 < moment
    }
}

impl InFlightSnapshot {
    /// True if all of them have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.iter().all(|request| request.strong_count() == 0)
    }
}

impl Default for LookupCounts {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl LookupCounts {
    /// Counts one lookup of `file`, before the reply is sent.
    pub(crate) fn add(&self, file: FileId) {
        *self.shard(file).lock().entry(file).or_default() += 1;
    }

    /// Subtracts `count` lookups; returns true if none remains. The kernel never forgets the root.
    pub(crate) fn subtract(&self, file: FileId, count: u64) -> bool {
        let mut shard = self.shard(file).lock();
        let Entry::Occupied(mut known) = shard.entry(file) else { return false };
        *known.get_mut() = known.get().saturating_sub(count);
        let gone = *known.get() == 0;
        if gone {
            known.remove();
        }
        gone
    }

    /// True if the kernel has lookups of `file`.
    pub(crate) fn contains(&self, file: FileId) -> bool {
        self.shard(file).lock().contains_key(&file)
    }

    /// All inodes of which the kernel has lookups.
    pub(crate) fn inodes(&self) -> Vec<FileId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Mixes the partition bits into the low bits, which hold a counter that differs from file to
    /// file.
    fn shard(&self, file: FileId) -> &Mutex<HashMap<FileId, u64>> {
        let mixed = file.0 ^ (file.0 >> 48);
        &self.shards[usize::try_from(mixed % SHARDS as u64).expect("below the number of shards")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_waited_for_until_those_have_ended_that_were_under_way() {
        let set = InFlightSet::default();
        assert!(set.snapshot().is_finished());
        let (one, other) = (set.begin(), set.begin());
        let before = set.snapshot();
        let later = set.begin();
        drop(one);
        assert!(!before.is_finished() && !set.snapshot().is_finished());
        drop(other);
        assert!(before.is_finished() && !set.snapshot().is_finished(), "the later one is none of them");
        drop(later);
        assert!(set.snapshot().is_finished() && set.0.lock().earlier.len() <= 1);
    }

    #[test]
    fn a_moment_parts_the_requests_before_from_those_after() {
        let set = InFlightSet::default();
        let (start, one) = (set.now(), set.begin());
        let between = set.now();
        let other = set.begin();
        assert!(!one.began_before(start) && one.began_before(between) && !other.began_before(between));
        assert!(set.oldest() < between, "the first one is in flight");
        set.now();
        assert!(set.oldest() < between, "also when the next ones are of the past");
        drop(one);
        assert!(set.oldest() == between && other.began_before(set.now()));
        drop(other);
        assert_eq!(set.oldest(), set.now());
    }

    #[test]
    fn an_inode_is_known_until_every_lookup_is_given_back() {
        let lookups = LookupCounts::default();
        let file = FileId(77);
        lookups.add(file);
        lookups.add(file);
        lookups.add(FileId(78));
        assert!(!lookups.subtract(file, 1));
        lookups.add(file);
        assert!(lookups.subtract(file, 2));
        assert!(!lookups.subtract(file, 1), "what is not known cannot be forgotten");
    }
}
