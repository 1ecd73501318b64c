//! Table of a program's open files of the pool, by descriptor number.
//!
//! The kernel's descriptors are authoritative, because programs close and duplicate them without
//! our notice. An entry is therefore trusted only while the descriptor of that number has the
//! recorded device and inode.

use crate::Errno;
use crate::open::FdKind;
use crate::resolve::ResolvedDirectory;
use placement::FileId;
use rustix::fs::fstat;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{LeaseKind, OpenFlags, OpenLease, OpenLeaseId};

/// Open file description of the pool, shared by all duplicates of its descriptor.
#[derive(Debug)]
pub struct OpenDescription {
    /// Open file.
    pub file: FileId,
    /// Open lease at the node that gave the descriptor.
    pub lease: OpenLeaseId,
    /// Flags of the open.
    pub flags: OpenFlags,
    /// Kind of the descriptor, disregarding `O_PATH`; see [`Self::visible_kind`].
    pub kind: FdKind,
    /// Names by which it was opened, from the pool's root on. Relative paths start from them, and
    /// the path of the descriptor is made of them.
    pub names: Vec<Vec<u8>>,
    /// True if writes append now. The kernel keeps this flag of a local file.
    pub append: AtomicBool,
    /// True if the process may hold fcntl(2) locks on it.
    pub locked: AtomicBool,
    /// Device and inode that `fstat` reports for the descriptor.
    pub inode: (u64, u64),
}

impl OpenDescription {
    /// Makes the entry of a descriptor that a node has given.
    pub fn new(open_lease: &OpenLease, names: Vec<Vec<u8>>, inode: (u64, u64)) -> Self {
        let OpenLease { id: lease, file, flags, kind } = *open_lease;
        let kind = match kind {
            LeaseKind::Extent(_) => FdKind::Local,
            LeaseKind::Bytes => FdKind::Remote,
            LeaseKind::Directory => FdKind::Directory,
        };
        let (append, locked) = (AtomicBool::new(flags.append), AtomicBool::default());
        Self { file, lease, flags, kind, names, append, locked, inode }
    }

    /// Returns whether it was opened with `O_PATH`.
    pub fn is_path_only(&self) -> bool {
        !self.flags.read && !self.flags.write
    }

    /// Returns the kind of the descriptor that the program sees.
    pub fn visible_kind(&self) -> FdKind {
        if self.is_path_only() { FdKind::Path } else { self.kind }
    }

    /// Returns the directory as the start of a path.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn directory(&self) -> Result<ResolvedDirectory, Errno> {
        match self.kind {
            FdKind::Directory => Ok(ResolvedDirectory { file: self.file, attributes: None, names: self.names.clone() }),
            _ => Err(Errno::NOTDIR),
        }
    }
}

/// Open that a closed descriptor referred to.
#[derive(Debug)]
pub struct RemovedFd(pub(crate) Arc<OpenDescription>);

/// All descriptors of a program that refer to the pool.
#[derive(Debug, Default)]
pub struct FdTable(Mutex<HashMap<RawFd, Arc<OpenDescription>>>);

impl FdTable {
    /// Adds a descriptor.
    pub fn add(&self, descriptor: RawFd, open: Arc<OpenDescription>) {
        self.lock().insert(descriptor, open);
    }

    /// Removes a descriptor before it is closed.
    pub fn remove(&self, descriptor: RawFd) -> Option<Arc<OpenDescription>> {
        self.lock().remove(&descriptor)
    }

    /// Returns the open that a descriptor refers to.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not of the pool, or no longer.
    pub fn get(&self, descriptor: BorrowedFd<'_>) -> Result<Arc<OpenDescription>, Errno> {
        let number = descriptor.as_raw_fd();
        let known = self.lock().get(&number).cloned().ok_or(Errno::BADF)?;
        if inode_of(descriptor) == Some(known.inode) {
            return Ok(known);
        }
        self.lock().remove(&number);
        Err(Errno::BADF)
    }

    /// Returns whether another descriptor refers to this open.
    pub fn contains(&self, open: &Arc<OpenDescription>) -> bool {
        self.lock().values().any(|known| Arc::ptr_eq(known, open))
    }

    /// Returns whether the process may hold fcntl(2) locks on a file, which end when any of its
    /// descriptors is closed.
    pub fn may_lock(&self, file: FileId) -> bool {
        self.lock().values().any(|known| known.file == file && known.locked.load(Relaxed))
    }

    /// Locks the table, to be held over a fork.
    pub fn guard(&self) -> FdTableGuard<'_> {
        FdTableGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Arc<OpenDescription>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the device and inode of a descriptor.
pub fn inode_of(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let found = fstat(descriptor).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Lock that keeps the table unchanged.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub struct FdTableGuard<'a>(MutexGuard<'a, HashMap<RawFd, Arc<OpenDescription>>>);
