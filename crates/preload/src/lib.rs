//! Layer 11: the preload library (`LD_PRELOAD`). Dynamically linked programs see the pool below a
//! path prefix, without a mount and without being changed.
//!
//! The loader resolves these functions before the C library's. Calls that name a file of the pool
//! are executed here, by `posix`; all other calls go to the next library unchanged. **A program
//! gets real kernel descriptors, and for a file whose bytes are local a descriptor of the file's
//! own extent**, so the kernel itself reads, writes, maps, copies and inherits it, and those calls
//! need no interception.
//!
//! Modules for each call:
//! - `symbols`: definitions of the C library's functions, in files by topic
//! - `classify`: decides whether an argument belongs to the pool
//! - `call`: the wrapper of every operation: signals, panics, errors
//! - `real_symbol`: next definitions of the functions
//! - `cstr`, `memory`: strings and buffers of the program, and checks of its memory
//!
//! Modules for objects that programs hold:
//! - `dirstream`, `stream`, `mmap`: directory streams, C streams, memory maps
//! - `nftw`, `mkstemp`, `statfs`, `fsize_limit`: what the C library does over other calls
//!
//! Modules for the life of the process:
//! - `start`, `environment`: startup, and variables for this program and its children
//! - `fork`, `launch`, `spawn_actions`, `inherited_fds`, `dlopen`: fork, exec, spawn, and what is
//!   inherited
//! - `signal_safe`, `mmap_alloc`: state and memory that signal handlers can use
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

mod call;
mod classify;
mod cstr;
mod dirstream;
mod dlopen;
mod environment;
mod fork;
mod fsize_limit;
mod inherited_fds;
mod launch;
mod memory;
mod mkstemp;
mod mmap;
mod mmap_alloc;
mod nftw;
mod real_symbol;
mod signal_safe;
mod spawn_actions;
mod start;
mod statfs;
mod stream;
mod symbols;

#[cfg(test)]
mod call_test;
#[cfg(test)]
mod classify_test;
#[cfg(test)]
mod environment_test;
#[cfg(test)]
mod fsize_limit_test;
#[cfg(test)]
mod memory_test;
#[cfg(test)]
mod mmap_test;
#[cfg(test)]
mod pool_test;
