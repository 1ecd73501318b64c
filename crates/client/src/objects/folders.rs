//! Paths to the folders of keys, and the proof that a remembered path is still valid.
//!
//! A folder may be renamed, removed and made anew by others at any moment, so its former place
//! proves nothing. But a node walks a path faster than a message travels. So the command is sent
//! together with the names of the folders, to the node where they led the last time, and is
//! executed only if they still lead there. A call whose folders are all on one node is one message,
//! however deep they are; otherwise it takes one more each time that the path leaves a node.
//!
//! As with any path, each folder had its name at some moment of the call.

use super::{Key, Objects, TRIES, key::names};
use crate::call::Via;
use parking_lot::Mutex;
use placement::FileId;
use std::{collections::HashMap, sync::Arc};
use wire::{Answer, Attributes, Command, Kind, Name, Object, Outcome, Refusal};

/// Most folders that are remembered; beyond it all are forgotten.
const FOLDERS_MAX: usize = 65_536;
/// Most folders that one request walks through.
const WALK_MAX: usize = 256;
/// Permission bits of folders that a put makes.
const FOLDER_MODE: u32 = 0o755;

/// The paths that were found last.
#[derive(Debug, Default)]
pub struct Folders(Mutex<HashMap<Box<[u8]>, Arc<Way>>>);

/// A path to a folder.
#[derive(Debug)]
pub struct Way {
    names: Vec<Name>,
    /// The parts of the path that one node can walk alone: the start of each, and the index of its
    /// first name. Empty for the root.
    stretches: Vec<(FileId, usize)>,
    /// The folder that it led to.
    pub directory: FileId,
}

/// How to treat missing folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Refuse them as `NotFound`.
    Refused,
    /// Make them.
    Made,
}

impl Folders {
    fn get(&self, folder: &[u8]) -> Option<Arc<Way>> {
        self.0.lock().get(folder).cloned()
    }

    fn learn(&self, folder: &[u8], way: Arc<Way>) {
        let mut known = self.0.lock();
        if known.len() >= FOLDERS_MAX {
            known.clear();
        }
        known.insert(folder.into(), way);
    }

    fn forget(&self, folder: &[u8]) {
        self.0.lock().remove(folder);
    }
}

impl Objects {
    /// Executes a command in the folder of the key, in the partition that has the name.
    pub(super) async fn there(
        &self,
        key: &Key,
        missing: Missing,
        command: impl Fn(FileId) -> Command + Sync,
    ) -> Outcome<Answer> {
        if key.folder().is_empty() {
            return self.in_directory(FileId::ROOT, key.name(), &command).await;
        }
        Box::pin(self.in_folder(key, missing, &command)).await
    }

