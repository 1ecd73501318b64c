//! Path cache: the directories that paths led to before. An entry serves only as an address. The
//! next request goes there in one message, together with the names, and the node executes it only
//! if the names still lead to that directory.

use crate::caller::TraversalCheck;
use client::PathHint;
use placement::FileId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::{Name, path_names};

/// Maximum number of entries; the cache is cleared when it is full.
const ENTRIES_MAX: usize = 4096;
/// Maximum number of directories in one message.
const DIRECTORIES_MAX: usize = 256;

/// Path through directories: the start, and the names.
type DirectoryPath = (FileId, Vec<Name>);

/// Cache of the directories that paths lead to.
#[derive(Debug, Default)]
pub struct PathCache(Mutex<HashMap<DirectoryPath, FileId>>);

impl PathCache {
    /// Returns the directory that a path led to last.
    pub fn get(&self, key: &PathKey) -> Option<FileId> {
        if key.start.1.is_empty() { Some(key.start.0) } else { self.lock().get(&key.start).copied() }
    }

    /// Records the directory that a path leads to.
    pub fn insert(&self, key: PathKey, directory: FileId) {
        if key.start.1.is_empty() {
            return; // the start itself
        }
        let mut known = self.lock();
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(key.start, directory);
    }

    /// Removes a stale entry.
    pub fn remove(&self, key: &PathKey) {
        self.lock().remove(&key.start);
    }

    /// Locks the cache, to be held over a fork.
    pub fn guard(&self) -> PathCacheGuard<'_> {
        PathCacheGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DirectoryPath, FileId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lock that keeps the cache unchanged.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub struct PathCacheGuard<'a>(MutexGuard<'a, HashMap<DirectoryPath, FileId>>);

/// Path that consists of names alone, without `..`.
#[derive(Debug)]
pub struct PathKey {
    start: DirectoryPath,
    /// Last name.
    pub last: Name,
    /// True if a slash follows the last name.
    pub slash: bool,
}

impl PathKey {
    /// Parses a path. Returns `None` if it has no name, more than 256, one that is too long, or a
    /// `..`, or if its last component is `.`, with or without a slash after it.
    pub fn parse(top: FileId, path: &[u8]) -> Option<Self> {
        let names = || path_names(path).filter(|name| *name != b".");
        let count = names().count();
        let ends_in_dot = path_names(path).last() == Some(b".");
        if !(1..=DIRECTORIES_MAX).contains(&count) || names().any(|name| name == b"..") || ends_in_dot {
            return None;
        }
        let mut directories = names().map(Name::new).collect::<Result<Vec<_>, _>>().ok()?;
        let last = directories.pop()?;
        Some(Self { start: (top, directories), last, slash: path.ends_with(b"/") })
    }

    /// Returns the path with its cached directory, for a request.
    pub fn hint<'a>(&'a self, directory: FileId, traversal: &'a TraversalCheck) -> PathHint<'a> {
        PathHint { top: self.start.0, names: &self.start.1, directory, credentials: traversal.credentials() }
    }

    /// Returns the names of the directories.
    pub fn directories(&self) -> impl Iterator<Item = Vec<u8>> {
        self.start.1.iter().map(|name| name.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(Vec<String>, String, bool)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let PathKey { start: (top, directories), last, slash } = PathKey::parse(FileId::ROOT, path.as_bytes())?;
        assert_eq!(top, FileId::ROOT);
        Some((directories.iter().map(|name| text(name.as_bytes())).collect(), text(last.as_bytes()), slash))
    }

    #[test]
    fn a_path_of_names_alone_is_a_way_and_no_other_is() {
        let found = |directories: &[&str], last: &str, slash| {
            Some((directories.iter().map(ToString::to_string).collect::<Vec<_>>(), last.to_owned(), slash))
        };
        assert_eq!(parse("a/b"), found(&["a"], "b", false));
        assert_eq!(parse("./a//./b/c/"), found(&["a", "b"], "c", true));
        assert_eq!(parse("a"), found(&[], "a", false));
        assert_eq!(parse("/./a/"), found(&[], "a", true));
        for other in ["", "/", "a/..", "a/../b", "../a/b", "a/.", "a/b/.", "a/./", "a/.//"] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse(&format!("a/{}", "b".repeat(256))), None, "a name that is too long is refused on the walk");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let path_cache = PathCache::default();
        let numbered = |number: usize| PathKey::parse(FileId::ROOT, format!("{number}/f").as_bytes()).unwrap();
        for number in 0..=ENTRIES_MAX {
            path_cache.insert(numbered(number), FileId(number as u64));
        }
        assert_eq!(path_cache.get(&numbered(ENTRIES_MAX)), Some(FileId(ENTRIES_MAX as u64)));
        assert_eq!(path_cache.get(&numbered(0)), None);
        path_cache.remove(&numbered(ENTRIES_MAX));
        assert_eq!(path_cache.get(&numbered(ENTRIES_MAX)), None);
        let own = PathKey::parse(FileId(7), b"f").unwrap();
        assert_eq!(path_cache.get(&own), Some(FileId(7)), "a name leads to where it is said");
    }
}
