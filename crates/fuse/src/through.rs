//! Backings: the files to which the kernel itself reads and writes, past us.
//!
//! Two kinds. Those of whole files belong to the node's slots, of which each keeps its descriptor for ever: the kernel is told of
//! it once, and the number is used for every file that lives there. Those of bound inputs are opened for one open inode, for
//! reading only, and closed with it.
//!
//! A kernel that refuses (no `CAP_SYS_ADMIN`, a file system that is stacked too high) is no fault: the ordinary way serves.

use std::{
    collections::HashMap,
    fs::File,
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use kernel::{BackingId, Backings};
use parking_lot::Mutex;
use rustix::io::Errno;
use vfs::{Handle, Vfs};
use wire::OpenFlags;

/// What is held while an inode is passed through.
#[derive(Debug)]
pub(crate) struct Held {
    /// The kernel's number of the backing.
    pub(crate) id: BackingId,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Pinned until this goes; the kernel keeps the backing for the slot's next file.
    Slot(#[expect(dead_code, reason = "held, not looked at")] vfs::Backing),
    /// The backing goes with this.
    Host(Backings),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let What::Host(backings) = &self.what
            && let Err(error) = backings.close(self.id)
        {
            tracing::debug!("a backing is not closed: {error}");
        }
    }
}

/// The backings of one kernel.
#[derive(Debug)]
pub(crate) struct Through {
    /// None: nothing is passed through.
    backings: Option<Backings>,
    /// The kernel has said that we may not.
    refused: AtomicBool,
    slots: Mutex<HashMap<u64, BackingId>>,
}

impl Through {
    /// None: nothing is passed through.
    pub(crate) fn new(backings: Option<Backings>) -> Self {
        Self { backings, refused: AtomicBool::new(false), slots: Mutex::default() }
    }

    /// Whether files may be passed through at all.
    pub(crate) fn is_on(&self) -> bool {
        self.backings.is_some() && !self.refused.load(Relaxed)
    }

    /// The backing of an open file, if it can have one.
    pub(crate) fn offer(&self, vfs: &Vfs, handle: Handle, flags: OpenFlags) -> Option<Arc<Held>> {
        let backings = self.backings.as_ref().filter(|_| self.is_on())?;
        let held = match vfs.backing(handle) {
            Some(backing) => self.of_slot(backings, backing)?,
            None if !flags.write => self.of_host(backings, vfs, handle)?,
            None => return None,
        };
        Some(Arc::new(held))
    }

    fn of_slot(&self, backings: &Backings, backing: vfs::Backing) -> Option<Held> {
        let mut slots = self.slots.lock();
        let known = slots.get(&backing.slot()).copied();
        let id = known.or_else(|| self.told(backings, &backing))?;
        slots.insert(backing.slot(), id);
        Some(Held { id, what: What::Slot(backing) })
    }

    /// Not if it changed since it was bound: then our own reads tell what is wrong with it.
    fn of_host(&self, backings: &Backings, vfs: &Vfs, handle: Handle) -> Option<Held> {
        let host = vfs.host_file(handle)?;
        let file = File::open(&host.path).ok()?;
        let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let unchanged = found.len() == host.size
            && (found.mtime(), found.mtime_nsec()) == (host.modified.secs, i64::from(host.modified.nanos));
        let id = if unchanged { self.told(backings, &file)? } else { return None };
        Some(Held { id, what: What::Host(backings.clone()) })
    }

    /// The number that the kernel gives to a file.
    fn told(&self, backings: &Backings, file: &impl AsFd) -> Option<BackingId> {
        match backings.open(file.as_fd()) {
            Ok(id) => Some(id),
            Err(error) => {
                if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
                    self.refused.store(true, Relaxed);
                }
                tracing::debug!("a file is not passed through: {error}");
                None
            }
        }
    }
}
