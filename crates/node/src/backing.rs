//! What a face may hand to the kernel: the descriptor of a whole file's extent, pinned.

use crate::whole::{Pin, Wholes};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt::Debug, sync::Arc};
use wire::{Extent, OpenFlags};

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
    Lent { extent: Extent, file: OwnedFd, _loan: Box<dyn Loan> },
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

    /// As another process's node has lent it: the node's own descriptor, passed on.
    pub fn lent(extent: Extent, file: OwnedFd, loan: Box<dyn Loan>) -> Self {
        Self(Held::Lent { extent, file, _loan: loan })
    }

    /// Which descriptor of which node, told by one number: what is behind it is the same for the node's life.
    pub fn slot(&self) -> u64 {
        let Extent { node, slot, .. } = match &self.0 {
            Held::Here(pin) => pin.extent(),
            Held::Lent { extent, .. } => *extent,
        };
        u64::from(node.0) << 32 | u64::from(slot)
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
