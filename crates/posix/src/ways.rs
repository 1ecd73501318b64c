//! Path cache: the directories that paths led to before. An entry serves only as an address. The
//! next request goes there in one message, together with the names, and the node executes it only
//! if the names still lead to that directory.

use crate::prefix;
use crate::who::Going;
use client::Below;
use placement::FileId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Name;

/// Maximum number of entries; the cache is cleared when it is full.
const WAYS_MAX: usize = 4096;
/// Maximum number of directories in one message.
const FOLDERS_MAX: usize = 256;

/// Path through directories: the start, and the names.
type Key = (FileId, Vec<Name>);

/// Cache of the directories that paths lead to.
#[derive(Debug, Default)]
pub struct Ways(Mutex<HashMap<Key, FileId>>);

impl Ways {
    /// Returns the directory that a path led to last.
    pub fn known(&self, way: &Way) -> Option<FileId> {
        if way.key.1.is_empty() { Some(way.key.0) } else { self.lock().get(&way.key).copied() }
    }

    /// Records the directory that a path leads to.
    pub fn learn(&self, way: Way, directory: FileId) {
        if way.key.1.is_empty() {
            return; // the start itself
        }
        let mut known = self.lock();
        if known.len() >= WAYS_MAX {
            known.clear();
        }
        known.insert(way.key, directory);
    }

    /// Removes a stale entry.
    pub fn forget(&self, way: &Way) {
        self.lock().remove(&way.key);
    }

    /// Locks the cache, to be held over a fork.
    pub fn guard(&self) -> WaysGuard<'_> {
        WaysGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, FileId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lock that keeps the cache unchanged.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub struct WaysGuard<'a>(MutexGuard<'a, HashMap<Key, FileId>>);

/// Path that consists of names alone, without `..`.
#[derive(Debug)]
pub struct Way {
    key: Key,
    /// Last name.
    pub last: Name,
    /// True if a slash follows the last name.
    pub slash: bool,
}

impl Way {
    /// Parses a path. Returns `None` if it has no name, more than 256, one that is too long, or a
    /// `..`, or if it ends in `/.`.
    pub fn of(top: FileId, path: &[u8]) -> Option<Self> {
        let said = || prefix::names(path).filter(|name| *name != b".");
        let count = said().count();
        if !(1..=FOLDERS_MAX).contains(&count) || said().any(|name| name == b"..") || path.ends_with(b"/.") {
            return None;
        }
        let mut names = said().map(Name::new).collect::<Result<Vec<_>, _>>().ok()?;
        let last = names.pop()?;
        Some(Self { key: (top, names), last, slash: path.ends_with(b"/") })
    }

    /// Returns the path with its cached directory, for a request.
    pub fn below<'a>(&'a self, directory: FileId, going: &'a Going) -> Below<'a> {
        Below { top: self.key.0, folders: &self.key.1, directory, who: going.who() }
    }

    /// Returns the names of the directories.
    pub fn folders(&self) -> impl Iterator<Item = Vec<u8>> {
        self.key.1.iter().map(|name| name.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(path: &str) -> Option<(Vec<String>, String, bool)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Way { key: (top, folders), last, slash } = Way::of(FileId::ROOT, path.as_bytes())?;
        assert_eq!(top, FileId::ROOT);
        Some((folders.iter().map(|name| text(name.as_bytes())).collect(), text(last.as_bytes()), slash))
    }

    #[test]
    fn a_path_of_names_alone_is_a_way_and_no_other_is() {
        let found = |folders: &[&str], last: &str, slash| {
            Some((folders.iter().map(ToString::to_string).collect::<Vec<_>>(), last.to_owned(), slash))
        };
        assert_eq!(way("a/b"), found(&["a"], "b", false));
        assert_eq!(way("./a//./b/c/"), found(&["a", "b"], "c", true));
        assert_eq!(way("a"), found(&[], "a", false));
        assert_eq!(way("/./a/"), found(&[], "a", true));
        for other in ["", "/", "a/..", "a/../b", "../a/b", "a/.", "a/b/."] {
            assert_eq!(way(other), None, "{other}");
        }
        assert_eq!(way(&format!("a/{}", "b".repeat(256))), None, "a name that is too long is refused on the walk");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let ways = Ways::default();
        let of = |number: usize| Way::of(FileId::ROOT, format!("{number}/f").as_bytes()).unwrap();
        for number in 0..=WAYS_MAX {
            ways.learn(of(number), FileId(number as u64));
        }
        assert_eq!(ways.known(&of(WAYS_MAX)), Some(FileId(WAYS_MAX as u64)));
        assert_eq!(ways.known(&of(0)), None);
        ways.forget(&of(WAYS_MAX));
        assert_eq!(ways.known(&of(WAYS_MAX)), None);
        let own = Way::of(FileId(7), b"f").unwrap();
        assert_eq!(ways.known(&own), Some(FileId(7)), "a name leads to where it is said");
    }
}
