//! Paths that were walked, and the directories that they led to.
//!
//! Others may rename or remove a directory at any moment, so a remembered path proves nothing: it
//! is an address for `path_hint`. A node walks as far as it has the directories. So a path is
//! remembered with its **turns**, where the walk went on at another node.

use crate::Client;
use placement::FileId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use wire::{Credentials, Name, Outcome, Refusal};

/// Most paths that are remembered; beyond it all are forgotten.
const PATHS_MAX: usize = 65_536;
/// Most names that one message carries.
const WALK_MAX: usize = 256;

/// A path down through directories, as far as it was walked.
#[derive(Debug)]
pub struct WalkedPath {
    start: FileId,
    names: Vec<Name>,
    /// Number of names that were walked.
    walked: usize,
    /// Directories from which the walk went on at another node, and the number of names before.
    turns: Vec<(FileId, usize)>,
    /// The directory that the walked names led to.
    directory: FileId,
}

impl WalkedPath {
    /// Returns the path of no names.
    pub fn of_start(start: FileId) -> Self {
        Self { start, names: Vec::new(), walked: 0, turns: Vec::new(), directory: start }
    }

    /// Returns the directory that the path led to.
    pub fn directory(&self) -> FileId {
        self.directory
    }

    /// Returns the names that were walked, and those that are left.
    pub fn split_names(&self) -> (&[Name], &[Name]) {
        self.names.split_at(self.walked)
    }

    /// Returns true if all names were walked.
    pub fn is_whole(&self) -> bool {
        self.walked == self.names.len()
    }

    /// Returns the parts that one node walks alone: the start, the names and the end of each.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = (FileId, &[Name], FileId)> {
        let part = move |number: usize| {
            let (start, from) = number.checked_sub(1).map_or((self.start, 0), |turn| self.turns[turn]);
            let (end, to) = self.turns.get(number).copied().unwrap_or((self.directory, self.walked));
            (start, &self.names[from..to], end)
        };
        (0..=self.turns.len()).map(part)
    }
}

/// A path as it is remembered: its start, and its names with one slash between them.
pub type PathText = (FileId, Vec<u8>);
/// Walked paths by their texts.
pub type KnownPaths = HashMap<PathText, Arc<WalkedPath>>;

/// The paths that were walked last.
#[derive(Debug, Default)]
pub struct PathCache(Mutex<KnownPaths>);

impl PathCache {
    /// Returns a path that was walked before. The one of no names leads to its start.
    pub fn get(&self, text: &PathText) -> Option<Arc<WalkedPath>> {
        if text.1.is_empty() { Some(Arc::new(WalkedPath::of_start(text.0))) } else { self.lock().get(text).cloned() }
    }

    /// Remembers a path, if all of it was walked.
    pub fn insert(&self, text: PathText, path: WalkedPath) {
        if text.1.is_empty() || !path.is_whole() {
            return;
        }
        let mut known = self.lock();
        if known.len() >= PATHS_MAX {
            known.clear();
        }
        known.insert(text, Arc::new(path));
    }

    /// Forgets a path that leads elsewhere by now.
    pub fn remove(&self, text: &PathText) {
        self.lock().remove(text);
    }

    /// Locks the cache, also to hold it over a fork: a child may release a lock of `std`, even if
    /// threads of the parent wait for it.
    pub fn lock(&self) -> MutexGuard<'_, KnownPaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Walks down from a directory through others, as far as nodes can: one message for each part
    /// that one node has. A node cannot walk on where another has the entry. With credentials, the
    /// walk ends before a directory that may not let that user pass.
    ///
    /// Refused as `NotFound`; as `NotDirectory` if a name of the first part is anything else.
    pub async fn walk_path(
        &self,
        start: FileId,
        names: Vec<Name>,
        credentials: Option<&Credentials>,
    ) -> Outcome<WalkedPath> {
        let mut path = WalkedPath { names, ..WalkedPath::of_start(start) };
        while !path.is_whole() {
            let (_, left) = path.split_names();
            let part = &left[..left.len().min(WALK_MAX)];
            let (reached, remaining) = match self.walk_down(path.directory, part, credentials).await {
                Err(Refusal::NotDirectory(_)) if path.walked > 0 => break,
                walked => walked?,
            };
            let walked = part.len() - remaining as usize;
            if walked == 0 {
                break;
            }
            if path.walked > 0 {
                path.turns.push((path.directory, path.walked));
            }
            (path.directory, path.walked) = (reached, path.walked + walked);
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: FileId = FileId(7);

    fn path(to: u64) -> WalkedPath {
        WalkedPath {
            names: vec![Name::new(b"d").unwrap()],
            walked: 1,
            directory: FileId(to),
            ..WalkedPath::of_start(START)
        }
    }

    fn led_to(cache: &PathCache, start: FileId, text: &str) -> Option<FileId> {
        cache.get(&(start, text.into())).map(|path| path.directory())
    }

    #[test]
    fn a_path_is_known_by_its_start_and_its_names_until_it_is_forgotten() {
        let cache = PathCache::default();
        cache.insert((START, "d".into()), path(1));
        cache.insert((START, "e".into()), path(2));
        assert_eq!((led_to(&cache, START, "d"), led_to(&cache, START, "e")), (Some(FileId(1)), Some(FileId(2))));
        assert_eq!(led_to(&cache, FileId(8), "d"), None);
        cache.remove(&(START, "d".into()));
        assert_eq!((led_to(&cache, START, "d"), led_to(&cache, START, "e")), (None, Some(FileId(2))));
        assert_eq!(led_to(&cache, FileId(9), ""), Some(FileId(9)), "no names lead to the start");
        let half = WalkedPath { walked: 0, ..path(3) };
        cache.insert((START, "half".into()), half);
        assert_eq!(led_to(&cache, START, "half"), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let cache = PathCache::default();
        for number in 0..PATHS_MAX as u64 {
            cache.insert((START, number.to_string().into()), path(number));
        }
        assert_eq!(led_to(&cache, START, "1"), Some(FileId(1)), "it has just room");
        cache.insert((START, "more".into()), path(2));
        assert_eq!((led_to(&cache, START, "1"), led_to(&cache, START, "more")), (None, Some(FileId(2))));
    }
}
