//! Opens for programs of this host: each has a descriptor of the system's, which says how long it lives, and no handle here.
//!
//! Where the descriptor is of the file's own extent, the system reads, writes, maps and copies through it. Else the bytes are read and written
//! by the file's id, and the descriptor is for the rest of what programs do with one.

use crate::{Vfs, open::create_or_open};
use bytes::Bytes;
use client::{Client, Given, Opened};
use placement::{FileId, NodeId};
use std::{os::fd::OwnedFd, sync::Arc};
use wire::{
    Attributes, HostFile, Lock, Mark, Marked, Mode, Name, NewInode, NewKind, OpenFlags, Outcome, Owner, WritePlace,
};

/// What a program has opened.
#[derive(Debug)]
pub struct Program {
    /// The system's, closed on exec.
    pub descriptor: OwnedFd,
    /// What it is of, and its number.
    pub marked: Marked,
    /// The file as it was when it was opened.
    pub attributes: Attributes,
    /// Where the bytes of a bound file are.
    pub host: Option<Arc<HostFile>>,
    /// Another session has it open too.
    pub shared: bool,
}

impl Vfs {
    /// Makes and opens a file for a program, or opens the one that is there unless `flags.exclusive`; see [`Self::open_for_program`].
    pub fn create_for_program<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        mode: M,
        owner: Owner,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<Program>> + Send + use<M> {
        let (client, name) = (self.client.clone(), Name::new(name));
        let (inode, flags) = (NewInode::new(NewKind::File, mode, owner), whole(flags));
        async move {
            let name = &name?;
            let open = |client: Client| {
                let inode = inode.clone();
                async move { create_or_open(&client, parent, name, inode, flags).await }
            };
            client.with_descriptor(flags, open).await.map(Program::from)
        }
    }

    /// Opens a file or a directory for a program. It is open until the last copy of the descriptor is closed, in whatever process; who closes
    /// one says so by [`Self::look`], for what nobody says so of is seen a second later.
    ///
    /// Refused as `Unavailable`, and not opened, where no node of this host has a descriptor to give.
    pub fn open_for_program(
        &self,
        file: FileId,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<Program>> + Send + use<> {
        let (client, flags) = (self.client.clone(), whole(flags));
        async move {
            let open = |client: Client| async move { client.open_for_program(file, flags).await };
            client.with_descriptor(flags, open).await.map(Program::from)
        }
    }

    /// The same of a file that has no name and is gone with its descriptor, unless it is given one before; see [`Self::create_unnamed`].
    pub fn create_unnamed_for_program<M: Into<Mode>>(
        &self,
        parent: FileId,
        mode: M,
        owner: Owner,
        flags: OpenFlags,
        linkable: bool,
    ) -> impl Future<Output = Outcome<Program>> + Send + use<M> {
        let (client, inode, flags) = (self.client.clone(), NewInode::new(NewKind::File, mode, owner), whole(flags));
        async move {
            let open = |client: Client| {
                let inode = inode.clone();
                async move { client.create_unnamed(parent, None, inode, linkable).await }
            };
            client.with_descriptor(flags, open).await.map(Program::from)
        }
    }

    /// A copy of the descriptor with this mark was closed: if it was the last, the file is closed. Says whether it was not.
    pub fn look(&self, mark: Mark) -> impl Future<Output = Outcome<bool>> + Send + use<> {
        let client = self.client.clone();
        async move { client.look(mark).await }
    }

    /// Which opens of programs live that have a descriptor from this node of a file that `stat` tells so, as its device and inode; see
    /// [`Client::which`].
    pub fn which(&self, node: NodeId, file: (u64, u64)) -> impl Future<Output = Outcome<Vec<Marked>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.which(node, file).await }
    }

    /// Bytes of a file of which a program has a stand-in, as [`Self::read`] gives them.
    pub fn read_for_program(
        &self,
        file: FileId,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        let client = self.client.clone();
        async move { client.read(file, offset, length).await }
    }

    /// Writes to one, as [`Self::write_placed`] does; says where it went, and how much of it.
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

    /// Sets or ends a lock of a program, by the file: of a process (`LockOwner::Process(0)` is this one) or of an open. `wait` as in
    /// [`Self::lock`]. Refused as `Unsupported` where the file's inode is not at a node of this host: there only locks of the session can be had.
    pub fn lock_for_program(
        &self,
        file: FileId,
        lock: Lock,
        wait: bool,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let client = self.client.clone();
        async move { client.lock(file, lock, wait).await }
    }

    /// The first lock of another owner that stands in the way of one of a program, if there is one.
    pub fn test_lock_for_program(
        &self,
        file: FileId,
        lock: Lock,
    ) -> impl Future<Output = Outcome<Option<Lock>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.test_lock(file, lock).await }
    }

    /// The nodes of this host, which may have given descriptors.
    pub fn near_nodes(&self) -> Vec<NodeId> {
        self.client.near_nodes()
    }
}

/// An extent is wished for, wherever one can be had.
fn whole(flags: OpenFlags) -> OpenFlags {
    OpenFlags { whole: true, ..flags }
}

impl From<Given> for Program {
    fn from(Given { opened: Opened { attributes, host, shared }, descriptor, marked }: Given) -> Self {
        Self { descriptor, marked, attributes, host, shared }
    }
}
