//! Entries of a directory, or of a fragment of one, ordered by cookie.
//!
//! A cookie consists of the name's hash and a discriminator among names with the same hash. It
//! never changes while the entry exists. A listing can therefore continue where it stopped,
//! whatever was added or removed in between, and lookups need no second index.

use crate::{
    memory_cost,
    object::{first_of, is_listed},
};
use placement::{FileId, name_hash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{COOKIE_FIRST, DirEntry, Kind, Name, Object, Outcome, Refusal};

/// Number of bits of a cookie that discriminate names with the same hash.
const DISCRIMINATOR_BITS: u32 = 8;
/// Maximum number of names with the same hash in a directory.
pub const HASH_NAMES_MAX: u64 = 1 << DISCRIMINATOR_BITS;
/// Number of hash bits in a cookie: the rest below [`COOKIE_FIRST`].
pub const HASH_BITS: u32 = COOKIE_FIRST.trailing_zeros() - DISCRIMINATOR_BITS;

/// Map from names to inodes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Directory {
    entries: BTreeMap<u64, StoredEntry>,
    subdirectories: u32,
    /// Parent directory; the root's is itself.
    pub parent: FileId,
    /// The directory of a fragment.
    pub of: Option<FileId>,
    /// Fragments of a split directory, in hash order. Empty if the entries are here.
    fragments: Vec<FileId>,
    /// Memory cost of the entries.
    bytes: u64,
}

/// A directory entry.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredEntry {
    pub name: Name,
    pub file: FileId,
    pub kind: Kind,
}

/// Hash of names: the pool's seed, and the number of bits in use (few in tests, so that hashes
/// collide).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct NameHash {
    pub seed: u64,
    pub bits: u32,
}

impl NameHash {
    /// Returns the lowest cookie that the name may have.
    fn cookie(self, name: &Name) -> u64 {
        let hash = name_hash(self.seed, name.as_bytes()) >> (u64::BITS - self.bits);
        COOKIE_FIRST | hash << DISCRIMINATOR_BITS
    }
}

