//! A leaf: an immutable page, and the newest changes, which are not in it yet.
//!
//! Readers take no lock. They look through the newest changes, the last one first, then into the
//! page. A change is there for them at once, or not at all. Writers hold the leaf's latch. When
//! there is no room for more changes, the writer puts a state in place of the old one whose page
//! has them; readers of the old one go on with it.

use crate::{
    leaf_page::{KeyHash, LeafPage},
    log_record::RecordKind,
    stored_value::{LogSpan, StoredValue, is_inline},
};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use std::{
    cmp::Ordering,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

/// Most changes that are not in the page: a merge costs about as much as copying the page, and a
/// reader looks at their fingerprints, which are then in one line of the processor's cache.
pub const CHANGES_MAX: usize = 32;

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafChange {
    /// Its place in the order of all changes of the store.
    pub sequence: u64,
    pub key: Box<[u8]>,
    /// `None` if the key was deleted.
    pub value: Option<ChangedValue>,
}

/// The new value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedValue {
    /// The bytes.
    Inline(Box<[u8]>),
    /// They are in the log.
    Logged(LogSpan),
}

impl ChangedValue {
    /// The value after a change of the log, with this value at that place.
    pub fn of(kind: RecordKind, value: &[u8], span: LogSpan) -> Option<Self> {
        match kind {
            RecordKind::Put if is_inline(value.len()) => Some(Self::Inline(value.into())),
            RecordKind::Put => Some(Self::Logged(span)),
            RecordKind::Delete | RecordKind::Next => None,
        }
    }

    pub fn as_stored(&self) -> StoredValue<'_> {
        match self {
            Self::Inline(bytes) => StoredValue::Inline(bytes),
            Self::Logged(span) => StoredValue::Logged(*span),
        }
    }
}

/// The state of a leaf at a moment, for readers.
pub struct LeafState {
    page: Arc<LeafPage>,
    /// Fingerprints of the changes, of as many as there are.
    fingerprints: [AtomicU16; CHANGES_MAX],
    changes: boxcar::Vec<LeafChange>,
}

/// A leaf of a tree.
pub struct Leaf {
    /// The number of its page.
    number: u32,
    state: ArcSwap<LeafState>,
    latch: Mutex<LeafStatus>,
}

/// The knowledge of a leaf's writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafStatus {
    /// True if other leaves have taken its place: look for those.
    pub is_replaced: bool,
    /// The last checkpoint that has what it needs of this leaf.
    pub imaged: u64,
    /// True if it has changed since.
    pub is_changed: bool,
}

impl LeafState {
    pub fn new(page: LeafPage) -> Self {
        let fingerprints = [const { AtomicU16::new(0) }; CHANGES_MAX];
        Self { page: Arc::new(page), fingerprints, changes: boxcar::Vec::new() }
    }

