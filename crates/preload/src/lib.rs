//! Layer 5: the preload library (`LD_PRELOAD`). Dynamically linked programs see the pool below a
//! path prefix, without a mount and without being changed.
//!
//! The loader resolves these functions before the C library's. Calls that name a file of the pool
//! are executed here, by `posix`; all other calls go to the next library unchanged. **A program
//! gets real kernel descriptors, and for a file whose bytes are local a descriptor of the file's
//! own extent**, so the kernel itself reads, writes, maps, copies and inherits it, and those calls
//! need no interception.
//!
//! Invariants:
//! - Until the program touches the pool, the library only reads the environment.
//! - The library starts no thread.
//! - A call that is not of the pool costs a comparison, and a system call if its path is neither on
//!   the heap nor on the first thread's stack.
//! - A panic is an error of one call, and so is an invalid pointer.
//!
//! The library does not decide what a call means (`posix` does), and it keeps no authoritative
//! table: the kernel has the descriptor table.

mod actions;
mod folder;
mod fork;
mod guard;
mod heap;
mod inherited;
mod launch;
mod library;
mod limit;
mod map;
mod memory;
mod next;
mod ours;
mod settings;
mod shared;
mod start;
mod stream;
mod symbols;
mod temporary;
mod text;
mod tree;
mod usage;
