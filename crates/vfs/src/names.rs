//! Operations on names and attributes, which need no open file.

use crate::Vfs;
use bytes::Bytes;
use client::{ExpectedLocation, FileLocation};
use placement::{FileId, NodeId};
use std::{fs, os::unix::fs::MetadataExt, path::Path};
use wire::{
    Attributes, Changes, DirEntry, ExtentRequest, HostFile, Kind, Mode, Name, NewInode, NewKind, Object, Outcome,
    Owner, Refusal, RenameFrom, RenameMode, RenameTo, TARGET_BYTES_MAX, Timestamp,
};

/// Mode of a symbolic link, which has no permissions of its own.
const SYMLINK_MODE: u32 = 0o777;

impl Vfs {
    /// Attributes of the entry `name` of `parent`.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.lookup(parent, &name?).await }
    }

    /// Attributes of a file.
    pub fn stat(&self, file: FileId) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.stat(file).await }
    }

    /// Changes attributes: chmod, chown, utimens, truncate.
    pub fn change(&self, file: FileId, changes: Changes) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.change_attributes(file, changes).await }
    }

    /// Parent of a directory; the root is its own parent.
    pub fn parent(&self, directory: FileId) -> impl Future<Output = Outcome<FileId>> + Send + use<> {
        let client = self.client.clone();
        async move { client.parent(directory).await }
    }

    /// Creates a directory.
    pub fn make_directory<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        mode: M,
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<M> {
        let (client, name, mode) = (self.client.clone(), Name::new(name), mode.into());
        async move { client.make_directory(parent, &name?, mode, owner).await }
    }

    /// Creates a symbolic link. The target is any path of 1 to 4,095 bytes.
    pub fn make_symlink(
        &self,
        parent: FileId,
        name: &[u8],
        target: &[u8],
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let checked = check_target(target).map(|()| NewKind::Symlink(Bytes::copy_from_slice(target)));
        self.make(parent, name, checked, SYMLINK_MODE.into(), owner)
    }

    /// Creates a fifo, socket, device or regular file.
    pub fn make_node<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        kind: Kind,
        mode: M,
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<M> {
        let checked = match kind {
            Kind::File => Ok(NewKind::File),
            Kind::Directory | Kind::Symlink => Err(Refusal::invalid(Object::text(name), "not a kind of node")),
            node => Ok(NewKind::Node(node)),
        };
        self.make(parent, name, checked, mode.into(), owner)
    }

    /// Creates a read-only file whose bytes stay in a file of the host. Its mode is 0444, or 0555
    /// if the host file is executable.
    ///
    /// The size and modification time are those of the host file at this moment. Refused with `Io`
    /// if the host file cannot be examined.
    pub fn bind(
        &self,
        parent: FileId,
        name: &[u8],
        host: &Path,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name, host) = (self.client.clone(), Name::new(name), host.to_owned());
        async move {
            let name = name?;
            let (kind, mode, owner) = bind_source(&host)?;
            Ok(client
                .create(parent, &name, NewInode::new(kind, mode, owner), false, ExtentRequest::None)
                .await?
                .attributes)
        }
    }

    fn make(
        &self,
        parent: FileId,
        name: &[u8],
        kind: Outcome<NewKind>,
        mode: Mode,
        owner: Owner,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move {
            let inode = NewInode::new(kind?, mode, owner);
            Ok(client.create(parent, &name?, inode, false, ExtentRequest::None).await?.attributes)
        }
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, file: FileId) -> impl Future<Output = Outcome<Vec<u8>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.read_link(file).await }
    }

    /// Removes an entry of any kind but a directory.
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.unlink(parent, &name?).await }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.remove_directory(parent, &name?).await }
    }

    /// Adds a hard link. Refused for directories, and for an unnamed file that was not created as
    /// linkable.
    pub fn link(
        &self,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.link(file, parent, &name?).await }
    }

    /// Renames an entry.
    pub fn rename(
        &self,
        from: RenameFrom,
        to: RenameTo,
        mode: RenameMode,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.rename(from, to, mode).await }
    }

    /// Location of a file; see [`client::FileLocation`].
    pub fn locate(&self, file: FileId) -> impl Future<Output = Outcome<FileLocation>> + Send + use<> {
        let client = self.client.clone();
        async move { client.locate(file).await }
    }

    /// Predicted location of a file created in a directory; see
    /// [`client::Client::expected_location`].
    pub fn expected(
        &self,
        directory: FileId,
        name: Option<&[u8]>,
    ) -> impl Future<Output = Outcome<ExpectedLocation>> + Send + use<> {
        let (client, name) = (self.client.clone(), name.map(Name::new).transpose());
        async move { client.expected_location(directory, name?.as_ref()).await }
    }

    /// Directory entries after a cookie (0: from the start), at most `max`, without `.` and `..`;
    /// empty at the end.
    pub fn list(
        &self,
        directory: FileId,
        after: u64,
        max: usize,
    ) -> impl Future<Output = Outcome<Vec<DirEntry>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.list(directory, after, max).await }
    }
}

fn check_target(target: &[u8]) -> Outcome<()> {
    match target.len() {
        0 => Err(Refusal::invalid(Object::text(target), "a link needs a target")),
        1..=TARGET_BYTES_MAX => Ok(()),
        _ => Err(Refusal::NameTooLong(Object::text(target))),
    }
}

/// Attributes of a bound file for this host file.
fn bind_source(host: &Path) -> Outcome<(NewKind, u32, Owner)> {
    let object = || Object::Text(host.display().to_string());
    let failed =
        |error: std::io::Error| Refusal::Io { object: object(), why: format!("cannot bind it: {error}").into() };
    let path = std::path::absolute(host).map_err(failed)?;
    let found = fs::metadata(&path).map_err(failed)?;
    if !found.is_file() {
        return Err(Refusal::invalid(object(), "only ordinary files of the host can be bound"));
    }
    let nanos = u32::try_from(found.mtime_nsec()).unwrap_or(0);
    let modified = Timestamp { secs: found.mtime(), nanos };
    let executable = found.mode() & 0o111 != 0;
    let mode = if executable { 0o555 } else { 0o444 };
    let owner = Owner { uid: found.uid(), gid: found.gid() };
    Ok((
        NewKind::Bound(Box::new(HostFile { node: NodeId(0), path, size: found.len(), modified, executable })),
        mode,
        owner,
    ))
}