    async fn in_folder(
        &self,
        key: &Key,
        missing: Missing,
        command: &(impl Fn(FileId) -> Command + Sync),
    ) -> Outcome<Answer> {
        let folder = key.folder();
        for _ in 0..TRIES {
            let tried = if let Some(way) = self.shared.folders.get(folder) {
                self.try_way(&way, key.name(), command).await
            } else {
                let way = self.find_way(folder, missing).await?;
                self.in_directory(way.directory, key.name(), command).await.map(Some)
            };
            match tried {
                Ok(Some(answer)) => return Ok(answer),
                // A missing name is the answer, unless folders are to be made; a directory that is
                // gone may have been made anew.
                Err(Refusal::NotFound(object))
                    if missing == Missing::Made || !matches!(object, Object::Entry { .. }) => {}
                Err(refusal) => return Err(refusal),
                Ok(None) => {}
            }
            self.shared.folders.forget(folder);
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// Executes a command in a directory whose path was just walked.
    fn in_directory(
        &self,
        directory: FileId,
        name: &Name,
        command: &(impl Fn(FileId) -> Command + Sync),
    ) -> impl Future<Output = Outcome<Answer>> {
        self.client.in_slot(directory, name, |slot| self.client.do_via(Via::Plain, slot.partition(), command(slot)))
    }

    /// Executes a command if the path still leads to the directory; `None` if it leads elsewhere by
    /// now.
    async fn try_way(
        &self,
        way: &Way,
        name: &Name,
        command: &(impl Fn(FileId) -> Command + Sync),
    ) -> Outcome<Option<Answer>> {
        let (last, before) = way.stretches.split_last().expect("a folder has a name");
        let ends = way.stretches.iter().skip(1);
        for ((top, from), (end, to)) in before.iter().zip(ends) {
            if self.client.walk_down(*top, &way.names[*from..*to], None).await? != (*end, 0) {
                return Ok(None);
            }
        }
        let (top, folders, directory) = (last.0, &way.names[last.1..], way.directory);
        let attempt = |slot: FileId| async move {
            let together = self.client.0.home(top.partition()) == self.client.0.home(slot.partition());
            if together {
                return self
                    .client
                    .do_via(Via::Walk { top, folders, directory, who: None }, slot.partition(), command(slot))
                    .await;
            }
            match self.client.walk_down(top, folders, None).await? {
                (end, 0) if end == directory => self.client.do_via(Via::Plain, slot.partition(), command(slot)).await,
                (reached, left) => Ok(Answer::Walked { reached, remaining: left }),
            }
        };
        match self.client.in_slot(directory, name, attempt).await? {
            Answer::Walked { .. } => Ok(None),
            answer => Ok(Some(answer)),
        }
    }

    /// The remembered path to a folder.
    pub(super) fn known_way(&self, folder: &[u8]) -> Option<Arc<Way>> {
        self.shared.folders.get(folder)
    }

    /// Finds the path to a folder, and remembers it if nodes can walk it.
    pub(super) async fn find_way(&self, folder: &[u8], missing: Missing) -> Outcome<Arc<Way>> {
        let names = names(folder)?;
        let (mut at, mut done, mut stretches, mut walkable) = (FileId::ROOT, 0, Vec::new(), true);
        while done < names.len() {
            let end = names.len().min(done + WALK_MAX);
            let walked = self.client.walk_down(at, &names[done..end], None).await;
            let (reached, left) = match walked {
                Err(Refusal::NotFound(_)) if missing == Missing::Made => {
                    at = self.make_folders(&names).await?;
                    walkable = false; // the new folders were not walked to; the next call does that
                    break;
                }
                walked => walked?,
            };
            let came = end - left as usize;
            if came > done {
                stretches.push((at, done));
                (at, done) = (reached, came);
            } else {
                at = self.enter(at, &names[done]).await?;
                (done, walkable) = (done + 1, false);
            }
        }
        let way = Arc::new(Way { names, stretches, directory: at });
        if walkable && !way.stretches.is_empty() {
            self.shared.folders.learn(folder, way.clone());
        }
        Ok(way)
    }

    /// Looks up a folder by its name, also one whose inode is at another node, or whose name an
    /// intent holds.
    async fn enter(&self, above: FileId, name: &Name) -> Outcome<FileId> {
        match self.client.find(above, name).await? {
            (file, Kind::Directory, _) => Ok(file),
            _ => Err(Refusal::NotDirectory(Object::entry(above, name))),
        }
    }

    /// Makes the missing folders of a path, each with the owner of its parent.
    async fn make_folders(&self, names: &[Name]) -> Outcome<FileId> {
        'anew: for _ in 0..TRIES {
            let mut above = self.client.stat(FileId::ROOT).await?;
            for name in names {
                above = match self.enter_or_make(&above, name).await {
                    Err(Refusal::NotFound(_)) => continue 'anew, // another client removes them
                    entered => entered?,
                };
            }
            return Ok(above.file);
        }
        Err(Refusal::Busy(Object::Pool))
    }

    async fn enter_or_make(&self, above: &Attributes, name: &Name) -> Outcome<Attributes> {
        let found = match self.client.lookup(above.file, name).await {
            Err(Refusal::NotFound(_)) => {
                match self.client.make_directory(above.file, name, FOLDER_MODE.into(), above.owner).await {
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
