//! What a partition knows of intents: what is prepared, what it marks, what was decided.
//!
//! Marks live here and not in what they mark: a partition without intents pays one look at an empty map.

use placement::{FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Intent, Name, Outcome, Part, Refusal, Session};

/// What an intent holds of an inode. In this order they lie side by side in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    /// Whether it is there, how many names it has, where it stands.
    Inode,
    /// All its entries, and what they inherit.
    Shut,
    /// The right to move directories; of the root only.
    Moves,
    /// One entry.
    Entry(Name),
}

type Mark = (FileId, What);

/// All intents that a partition knows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Intents {
    #[serde(with = "pairs")]
    pub prepared: BTreeMap<Intent, Prepared>,
    #[serde(with = "pairs")]
    marks: BTreeMap<Mark, Intent>,
    /// Of which this partition is the coordinator.
    #[serde(with = "pairs")]
    pub decided: BTreeMap<Intent, Decided>,
}

/// The parts of an intent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// Each with the id of the inode that it makes, if it does.
    pub parts: Vec<(Part, Option<FileId>)>,
    /// The space that is set aside for them, bytes.
    pub reserved: u64,
}

/// What was decided and is not forgotten yet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Decided {
    /// Done; the others are to be told.
    Committed(Vec<PartitionId>),
    /// Should its commit come late, it is refused.
    Aborted,
}

impl Intents {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Refused as `Held` when another intent than `own` has this mark.
    pub fn check(&self, file: FileId, what: What, own: Option<Intent>) -> Outcome<()> {
        if self.marks.is_empty() {
            return Ok(());
        }
        refuse(self.marks.get(&(file, what)), own)
    }

    /// Refused as `Held` when another intent than `own` has any mark of the inode.
    pub fn check_all(&self, file: FileId, own: Option<Intent>) -> Outcome<()> {
        self.of(file)
            .map(|(_, intent)| intent)
            .find(|intent| own != Some(**intent))
            .map_or(Ok(()), |held| Err(Refusal::Held { intent: *held }))
    }

    /// Who holds anything of the inode.
    pub fn holders(&self, file: FileId) -> Vec<Intent> {
        let mut holders: Vec<Intent> = self.of(file).map(|(_, intent)| *intent).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Who holds this one thing of the inode.
    pub fn holder(&self, file: FileId, what: What) -> Option<Intent> {
        if self.marks.is_empty() {
            return None;
        }
        self.marks.get(&(file, what)).copied()
    }

    /// Who holds entries of the directory.
    pub fn entry_holders(&self, directory: FileId) -> Vec<Intent> {
        let entries = self.of(directory).filter(|((_, what), _)| matches!(what, What::Entry(_)));
        let mut holders: Vec<Intent> = entries.map(|(_, intent)| *intent).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// How many entries of the directory are held: each may become a new one.
    pub fn entries_held(&self, directory: FileId) -> usize {
        self.of(directory).filter(|((_, what), _)| matches!(what, What::Entry(_))).count()
    }

    pub fn mark(&mut self, file: FileId, what: What, intent: Intent) {
        let held = self.marks.insert((file, what), intent);
        assert!(held.is_none_or(|held| held == intent), "a mark is checked before it is set");
    }

    /// Takes away what an intent has here.
    pub fn take(&mut self, intent: Intent) -> Option<Prepared> {
        let prepared = self.prepared.remove(&intent)?;
        self.marks.retain(|_, holder| *holder != intent);
        Some(prepared)
    }

    /// A session has ended and commits nothing any more: that it must not need not be remembered.
    pub fn forget_aborted(&mut self, session: Session) {
        self.decided.retain(|intent, decided| intent.session != session || matches!(decided, Decided::Committed(_)));
    }

    /// All marks of an inode.
    fn of(&self, file: FileId) -> impl Iterator<Item = (&Mark, &Intent)> {
        let some = (!self.marks.is_empty()).then(|| self.marks.range((file, What::Inode)..));
        some.into_iter().flatten().take_while(move |((marked, _), _)| *marked == file)
    }
}

fn refuse(held: Option<&Intent>, own: Option<Intent>) -> Outcome<()> {
    match held {
        Some(held) if own != Some(*held) => Err(Refusal::Held { intent: *held }),
        _ => Ok(()),
    }
}

/// Maps whose keys are no texts, as lists of pairs.
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
