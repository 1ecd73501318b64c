//! Paths to the directories of keys, and the proof that a remembered path is still valid.
//!
//! A directory may be renamed, removed and made anew by others at any moment, so its former place
//! proves nothing. But a node walks a path faster than a message travels. So the command is sent
//! together with the names of the directories, to the node where they led the last time, and is
//! executed only if they still lead there. A call whose directories are all on one node is one
//! message, however deep they are; otherwise it takes one more each time that the path leaves a
//! node.
//!
//! As with any path, each directory had its name at some moment of the call.

use super::{Key, Objects, TRIES, key::names};
use crate::call::Route;
use parking_lot::Mutex;
use placement::FileId;
use std::{collections::HashMap, sync::Arc};
use wire::{Answer, Attributes, Kind, Name, Object, Outcome, Refusal, TypedCommand};

/// Most directories that are remembered; beyond it all are forgotten.
const PATHS_MAX: usize = 65_536;
/// Most directories that one request walks through.
const WALK_MAX: usize = 256;
/// Permission bits of directories that a put makes.
const DIRECTORY_MODE: u32 = 0o755;

/// The paths that were found last.
#[derive(Debug, Default)]
pub struct WalkedPaths(Mutex<HashMap<Box<[u8]>, Arc<WalkedPath>>>);

/// A path to a directory.
#[derive(Debug)]
pub struct WalkedPath {
    names: Vec<Name>,
    /// The parts of the path that one node can walk alone: the start of each, and the index of its
    /// first name. Empty for the root.
    stretches: Vec<(FileId, usize)>,
    /// The directory that it led to.
    pub directory: FileId,
}

/// How to treat missing directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Refuse them as `NotFound`.
    Refuse,
    /// Make them.
    Create,
}

impl WalkedPaths {
    fn get(&self, directory: &[u8]) -> Option<Arc<WalkedPath>> {
        self.0.lock().get(directory).cloned()
    }

    fn learn(&self, directory: &[u8], path: Arc<WalkedPath>) {
        let mut known = self.0.lock();
        if known.len() >= PATHS_MAX {
            known.clear();
        }
        known.insert(directory.into(), path);
    }

    fn forget(&self, directory: &[u8]) {
        self.0.lock().remove(directory);
    }
}

impl Objects {
    /// Executes a command in the directory of the key, in the partition that has the name.
    pub(super) async fn execute_at_key<V>(
        &self,
        key: &Key,
        missing: MissingPolicy,
        call: impl Fn(FileId) -> TypedCommand<V> + Sync,
    ) -> Outcome<V> {
        if key.directory().is_empty() {
            return self.execute_in_directory(FileId::ROOT, key.name(), &call).await;
        }
        Box::pin(self.execute_via_path(key, missing, &call)).await
    }