    /// The value of a key; `None` if it has none.
    pub fn get(&self, key: &[u8], hash: KeyHash) -> Option<StoredValue<'_>> {
        let wanted = hash.fingerprint();
        for at in (0..self.changes.count().min(CHANGES_MAX)).rev() {
            if self.fingerprints[at].load(Relaxed) == wanted
                && let Some(change) = self.changes.get(at).filter(|change| *change.key == *key)
            {
                return change.value.as_ref().map(ChangedValue::as_stored);
            }
        }
        self.page.get(key, hash)
    }

    /// The values of the page.
    pub fn page_values(&self) -> impl Iterator<Item = StoredValue<'_>> {
        self.page.entries_from(&[]).map(|entry| entry.value)
    }

    /// True if there is no room for another change.
    pub fn is_full(&self) -> bool {
        self.changes.count() >= CHANGES_MAX
    }

    /// The page as of a sequence number, all changes up to which are here.
    pub fn page_as_of(&self, sequence: u64) -> LeafPage {
        LeafPage::build(&self.merge(sequence, |_| {}).entries())
    }

    /// All entries as of a sequence number; see [`Self::merged`].
    pub fn merge<'a>(&'a self, up_to: u64, dropped: impl FnMut(StoredValue<'a>)) -> MergedEntries<'a> {
        let mut merged = MergedEntries::default();
        let each = |key: &[u8], value| {
            merged.keys.extend_from_slice(key);
            merged.values.push((key.len(), value));
        };
        self.merged(&[], up_to, each, dropped);
        merged
    }

    /// True if all changes are as of a sequence number.
    pub fn is_as_of(&self, sequence: u64) -> bool {
        self.changes.iter().all(|(_, change)| change.sequence <= sequence)
    }

    /// The entries from a key on, as of a sequence number, all changes of which are here: those of
    /// the page, and the changes up to it. They are passed in order, each key once; `dropped` gets
    /// the values that others have taken the place of.
    pub fn merged<'a>(
        &'a self,
        from: &[u8],
        up_to: u64,
        mut each: impl FnMut(&[u8], StoredValue<'a>),
        mut dropped: impl FnMut(StoredValue<'a>),
    ) {
        let is_meant = |change: &&LeafChange| change.sequence <= up_to && *change.key >= *from;
        let mut changes: Vec<&LeafChange> = self.changes.iter().map(|(_, change)| change).filter(is_meant).collect();
        // The last change of a key comes first.
        changes.sort_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        changes.dedup_by(|earlier, last| {
            let is_dropped = earlier.key == last.key;
            if is_dropped && let Some(value) = &earlier.value {
                dropped(value.as_stored());
            }
            is_dropped
        });
        let (mut changes, mut entries) = (changes.into_iter().peekable(), self.page.entries_from(from).peekable());
        let mut key = Vec::new();
        loop {
            let order = match (changes.peek(), entries.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(change), Some(entry)) => entry.key.compare(&change.key).reverse(),
            };
            if order != Ordering::Less
                && let Some(entry) = entries.next()
            {
                if order == Ordering::Greater {
                    entry.key.copy_to(&mut key);
                    each(&key, entry.value);
                } else {
                    dropped(entry.value);
                }
            }
            if order != Ordering::Greater
                && let Some(LeafChange { key, value: Some(value), .. }) = changes.next()
            {
                each(key, value.as_stored());
            }
        }
    }
}

/// Entries of a leaf, for the pages of new ones.
#[derive(Default)]
pub struct MergedEntries<'a> {
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// The length of each key, and its value.
    values: Vec<(usize, StoredValue<'a>)>,
}

impl MergedEntries<'_> {
    /// The entries, as a page gets them.
    pub fn entries(&self) -> Vec<(&[u8], StoredValue<'_>)> {
        let mut keys = &self.keys[..];
        let entries = self.values.iter().map(|(length, value)| {
            let (key, after) = keys.split_at(*length);
            keys = after;
            (key, *value)
        });
        entries.collect()
    }
}

impl Leaf {
    /// A leaf that is as its page with this number is.
    pub fn new(number: u32, page: LeafPage) -> Self {
        Self { number, state: ArcSwap::from_pointee(LeafState::new(page)), latch: Mutex::default() }
    }

    /// The number of its page.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The state for a reader.
    pub fn load(&self) -> arc_swap::Guard<Arc<LeafState>> {
        self.state.load()
    }

    /// Excludes other writers.
    pub fn latch(&self) -> MutexGuard<'_, LeafStatus> {
        self.latch.lock()
    }

    /// Adds a change, for which there must be room, with the latch held.
    pub fn push(&self, _latch: &MutexGuard<'_, LeafStatus>, hash: KeyHash, change: LeafChange) {
        let state = self.state.load();
        let at = state.changes.count();
        state.fingerprints[at].store(hash.fingerprint(), Relaxed);
        // Publishes the fingerprint too: readers load the count first.
        state.changes.push(change);
    }

    /// Puts a page in place of the old one and the changes, with the latch held.
    pub fn replace(&self, _latch: &MutexGuard<'_, LeafStatus>, page: LeafPage) {
        self.state.store(Arc::new(LeafState::new(page)));
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.load();
        f.debug_struct("Leaf").field("page", &state.page).field("changes", &state.changes.count()).finish()
    }
}

#[cfg(test)]
#[path = "leaf_test.rs"]
mod tests;
