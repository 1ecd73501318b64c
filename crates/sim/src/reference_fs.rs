//! Reference file system: names and bytes, simple enough to be right by reading it. One client at a
//! time: the concurrent models are those of the linearizability checker.

use std::collections::BTreeMap;
use wire::{Refusal, RenameMode};

/// Errors of the reference file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsError {
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
}

/// The error that a refusal of the pool stands for.
pub fn fs_error(refusal: &Refusal) -> FsError {
    match refusal {
        Refusal::NotFound(_) => FsError::NotFound,
        Refusal::Exists(_) => FsError::Exists,
        Refusal::NotDirectory(_) => FsError::NotDirectory,
        Refusal::IsDirectory(_) => FsError::IsDirectory,
        Refusal::NotEmpty(_) => FsError::NotEmpty,
        Refusal::Invalid { .. } => FsError::Invalid,
        other => panic!("unexpected: {other}"),
    }
}

/// A file with its bytes, or a directory with its entries.
#[derive(Debug)]
pub enum ReferenceInode {
    /// Bytes of a file.
    File(Vec<u8>),
    /// Inode numbers by name, and the number of the parent.
    Directory {
        /// Entries.
        entries: BTreeMap<&'static str, usize>,
        /// Parent; the root is its own.
        parent: usize,
    },
}

/// Reference file system: inodes by number; 0 is the root. Removed inodes stay in the list,
/// unreachable.
#[derive(Debug)]
pub struct ReferenceFs(Vec<ReferenceInode>);

impl Default for ReferenceFs {
    fn default() -> Self {
        Self(vec![ReferenceInode::Directory { entries: BTreeMap::new(), parent: 0 }])
    }
}

impl ReferenceFs {
    /// Entries of a directory.
    pub fn entries(&mut self, directory: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.0[directory] {
            ReferenceInode::Directory { entries, .. } => entries,
            ReferenceInode::File(_) => panic!("only directories have entries"),
        }
    }

    /// True if the inode is a directory.
    pub fn is_directory(&self, node: usize) -> bool {
        matches!(self.0[node], ReferenceInode::Directory { .. })
    }

    /// Looks a name up.
    pub fn find(&mut self, directory: usize, name: &str) -> Result<usize, FsError> {
        self.entries(directory).get(name).copied().ok_or(FsError::NotFound)
    }

    /// Adds an inode under a new name.
    pub fn make(&mut self, parent: usize, name: &'static str, node: ReferenceInode) -> Result<usize, FsError> {
        if self.entries(parent).contains_key(name) {
            return Err(FsError::Exists);
        }
        self.0.push(node);
        let made = self.0.len() - 1;
        self.entries(parent).insert(name, made);
        Ok(made)
    }

    /// Removes an entry: an empty directory, or else a file.
    pub fn remove(&mut self, parent: usize, name: &str, directory: bool) -> Result<(), FsError> {
        let node = self.find(parent, name)?;
        match (self.is_directory(node), directory) {
            (true, false) => return Err(FsError::IsDirectory),
            (false, true) => return Err(FsError::NotDirectory),
            (true, true) if !self.entries(node).is_empty() => return Err(FsError::NotEmpty),
            _ => {}
        }
        self.entries(parent).remove(name);
        Ok(())
    }

    /// True if `node` is `above` or a descendant of it.
    fn is_in(&self, mut node: usize, above: usize) -> bool {
        while node != above {
            match self.0[node] {
                ReferenceInode::Directory { parent, .. } if node != 0 => node = parent,
                _ => return false,
            }
        }
        true
    }

    /// Renames an entry.
    pub fn rename(
        &mut self,
        from: (usize, &'static str),
        to: (usize, &'static str),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let moved = self.find(from.0, from.1)?;
        let replaced = self.find(to.0, to.1).ok();
        if mode == RenameMode::Exchange && replaced.is_none() {
            return Err(FsError::NotFound);
        }
        if from == to {
            return if mode == RenameMode::NoReplace { Err(FsError::Exists) } else { Ok(()) };
        }
        if self.is_directory(moved) && self.is_in(to.0, moved) {
            return Err(FsError::Invalid);
        }
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::Exists),
            (RenameMode::Exchange, Some(other)) => {
                if self.is_directory(other) && self.is_in(from.0, other) {
                    return Err(FsError::Invalid);
                }
                self.put(from.0, from.1, other);
                self.put(to.0, to.1, moved);
                return Ok(());
            }
            (_, Some(other)) => match (self.is_directory(moved), self.is_directory(other)) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) if !self.entries(other).is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            },
            _ => {}
        }
        self.entries(from.0).remove(from.1);
        self.put(to.0, to.1, moved);
        Ok(())
    }

    fn put(&mut self, directory: usize, name: &'static str, node: usize) {
        self.entries(directory).insert(name, node);
        if let ReferenceInode::Directory { parent, .. } = &mut self.0[node] {
            *parent = directory;
        }
    }

    /// All reachable directories.
    pub fn directories(&mut self) -> Vec<usize> {
        let (mut directories, mut next) = (vec![0], 0);
        while next < directories.len() {
            let children: Vec<usize> = self.entries(directories[next]).values().copied().collect();
            directories.extend(children.into_iter().filter(|child| self.is_directory(*child)));
            next += 1;
        }
        directories
    }

    /// Bytes of a file.
    pub fn bytes(&mut self, file: usize) -> &mut Vec<u8> {
        match &mut self.0[file] {
            ReferenceInode::File(bytes) => bytes,
            ReferenceInode::Directory { .. } => panic!("only files have bytes"),
        }
    }
}
