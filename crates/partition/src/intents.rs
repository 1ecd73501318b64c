//! Intents that a partition knows: prepared parts, their locks, decisions.
//!
//! The locks are in a table here and not in the locked inodes: a partition without intents only
//! checks an empty map.

use placement::{FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Intent, Name, Outcome, Part, Refusal, Session};

/// Part of an inode that an intent locks. The table sorts by this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockTarget {
    /// Its existence, link count and parent.
    Inode,
    /// All its entries, and its inheritable attributes.
    AllEntries,
    /// The lease for moving directories; only of the root.
    MoveLease,
    /// One entry.
    Entry(Name),
}

type LockKey = (FileId, LockTarget);

/// All intents that a partition knows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Intents {
    #[serde(with = "pairs")]
    pub prepared: BTreeMap<Intent, Prepared>,
    #[serde(with = "pairs")]
    locks: BTreeMap<LockKey, Intent>,
    /// Decisions of which this partition is the coordinator.
    #[serde(with = "pairs")]
    pub decided: BTreeMap<Intent, Decided>,
}

/// The prepared parts of an intent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// The parts, each with the id of the inode that it creates, if any.
    pub parts: Vec<(Part, Option<FileId>)>,
    /// Space that is reserved for them, bytes.
    pub reserved: u64,
}

/// A decision that is not forgotten yet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Decided {
    /// Committed; these partitions must be notified.
    Committed(Vec<PartitionId>),
    /// Aborted: a late commit is refused.
    Aborted,
}

impl Intents {
    /// Returns the sessions of the intents that are known.
    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.prepared.keys().chain(self.decided.keys()).map(|intent| intent.session)
    }

    /// Returns true if there are no locks.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Refuses with `LockedByIntent` if another intent than `own` has this lock.
    pub fn check(&self, file: FileId, target: LockTarget, own: Option<Intent>) -> Outcome<()> {
        if self.locks.is_empty() {
            return Ok(());
        }
        refuse(self.locks.get(&(file, target)), own)
    }

    /// Refuses with `LockedByIntent` if another intent than `own` has any lock of the inode.
    pub fn check_all(&self, file: FileId, own: Option<Intent>) -> Outcome<()> {
        self.locks_of(file)
            .map(|(_, intent)| intent)
            .find(|intent| own != Some(**intent))
            .map_or(Ok(()), |held| Err(Refusal::LockedByIntent { intent: *held }))
    }

    /// Returns the intents that have any lock of the inode.
    pub fn holders(&self, file: FileId) -> Vec<Intent> {
        let mut holders: Vec<Intent> = self.locks_of(file).map(|(_, intent)| *intent).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Returns the intent that has this lock of the inode.
    pub fn holder(&self, file: FileId, target: LockTarget) -> Option<Intent> {
        if self.locks.is_empty() {
            return None;
        }
        self.locks.get(&(file, target)).copied()
    }

    /// Returns the intents that have locked entries of the directory.
    pub fn entry_holders(&self, directory: FileId) -> Vec<Intent> {
        let entries = self.locks_of(directory).filter(|((_, target), _)| matches!(target, LockTarget::Entry(_)));
        let mut holders: Vec<Intent> = entries.map(|(_, intent)| *intent).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Returns the number of locked entries of the directory: each may become a new one.
    pub fn entries_held(&self, directory: FileId) -> usize {
        self.locks_of(directory).filter(|((_, target), _)| matches!(target, LockTarget::Entry(_))).count()
    }

    pub fn lock(&mut self, file: FileId, target: LockTarget, intent: Intent) {
        let held = self.locks.insert((file, target), intent);
        assert!(held.is_none_or(|held| held == intent), "a lock is checked before it is set");
    }

    /// Removes an intent with its locks.
    pub fn remove(&mut self, intent: Intent) -> Option<Prepared> {
        let prepared = self.prepared.remove(&intent)?;
        self.locks.retain(|_, holder| *holder != intent);
        Some(prepared)
    }

    /// Forgets the aborts of an ended session: it commits nothing any more, so they need not be
    /// remembered.
    pub fn forget_aborted(&mut self, session: Session) {
        self.decided.retain(|intent, decided| intent.session != session || matches!(decided, Decided::Committed(_)));
    }

    /// Returns all locks of an inode.
    fn locks_of(&self, file: FileId) -> impl Iterator<Item = (&LockKey, &Intent)> {
        let some = (!self.locks.is_empty()).then(|| self.locks.range((file, LockTarget::Inode)..));
        some.into_iter().flatten().take_while(move |((locked, _), _)| *locked == file)
    }
}

fn refuse(held: Option<&Intent>, own: Option<Intent>) -> Outcome<()> {
    match held {
        Some(held) if own != Some(*held) => Err(Refusal::LockedByIntent { intent: *held }),
        _ => Ok(()),
    }
}

/// Serializes maps with structured keys as lists of pairs.
mod pairs {
    use super::{BTreeMap, Deserialize, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<K, V, S>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error>
    where
        K: Serialize,
        V: Serialize,
        S: Serializer,
    {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::<(K, V)>::deserialize(deserializer).map(|pairs| pairs.into_iter().collect())
    }
}
