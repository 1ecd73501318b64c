//! Backings: pinned descriptors of extent files that a frontend may hand to the kernel.

use crate::extents::{ExtentPin, ExtentSlots};
use rustix::fs::fstat;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt::Debug, io, sync::Arc};
use wire::{Extent, OpenFlags};

/// Bit in the number of a leased descriptor. A node's id is too small to set it, so it never
/// collides with an own slot.
const LEASED_BIT: u64 = 1 << 63;

/// The descriptor of an extent file. As long as it lives, the extent is neither given to another
/// file nor demoted.
///
/// A kernel that has opened its file keeps the extent too, until everything that was opened or
/// mapped through it is closed. A caller that maps the descriptor itself must keep this as long as
/// the mapping.
#[derive(Debug)]
pub struct BackingFd(PinnedFd);

#[derive(Debug)]
enum PinnedFd {
    /// An extent of a node in this process.
    Local(ExtentPin<Arc<ExtentSlots>>),
    /// An extent of a node in another process.
    Leased { slot: u64, file: OwnedFd, _lease: Box<dyn BackingLease> },
}

/// A lease of a descriptor; dropping it tells the node that the descriptor is no longer used.
pub trait BackingLease: Debug + Send + Sync {}

impl BackingFd {
    /// The backing of an extent whose bytes are in a file, opened with these flags.
    pub(crate) fn new(slots: &Arc<ExtentSlots>, extent: Extent, flags: OpenFlags) -> Option<Self> {
        let pin = ExtentSlots::pin(slots.clone(), extent)?;
        slots.fd(extent)?;
        slots.mark_leased(extent, flags);
        Some(Self(PinnedFd::Local(pin)))
    }

    /// A backing from the leased descriptor of a node in another process. Fails if the system does
    /// not tell which file it is.
    pub fn from_lease(file: OwnedFd, lease: Box<dyn BackingLease>) -> io::Result<Self> {
        let found = fstat(&file)?;
        // A restarted node reuses the ids and slots of its earlier run for other files, so the
        // file's own numbers identify it.
        let (Ok(device), Ok(inode)) = (u32::try_from(found.st_dev), u32::try_from(found.st_ino)) else {
            return Err(io::Error::other("a leased file has an inode number that no file of a node's memory has"));
        };
        let slot = LEASED_BIT | u64::from(device) << 32 | u64::from(inode);
        Ok(Self(PinnedFd::Leased { slot, file, _lease: lease }))
    }

    /// A number that identifies the descriptor: as long as anybody has it open, it refers to the
    /// same file.
    pub fn id(&self) -> u64 {
        match &self.0 {
            PinnedFd::Local(pin) => {
                let Extent { node, slot, .. } = pin.extent();
                u64::from(node.0) << 32 | u64::from(slot)
            }
            PinnedFd::Leased { slot, .. } => *slot,
        }
    }
}

impl AsFd for BackingFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            PinnedFd::Local(pin) => {
                pin.slots().fd(pin.extent()).expect("the extent had a descriptor when the backing was made")
            }
            PinnedFd::Leased { file, .. } => file.as_fd(),
        }
    }
}
