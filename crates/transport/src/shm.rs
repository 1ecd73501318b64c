//! Memory of a node that a client of its host has mapped: segments to read, and a write segment.

#[allow(unsafe_code, reason = "it looks at raw memory; its block says why it is sound")]
pub mod map;
#[allow(unsafe_code, reason = "it writes to raw memory; its blocks say why they are sound")]
pub mod map_mut;
pub mod writer;
