//! Stand-ins: descriptors for what has no bytes in a file of the engine, so that a program has one of the system's for all that it has open.

use std::fmt;

/// What is stood in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandIn {
    /// A file. The descriptor has an offset, which can be moved as far as a file's can, and nothing can be read, written or changed through it.
    Bytes,
    /// A directory: empty, and without a name. A process may stand in it; nothing can be made there.
    Directory,
}

/// The engine's own end of a stand-in.
pub trait Held: Send + Sync + fmt::Debug {
    /// Whether a copy of the descriptor is open somewhere.
    fn is_held(&self) -> bool;
}
