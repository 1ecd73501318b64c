//! Where ways led before, only to address what is asked next: it goes there in one message, and is done if the way leads there still.

use crate::prefix;
use crate::who::Going;
use client::Below;
use placement::FileId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Name;

/// More are not remembered; then all are forgotten.
const WAYS_MAX: usize = 4096;
/// As many folders are in one message at most.
const FOLDERS_MAX: usize = 256;

/// A way through folders: where it begins, and their names.
type Key = (FileId, Vec<Name>);

/// Where ways led.
#[derive(Debug, Default)]
pub struct Ways(Mutex<HashMap<Key, FileId>>);

impl Ways {
    /// Where a way led the last time.
    pub fn known(&self, way: &Way) -> Option<FileId> {
        if way.key.1.is_empty() { Some(way.key.0) } else { self.lock().get(&way.key).copied() }
    }

    /// It leads there now.
    pub fn learn(&self, way: Way, directory: FileId) {
        if way.key.1.is_empty() {
            return; // it is where it begins
        }
        let mut known = self.lock();
        if known.len() >= WAYS_MAX {
            known.clear();
        }
        known.insert(way.key, directory);
    }

    /// It does so no longer.
    pub fn forget(&self, way: &Way) {
        self.lock().remove(&way.key);
    }

    /// The list itself: held over a fork.
    pub fn guard(&self) -> WaysGuard<'_> {
        WaysGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, FileId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ways that nobody changes.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub struct WaysGuard<'a>(MutexGuard<'a, HashMap<Key, FileId>>);

/// A path of names alone.
#[derive(Debug)]
pub struct Way {
    key: Key,
    /// The last name.
    pub last: Name,
    /// A slash follows it.
    pub slash: bool,
}

impl Way {
    /// The path as one; none where something in it is to be looked at by itself, or is no name.
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

    /// What goes to where it led.
    pub fn below<'a>(&'a self, directory: FileId, going: &'a Going) -> Below<'a> {
        Below { top: self.key.0, folders: &self.key.1, directory, who: going.who() }
    }

    /// The names of its folders.
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
