//! How often each inode was handed to the kernel: when it has given all of them back, it knows the inode no more.
//!
//! Counted before the answer is sent, so a count is never behind the kernel's own.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use placement::FileId;

/// A power of two, well above the threads that serve requests.
const SHARDS: usize = 32;

/// The inodes that one kernel knows.
#[derive(Debug)]
pub(crate) struct Lookups {
    shards: Box<[Mutex<HashMap<FileId, u64>>]>,
}

/// A request that may tell the kernel of inodes; under way as long as this lives.
#[derive(Debug)]
pub(crate) struct Look(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

/// Looks that are under way, by when they began.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<Generations>);

/// A generation is over with its last look.
#[derive(Debug, Default)]
struct Generations {
    current: Arc<()>,
    earlier: Vec<Weak<()>>,
}

/// Those that were under way at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay(Vec<Weak<()>>);

impl Looks {
    /// One begins: before the pool is asked.
    pub(crate) fn begin(&self) -> Look {
        Look(Arc::clone(&self.0.lock().current))
    }

    /// Those that are under way now.
    pub(crate) fn under_way(&self) -> UnderWay {
        let mut generations = self.0.lock();
        generations.earlier.retain(|earlier| earlier.strong_count() > 0);
        if Arc::strong_count(&generations.current) > 1 {
            let ended = std::mem::take(&mut generations.current);
            generations.earlier.push(Arc::downgrade(&ended));
        }
        UnderWay(generations.earlier.clone())
    }
}

impl UnderWay {
    /// Whether all have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.iter().all(|look| look.strong_count() == 0)
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Lookups {
    /// The kernel is about to be told of `file`.
    pub(crate) fn gained(&self, file: FileId) {
        *self.shard(file).lock().entry(file).or_default() += 1;
    }

    /// The kernel gives back `count` of its lookups; says whether that were all. The root is known for ever.
    pub(crate) fn lost(&self, file: FileId, count: u64) -> bool {
        let mut shard = self.shard(file).lock();
        let Entry::Occupied(mut known) = shard.entry(file) else { return false };
        *known.get_mut() = known.get().saturating_sub(count);
        let gone = *known.get() == 0;
        if gone {
            known.remove();
        }
        gone
    }

    /// Whether the kernel has lookups of `file`.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.shard(file).lock().contains_key(&file)
    }

    /// All that the kernel has lookups of.
    pub(crate) fn all(&self) -> Vec<FileId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// The counter's low bits differ from file to file, the partition's are mixed in.
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
        let looks = Looks::default();
        assert!(looks.under_way().is_over());
        let (one, other) = (looks.begin(), looks.begin());
        let before = looks.under_way();
        let later = looks.begin();
        drop(one);
        assert!(!before.is_over() && !looks.under_way().is_over());
        drop(other);
        assert!(before.is_over() && !looks.under_way().is_over(), "the later one is none of them");
        drop(later);
        assert!(looks.under_way().is_over() && looks.0.lock().earlier.len() <= 1);
    }

    #[test]
    fn an_inode_is_known_until_every_lookup_is_given_back() {
        let lookups = Lookups::default();
        let file = FileId(77);
        lookups.gained(file);
        lookups.gained(file);
        lookups.gained(FileId(78));
        assert!(!lookups.lost(file, 1));
        lookups.gained(file);
        assert!(lookups.lost(file, 2));
        assert!(!lookups.lost(file, 1), "what is not known cannot be forgotten");
    }
}
