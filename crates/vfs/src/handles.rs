//! The table of open files, in shards so that handles of different files do not meet at one lock.

use crate::lockers::Lockers;
use client::{Backing, Client, Written};
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

/// More files are not open at one time.
pub const OPEN_FILES_MAX: u64 = 1 << 20;
/// A power of two, well above the threads that a face has.
const SHARDS: usize = 64;

/// An open file of one [`Vfs`](crate::Vfs). Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// What a handle stands for.
#[derive(Debug)]
pub struct OpenFile {
    /// In the session in which it was opened, and only there.
    pub client: Client,
    pub file: FileId,
    pub flags: OpenFlags,
    pub host: Option<Arc<HostFile>>,
    /// Where its bytes are, when it was whole as it was opened: it stays so as long as it is open.
    pub whole: Option<Extent>,
    /// Another session had it open when it was opened.
    pub shared: bool,
    /// Whether it had a set-id bit when it was opened: its writers must come to us, so that it goes.
    pub set_id: bool,
    /// The furthest byte that was written through this handle; 0 when none was.
    pub written: AtomicU64,
    /// Where the stripes lie that were written through this handle.
    pub layout: OnceLock<Layout>,
    /// What another process's node has lent for this open, until a face takes it.
    pub lent: Mutex<Option<Backing>>,
}

impl OpenFile {
    /// This was written through the handle.
    pub fn note_written(&self, written: &Written) {
        self.written.fetch_max(written.offset + u64::from(written.length), Relaxed);
        if let Some(layout) = written.layout {
            self.layout.get_or_init(|| layout); // it never changes
        }
    }
}

type Shard = RwLock<HashMap<u64, Arc<OpenFile>>>;

/// All open files.
#[derive(Debug)]
pub struct Handles {
    shards: Box<[Shard]>,
    /// Who locked through which handle.
    pub lockers: Lockers,
    given: AtomicU64,
    open: AtomicU64,
}

impl Default for Handles {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, lockers: Lockers::default(), given: AtomicU64::new(0), open: AtomicU64::new(0) }
    }
}

impl Handles {
    /// Makes room for one more, or refuses with `TooManyOpen`. Followed by [`Self::insert`] or [`Self::give_back`].
    pub fn take_room(&self, object: impl FnOnce() -> Object) -> Outcome<()> {
        if self.open.fetch_add(1, Relaxed) < OPEN_FILES_MAX {
            return Ok(());
        }
        self.give_back();
        Err(Refusal::TooManyOpen { object: object(), limit: OPEN_FILES_MAX })
    }

    /// The room is not needed.
    pub fn give_back(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub fn insert(&self, file: OpenFile) -> Handle {
        let handle = self.given.fetch_add(1, Relaxed) + 1;
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
        self.give_back();
        Ok(removed)
    }

    fn shard(&self, handle: u64) -> &Shard {
        let index = usize::try_from(handle % SHARDS as u64).expect("below the number of shards");
        &self.shards[index]
    }
}
