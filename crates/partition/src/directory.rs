//! The entries of one directory, or of a fragment of one, ordered by cookie.
//!
//! A cookie is made of the name's hash and a discriminator among names with the same hash, and stays with the entry. So a
//! listing goes on where it stopped, whatever came or went in between, and a name is found without a second index.

use crate::{
    object::{first_of, is_listed},
    weight,
};
use placement::{FileId, name_hash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{COOKIE_FIRST, DirEntry, Kind, Name, Object, Outcome, Refusal};

/// Bits of a cookie that tell names with one hash apart.
const DISCRIMINATOR_BITS: u32 = 8;
/// So many names with one hash can be in a directory.
pub const HASH_NAMES_MAX: u64 = 1 << DISCRIMINATOR_BITS;
/// Bits of the hash in a cookie: what is left below [`COOKIE_FIRST`].
pub const HASH_BITS: u32 = COOKIE_FIRST.trailing_zeros() - DISCRIMINATOR_BITS;

/// Names to inodes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Directory {
    entries: BTreeMap<u64, Entry>,
    subdirectories: u32,
    /// The directory above; the root's is itself.
    pub parent: FileId,
    /// Of a fragment: its directory.
    pub of: Option<FileId>,
    /// Of a directory that is split: where its entries are, in the order of hashes. Empty when they are here.
    fragments: Vec<FileId>,
    /// What the entries count for in the pool.
    bytes: u64,
}

/// One name.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    pub name: Name,
    pub file: FileId,
    pub kind: Kind,
}

/// How names are hashed: the pool's seed, and how many bits are used (few in tests, so that hashes collide).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct NameHash {
    pub seed: u64,
    pub bits: u32,
}

impl NameHash {
    /// The first cookie that the name may have.
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

    pub fn weight(&self) -> u64 {
        self.bytes + weight::fragments(&self.fragments)
    }

    pub fn fragments(&self) -> &[FileId] {
        &self.fragments
    }

    /// From now on the entries are in fragments, or, without any, here.
    pub fn set_fragments(&mut self, fragments: Vec<FileId>) {
        self.entries.clear();
        (self.subdirectories, self.bytes, self.fragments) = (0, 0, fragments);
    }

    /// Makes this a fragment with the entries of its directory, which keep their cookies.
    pub fn fill(&mut self, directory: FileId, entries: Vec<DirEntry>) {
        self.of = Some(directory);
        for DirEntry { name, file, kind, cookie } in entries {
            self.bytes += weight::entry(&name);
            self.subdirectories += u32::from(kind == Kind::Directory);
            self.entries.insert(cookie, Entry { name, file, kind });
        }
    }

    /// Whether the name's hash has room for one more name besides those that `held` marks may bring.
    pub fn has_room(&self, hash: NameHash, name: &Name, held: usize) -> bool {
        let first = hash.cookie(name);
        self.entries.range(first..first + (1 << DISCRIMINATOR_BITS)).count() + held < 1 << DISCRIMINATOR_BITS
    }

    pub fn get(&self, hash: NameHash, name: &Name) -> Option<&Entry> {
        self.find(hash, name).map(|(_, entry)| entry)
    }

    fn find(&self, hash: NameHash, name: &Name) -> Option<(u64, &Entry)> {
        let first = hash.cookie(name);
        // Nearly every name is the only one with its hash.
        if let Some(entry) = self.entries.get(&first).filter(|entry| entry.name == *name) {
            return Some((first, entry));
        }
        let mut others = self.entries.range(first + 1..first + (1 << DISCRIMINATOR_BITS));
        others.find(|(_, entry)| entry.name == *name).map(|(cookie, entry)| (*cookie, entry))
    }

    fn get_mut(&mut self, hash: NameHash, name: &Name) -> Option<&mut Entry> {
        let (cookie, _) = self.find(hash, name)?;
        self.entries.get_mut(&cookie)
    }

    /// Adds a name that is not there. Refused when 256 names have one hash, which no honest naming brings about.
    pub fn insert(&mut self, hash: NameHash, name: Name, file: FileId, kind: Kind) -> Outcome<()> {
        let cookie = self.free_cookie(hash.cookie(&name), &name)?;
        self.bytes += weight::entry(&name);
        self.subdirectories += u32::from(kind == Kind::Directory);
        self.entries.insert(cookie, Entry { name, file, kind });
        Ok(())
    }

    fn free_cookie(&self, first: u64, name: &Name) -> Outcome<u64> {
        let end = first + (1 << DISCRIMINATOR_BITS);
        let taken = self.entries.range(first..end).map(|(cookie, _)| *cookie);
        let free = taken.fold(first, |free, cookie| if cookie == free { free + 1 } else { free });
        let limit = HASH_NAMES_MAX;
        (free < end).then_some(free).ok_or_else(|| Refusal::TooLarge { object: Object::text(name.as_bytes()), limit })
    }

    pub fn remove(&mut self, hash: NameHash, name: &Name) -> Option<Entry> {
        let (cookie, _) = self.find(hash, name)?;
        let entry = self.entries.remove(&cookie)?;
        self.bytes -= weight::entry(&entry.name);
        self.subdirectories -= u32::from(entry.kind == Kind::Directory);
        Some(entry)
    }

    /// Lets a name refer to something else, under its old cookie.
    pub fn replace(&mut self, hash: NameHash, name: &Name, file: FileId, kind: Kind) {
        let Some(entry) = self.get_mut(hash, name) else { return };
        let was = std::mem::replace(&mut entry.kind, kind);
        entry.file = file;
        self.subdirectories += u32::from(kind == Kind::Directory);
        self.subdirectories -= u32::from(was == Kind::Directory);
    }

    /// At most `max` entries behind the cookie `after`.
    pub fn list(&self, after: u64, max: usize) -> Vec<DirEntry> {
        self.entries.range(after.saturating_add(1)..).take(max).map(listed).collect()
    }

    /// The first `max` entries by name, of those that begin with `prefix` and are not before `from`.
    pub fn list_names(&self, prefix: &[u8], from: &[u8], max: usize) -> Vec<DirEntry> {
        let asked = self.entries.iter().filter(|(_, entry)| is_listed(&entry.name, entry.kind, prefix, from));
        first_of(asked.map(listed).collect(), max)
    }
}

fn listed((&cookie, entry): (&u64, &Entry)) -> DirEntry {
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
