//! What a face may hand to the kernel: the descriptor of a whole file's extent, pinned.

use crate::whole::{Pin, Wholes};
use rustix::fs::fstat;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt::Debug, io, sync::Arc};
use wire::{Extent, OpenFlags};

/// In the number of a slot that was lent: no node has so high an id that its own would be the same.
const LENT: u64 = 1 << 63;

/// The descriptor of a whole file's extent. As long as it lives, the extent is neither given to another file nor folded.
///
/// A kernel that opened its file holds it too, until nothing that was opened or mapped through it is left. Who maps the
/// descriptor itself must keep this as long as the mapping.
#[derive(Debug)]
pub struct Backing(Held);

#[derive(Debug)]
enum Held {
    /// Of a node in this process.
    Here(Pin<Arc<Wholes>>),
    /// Of a node in another one.
    Lent { slot: u64, file: OwnedFd, _loan: Box<dyn Loan> },
}

/// What tells a node, when it is dropped, that its descriptor is used no more.
pub trait Loan: Debug + Send + Sync {}

impl Backing {
    /// Of an extent whose bytes are in a file, to be used as these flags say.
    pub(crate) fn new(wholes: &Arc<Wholes>, extent: Extent, flags: OpenFlags) -> Option<Self> {
        let pin = Wholes::pin(wholes.clone(), extent)?;
        wholes.fd(extent)?;
        wholes.lend(extent, flags);
        Some(Self(Held::Here(pin)))
    }

    /// As another process's node has lent it: the node's own descriptor, passed on. Fails where the system does not tell which file
    /// it is.
    pub fn lent(file: OwnedFd, loan: Box<dyn Loan>) -> io::Result<Self> {
        let found = fstat(&file)?;
        // A node that was started again has the ids and slots of the one before, and other files.
        let (Ok(device), Ok(inode)) = (u32::try_from(found.st_dev), u32::try_from(found.st_ino)) else {
            return Err(io::Error::other("a lent file has a number that no file of a node's memory has"));
        };
        let slot = LENT | u64::from(device) << 32 | u64::from(inode);
        Ok(Self(Held::Lent { slot, file, _loan: loan }))
    }

    /// Which descriptor it is, told by one number: as long as anybody has that open, what is behind it is the same.
    pub fn slot(&self) -> u64 {
        match &self.0 {
            Held::Here(pin) => {
                let Extent { node, slot, .. } = pin.extent();
                u64::from(node.0) << 32 | u64::from(slot)
            }
            Held::Lent { slot, .. } => *slot,
        }
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Held::Here(pin) => pin.wholes().fd(pin.extent()).expect("it had one when this was made"),
            Held::Lent { file, .. } => file.as_fd(),
        }
    }
}
