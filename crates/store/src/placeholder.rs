//! Placeholder descriptors: for opens whose bytes are in no file of the engine, so that a program
//! has a descriptor of the system for everything it has open.

use std::fmt;

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
