//! Sequential model of names: what a plain file system answers to creations, removals, renames,
//! links and lookups. For the linearizability checker.

use crate::linearizability::{Event, Model};
use placement::FileId;
use std::collections::BTreeMap;
use wire::{Refusal, RenameMode};

/// Placeholder for the id of an entry whose creator died before the reply, until a client sees it.
const UNKNOWN: FileId = FileId(u64::MAX);

/// An operation on names with its start and its end.
pub type NameEvent = Event<NameOperation, NameReply>;

/// A directory and the name of an entry in it.
pub type EntryKey = (FileId, &'static str);

/// An operation on names.
#[derive(Clone, Copy, Debug)]
pub enum NameOperation {
    /// Creates a file; fails if the name exists.
    Create(EntryKey),
    /// Creates a directory.
    MakeDirectory(EntryKey),
    /// Removes an entry of a file.
    Unlink(EntryKey),
    /// Removes an empty directory.
    RemoveDirectory(EntryKey),
    /// Renames the first entry to the second.
    Rename(EntryKey, EntryKey, RenameMode),
    /// Adds a name of a file.
    Link(FileId, EntryKey),
    /// Looks up a name.
    Lookup(EntryKey),
    /// Lists a directory.
    List(FileId),
    /// Counts the names of a file.
    Links(FileId),
    /// Finds the parent of a directory.
    Parent(FileId),
}

/// Result of a successful operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOutcome {
    /// No value.
    Done,
    /// The file that was created or found.
    File(FileId),
    /// Entries of a directory, sorted.
    Entries(Vec<(String, FileId)>),
    /// Number of names.
    Links(u32),
}

/// Error of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// ENOENT.
    NotFound,
    /// EEXIST.
    Exists,
    /// ENOTDIR.
    NotDirectory,
    /// EISDIR.
    IsDirectory,
    /// ENOTEMPTY.
    NotEmpty,
    /// EINVAL.
    Invalid,
    /// EPERM.
    NotPermitted,
    /// A reply that a plain file system never gives.
    Unexpected,
}

impl From<&Refusal> for NameError {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotFound(_) => Self::NotFound,
            Refusal::Exists(_) => Self::Exists,
            Refusal::NotDirectory(_) => Self::NotDirectory,
            Refusal::IsDirectory(_) => Self::IsDirectory,
            Refusal::NotEmpty(_) => Self::NotEmpty,
            Refusal::Invalid { .. } => Self::Invalid,
            Refusal::NotPermitted(_) => Self::NotPermitted,
            _ => Self::Unexpected,
        }
    }
}

/// Reply to an operation on names.
pub type NameReply = Result<NameOutcome, NameError>;

/// The inode that an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryTarget {
    /// A file.
    File(FileId),
    /// A directory.
    Directory(FileId),
}

impl EntryTarget {
    fn id(self) -> FileId {
        match self {
            Self::File(id) | Self::Directory(id) => id,
        }
    }

    fn is_directory(self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

/// State of the model: the names in all directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NameTree {
    entries: BTreeMap<FileId, BTreeMap<String, EntryTarget>>,
    /// All directories that existed at first, the root before the others, in the order of their
    /// creation.
    pub directories: Vec<FileId>,
    /// All files that existed at first.
    pub files: Vec<FileId>,
}

impl Model for NameTree {
    type Operation = NameOperation;
    type Reply = NameReply;

    fn after(&self, operation: &NameOperation, reply: Option<&NameReply>) -> Vec<Self> {
        let mut next = self.clone();
        if let Some(reply) = reply {
            return next.apply(*operation, reply).then_some(next).into_iter().collect();
        }
        let guess = match operation {
            NameOperation::Create(_) | NameOperation::MakeDirectory(_) => NameOutcome::File(UNKNOWN),
            _ => NameOutcome::Done,
        };
        let applied = next.apply(*operation, &Ok(guess)).then_some(next);
        [Some(self.clone()), applied].into_iter().flatten().collect()
    }
}

impl NameTree {
    /// A tree with an empty root directory.
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.add(FileId::ROOT);
        tree
    }

