//! A database: an ordered map of bytes.

use crate::{
    leaf::{ChangedValue, Leaf, LeafChange, LeafStatus},
    leaf_page::{KeyHash, LeafPage},
    log::{LogSegment, RedoLog},
    log_record::RecordKind,
    store::StoreCore,
    store_error::StoreError,
    stored_value::{LogSpan, StoredValue},
    tree::{SeparatedLeaves, Tree},
};
use parking_lot::MutexGuard;
use std::{
    fmt,
    ops::{Bound, Deref},
    sync::Arc,
};

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 1;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// Length from which on a page is split: short ones are quick to merge, long ones have fewer
/// separators above them.
const PAGE_BYTES_MAX: usize = 12 << 10;

/// A database of a store that is open. Clones are the same database.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) store: Arc<StoreCore>,
    pub(crate) state: Arc<DatabaseState>,
}

/// The state of a database in memory.
#[derive(Debug)]
pub struct DatabaseState {
    pub name: Box<str>,
    pub tree: Tree,
    pub log: RedoLog,
}

/// The bytes of a value. They stay as they are, whatever happens to the key.
pub struct ValueBytes(ValuePlace);

enum ValuePlace {
    Inline(Box<[u8]>),
    Logged(Arc<LogSegment>, LogSpan),
}

/// Keys with their values.
pub type Entries = Vec<(Vec<u8>, ValueBytes)>;

impl Database {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<ValueBytes> {
        // What is in segments that this reader may find stays until it has it.
        let _readers = crossbeam_epoch::pin();
        let leaf = self.state.tree.leaf(key);
        let state = leaf.load();
        state.get(key, KeyHash::of(key)).map(|value| self.store.hold(value))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// If key or value are too long, or the device is full or has failed. Then nothing has changed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_value(value)?;
        self.change(RecordKind::Put, key, value, ExpectedValue::Any).map(drop)
    }

    /// Gives a key the value `new` (`None`: removes it), if its value is `expected` (`None`: if it
    /// has none). Returns whether it was. No other change of the key comes between.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let (kind, value) = new.map_or((RecordKind::Delete, &[][..]), |value| (RecordKind::Put, value));
        check_value(value)?;
        self.change(kind, key, value, ExpectedValue::Exactly(expected))
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.change(RecordKind::Delete, key, &[], ExpectedValue::Any).map(drop)
    }

    /// Up to `limit` entries from a bound on, in the order of the keys. An entry that is changed
    /// meanwhile is found as it was before or as it is after.
    pub fn scan(&self, from: Bound<&[u8]>, limit: usize) -> Entries {
        let _readers = crossbeam_epoch::pin();
        let (Bound::Included(start) | Bound::Excluded(start)) = from else {
            return self.scan(Bound::Included(&[]), limit);
        };
        let (mut found, mut start, mut is_included) = (Vec::new(), start.to_vec(), matches!(from, Bound::Included(_)));
        loop {
            let (leaf, end) = self.state.tree.leaf_until(&start);
            let state = leaf.load();
            let each = |key: &[u8], value: StoredValue<'_>| {
                let is_in = is_included || *key > *start;
                let is_before = end.as_ref().is_none_or(|end| *key < **end);
                if is_in && is_before && found.len() < limit {
                    found.push((key.to_vec(), self.store.hold(value)));
                }
            };
            state.merged(&start, u64::MAX, each, |_| {});
            match end {
                Some(end) if found.len() < limit => (start, is_included) = (end.into(), true),
                _ => return found,
            }
        }
    }

    /// Makes a change, if the key has the value that it must have; returns whether it had.
    fn change(
        &self,
        kind: RecordKind,
        key: &[u8],
        value: &[u8],
        required: ExpectedValue<'_>,
    ) -> Result<bool, StoreError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(StoreError::KeyTooLong { length: key.len(), max: KEY_BYTES_MAX });
        }
        self.store.check_writable()?;
        let (shared, hash) = (&self.store.log, KeyHash::of(key));
        loop {
            let leaf = self.state.tree.leaf(key);
            let mut latch = leaf.latch();
            if latch.is_replaced {
                continue;
            }
            if leaf.load().is_full() {
                self.state.make_room(&self.store, key, &leaf, latch);
                continue;
            }
            if let ExpectedValue::Exactly(expected) = required {
                let readers = crossbeam_epoch::pin();
                let found = leaf.load().get(key, hash).map(|value| self.store.hold(value));
                drop(readers);
                if found.as_deref() != expected {
                    return Ok(false);
                }
            }
            let (sequence, span) = self.state.log.append(shared, kind, key, value)?;
            let change = LeafChange { sequence, key: key.into(), value: ChangedValue::of(kind, value, span) };
            leaf.push(&latch, hash, change);
            latch.is_changed = true;
            drop(latch);
            shared.sequencer.finish(sequence);
            self.store.acknowledge(sequence, LogRecordBytes(key.len() + value.len()))?;
            return Ok(true);
        }
    }
}

