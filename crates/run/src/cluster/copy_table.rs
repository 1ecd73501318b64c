//! The copies of inputs at one node: who uses them, and which of them go for others. Pure: no I/O
//! and no clock.
//!
//! ```text
//! acquire -> Making -> complete -> Ready -> leave (evicted, dropped, stale) -> Leaving -> remove
//! ```
//!
//! Invariants: what an attempt uses never leaves, and all entries together take at most the bound.
//! A path of an entry that leaves is not used again before it is removed.

use super::messages::HeldCopy;
use flow::DataId;
use placement::FileId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use wire::{Attributes, Timestamp};

/// Bytes of an inode and its name, about; a link takes that.
const INODE_BYTES: u64 = 512;
/// Space is taken in pages.
const PAGE_BYTES: u64 = 4096;

/// One state of the bytes of a file of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceVersion {
    file: FileId,
    version: u64,
    modified: Timestamp,
    /// Length in bytes.
    pub size: u64,
}

impl From<&Attributes> for SourceVersion {
    fn from(found: &Attributes) -> Self {
        Self { file: found.file, version: found.version, modified: found.modified, size: found.size }
    }
}

/// The kind of a substitute for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// Its bytes, as they were in this state.
    Bytes(SourceVersion),
    /// A link to it.
    Link,
}

impl CopyKind {
    fn bytes(self) -> u64 {
        match self {
            Self::Bytes(source) => INODE_BYTES + source.size.next_multiple_of(PAGE_BYTES),
            Self::Link => INODE_BYTES,
        }
    }
}

/// One copy in its life, by the path of its source: another one later has another number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyId {
    /// Path of the member below the pool's root.
    pub place: PathBuf,
    number: u64,
}

/// Answer of [`CopyTable::acquire`].
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The copy is there, or is being made.
    Existing(CopyId),
    /// The caller makes the copy, after it has removed these.
    New(CopyId, Vec<CopyId>),
    /// There is none and will be none now. The caller removes these.
    Refused(Vec<CopyId>),
}

#[derive(Debug, PartialEq, Eq)]
enum CopyState {
    Making,
    Ready,
    Leaving,
}

#[derive(Debug)]
struct CopyEntry {
    data: DataId,
    kind: CopyKind,
    state: CopyState,
    number: u64,
    /// Number of attempts that use it or wait for it, and its maker.
    users: u32,
    last_use: u64,
    /// True if it leaves when nobody uses it.
    is_doomed: bool,
}

/// The copies at one node, by the paths of their sources.
#[derive(Debug)]
pub struct CopyTable {
    bytes_max: u64,
    entries: HashMap<PathBuf, CopyEntry>,
    /// Counts acquisitions.
    clock: u64,
}

