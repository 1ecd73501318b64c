//! Open files: create, open, read, write, close.

use crate::{
    Handle, Vfs,
    handles::{Handles, OpenFile},
};
use bytes::Bytes;
use client::{BackingFd, Client, OpenedInode};
use placement::FileId;
use std::sync::{Arc, OnceLock, atomic::AtomicU64, atomic::Ordering::Relaxed};
use wire::{
    Attributes, ExtentRequest, HostFile, Kind, Mode, Name, NewInode, NewKind, Object, OpenFlags, Outcome, Owner,
    Refusal, WritePlace,
};

/// Mode bits set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;
/// Number of attempts to create or open a name that others create and remove meanwhile.
const CREATE_TRIES: u32 = 16;

impl Vfs {
    /// Creates and opens a file, or opens the existing one unless `flags.exclusive`.
    pub fn create<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        mode: M,
        owner: Owner,
        flags: OpenFlags,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<M> {
        let (vfs, name) = (self.clone(), Name::new(name));
        let inode = NewInode::new(NewKind::File, mode, owner);
        async move {
            let name = name?;
            let reservation = HandleReservation::new(&vfs.handles, || Object::entry(parent, &name))?;
            let (opened, client) = vfs
                .client
                .run_in_session(|client| {
                    let (name, inode) = (&name, inode.clone());
                    async move { Ok((create_or_open(&client, parent, name, inode, flags).await?, client)) }
                })
                .await?;
            let leased = lease_fd(&client, &opened, flags).await;
            Ok((opened.attributes, reservation.fill(&opened, flags, client, leased)))
        }
    }

    /// Opens a file. A directory can be opened for reading, and is then kept until the close.
    pub fn open(&self, file: FileId, flags: OpenFlags) -> impl Future<Output = Outcome<Handle>> + Send + use<> {
        let vfs = self.clone();
        async move {
            let reservation = HandleReservation::new(&vfs.handles, || Object::File(file))?;
            let opened = |client: Client| async move { Ok((client.open(file, flags).await?, client)) };
            let (opened, client) = vfs.client.run_in_session(opened).await?;
            let leased = lease_fd(&client, &opened, flags).await;
            Ok(reservation.fill(&opened, flags, client, leased))
        }
    }

    /// Closes a handle. An unlinked file is removed with its last close. The handle is invalid
    /// afterwards even if this is refused. A file that was opened in an ended session is closed
    /// already, so that is no error.
    pub fn close(&self, handle: Handle) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (vfs, removed) = (self.clone(), self.handles.remove(handle));
        async move {
            let open = removed?;
            // Released before the pool closes the file: a pinned extent file is not demoted to
            // inline.
            drop(open.leased.lock().take());
            vfs.unlock_closed(&open, handle).await;
            let written = open.written_end.load(Relaxed);
            if let Some(layout) = open.layout.get()
                && let Err(error) = open.client.shrink_to_fit(open.file, *layout, written).await
            {
                tracing::debug!(%error, "the last stripe keeps its slack");
            }
            match open.client.close_file(open.file).await {
                Err(Refusal::SessionEnded) => Ok(()),
                closed => closed,
            }
        }
    }

    /// Reads bytes of an open file, fewer only at its end. Bytes of a single stripe are a view
    /// without a copy.
    pub fn read(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        self.read_as(Client::clone, handle, offset, length)
    }

    /// Like [`Self::read`], as views of the pool's memory, one for each stripe, where that memory
    /// is mapped or in this process.
    pub fn read_views(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Vec<Bytes>>> + Send + use<> {
        let open = self.open_with_access(handle, |flags| flags.read);
        async move {
            let open = open?;
            open.client.read_views(open.file, offset, length).await
        }
    }

    /// Like [`Self::read`], for a kernel that fills its page cache. Replies without waiting for
    /// cache-invalidation acks: the kernel holds page locks that an ack may need.
    pub fn read_to_cache(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        self.read_as(Client::skip_ack, handle, offset, length)
    }

    /// The last byte of a file and its offset; `None` if the file is empty, or was truncated
    /// meanwhile. Replies without waiting for cache-invalidation acks.
    pub fn last_byte(&self, file: FileId) -> impl Future<Output = Outcome<Option<(u64, u8)>>> + Send + use<> {
        let client = self.client.skip_ack();
        async move {
            let Some(last) = client.stat(file).await?.size.checked_sub(1) else { return Ok(None) };
            let bytes = client.read(file, last, 1).await?;
            Ok(bytes.first().map(|byte| (last, *byte)))
        }
    }

    fn read_as(
        &self,
        configure: fn(&Client) -> Client,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        let open = self.open_with_access(handle, |flags| flags.read);
        async move {
            let open = open?;
            configure(&open.client).read(open.file, offset, length).await
        }
    }

    /// Writes to an open file; returns the number of bytes written. A handle opened for appending
    /// writes at the current end of the file and ignores `offset`.
    ///
    /// Waits while the pool is full; at the time limit it is refused with `NoSpace`. Fewer bytes
    /// than given are written only in that case.
    pub fn write(&self, handle: Handle, offset: u64, data: Bytes) -> impl Future<Output = Outcome<u32>> + Send + use<> {
        let append = self.handles.get(handle).is_ok_and(|open| open.flags.append);
        self.write_placed(handle, if append { WritePlace::End } else { WritePlace::At(offset) }, data, false)
    }

    /// Writes at a given place, whether or not the file was opened for appending: a kernel knows
    /// the descriptor's current flags. `kill_set_id` clears the set-id bits, for a writer who may
    /// not keep them.
    pub fn write_placed(
        &self,
        handle: Handle,
        place: WritePlace,
        data: Bytes,
        kill_set_id: bool,
    ) -> impl Future<Output = Outcome<u32>> + Send + use<> {
        self.write_as(Client::clone, handle, (place, data), kill_set_id)
    }

    /// Writes pages that a kernel writes back on its own (of a mapping), through any handle that is
    /// open for writing. Replies without waiting for cache-invalidation acks of other mounts: an
    /// ack may need the pages that this write holds.
    pub fn write_back(
        &self,
        handle: Handle,
        offset: u64,
        data: Bytes,
    ) -> impl Future<Output = Outcome<u32>> + Send + use<> {
        self.write_as(Client::skip_ack, handle, (WritePlace::At(offset), data), false)
    }

    fn write_as(
        &self,
        configure: fn(&Client) -> Client,
        handle: Handle,
        (place, data): (WritePlace, Bytes),
        kill_set_id: bool,
    ) -> impl Future<Output = Outcome<u32>> + Send + use<> {
        let open = self.open_with_access(handle, |flags| flags.write);
        async move {
            let open = open?;
            let written = configure(&open.client).write(open.file, place, data, kill_set_id).await?;
            open.record_write(&written);
            Ok(written.length)
        }
    }

    /// True if another session had the file open at the time of this open. Then a kernel caches no
    /// bytes of it through this handle.
    pub fn is_shared(&self, handle: Handle) -> bool {
        self.handles.get(handle).is_ok_and(|open| open.shared)
    }

    /// The host file behind an open bound file.
    pub fn host_file(&self, handle: Handle) -> Option<Arc<HostFile>> {
        self.handles.get(handle).ok()?.host.clone()
    }

    /// True if an open file is an extent file. This does not change while the file is open.
    pub fn is_extent_file(&self, handle: Handle) -> bool {
        self.handles.get(handle).is_ok_and(|open| open.extent.is_some())
    }

    /// Descriptor of the extent of an open extent file, pinned until it is dropped. `None` for any
    /// other file. Also `None` for a writable handle while the pool is so full that writers should
    /// wait for space, or while the file has set-id bits, which a write must clear.
    pub fn backing(&self, handle: Handle) -> Option<BackingFd> {
        let open = self.handles.get(handle).ok()?;
        if open.flags.write && open.set_id {
            return None;
        }
        let leased = open.leased.lock().take();
        leased.or_else(|| self.client.backing(open.extent?, open.flags))
    }

    pub(crate) fn open_with_access(
        &self,
        handle: Handle,
        allowed: impl FnOnce(&OpenFlags) -> bool,
    ) -> Outcome<Arc<OpenFile>> {
        let open = self.handles.get(handle)?;
        if allowed(&open.flags) { Ok(open) } else { Err(Refusal::BadHandle(Object::Handle(handle.0))) }
    }
}