    fn add(&mut self, directory: FileId) {
        self.entries.insert(directory, BTreeMap::new());
        self.directories.push(directory);
    }

    /// Adds an entry before the test.
    pub fn insert_initial(&mut self, parent: FileId, name: &str, target: EntryTarget) {
        self.set((parent, name), Some(target));
        match target {
            EntryTarget::Directory(directory) => self.add(directory),
            EntryTarget::File(file) if !self.files.contains(&file) => self.files.push(file),
            EntryTarget::File(_) => {}
        }
    }

    fn get(&self, (parent, name): (FileId, &str)) -> Option<EntryTarget> {
        self.entries.get(&parent)?.get(name).copied()
    }

    fn set(&mut self, (parent, name): (FileId, &str), target: Option<EntryTarget>) {
        let Some(entries) = self.entries.get_mut(&parent) else { return };
        match target {
            Some(target) => drop(entries.insert(name.to_owned(), target)),
            None => drop(entries.remove(name)),
        }
    }

    fn exists(&self, directory: FileId) -> bool {
        self.entries.contains_key(&directory)
    }

    fn is_empty(&self, directory: FileId) -> bool {
        self.entries.get(&directory).is_none_or(BTreeMap::is_empty)
    }

    fn link_count(&self, file: FileId) -> u32 {
        let targets = self.entries.values().flat_map(BTreeMap::values);
        u32::try_from(targets.filter(|target| target.id() == file).count()).unwrap()
    }

    fn parent_of(&self, directory: FileId) -> Option<FileId> {
        let target = EntryTarget::Directory(directory);
        self.entries.iter().find(|(_, entries)| entries.values().any(|entry| *entry == target)).map(|(above, _)| *above)
    }

    /// True if the directory is `above` or a descendant of it.
    fn is_below(&self, directory: FileId, above: FileId) -> bool {
        std::iter::successors(Some(directory), |at| self.parent_of(*at)).any(|at| at == above)
    }

    /// Applies an operation if the model allows this reply; returns whether it does.
    fn apply(&mut self, operation: NameOperation, reply: &NameReply) -> bool {
        let errors = self.errors(operation);
        match reply {
            Err(error) => errors.contains(error),
            Ok(outcome) => errors.is_empty() && self.apply_success(operation, outcome),
        }
    }

    /// All errors that apply to an operation; a reply may have any of them.
    fn errors(&self, operation: NameOperation) -> Vec<NameError> {
        let mut errors = Vec::new();
        let mut require = |right: bool, error: NameError| {
            if !right {
                errors.push(error);
            }
        };
        match operation {
            NameOperation::Create(key) | NameOperation::MakeDirectory(key) => {
                require(self.exists(key.0), NameError::NotFound);
                require(self.get(key).is_none(), NameError::Exists);
            }
            NameOperation::Unlink(key) => {
                require(self.get(key).is_some(), NameError::NotFound);
                require(!self.get(key).is_some_and(EntryTarget::is_directory), NameError::IsDirectory);
            }
            NameOperation::RemoveDirectory(key) => {
                require(self.get(key).is_some(), NameError::NotFound);
                require(self.get(key).is_none_or(EntryTarget::is_directory), NameError::NotDirectory);
                require(self.get(key).is_none_or(|target| self.is_empty(target.id())), NameError::NotEmpty);
            }
            NameOperation::Rename(from, to, mode) => return self.rename_errors(from, to, mode),
            NameOperation::Link(file, key) => {
                require(self.exists(key.0) && self.link_count(file) > 0, NameError::NotFound);
                require(self.get(key).is_none(), NameError::Exists);
            }
            NameOperation::Lookup(key) => require(self.get(key).is_some(), NameError::NotFound),
            NameOperation::List(directory) | NameOperation::Parent(directory) => {
                require(self.exists(directory), NameError::NotFound);
            }
            NameOperation::Links(file) => require(self.link_count(file) > 0, NameError::NotFound),
        }
        errors
    }

