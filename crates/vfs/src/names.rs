//! Names and attributes: what needs no open file.

use crate::Vfs;
use bytes::Bytes;
use client::{Expected, Located};
use placement::FileId;
use std::{fs, os::unix::fs::MetadataExt, path::Path};
use wire::{
    Attributes, Changes, DirEntry, HostFile, Kind, Mode, Name, NewInode, NewKind, Object, Outcome, Owner, Refusal,
    RenameFrom, RenameMode, RenameTo, TARGET_BYTES_MAX, Timestamp, Wish,
};

/// Links have no permissions of their own.
const SYMLINK_MODE: u32 = 0o777;

impl Vfs {
    /// The attributes of the entry `name` of `parent`.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.lookup(parent, &name?).await }
    }

    /// The attributes of a file.
    pub fn stat(&self, file: FileId) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.stat(file).await }
    }

    /// Changes attributes: chmod, chown, utimens, truncate.
    pub fn change(&self, file: FileId, changes: Changes) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.change_attributes(file, changes).await }
    }

    /// The directory above a directory; the root's is itself.
    pub fn parent(&self, directory: FileId) -> impl Future<Output = Outcome<FileId>> + Send + use<> {
        let client = self.client.clone();
        async move { client.parent(directory).await }
    }

    /// Makes a directory.
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

    /// Makes a symbolic link to any path of 1 to 4,095 bytes.
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

    /// Makes a fifo, socket or device.
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

    /// A read-only file whose bytes stay in a file of the host. Mode 0444, or 0555 when the host file may be run.
    ///
    /// Its length and time are those of now. Refused with `Io` when the host file cannot be read.
    pub fn bind(
        &self,
        parent: FileId,
        name: &[u8],
        host: &Path,
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name, host) = (self.client.clone(), Name::new(name), host.to_owned());
        async move {
            let name = name?;
            let (kind, mode, owner) = bound(&host)?;
            Ok(client.create(parent, &name, NewInode::new(kind, mode, owner), false, Wish::No).await?.attributes)
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
            Ok(client.create(parent, &name?, inode, false, Wish::No).await?.attributes)
        }
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, file: FileId) -> impl Future<Output = Outcome<Vec<u8>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.read_link(file).await }
    }

    /// Removes the entry of anything but a directory.
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.unlink(parent, &name?).await }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.remove_directory(parent, &name?).await }
    }

    /// Gives a file one more name. Refused for directories, and for an inode without names unless it was made to be linked.
    pub fn link(
        &self,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> impl Future<Output = Outcome<Attributes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Name::new(name));
        async move { client.link(file, parent, &name?).await }
    }

    /// Renames.
    pub fn rename(
        &self,
        from: RenameFrom,
        to: RenameTo,
        mode: RenameMode,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.rename(from, to, mode).await }
    }

    /// Where a file is; see [`client::Located`].
    pub fn locate(&self, file: FileId) -> impl Future<Output = Outcome<Located>> + Send + use<> {
        let client = self.client.clone();
        async move { client.locate(file).await }
    }

    /// Where a file would be that is made in a directory; see [`client::Client::expected`].
    pub fn expected(
        &self,
        directory: FileId,
        name: Option<&[u8]>,
    ) -> impl Future<Output = Outcome<Expected>> + Send + use<> {
        let (client, name) = (self.client.clone(), name.map(Name::new).transpose());
        async move { client.expected(directory, name?.as_ref()).await }
    }

    /// Entries behind a cookie (0: from the start), at most `max`, without `.` and `..`; none at the end.
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

/// What a host file is as a bound file.
fn bound(host: &Path) -> Outcome<(NewKind, u32, Owner)> {
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
    Ok((NewKind::Bound(Box::new(HostFile { path, size: found.len(), modified, executable })), mode, owner))
}