/// Leases the descriptor of an opened extent file from a node in another process, for a frontend
/// that can use it.
pub(crate) async fn lease_fd(client: &Client, opened: &OpenedInode, flags: OpenFlags) -> Option<BackingFd> {
    let Attributes { extent, mode, .. } = opened.attributes;
    let wanted = extent.filter(|_| flags.use_extent && !(flags.write && mode & SET_ID != 0));
    client.lease_fd(wanted?, flags)?.await
}

pub(crate) async fn create_or_open(
    client: &Client,
    parent: FileId,
    name: &Name,
    inode: NewInode,
    flags: OpenFlags,
) -> Outcome<OpenedInode> {
    let extent = if flags.use_extent { ExtentRequest::Any } else { ExtentRequest::None };
    for _ in 0..CREATE_TRIES {
        match client.create(parent, name, inode.clone(), true, extent).await {
            Err(Refusal::Exists(_)) if !flags.exclusive => {}
            made => return made,
        }
        match open_named(client, parent, name, flags).await {
            Err(Refusal::NotFound(_)) => {}
            opened => return opened,
        }
    }
    Err(Refusal::Busy(Object::entry(parent, name)))
}

async fn open_named(client: &Client, parent: FileId, name: &Name, flags: OpenFlags) -> Outcome<OpenedInode> {
    let found = client.lookup(parent, name).await?;
    if found.kind == Kind::Directory {
        return Err(Refusal::IsDirectory(Object::entry(parent, name)));
    }
    client.open(found.file, flags).await
}

/// Reserved place in the open-file table; released if the open fails.
pub(crate) struct HandleReservation<'a>(&'a Handles);

impl<'a> HandleReservation<'a> {
    pub fn new(handles: &'a Handles, object: impl FnOnce() -> Object) -> Outcome<Self> {
        handles.reserve(object)?;
        Ok(Self(handles))
    }

    /// Turns the reservation into a handle. `client` is bound to the session in which the file was
    /// opened.
    pub fn fill(self, opened: &OpenedInode, flags: OpenFlags, client: Client, leased: Option<BackingFd>) -> Handle {
        let handles = self.0;
        std::mem::forget(self);
        let Attributes { file, extent, mode, .. } = opened.attributes;
        handles.insert(OpenFile {
            client,
            file,
            flags,
            host: opened.host.clone(),
            extent,
            shared: opened.shared,
            set_id: mode & SET_ID != 0,
            written_end: AtomicU64::new(0),
            layout: OnceLock::new(),
            leased: leased.into(),
        })
    }
}

impl Drop for HandleReservation<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
