//! What a program has open, by the numbers of its descriptors.
//!
//! The kernel keeps the truth: programs close and copy descriptors past us. So what stands here is believed only while the descriptor that has
//! the number is of the same file of the system.

use crate::Errno;
use crate::open::Kind;
use crate::walk::Folder;
use placement::FileId;
use rustix::fs::fstat;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Lent, Mark, Marked, OpenFlags};

/// One open, shared by all copies of its descriptor.
#[derive(Debug)]
pub struct Open {
    /// What is open.
    pub file: FileId,
    /// Its name at the node that gave the descriptor.
    pub mark: Mark,
    /// How it was opened.
    pub flags: OpenFlags,
    /// What its descriptor is, had it been opened to be read.
    pub kind: Kind,
    /// By what folders and name it was opened, from the pool's root on: what a path from it starts with, and what is shown of it.
    pub names: Vec<Vec<u8>>,
    /// Whether writes go to the end now; of local files the kernel knows it.
    pub append: AtomicBool,
    /// The process may have locked it (fcntl(2)).
    pub locked: AtomicBool,
    /// What `stat` tells of the descriptor.
    pub inode: (u64, u64),
}

impl Open {
    /// What a node gave a descriptor for.
    pub fn new(given: &Marked, names: Vec<Vec<u8>>, inode: (u64, u64)) -> Self {
        let Marked { mark, file, flags, lent } = *given;
        let kind = match lent {
            Lent::Extent(_) => Kind::Local,
            Lent::Bytes => Kind::Remote,
            Lent::Directory => Kind::Folder,
        };
        let (append, locked) = (AtomicBool::new(flags.append), AtomicBool::default());
        Self { file, mark, flags, kind, names, append, locked, inode }
    }

    /// Whether it was opened as a place alone (`O_PATH`).
    pub fn is_place(&self) -> bool {
        !self.flags.read && !self.flags.write
    }

    /// What its descriptor is to the program.
    pub fn shown(&self) -> Kind {
        if self.is_place() { Kind::Place } else { self.kind }
    }

    /// As where a path starts.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn folder(&self) -> Result<Folder, Errno> {
        match self.kind {
            Kind::Folder => Ok(Folder { file: self.file, attributes: None, names: self.names.clone() }),
            _ => Err(Errno::NOTDIR),
        }
    }
}

/// An open that a closed descriptor had.
#[derive(Debug)]
pub struct Held(pub(crate) Arc<Open>);

/// All descriptors of a program that are of the pool.
#[derive(Debug, Default)]
pub struct Table(Mutex<HashMap<RawFd, Arc<Open>>>);

impl Table {
    /// Notes what a descriptor is.
    pub fn add(&self, descriptor: RawFd, open: Arc<Open>) {
        self.lock().insert(descriptor, open);
    }

    /// Forgets it, before it is closed.
    pub fn take(&self, descriptor: RawFd) -> Option<Arc<Open>> {
        self.lock().remove(&descriptor)
    }

    /// What a descriptor is.
    ///
    /// # Errors
    /// `EBADF` where it is none of ours, or not any more.
    pub fn get(&self, descriptor: BorrowedFd<'_>) -> Result<Arc<Open>, Errno> {
        let number = descriptor.as_raw_fd();
        let known = self.lock().get(&number).cloned().ok_or(Errno::BADF)?;
        if inode_of(descriptor) == Some(known.inode) {
            return Ok(known);
        }
        self.lock().remove(&number);
        Err(Errno::BADF)
    }

    /// Whether another descriptor has this open.
    pub fn has(&self, open: &Arc<Open>) -> bool {
        self.lock().values().any(|known| Arc::ptr_eq(known, open))
    }

    /// Whether the process may have locks of a file (fcntl(2)), which end when any descriptor of it is closed.
    pub fn may_lock(&self, file: FileId) -> bool {
        self.lock().values().any(|known| known.file == file && known.locked.load(Relaxed))
    }

    /// The table itself: held over a fork.
    pub fn guard(&self) -> TableGuard<'_> {
        TableGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Device and inode of what a descriptor is of.
pub fn inode_of(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let found = fstat(descriptor).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// A table that nobody changes.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub struct TableGuard<'a>(MutexGuard<'a, HashMap<RawFd, Arc<Open>>>);
