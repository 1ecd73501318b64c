//! What a face may hand to the kernel: the descriptor of a whole file's extent, pinned.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use wire::Extent;

/// The descriptor of a whole file's extent. As long as it lives, the extent is neither given to another file nor folded.
#[derive(Debug)]
pub struct Backing {
    extent: Extent,
    file: Arc<OwnedFd>,
}

impl Backing {
    /// Which extent of the node: the descriptor behind a number is the same for the node's life.
    pub fn slot(&self) -> u64 {
        self.extent.slot.into()
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
