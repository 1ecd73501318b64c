//! Layer 3: files over the client: open-file table, paths, reads and writes.
#![forbid(unsafe_code)]

use bytes::Bytes;
use client::Client;
use placement::FileId;
use std::{
    future::{Future, ready},
    path::{Path, PathBuf},
};
use wire::{
    Attributes, Changes, DirEntry, Kind, Object, OpenFlags, Outcome, Owner, Refusal, RenameFrom, RenameMode, RenameTo,
    Usage,
};

/// An open file of one [`Vfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Files of a pool. Cheap to clone; clones share their open files.
#[derive(Clone, Debug)]
pub struct Vfs {
    _client: Client,
}

fn later<T>(what: &'static str) -> Outcome<T> {
    Err(Refusal::Unsupported { object: Object::Pool, what: what.into() })
}

impl Vfs {
    /// Files over a client.
    pub fn new(client: Client) -> Self {
        Self { _client: client }
    }

    /// The root directory.
    pub fn root() -> FileId {
        FileId::ROOT
    }

    /// How full the pool is; cheap.
    pub fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Where the bytes of a bound file are on this host.
    pub fn host_file(&self, handle: Handle) -> Option<PathBuf> {
        let _ = handle;
        None
    }

    /// The attributes of the entry `name` of `parent`.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (parent, name);
        ready(later("lookup"))
    }

    /// The attributes of a file.
    pub fn stat(&self, file: FileId) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (file,);
        ready(later("stat"))
    }

    /// Changes attributes: chmod, chown, utimens, truncate.
    pub fn change(&self, file: FileId, changes: Changes) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (file, changes);
        ready(later("change"))
    }

    /// Makes and opens a file, or opens the one that is there unless `flags.exclusive`.
    pub fn create(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        owner: Owner,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<> {
        let _ = (parent, name, mode, owner, flags);
        ready(later("create"))
    }

    /// Opens a file.
    pub fn open(&self, file: FileId, flags: OpenFlags) -> impl Future<Output = Outcome<Handle>> + Send + use<> {
        let _ = (file, flags);
        ready(later("open"))
    }

    /// Ends an open; what was unlinked meanwhile is gone after its last close.
    pub fn close(&self, handle: Handle) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let _ = (handle,);
        ready(later("close"))
    }

    /// Bytes of an open file, fewer only at its end.
    pub fn read(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        let _ = (handle, offset, length);
        ready(later("read"))
    }

    /// Writes to an open file; says how many bytes were written.
    pub fn write(&self, handle: Handle, offset: u64, data: Bytes) -> impl Future<Output = Outcome<u32>> + Send + use<> {
        let _ = (handle, offset, data);
        ready(later("write"))
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (parent, name, mode, owner);
        ready(later("make_directory"))
    }

    /// Makes a symbolic link.
    pub fn make_symlink(
        &self,
        parent: FileId,
        name: &[u8],
        target: &[u8],
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (parent, name, target, owner);
        ready(later("make_symlink"))
    }

    /// Makes a fifo, socket or device.
    pub fn make_node(
        &self,
        parent: FileId,
        name: &[u8],
        kind: Kind,
        mode: u32,
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (parent, name, kind, mode, owner);
        ready(later("make_node"))
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, file: FileId) -> impl Future<Output = Outcome<Vec<u8>>> + Send + use<> {
        let _ = (file,);
        ready(later("read_link"))
    }

    /// A read-only file whose bytes stay in a file of the host.
    pub fn bind(
        &self,
        parent: FileId,
        name: &[u8],
        host: &Path,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (parent, name, host);
        ready(later("bind"))
    }

    /// Removes the entry of anything but a directory.
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let _ = (parent, name);
        ready(later("unlink"))
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let _ = (parent, name);
        ready(later("remove_directory"))
    }

    /// Renames.
    pub fn rename(
        &self,
        from: RenameFrom,
        to: RenameTo,
        mode: RenameMode,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let _ = (from, to, mode);
        ready(later("rename"))
    }

    /// Entries behind a cookie (0: from the start), at most `max`, without `.` and `..`; none at the end.
    pub fn list(
        &self,
        directory: FileId,
        after: u64,
        max: usize,
    ) -> impl Future<Output = Outcome<Vec<DirEntry>>> + Send + use<> {
        let _ = (directory, after, max);
        ready(later("list"))
    }

    /// The attributes of what a path names; links in it are followed, one at its end is not.
    pub fn resolve(&self, path: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (path,);
        ready(later("resolve"))
    }

    /// Makes the directories of a path that are missing; the attributes of the last.
    pub fn make_directories(&self, path: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (path,);
        ready(later("make_directories"))
    }

    /// The whole file at a path.
    pub fn read_file(&self, path: &[u8]) -> impl Future<Output = Outcome<Vec<u8>>> + Send + use<> {
        let _ = (path,);
        ready(later("read_file"))
    }

    /// Makes or replaces the file at a path.
    pub fn write_file(&self, path: &[u8], bytes: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let _ = (path, bytes);
        ready(later("write_file"))
    }

    /// Removes what a path names, with all that is in it.
    pub fn remove_tree(&self, path: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let _ = (path,);
        ready(later("remove_tree"))
    }
}