fn check_value(value: &[u8]) -> Result<(), StoreError> {
    match value.len() {
        length if length > VALUE_BYTES_MAX => Err(StoreError::ValueTooLong { length, max: VALUE_BYTES_MAX }),
        _ => Ok(()),
    }
}

/// The value that a key must have before it is changed.
#[derive(Clone, Copy)]
enum ExpectedValue<'a> {
    /// Any, or none.
    Any,
    /// This one, or none.
    Exactly(Option<&'a [u8]>),
}

/// Bytes of a key and a value in the log.
#[derive(Clone, Copy)]
pub struct LogRecordBytes(pub usize);

impl DatabaseState {
    /// A database of these leaves.
    pub fn new(name: &str, leaves: &SeparatedLeaves, log: RedoLog) -> Self {
        Self { name: name.into(), tree: Tree::new(leaves), log }
    }

    /// Applies a change of the log, which nobody else does at the time.
    pub fn replay(&self, store: &StoreCore, change: LeafChange) {
        loop {
            let leaf = self.tree.leaf(&change.key);
            let mut latch = leaf.latch();
            if leaf.load().is_full() {
                self.make_room(store, &change.key, &leaf, latch);
                continue;
            }
            latch.is_changed = true;
            return leaf.push(&latch, KeyHash::of(&change.key), change);
        }
    }

    /// Puts the changes of a leaf into its page, or into those of new leaves.
    fn make_room(&self, store: &StoreCore, key: &[u8], leaf: &Leaf, mut latch: MutexGuard<'_, LeafStatus>) {
        // While a checkpoint is chosen, no page may take up changes after it.
        let gate = store.merge_gate.read();
        let state = leaf.load();
        store.image_before_merge(leaf, &state, &mut latch);
        let merged = state.merge(u64::MAX, |dropped| store.count_dropped(dropped));
        let entries = merged.entries();
        let page = LeafPage::build(&entries);
        if page.as_bytes().len() <= PAGE_BYTES_MAX || entries.len() < 2 {
            leaf.replace(&latch, page);
            return;
        }
        let (low, high) = entries.split_at(entries.len() / 2);
        let imaged = latch.imaged;
        let part = |number: u32, entries: &[_]| {
            let leaf = Leaf::new(number, LeafPage::build(entries));
            *leaf.latch() = LeafStatus { imaged, is_changed: true, is_replaced: false };
            Arc::new(leaf)
        };
        let separator: Box<[u8]> = high[0].0.into();
        let parts = [(Box::default(), part(leaf.number(), low)), (separator, part(store.next_page(), high))];
        latch.is_replaced = true;
        self.tree.split(&self.tree.structure(), key, &parts);
        drop(latch);
        drop(gate);
    }
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValuePlace::Inline(bytes) => bytes,
            ValuePlace::Logged(segment, span) => segment.value(*span),
        }
    }
}

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl StoreCore {
    /// Keeps a value for a reader.
    pub fn hold(&self, value: StoredValue<'_>) -> ValueBytes {
        ValueBytes(match value {
            StoredValue::Inline(bytes) => ValuePlace::Inline(bytes.into()),
            StoredValue::Logged(span) => {
                let segment = self.log.segments.get(span.slot).expect("a segment of a live value is kept");
                ValuePlace::Logged(segment, span)
            }
        })
    }

    /// Counts a value that no leaf has any more.
    fn count_dropped(&self, value: StoredValue<'_>) {
        if let StoredValue::Logged(span) = value
            && let Some(segment) = self.log.segments.get(span.slot)
        {
            segment.add_live(-i64::from(span.length));
        }
    }
}
