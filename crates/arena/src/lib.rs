//! Layer 1: the memory engine: stripes in recycled blocks of a fixed arena.
//!
//! The idea: address space is cheap, fresh memory is not (its first touch costs ten times a copy). So one mapping is made at
//! the start, blocks of it are handed out and taken back, and what was touched once is used again, the most recently freed
//! first. From the bytes upward:
//!
//! ```text
//! arena    which stripe has which state: a sharded index; the Engine trait
//! stripe   one stripe: generation, length, block; when to grow, when to write in place, when to copy
//! block    blocks of the memory, views of blocks: all unsafe code
//! backing  the memory: files that nobody can name, written by pwrite, read through their mappings
//! ledger   who may have how much: capacity, reservations, what of the mapping is touched
//! buddy    which pages are free: power-of-two blocks, split and joined
//! extents  whole files: a stock of nameless files in a tmpfs of their own
//! grant    how much of the capacity that tmpfs may have: numbers in, a number out
//! hollow   which of them have holes that must stay holes: numbers in, a decision out
//! pages    the size of their pages, by that: who looks at them, and when
//! thin     what of a huge page nobody wrote goes back, when nobody uses the file
//! tmpfs    the private file system: made, sized, asked how full it is
//! apart    work in other namespaces, for who may not do it in his own
//! segments the memory as files, for processes that map it themselves
//! bay      memory that one process writes into: blocks offered, and taken over as they are
//! landing  blocks that bytes are received into, and taken over as they are
//! lease    whether anybody else has a file open or mapped
//! stand_in descriptors for what has no bytes in a file
//! guarded  files that others have descriptors of keep their length, though these may cut them
//! mark     whether one certain open lives on, in whatever process
//! ```
//!
//! Invariants:
//! - Blocks held, reservations and the grant of whole files never exceed the capacity together, and neither does touched memory
//!   with reservations and the grant. The kernel keeps whole files within the grant, whoever writes them.
//! - What is offered to a writer counts as held, and is taken back when anybody wants it, unless its writer has begun.
//! - Bytes that a view can see are never written: a stripe that would change them moves to another block.
//! - Locks are taken downwards: index shard, then nothing below it; stripe, then ledger. Bytes are copied under the
//!   stripe's own lock only, and nobody is called back under any.
//!
//! It does not wait for space (a node does), write to a disk, or give memory back to the system unless the space is needed
//! in another place.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "a child that shares memory has no safe call; each block says why it is sound")]
mod apart;
mod arena;
mod backing;
mod bay;
#[allow(unsafe_code, reason = "the one file that touches raw memory; each block says why it is sound")]
mod block;
mod buddy;
mod extents;
mod grant;
#[allow(unsafe_code, reason = "signal handlers have no safe call; each block says why it is sound")]
mod guarded;
mod high_water;
mod hollow;
mod landing;
#[allow(unsafe_code, reason = "leases have no safe call; each block says why it is sound")]
mod lease;
mod ledger;
#[allow(unsafe_code, reason = "locks of open file descriptions have no safe call; the block says why it is sound")]
mod mark;
mod pages;
mod segments;
mod stand_in;
mod stripe;
mod thin;
mod tmpfs;

pub use arena::{Arena, ArenaRefused, Options};

/// The smallest block, in bytes: a page of most machines.
const PAGE_BYTES: u32 = 4096;