    fn rename_errors(&self, from: EntryKey, to: EntryKey, mode: RenameMode) -> Vec<NameError> {
        let mut errors = Vec::new();
        let mut fail_if = |wrong: bool, error: NameError| {
            if wrong {
                errors.push(error);
            }
        };
        let (moved, replaced) = (self.get(from), self.get(to));
        fail_if(moved.is_none() || !self.exists(to.0), NameError::NotFound);
        fail_if(mode == RenameMode::Exchange && replaced.is_none(), NameError::NotFound);
        fail_if(mode == RenameMode::NoReplace && replaced.is_some(), NameError::Exists);
        let Some(moved) = moved else { return errors };
        fail_if(moved.is_directory() && self.is_below(to.0, moved.id()), NameError::Invalid);
        let Some(replaced) = replaced.filter(|replaced| *replaced != moved) else { return errors };
        match mode {
            RenameMode::Exchange => {
                fail_if(replaced.is_directory() && self.is_below(from.0, replaced.id()), NameError::Invalid);
            }
            RenameMode::Replace => {
                fail_if(moved.is_directory() && !replaced.is_directory(), NameError::NotDirectory);
                fail_if(!moved.is_directory() && replaced.is_directory(), NameError::IsDirectory);
                fail_if(replaced.is_directory() && !self.is_empty(replaced.id()), NameError::NotEmpty);
            }
            RenameMode::NoReplace => {}
        }
        errors
    }

    /// Applies an operation that has no error; false if its reply does not match the model.
    fn apply_success(&mut self, operation: NameOperation, outcome: &NameOutcome) -> bool {
        match (operation, outcome) {
            (NameOperation::Create(key), NameOutcome::File(made)) => self.set(key, Some(EntryTarget::File(*made))),
            (NameOperation::MakeDirectory(key), NameOutcome::File(made)) => {
                self.set(key, Some(EntryTarget::Directory(*made)));
                self.entries.insert(*made, BTreeMap::new());
            }
            (NameOperation::Unlink(key) | NameOperation::RemoveDirectory(key), _) => self.remove(key),
            (NameOperation::Rename(from, to, mode), _) => self.rename(from, to, mode),
            (NameOperation::Link(file, key), _) => self.set(key, Some(EntryTarget::File(file))),
            (NameOperation::Lookup(key), NameOutcome::File(found)) => {
                self.learn_id(key, *found);
                return self.get(key).map(EntryTarget::id) == Some(*found);
            }
            (NameOperation::List(directory), NameOutcome::Entries(found)) => {
                for (name, id) in found {
                    self.learn_id((directory, name), *id);
                }
                let there: Vec<(String, FileId)> =
                    self.entries[&directory].iter().map(|(name, target)| (name.clone(), target.id())).collect();
                return there == *found;
            }
            (NameOperation::Links(file), NameOutcome::Links(count)) => return self.link_count(file) == *count,
            (NameOperation::Parent(directory), NameOutcome::File(above)) => {
                return self.parent_of(directory).unwrap_or(FileId::ROOT) == *above;
            }
            _ => return false,
        }
        true
    }

    /// Sets the id of an entry that a dead client created, when another client sees it.
    fn learn_id(&mut self, key: (FileId, &str), id: FileId) {
        if self.get(key).map(EntryTarget::id) != Some(UNKNOWN) {
            return;
        }
        for target in self.entries.values_mut().flat_map(BTreeMap::values_mut).filter(|target| target.id() == UNKNOWN) {
            *target = if target.is_directory() { EntryTarget::Directory(id) } else { EntryTarget::File(id) };
        }
        if let Some(entries) = self.entries.remove(&UNKNOWN) {
            self.entries.insert(id, entries);
        }
    }

    fn remove(&mut self, key: EntryKey) {
        if let Some(EntryTarget::Directory(directory)) = self.get(key) {
            self.entries.remove(&directory);
        }
        self.set(key, None);
    }

    fn rename(&mut self, from: EntryKey, to: EntryKey, mode: RenameMode) {
        let (moved, replaced) = (self.get(from), self.get(to));
        if moved == replaced {
            return;
        }
        if mode == RenameMode::Exchange {
            self.set(from, replaced);
        } else {
            self.remove(to);
            self.set(from, None);
        }
        self.set(to, moved);
    }
}
