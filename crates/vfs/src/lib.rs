//! Layer 7: file system over the client: open-file table, paths, reads and writes.
//!
//! [`Vfs`] is the view of a pool that frontends (the mount) and the workflow runner use. Its
//! methods are the operations of a file system, by inode and name. Users in this process may also
//! give paths. Every future is independent of the others (`Send + 'static`). It is ready at its
//! first poll, unless it must wait for space, a lock or a node.
//!
//! - `vfs`: the type [`Vfs`], and operations on the pool as a whole
//! - `names`: operations on names and attributes, which need no open file
//! - `open`: open files: create, open, read, write, close
//! - `handles`: open-file table
//! - `allocate`: ranges of an open file: allocate, punch holes, seek data, copy
//! - `tmpfile`: files without a name (`O_TMPFILE`)
//! - `xattr`: extended attributes, including ACLs
//! - `locks`: advisory locks of programs, on ranges and on whole files
//! - `lock_owners`: lock owners by file and handle, whose locks a close releases
//! - `paths`: operations on paths, for users in this process
//! - `program_open`: opens for programs of this host, with descriptors of their own
//! - `subscription`: subscriptions of kernels that cache names, attributes and bytes
//!
//! An embedded pool in five lines:
//!
//! ```
//! # use std::sync::Arc;
//! # let memory = base::ByteSize::mib(4);
//! let settings = node::NodeSettings::new(memory);
//! let engine = Arc::new(store::ModelEngine::new(memory.0, settings.stripe_bytes)); // or an arena
//! let node = node::embedded(settings, engine);
//! let client = client::Client::embedded(node);
//! let vfs = vfs::Vfs::new(client);
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! vfs.write_file(b"greeting", b"hello").await?;
//! assert_eq!(vfs.read_file(b"greeting").await?, b"hello");
//! # Ok::<(), wire::Refusal>(()) }).unwrap();
//! ```
//!
//! This crate does not check permissions: the kernel does that for a mount, and users in this
//! process own the pool.
#![forbid(unsafe_code)]

mod allocate;
mod handles;
mod lock_owners;
mod locks;
mod names;
mod open;
mod paths;
mod program_open;
mod subscription;
mod tmpfile;
mod vfs;
mod xattr;

pub use client::{BackingFd, ExpectedLocation, FileLocation, OnInvalidate};
pub use handles::{Handle, OPEN_FILES_MAX};
pub use paths::PathLocation;
pub use program_open::ProgramFile;
pub use vfs::Vfs;

#[cfg(test)]
mod bind_test;
#[cfg(test)]
mod extent_file_test;
#[cfg(test)]
mod like_tmpfs_test;
#[cfg(test)]
mod locks_test;
#[cfg(test)]
mod pool_test;
#[cfg(test)]
mod program_open_test;
#[cfg(test)]
mod space_test;
#[cfg(test)]
mod vfs_test;