impl CopyTable {
    /// A table of copies that take at most `bytes_max` bytes together.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, entries: HashMap::new(), clock: 0 }
    }

    /// Returns whether there is a copy of the bytes at a place, or one is being made.
    pub fn has(&self, place: &Path) -> bool {
        self.entries.get(place).is_some_and(|entry| matches!(entry.kind, CopyKind::Bytes(_)))
    }

    /// Lets an attempt use the copy at a place, if it is up to date, or make one that fits. `room`
    /// is the number of bytes that the node may take now.
    pub fn acquire(&mut self, (place, data): (&Path, DataId), kind: CopyKind, room: u64) -> Acquired {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(place) {
            let is_current = entry.kind == kind || matches!(entry.kind, CopyKind::Link);
            if is_current && entry.state != CopyState::Leaving {
                (entry.users, entry.last_use, entry.is_doomed) = (entry.users + 1, self.clock, false);
                return Acquired::Existing(CopyId { place: place.into(), number: entry.number });
            }
            entry.is_doomed = true;
            return Acquired::Refused(self.leave_if_idle(place).into_iter().collect());
        }
        let bytes = kind.bytes();
        let lacking = (self.bytes() + bytes).saturating_sub(self.bytes_max).max(bytes.saturating_sub(room));
        if bytes > self.bytes_max || self.idle().map(|(_, bytes)| bytes).sum::<u64>() < lacking {
            return Acquired::Refused(Vec::new());
        }
        let evicted = self.evict(lacking);
        let number = self.clock;
        // The attempt, and the maker.
        let users = 2;
        let entry =
            CopyEntry { data, kind, state: CopyState::Making, number, users, last_use: number, is_doomed: false };
        self.entries.insert(place.into(), entry);
        Acquired::New(CopyId { place: place.into(), number }, evicted)
    }

    /// Records that a copy is complete. Returns whether the maker must remove it: nobody wants it
    /// any more.
    pub fn complete(&mut self, copy: &CopyId) -> bool {
        if let Some(entry) = self.get_mut(copy) {
            entry.state = CopyState::Ready;
        }
        self.release(copy)
    }

    /// Returns whether a copy can be used; `None` while it is being made.
    pub fn is_ready(&mut self, copy: &CopyId) -> Option<bool> {
        match self.get_mut(copy).map(|entry| &entry.state) {
            Some(CopyState::Making) => None,
            state => Some(state == Some(&CopyState::Ready)),
        }
    }

    /// Records that an attempt does not use a copy any more. Returns whether the caller must remove
    /// it.
    pub fn release(&mut self, copy: &CopyId) -> bool {
        let Some(entry) = self.get_mut(copy) else { return false };
        entry.users = entry.users.saturating_sub(1);
        // A link costs nothing to make, and must not hinder a copy.
        entry.is_doomed |= entry.kind == CopyKind::Link;
        self.leave_if_idle(&copy.place).is_some()
    }

    /// Lets copies of members leave, each when nobody uses it any more. The caller removes those
    /// that are returned.
    pub fn drop_data(&mut self, data: &[DataId]) -> Vec<CopyId> {
        let found = self.entries.iter_mut().filter(|(_, entry)| data.contains(&entry.data));
        let places: Vec<PathBuf> = found
            .map(|(place, entry)| {
                entry.is_doomed = true;
                place.clone()
            })
            .collect();
        places.iter().filter_map(|place| self.leave_if_idle(place)).collect()
    }

    /// Lets copies that nobody uses leave, the least recently used first, until `bytes` bytes
    /// leave. The caller removes them.
    pub fn evict(&mut self, bytes: u64) -> Vec<CopyId> {
        let mut idle: Vec<_> =
            self.idle().map(|(place, bytes)| (self.entries[place].last_use, place.clone(), bytes)).collect();
        idle.sort_unstable();
        let (mut left, mut evicted) = (bytes, Vec::new());
        for (_, place, bytes) in idle {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(bytes);
            self.entries.get_mut(&place).expect("it is idle").is_doomed = true;
            evicted.extend(self.leave_if_idle(&place));
        }
        evicted
    }

    /// Forgets a copy that is removed, or that could not be made.
    pub fn remove(&mut self, copy: &CopyId) {
        if self.get_mut(copy).is_some() {
            self.entries.remove(&copy.place);
        }
    }

    /// The complete copies, in order.
    pub fn held(&self) -> Vec<HeldCopy> {
        let ready = self.entries.values().filter(|entry| entry.state == CopyState::Ready);
        let bytes = ready.filter(|entry| entry.kind != CopyKind::Link);
        let mut held: Vec<_> = bytes.map(|entry| HeldCopy { data: entry.data, bytes: entry.kind.bytes() }).collect();
        held.sort_unstable();
        held
    }

    /// Bytes of copies that are being removed.
    pub fn leaving(&self) -> u64 {
        let leaving = self.entries.values().filter(|entry| entry.state == CopyState::Leaving);
        leaving.map(|entry| entry.kind.bytes()).sum()
    }

    fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.kind.bytes()).sum::<u64>() - self.leaving()
    }

    /// The copies that nobody uses, with their bytes.
    fn idle(&self) -> impl Iterator<Item = (&PathBuf, u64)> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.state == CopyState::Ready && entry.users == 0);
        idle.map(|(place, entry)| (place, entry.kind.bytes()))
    }

    fn get_mut(&mut self, copy: &CopyId) -> Option<&mut CopyEntry> {
        self.entries.get_mut(&copy.place).filter(|entry| entry.number == copy.number)
    }

    fn leave_if_idle(&mut self, place: &Path) -> Option<CopyId> {
        let entry = self.entries.get_mut(place)?;
        if !entry.is_doomed || entry.users > 0 || entry.state != CopyState::Ready {
            return None;
        }
        entry.state = CopyState::Leaving;
        Some(CopyId { place: place.into(), number: entry.number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for as much as one likes.
    const ROOM: u64 = u64::MAX;
    /// A copy of one page.
    const ONE: u64 = INODE_BYTES + PAGE_BYTES;

    fn source(version: u64) -> CopyKind {
        let (file, modified) = (FileId(7), Timestamp::default());
        CopyKind::Bytes(SourceVersion { file, version, modified, size: PAGE_BYTES })
    }

    fn acquire(table: &mut CopyTable, number: u32, kind: CopyKind) -> Acquired {
        table.acquire((Path::new(&number.to_string()), DataId(number)), kind, ROOM)
    }

    /// A copy that an attempt made and still uses.
    fn made(table: &mut CopyTable, number: u32) -> CopyId {
        let Acquired::New(copy, evicted) = acquire(table, number, source(1)) else { panic!("there is none") };
        assert_eq!((table.is_ready(&copy), evicted), (None, vec![]));
        assert!(!table.complete(&copy));
        copy
    }

    fn held(table: &CopyTable) -> Vec<u32> {
        table.held().into_iter().map(|copy| copy.data.0).collect()
    }

    #[test]
    fn a_copy_is_made_once_for_all_attempts_and_stays_for_later_ones() {
        let mut table = CopyTable::new(2 * ONE);
        let copy = made(&mut table, 1);
        assert_eq!(acquire(&mut table, 1, source(1)), Acquired::Existing(copy.clone()));
        assert!(!table.release(&copy) && !table.release(&copy));
        assert_eq!(acquire(&mut table, 1, source(1)), Acquired::Existing(copy));
        assert_eq!(table.held(), [HeldCopy { data: DataId(1), bytes: ONE }]);
    }

    #[test]
    fn the_least_recently_used_copy_goes_for_another_and_none_that_is_used() {
        let mut table = CopyTable::new(2 * ONE);
        let (first, second) = (made(&mut table, 1), made(&mut table, 2));
        assert_eq!(acquire(&mut table, 3, source(1)), Acquired::Refused(vec![]), "both are used");
        table.release(&first);
        table.release(&second);
        assert_eq!(acquire(&mut table, 1, source(1)), Acquired::Existing(first.clone()));
        table.release(&first);
        let Acquired::New(third, evicted) = acquire(&mut table, 3, source(1)) else { panic!("there is room") };
        assert_eq!(evicted, std::slice::from_ref(&second));
        assert_eq!(acquire(&mut table, 2, source(1)), Acquired::Refused(vec![]), "it is being removed");
        table.remove(&second);
        table.complete(&third);
        assert_eq!(held(&table), [1, 3]);
        let large = CopyKind::Bytes(SourceVersion {
            size: 3 * PAGE_BYTES,
            file: FileId(8),
            version: 1,
            modified: Timestamp::default(),
        });
        assert_eq!(acquire(&mut table, 4, large), Acquired::Refused(vec![]), "more than the bound evicts nothing");
    }

    #[test]
    fn a_node_without_room_gets_no_copy_unless_others_can_go() {
        let mut table = CopyTable::new(9 * ONE);
        let place = (Path::new("2"), DataId(2));
        assert_eq!(table.acquire(place, source(1), ONE - 1), Acquired::Refused(vec![]));
        let first = made(&mut table, 1);
        table.release(&first);
        let Acquired::New(_, evicted) = table.acquire(place, source(1), 0) else { panic!("another can go") };
        assert_eq!((evicted, table.leaving()), (vec![first], ONE));
        assert_eq!(table.evict(u64::MAX), [], "it is used");
    }

    #[test]
    fn a_copy_of_a_source_that_has_changed_is_not_used_and_made_again_when_it_is_idle() {
        let mut table = CopyTable::new(9 * ONE);
        let old = made(&mut table, 1);
        assert_eq!(acquire(&mut table, 1, source(2)), Acquired::Refused(vec![]));
        assert!(table.release(&old), "it goes with its last user");
        assert!(held(&table).is_empty());
        table.remove(&old);
        let new = made_as(&mut table, source(2));
        table.release(&new);
        assert_eq!(acquire(&mut table, 1, source(3)), Acquired::Refused(vec![new]), "nobody uses it");
    }

    fn made_as(table: &mut CopyTable, kind: CopyKind) -> CopyId {
        let Acquired::New(copy, _) = acquire(table, 1, kind) else { panic!("there is none") };
        table.complete(&copy);
        copy
    }

    #[test]
    fn copies_of_dropped_members_go_when_nobody_uses_them() {
        let mut table = CopyTable::new(9 * ONE);
        let (used, idle) = (made(&mut table, 1), made(&mut table, 2));
        table.release(&idle);
        assert_eq!(table.drop_data(&[DataId(1), DataId(2), DataId(3)]), [idle]);
        assert!(table.release(&used));
        let Acquired::New(making, _) = acquire(&mut table, 4, source(1)) else { panic!("there is none") };
        table.drop_data(&[DataId(4)]);
        assert!(!table.release(&making), "its attempt was ended");
        assert!(table.complete(&making), "the maker removes it");
    }

    #[test]
    fn a_link_goes_with_its_last_user_and_serves_who_wants_a_copy_meanwhile() {
        let mut table = CopyTable::new(9 * ONE);
        let link = made_as(&mut table, CopyKind::Link);
        assert_eq!(acquire(&mut table, 1, source(1)), Acquired::Existing(link.clone()));
        assert!(!table.has(Path::new("1")) && held(&table).is_empty());
        assert!(!table.release(&link) && table.release(&link));
        table.remove(&link);
        assert!(matches!(acquire(&mut table, 1, source(1)), Acquired::New(..)));
    }

    #[test]
    fn a_copy_that_failed_is_forgotten_and_its_later_namesake_is_another() {
        let mut table = CopyTable::new(9 * ONE);
        let Acquired::New(failed, _) = acquire(&mut table, 1, source(1)) else { panic!("there is none") };
        table.remove(&failed);
        assert_eq!(table.is_ready(&failed), Some(false));
        let copy = made(&mut table, 1);
        assert!(!table.release(&failed), "this counts for nobody");
        table.remove(&failed);
        assert_eq!(acquire(&mut table, 1, source(1)), Acquired::Existing(copy));
    }
}
