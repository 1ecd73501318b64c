//! The trait of memory that other processes may look at.

use std::{fmt, io, os::fd::OwnedFd};

/// Where bytes are in an engine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which of its segments.
    pub segment: u32,
    /// Where in it, bytes.
    pub offset: u64,
}

/// An engine's memory as files, which processes of this host can map.
///
/// What a view of [`Engine::read`](crate::Engine::read) shows is there as long as the view is held, and then becomes something else.
pub trait Segments: Send + Sync + fmt::Debug {
    /// The lengths of all, bytes; they never change.
    fn lengths(&self) -> Vec<u64>;

    /// A descriptor that can only be read and mapped.
    fn open(&self, segment: u32) -> io::Result<OwnedFd>;

    /// Where these bytes are; none when they are not in the engine's memory.
    fn place(&self, bytes: &[u8]) -> Option<Place>;
}
