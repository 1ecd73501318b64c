//! Layer 5: the preload library: dynamically linked programs see the pool below a prefix, without a mount and without being changed.
//!
//! The loader puts these functions before the C library's (`LD_PRELOAD`). What has a name in the pool is done here, by the verbs of `posix`;
//! **a descriptor that a program gets is a real one of the kernel, and for a file whose bytes are local it is one of the file's own extent**:
//! reads, writes, maps, copies and inheritance are then the system's own, and need not be caught. All else goes on to the next
//! library as if we were not there.
//!
//! Invariants: nothing is done before the program touches the pool but to keep what the environment says; no thread is started; what is not ours costs a
//! comparison, and a system call where its path is neither of the heap nor of the first thread's stack; a panic is an error of one call, and so is a
//! pointer that leads nowhere. What it does not do: decide what a verb means (`posix`), keep a table that must be right (the kernel has it).

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
