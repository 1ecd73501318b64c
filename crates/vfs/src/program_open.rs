//! Opens for programs of this host. The program gets a descriptor of the operating system, which
//! determines the open's lifetime; there is no handle here.
//!
//! If the descriptor refers to the file's own extent, the kernel reads, writes, maps and copies
//! through it. Otherwise bytes are read and written by file id, and the descriptor is a placeholder
//! for the other operations on descriptors.

use crate::{Vfs, open::create_or_open};
use bytes::Bytes;
use client::{Client, OpenedInode, ProgramOpen};
use placement::{FileId, NodeId};
use std::{os::fd::OwnedFd, sync::Arc};
use wire::{
    Attributes, HostFile, Lock, Mode, Name, NewInode, NewKind, OpenFlags, OpenLease, OpenLeaseId, Outcome, Owner,
    WritePlace,
};

/// A program's open file.
#[derive(Debug)]
pub struct ProgramFile {
    /// Descriptor of the operating system, close-on-exec.
    pub descriptor: OwnedFd,
    /// File and number of the open lease.
    pub lease: OpenLease,
    /// Attributes of the file at the time of the open.
    pub attributes: Attributes,
    /// The host file of a bound file.
    pub host: Option<Arc<HostFile>>,
    /// True if another session has the file open too.
    pub shared: bool,
}

impl Vfs {
    /// Creates and opens a file for a program, or opens the existing one unless `flags.exclusive`;
    /// see [`Self::open_for_program`].
    pub fn create_for_program<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        mode: M,
        owner: Owner,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<ProgramFile>> + Send + use<M> {
        let (client, name) = (self.client.clone(), Name::new(name));
        let (inode, flags) = (NewInode::new(NewKind::File, mode, owner), with_extent(flags));
        async move {
            let name = &name?;
            let open = |client: Client| {
                let inode = inode.clone();
                async move { create_or_open(&client, parent, name, inode, flags).await }
            };
            client.open_with_fd(flags, open).await.map(ProgramFile::from)
        }
    }

    /// Opens a file or a directory for a program. It stays open until the last copy of the
    /// descriptor is closed, in any process. A process that closes a copy should call
    /// [`Self::probe_lease`]; a close without that call is noticed by the node's polling, usually
    /// within a second.
    ///
    /// Refused as `Unavailable`, and not opened, if no node of this host can give a descriptor.
    pub fn open_for_program(
        &self,
        file: FileId,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<ProgramFile>> + Send + use<> {
        let (client, flags) = (self.client.clone(), with_extent(flags));
        async move {
            let open = |client: Client| async move { client.open_for_program(file, flags).await };
            client.open_with_fd(flags, open).await.map(ProgramFile::from)
        }
    }

    /// Like [`Self::open_for_program`], for a new file without a name. It is removed with its
    /// descriptor, unless it is linked before; see [`Self::create_unnamed`].
    pub fn create_unnamed_for_program<M: Into<Mode>>(
        &self,
        parent: FileId,
        mode: M,
        owner: Owner,
        flags: OpenFlags,
        linkable: bool,
    ) -> impl Future<Output = Outcome<ProgramFile>> + Send + use<M> {
        let (client, inode, flags) =
            (self.client.clone(), NewInode::new(NewKind::File, mode, owner), with_extent(flags));
        async move {
            let open = |client: Client| {
                let inode = inode.clone();
                async move { client.create_unnamed(parent, None, inode, linkable).await }
            };
            client.open_with_fd(flags, open).await.map(ProgramFile::from)
        }
    }

    /// Probes an open lease after a copy of its descriptor was closed. If that was the last copy,
    /// the file is closed. Returns true if the file is still open.
    pub fn probe_lease(&self, lease: OpenLeaseId) -> impl Future<Output = Outcome<bool>> + Send + use<> {
        let client = self.client.clone();
        async move { client.probe_lease(lease).await }
    }

    /// Finds the live opens of programs whose descriptors come from this node and refer to a file
    /// with this device and inode, as `stat` reports them; see [`Client::find_leases`].
    pub fn find_leases(
        &self,
        node: NodeId,
        file: (u64, u64),
    ) -> impl Future<Output = Outcome<Vec<OpenLease>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.find_leases(node, file).await }
    }

    /// Reads a file of which a program has a placeholder descriptor, like [`Self::read`].
    pub fn read_for_program(
        &self,
        file: FileId,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.read(file, offset, length).await }
    }

    /// Writes to a file of which a program has a placeholder descriptor, like
    /// [`Self::write_placed`]. Returns the offset and length of the written bytes.
    pub fn write_for_program(
        &self,
        file: FileId,
        place: WritePlace,
        data: Bytes,
        kill_set_id: bool,
    ) -> impl Future<Output = Outcome<(u64, u32)>> + Send + use<> {
        let client = self.client.clone();
        async move {
            let written = client.write(file, place, data, kill_set_id).await?;
            Ok((written.offset, written.length))
        }
    }

    /// Sets or releases a program's lock on a file, owned by a process
    /// ([`LockOwner::THIS_PROCESS`](wire::LockOwner::THIS_PROCESS) is this one) or by an open.
    /// `wait` as in [`Self::lock`]. Refused as `Unsupported` if the pool has no node on this host:
    /// then only a session can own locks.
    pub fn lock_for_program(
        &self,
        file: FileId,
        lock: Lock,
        wait: bool,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.lock(file, lock, wait).await }
    }

    /// The first lock of another owner that conflicts with a program's lock, if any.
    pub fn test_lock_for_program(
        &self,
        file: FileId,
        lock: Lock,
    ) -> impl Future<Output = Outcome<Option<Lock>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.test_lock(file, lock).await }
    }

    /// The nodes of this host, which may have given descriptors.
    pub fn local_nodes(&self) -> Vec<NodeId> {
        self.client.local_nodes()
    }
}

/// Sets the flag that asks for an extent.
fn with_extent(flags: OpenFlags) -> OpenFlags {
    OpenFlags { use_extent: true, ..flags }
}

impl From<ProgramOpen> for ProgramFile {
    fn from(ProgramOpen { opened: OpenedInode { attributes, host, shared }, descriptor, lease }: ProgramOpen) -> Self {
        Self { descriptor, lease, attributes, host, shared }
    }
}
