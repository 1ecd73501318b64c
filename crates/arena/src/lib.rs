//! Layer 3: the in-memory storage engine: stripes in recycled blocks of a fixed arena.
//!
//! Address space is cheap; fresh memory is not: its first touch costs ten times a copy. So the
//! arena is mapped once at the start. Blocks of it are allocated and freed, and memory that was
//! touched once is reused, most recently freed first. The modules:
//!
//! ```text
//! arena           the sharded index of stripes; the traits StripeStore and Engine
//! scan            a walk over all stripes
//! stripe          one stripe: generation, length, block; grow, write in place or copy
//! block           the block pool: blocks and views; all unsafe access to the arena's memory
//! backing         the memory: nameless files, written by pwrite, read through mappings
//! ledger          space accounting: capacity, reservations, touched memory
//! buddy           the buddy allocator of pages: power-of-two blocks, split and merged
//! high_water      the peak usage
//! extents         extent files: a pool of nameless files in a private tmpfs
//! extent_quota    how much of the capacity extent files may use: a pure function
//! sparse          which extent files are sparse: a state machine without I/O
//! page_size       small pages in the extent tmpfs while a sparse file is written, else huge ones
//! thin            punches unwritten pages out of huge pages of idle files
//! tmpfs           the private tmpfs: create, resize, query usage
//! namespace_child runs work in a child in other namespaces
//! segments        the memory as files for processes that map it themselves
//! write_segment   memory that one client writes; filled blocks become stripes
//! recv_buffer     receive buffers: blocks that bytes are received into and that become stripes
//! lease_probe     probes if anybody else has a file open or mapped
//! placeholder     placeholder descriptors for files whose bytes are not in an extent
//! length_guard    keeps the length of files of which other processes have descriptors
//! open_probe      open leases: probes if one open is alive in any process
//! ```
//!
//! Invariants:
//! - Allocated blocks, reservations and the extent quota together never exceed the capacity, and
//!   neither do touched memory, reservations and the extent quota together. The tmpfs enforces the
//!   quota for every writer.
//! - A block offered to a writer counts as allocated. It is taken back when anybody needs space,
//!   unless its writer has claimed it.
//! - Bytes that a view can see are never written: a stripe whose viewed bytes change moves to
//!   another block.
//! - Lock order: no lock is taken under an index shard's; the ledger's is taken under a stripe's.
//!   Bytes are copied under the stripe's own lock only, and no callback runs under any lock.
//!
//! The arena does not wait for space (a node does) or write to a disk. It gives memory back to the
//! system only if the space is needed in another place.
#![deny(unsafe_code)]

mod arena;
mod backing;
#[allow(unsafe_code, reason = "the one file that touches raw memory; each block says why it is sound")]
mod block;
mod buddy;
mod extent_quota;
mod extents;
mod high_water;
#[allow(unsafe_code, reason = "leases have no safe call; each block says why it is sound")]
mod lease_probe;
mod ledger;
#[allow(unsafe_code, reason = "signal handlers have no safe call; each block says why it is sound")]
mod length_guard;
#[allow(unsafe_code, reason = "a child that shares memory has no safe call; each block says why it is sound")]
mod namespace_child;
#[allow(unsafe_code, reason = "locks of open file descriptions have no safe call; the block says why it is sound")]
mod open_probe;
mod page_size;
mod placeholder;
mod recv_buffer;
mod scan;
mod segments;
mod sparse;
mod stripe;
mod thin;
mod tmpfs;
mod write_segment;

pub use arena::{Arena, ArenaError, ArenaOptions};

/// The smallest block in bytes: a page of most machines.
const PAGE_BYTES: u32 = 4096;
