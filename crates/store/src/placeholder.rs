//! Placeholder descriptors: for opens whose bytes are in no file of the engine, so that a program
//! has a descriptor of the system for everything it has open.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use crate::LeaseNumber;

/// The kind of a placeholder descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceholderKind {
    /// For a file. The descriptor has an offset, which can be moved as far as that of a file; it
    /// cannot read, write or change anything.
    File,
    /// For a directory: an empty directory without a name. It can be a process's working directory;
    /// nothing can be created in it.
    Directory,
}

/// The engine's own end of a placeholder descriptor.
pub trait PlaceholderHandle: Send + Sync + fmt::Debug {
    /// Returns whether any process has a copy of the descriptor open.
    fn is_open(&self) -> bool;
}

/// A maker of placeholder descriptors.
pub trait Placeholders: Send + Sync + fmt::Debug {
    /// Creates a placeholder descriptor for an open that has no file of the engine, under `lease`;
    /// also returns the handle that tells whether a copy of it is still open. If the system has no
    /// nameless directory to offer, a placeholder for a directory is like one for a file. The
    /// descriptor is closed on exec.
    ///
    /// Fails if the system has no more descriptors.
    fn create_placeholder(
        &self,
        kind: PlaceholderKind,
        lease: LeaseNumber,
    ) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)>;
}