impl Directory {
    pub fn new(parent: FileId) -> Self {
        Self { entries: BTreeMap::new(), subdirectories: 0, parent, of: None, fragments: Vec::new(), bytes: 0 }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn subdirectories(&self) -> u32 {
        self.subdirectories
    }

    pub fn memory_cost(&self) -> u64 {
        self.bytes + memory_cost::fragments(&self.fragments)
    }

    pub fn fragments(&self) -> &[FileId] {
        &self.fragments
    }

    /// Sets the fragments, and clears the entries, which are in the fragments now. With an empty
    /// list, the directory is unsplit and empty.
    pub fn set_fragments(&mut self, fragments: Vec<FileId>) {
        self.entries.clear();
        (self.subdirectories, self.bytes, self.fragments) = (0, 0, fragments);
    }

    /// Makes this a fragment with entries of its directory, which keep their cookies.
    pub fn fill(&mut self, directory: FileId, entries: Vec<DirEntry>) {
        self.of = Some(directory);
        for DirEntry { name, file, kind, cookie } in entries {
            self.bytes += memory_cost::entry(&name);
            self.subdirectories += u32::from(kind == Kind::Directory);
            self.entries.insert(cookie, StoredEntry { name, file, kind });
        }
    }

    /// Returns true if one more name with this hash fits, besides those that `held` locked entries
    /// may add.
    pub fn has_space(&self, hash: NameHash, name: &Name, held: usize) -> bool {
        let first = hash.cookie(name);
        self.entries.range(first..first + (1 << DISCRIMINATOR_BITS)).count() + held < 1 << DISCRIMINATOR_BITS
    }

    pub fn get(&self, hash: NameHash, name: &Name) -> Option<&StoredEntry> {
        self.find(hash, name).map(|(_, entry)| entry)
    }

    fn find(&self, hash: NameHash, name: &Name) -> Option<(u64, &StoredEntry)> {
        let first = hash.cookie(name);
        // Nearly every name is the only one with its hash.
        if let Some(entry) = self.entries.get(&first).filter(|entry| entry.name == *name) {
            return Some((first, entry));
        }
        let mut others = self.entries.range(first + 1..first + (1 << DISCRIMINATOR_BITS));
        others.find(|(_, entry)| entry.name == *name).map(|(cookie, entry)| (*cookie, entry))
    }

    fn get_mut(&mut self, hash: NameHash, name: &Name) -> Option<&mut StoredEntry> {
        let (cookie, _) = self.find(hash, name)?;
        self.entries.get_mut(&cookie)
    }

    /// Adds a new name. Refuses if 256 names have the same hash already, which only happens with
    /// maliciously chosen names.
    pub fn insert(&mut self, hash: NameHash, name: Name, file: FileId, kind: Kind) -> Outcome<()> {
        let cookie = self.free_cookie(hash.cookie(&name), &name)?;
        self.bytes += memory_cost::entry(&name);
        self.subdirectories += u32::from(kind == Kind::Directory);
        self.entries.insert(cookie, StoredEntry { name, file, kind });
        Ok(())
    }

    fn free_cookie(&self, first: u64, name: &Name) -> Outcome<u64> {
        let end = first + (1 << DISCRIMINATOR_BITS);
        let taken = self.entries.range(first..end).map(|(cookie, _)| *cookie);
        let free = taken.fold(first, |free, cookie| if cookie == free { free + 1 } else { free });
        let limit = HASH_NAMES_MAX;
        (free < end).then_some(free).ok_or_else(|| Refusal::TooLarge { object: Object::text(name.as_bytes()), limit })
    }

    pub fn remove(&mut self, hash: NameHash, name: &Name) -> Option<StoredEntry> {
        let (cookie, _) = self.find(hash, name)?;
        let entry = self.entries.remove(&cookie)?;
        self.bytes -= memory_cost::entry(&entry.name);
        self.subdirectories -= u32::from(entry.kind == Kind::Directory);
        Some(entry)
    }

    /// Makes a name refer to another inode, under its old cookie.
    pub fn replace(&mut self, hash: NameHash, name: &Name, file: FileId, kind: Kind) {
        let Some(entry) = self.get_mut(hash, name) else { return };
        let was = std::mem::replace(&mut entry.kind, kind);
        entry.file = file;
        self.subdirectories += u32::from(kind == Kind::Directory);
        self.subdirectories -= u32::from(was == Kind::Directory);
    }

    /// Returns at most `max` entries after the cookie `after`.
    pub fn list(&self, after: u64, max: usize) -> Vec<DirEntry> {
        self.entries.range(after.saturating_add(1)..).take(max).map(listed).collect()
    }

    /// Returns the first `max` entries in name order, of those that start with `prefix` and are not
    /// below `from`.
    pub fn list_names(&self, prefix: &[u8], from: &[u8], max: usize) -> Vec<DirEntry> {
        let listed_entries = self.entries.iter().filter(|(_, entry)| is_listed(&entry.name, entry.kind, prefix, from));
        first_of(listed_entries.map(listed).collect(), max)
    }
}

fn listed((&cookie, entry): (&u64, &StoredEntry)) -> DirEntry {
    DirEntry { name: entry.name.clone(), file: entry.file, kind: entry.kind, cookie }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Name {
        Name::new(format!("n{number}").as_bytes()).unwrap()
    }

    #[test]
    fn names_with_one_hash_keep_apart_and_keep_their_cookies() {
        let hash = NameHash { seed: 1, bits: 1 };
        let mut directory = Directory::new(FileId::ROOT);
        for number in 0..200 {
            directory.insert(hash, name(number), FileId(u64::from(number)), Kind::File).unwrap();
        }
        let before = directory.list(0, 1000);
        for number in (0..200).step_by(2) {
            assert_eq!(directory.remove(hash, &name(number)).unwrap().file.0, u64::from(number));
        }
        for entry in before {
            let found = directory.get(hash, &entry.name);
            assert_eq!(found.is_some(), entry.file.0 % 2 == 1);
            assert!(entry.cookie >= COOKIE_FIRST && i64::try_from(entry.cookie).is_ok());
        }
        assert_eq!(directory.len(), 100);
    }

    #[test]
    fn too_many_names_with_one_hash_are_refused_and_not_lost() {
        let hash = NameHash { seed: 1, bits: 1 };
        let mut directory = Directory::new(FileId::ROOT);
        let refused =
            (0..600).filter(|number| directory.insert(hash, name(*number), FileId(7), Kind::File).is_err()).count();
        assert_eq!((directory.len(), refused), (512, 88), "two hashes, 256 names each");
    }

    #[test]
    fn a_listing_goes_on_behind_its_cookie() {
        let hash = NameHash { seed: 1, bits: HASH_BITS };
        let mut directory = Directory::new(FileId::ROOT);
        (0..100).for_each(|number| directory.insert(hash, name(number), FileId(7), Kind::File).unwrap());
        let (mut seen, mut after) = (Vec::new(), 0);
        while let Some(last) = directory.list(after, 7).last() {
            seen.extend(directory.list(after, 7).into_iter().map(|entry| entry.name));
            after = last.cookie;
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