    async fn execute_via_path<V>(
        &self,
        key: &Key,
        missing: MissingPolicy,
        call: &(impl Fn(FileId) -> TypedCommand<V> + Sync),
    ) -> Outcome<V> {
        let directory = key.directory();
        for _ in 0..TRIES {
            let tried = if let Some(path) = self.shared.paths.get(directory) {
                self.try_path(&path, key.name(), call).await
            } else {
                let path = self.find_path(directory, missing).await?;
                self.execute_in_directory(path.directory, key.name(), call).await.map(Some)
            };
            match tried {
                Ok(Some(answer)) => return Ok(answer),
                // A missing name is the answer, unless directories are to be made; a directory that
                // is gone may have been made anew.
                Err(Refusal::NotFound(object))
                    if missing == MissingPolicy::Create || !matches!(object, Object::Entry { .. }) => {}
                Err(refusal) => return Err(refusal),
                Ok(None) => {}
            }
            self.shared.paths.forget(directory);
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// Executes a command in a directory whose path was just walked.
    async fn execute_in_directory<V>(
        &self,
        directory: FileId,
        name: &Name,
        call: &(impl Fn(FileId) -> TypedCommand<V> + Sync),
    ) -> Outcome<V> {
        let attempt = |slot: FileId| async move {
            let TypedCommand { command, take } = call(slot);
            take(self.client.execute_by_route(Route::ById, slot.partition(), command).await?)
        };
        self.client.run_in_slot(directory, name, attempt).await
    }

    /// Executes a command if the path still leads to the directory; `None` if it leads elsewhere by
    /// now.
    async fn try_path<V>(
        &self,
        path: &WalkedPath,
        name: &Name,
        call: &(impl Fn(FileId) -> TypedCommand<V> + Sync),
    ) -> Outcome<Option<V>> {
        let (last, before) = path.stretches.split_last().expect("a directory has a name");
        let ends = path.stretches.iter().skip(1);
        for ((top, from), (end, to)) in before.iter().zip(ends) {
            if self.client.walk_down(*top, &path.names[*from..*to], None).await? != (*end, 0) {
                return Ok(None);
            }
        }
        let (top, names, directory) = (last.0, &path.names[last.1..], path.directory);
        let attempt = |slot: FileId| async move {
            let together = self.client.router().home(top.partition()) == self.client.router().home(slot.partition());
            let route = if together {
                Route::ByPath { top, names, directory, credentials: None }
            } else if self.client.walk_down(top, names, None).await? == (directory, 0) {
                Route::ById
            } else {
                return Ok(None);
            };
            let TypedCommand { command, take } = call(slot);
            match self.client.execute_by_route(route, slot.partition(), command).await? {
                Answer::Walked(_) => Ok(None),
                answer => take(answer).map(Some),
            }
        };
        self.client.run_in_slot(directory, name, attempt).await
    }

    /// The remembered path to a directory.
    pub(super) fn known_path(&self, directory: &[u8]) -> Option<Arc<WalkedPath>> {
        self.shared.paths.get(directory)
    }

    /// Finds the path to a directory, and remembers it if nodes can walk it.
    pub(super) async fn find_path(&self, directory: &[u8], missing: MissingPolicy) -> Outcome<Arc<WalkedPath>> {
        let names = names(directory)?;
        let (mut at, mut done, mut stretches, mut walkable) = (FileId::ROOT, 0, Vec::new(), true);
        while done < names.len() {
            let end = names.len().min(done + WALK_MAX);
            let walked = self.client.walk_down(at, &names[done..end], None).await;
            let (reached, left) = match walked {
                Err(Refusal::NotFound(_)) if missing == MissingPolicy::Create => {
                    at = self.make_directories(&names).await?;
                    walkable = false; // the new directories were not walked to; the next call does that
                    break;
                }
                walked => walked?,
            };
            let walked_to = end - left as usize;
            if walked_to > done {
                stretches.push((at, done));
                (at, done) = (reached, walked_to);
            } else {
                at = self.lookup_directory(at, &names[done]).await?;
                (done, walkable) = (done + 1, false);
            }
        }
        let path = Arc::new(WalkedPath { names, stretches, directory: at });
        if walkable && !path.stretches.is_empty() {
            self.shared.paths.learn(directory, path.clone());
        }
        Ok(path)
    }

    /// Looks up a directory by its name, also one whose inode is at another node, or whose name an
    /// intent holds.
    async fn lookup_directory(&self, above: FileId, name: &Name) -> Outcome<FileId> {
        match self.client.find(above, name).await? {
            (file, Kind::Directory, _) => Ok(file),
            _ => Err(Refusal::NotDirectory(Object::entry(above, name))),
        }
    }

    /// Makes the missing directories of a path, each with the owner of its parent.
    async fn make_directories(&self, names: &[Name]) -> Outcome<FileId> {
        'anew: for _ in 0..TRIES {
            let mut above = self.client.stat(FileId::ROOT).await?;
            for name in names {
                above = match self.lookup_or_make(&above, name).await {
                    Err(Refusal::NotFound(_)) => continue 'anew, // another client removes them
                    entered => entered?,
                };
            }
            return Ok(above.file);
        }
        Err(Refusal::Busy(Object::Pool))
    }

    async fn lookup_or_make(&self, above: &Attributes, name: &Name) -> Outcome<Attributes> {
        let found = match self.client.lookup(above.file, name).await {
            Err(Refusal::NotFound(_)) => {
                match self.client.make_directory(above.file, name, DIRECTORY_MODE.into(), above.owner).await {
                    Err(Refusal::Exists(_)) => self.client.lookup(above.file, name).await?,
                    made => return made,
                }
            }
            found => found?,
        };
        match found.kind {
            Kind::Directory => Ok(found),
            _ => Err(Refusal::NotDirectory(Object::entry(above.file, name))),
        }
    }
}
