//! Paths to the directories of keys: remembered, found, or made.

use super::{Key, Objects, TRIES, key::names};
use crate::{PathHint, WalkedPath};
use placement::FileId;
use std::sync::Arc;
use wire::{Attributes, Kind, Name, Object, Outcome, Refusal, TypedCommand};

/// Permission bits of directories that a put makes.
const DIRECTORY_MODE: u32 = 0o755;

/// How to treat missing directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Refuse them as `NotFound`.
    Refuse,
    /// Make them.
    Create,
}

impl Objects {
    /// Executes a command in the directory of the key, in the partition that has the name.
    pub(super) async fn execute_at_key<V>(
        &self,
        key: &Key,
        missing: MissingPolicy,
        call: impl Fn(FileId) -> TypedCommand<V> + Sync,
    ) -> Outcome<V> {
        let text = key.directory_text();
        for _ in 0..TRIES {
            let path = match self.shared.paths.get(&text) {
                Some(path) => path,
                None => Arc::new(WalkedPath::of_start(Box::pin(self.find_directory(&text.1, missing)).await?)),
            };
            match self.client.execute_at_hint(PathHint { path: &path, credentials: None }, key.name(), &call).await {
                Ok(Some(answer)) => return Ok(answer),
                // A missing name is the answer, unless directories are to be made; a directory that
                // is gone may have been made anew.
                Err(Refusal::NotFound(object))
                    if missing == MissingPolicy::Create || !matches!(object, Object::Entry { .. }) => {}
                Err(refusal) => return Err(refusal),
                Ok(None) => {}
            }
            self.shared.paths.remove(&text);
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// Finds a directory, and remembers the path to it if nodes can walk it.
    pub(super) async fn find_directory(&self, directory: &[u8], missing: MissingPolicy) -> Outcome<FileId> {
        let (mut at, mut left) = (FileId::ROOT, names(directory)?);
        loop {
            let path = match self.client.walk_path(at, left, None).await {
                // The new directories were not walked to; the next call does that.
                Err(Refusal::NotFound(_)) if missing == MissingPolicy::Create => {
                    return self.make_directories(&names(directory)?).await;
                }
                path => path?,
            };
            let [next, rest @ ..] = path.split_names().1 else {
                let found = path.directory();
                if at == FileId::ROOT {
                    self.shared.paths.insert((at, directory.to_vec()), path);
                }
                return Ok(found);
            };
            at = self.lookup_directory(path.directory(), next).await?;
            left = rest.to_vec();
        }
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
