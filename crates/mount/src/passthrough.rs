//! Passthrough: backing files that the kernel reads and writes itself.
//!
//! There are two kinds. Backings of extent files belong to the node's extent slots. Each slot keeps
//! its descriptor for the life of the node, so it is registered with the kernel once, and its
//! backing id serves all files that use the slot. Backings of bound inputs are opened for one open
//! inode, for reading only, and closed with it.
//!
//! A kernel may refuse passthrough (no `CAP_SYS_ADMIN`, or too many stacked file systems). Then the
//! ordinary path is used.

use std::{
    collections::HashMap,
    fs::File,
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fuse_transport::{BackingId, Backings};
use parking_lot::Mutex;
use rustix::io::Errno;
use vfs::{Handle, Vfs};
use wire::OpenFlags;

/// Guard that is held while an inode is passed through.
#[derive(Debug)]
pub(crate) struct BackingGuard {
    /// The kernel's id of the backing.
    pub(crate) id: BackingId,
    kind: BackingKind,
}

#[derive(Debug)]
enum BackingKind {
    /// Extent slot, pinned until this is dropped. The kernel keeps the backing for the slot's next
    /// file.
    Slot(#[expect(dead_code, reason = "held, not looked at")] vfs::BackingFd),
    /// Bound input; its backing is closed when this is dropped.
    Host(Backings),
}

impl Drop for BackingGuard {
    fn drop(&mut self) {
        if let BackingKind::Host(backings) = &self.kind
            && let Err(error) = backings.close(self.id)
        {
            tracing::debug!("a backing file could not be closed: {error}");
        }
    }
}

/// Backings of one kernel.
#[derive(Debug)]
pub(crate) struct Passthrough {
    /// `None` if passthrough is off.
    backings: Option<Backings>,
    /// Set when the kernel has refused it for lack of privilege.
    refused: AtomicBool,
    slots: Mutex<HashMap<u64, BackingId>>,
}

impl Passthrough {
    /// Creates the table; with `None` passthrough is off.
    pub(crate) fn new(backings: Option<Backings>) -> Self {
        Self { backings, refused: AtomicBool::new(false), slots: Mutex::default() }
    }

    /// True if files may be passed through at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.backings.is_some() && !self.refused.load(Relaxed)
    }

    /// The backing of an open file, if it can have one.
    pub(crate) fn open_backing(&self, vfs: &Vfs, handle: Handle, flags: OpenFlags) -> Option<Arc<BackingGuard>> {
        let backings = self.backings.as_ref().filter(|_| self.is_enabled())?;
        let guard = match vfs.backing(handle) {
            Some(backing) => self.slot_backing(backings, backing)?,
            None if !flags.write => self.host_backing(backings, vfs, handle)?,
            None => return None,
        };
        Some(Arc::new(guard))
    }

    fn slot_backing(&self, backings: &Backings, backing: vfs::BackingFd) -> Option<BackingGuard> {
        let mut slots = self.slots.lock();
        let known = slots.get(&backing.id()).copied();
        let id = known.or_else(|| self.register(backings, &backing))?;
        slots.insert(backing.id(), id);
        Some(BackingGuard { id, kind: BackingKind::Slot(backing) })
    }

    /// Backing of a bound input; `None` if the host file changed since it was bound, so that reads
    /// through this process report the error.
    fn host_backing(&self, backings: &Backings, vfs: &Vfs, handle: Handle) -> Option<BackingGuard> {
        let host = vfs.host_file(handle)?;
        let file = File::open(&host.path).ok()?;
        let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let unchanged = found.len() == host.size
            && (found.mtime(), found.mtime_nsec()) == (host.modified.secs, i64::from(host.modified.nanos));
        let id = if unchanged { self.register(backings, &file)? } else { return None };
        Some(BackingGuard { id, kind: BackingKind::Host(backings.clone()) })
    }

    /// Registers a file with the kernel and returns its backing id.
    fn register(&self, backings: &Backings, file: &impl AsFd) -> Option<BackingId> {
        match backings.open(file.as_fd()) {
            Ok(id) => Some(id),
            Err(error) => {
                if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
                    self.refused.store(true, Relaxed);
                }
                tracing::debug!("a file cannot use passthrough: {error}");
                None
            }
        }
    }
}
