//! Open-file table, in shards so that handles of different files rarely contend for one lock.

use crate::lock_owners::LockOwners;
use client::{BackingFd, Client, WrittenRange};
use parking_lot::{Mutex, RwLock};
use placement::{FileId, Layout};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use wire::{Extent, HostFile, Object, OpenFlags, Outcome, Refusal};

/// Largest number of files open at one time.
pub const OPEN_FILES_MAX: u64 = 1 << 20;
/// Number of shards: a power of two, well above a frontend's number of threads.
const SHARDS: usize = 64;

/// Handle of an open file of one [`Vfs`](crate::Vfs). Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// State of an open file.
#[derive(Debug)]
pub struct OpenFile {
    /// Bound to the session in which the file was opened; valid only there.
    pub client: Client,
    pub file: FileId,
    pub flags: OpenFlags,
    pub host: Option<Arc<HostFile>>,
    /// The extent, if the file was an extent file when it was opened. It stays one while it is
    /// open.
    pub extent: Option<Extent>,
    /// True if another session had the file open at the time of this open.
    pub shared: bool,
    /// True if the file had a set-id bit when it was opened. Then writes must pass through this
    /// process, which clears the bit.
    pub set_id: bool,
    /// End of the furthest write through this handle; 0 if there was none.
    pub written_end: AtomicU64,
    /// Layout of the stripes written through this handle.
    pub layout: OnceLock<Layout>,
    /// Descriptor leased from a node in another process for this open, until a frontend takes it.
    pub leased: Mutex<Option<BackingFd>>,
}

impl OpenFile {
    /// Records a write through this handle.
    pub fn record_write(&self, written: &WrittenRange) {
        self.written_end.fetch_max(written.offset + u64::from(written.length), Relaxed);
        if let Some(layout) = written.layout {
            self.layout.get_or_init(|| layout); // a file's layout never changes
        }
    }
}

type Shard = RwLock<HashMap<u64, Arc<OpenFile>>>;

/// The open-file table.
#[derive(Debug)]
pub struct Handles {
    shards: Box<[Shard]>,
    /// Lock owners by file and handle.
    pub lock_owners: LockOwners,
    last_handle: AtomicU64,
    open_files: AtomicU64,
}

impl Default for Handles {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self {
            shards,
            lock_owners: LockOwners::default(),
            last_handle: AtomicU64::new(0),
            open_files: AtomicU64::new(0),
        }
    }
}

impl Handles {
    /// Reserves a place in the table, or refuses with `TooManyOpen`. The caller must follow with
    /// [`Self::insert`] or [`Self::release`].
    pub fn reserve(&self, object: impl FnOnce() -> Object) -> Outcome<()> {
        if self.open_files.fetch_add(1, Relaxed) < OPEN_FILES_MAX {
            return Ok(());
        }
        self.release();
        Err(Refusal::TooManyOpen { object: object(), limit: OPEN_FILES_MAX })
    }

    /// Releases a reserved place.
    pub fn release(&self) {
        self.open_files.fetch_sub(1, Relaxed);
    }

    pub fn insert(&self, file: OpenFile) -> Handle {
        let handle = self.last_handle.fetch_add(1, Relaxed) + 1;
        self.shard(handle).write().insert(handle, Arc::new(file));
        Handle(handle)
    }

    pub fn get(&self, handle: Handle) -> Outcome<Arc<OpenFile>> {
        let found = self.shard(handle.0).read().get(&handle.0).cloned();
        found.ok_or(Refusal::BadHandle(Object::Handle(handle.0)))
    }

    pub fn remove(&self, handle: Handle) -> Outcome<Arc<OpenFile>> {
        let removed = self.shard(handle.0).write().remove(&handle.0);
        let removed = removed.ok_or(Refusal::BadHandle(Object::Handle(handle.0)))?;
        self.release();
        Ok(removed)
    }

    fn shard(&self, handle: u64) -> &Shard {
        let index = usize::try_from(handle % SHARDS as u64).expect("below the number of shards");
        &self.shards[index]
    }
}
