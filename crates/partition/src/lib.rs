//! Layer 2: one partition's metadata as a plain state machine: command in, answer out.
//!
//! A [`Partition`] holds inodes, and the entries of those that are directories. It has no clock, no lock and no I/O: the same
//! commands at the same times give the same answers and the same state, so it can be snapshotted, replayed, and one day
//! replicated. Bytes of striped files live in an engine that it never sees; it only says where they go.
//!
//! Invariants:
//! - A directory's entries live with its own inode, above a limit in fragments that are directories of their own; a new file's
//!   inode is made beside its entry. So create, stat, unlink, list and a rename within one directory or fragment are one command.
//! - What touches several partitions is an intent: checked, marked and paid for in each, decided in one, then done in all or in
//!   none. What is marked takes no other change.
//! - A resent change (same session, same number) is answered with the kept answer and not done again.
//! - Stripes are noted with the inode before they are written, and forgotten after they are removed: none is ever lost.
//!
//! A file's bytes are in one of three places, and only go right (those of a `whole` file are in a fourth, see there):
//!
//! ```text
//!   Inline  --a write beyond 4 KiB-->  Spilling  --SpillDone-->  Striped
//!   (here)                             (head still here;         (in stripes; a truncation is
//!                                       a client copies it)       finished before the file grows again)
//! ```
#![forbid(unsafe_code)]

mod acl;
mod allocate;
mod answered;
mod apply;
mod directory;
mod ended;
mod extra;
mod files;
mod grants;
mod inode;
mod intent;
mod intents;
mod kept;
mod locks;
mod moves;
mod names;
mod object;
mod partition;
mod parts;
mod passing;
mod placing;
mod removal;
mod weight;
mod whole;
mod xattr;

pub use ended::{Ended, Endings};
pub use grants::{Asker, Note, Watcher, Watchers};
pub use locks::{Holder, LOCKS_MAX};
pub use partition::{Partition, SPLIT_ENTRIES, Settings};
pub use weight::{ENTRY_BYTES, INODE_BYTES};
pub use whole::{Head, Told};

#[cfg(test)]
mod acl_test;
#[cfg(test)]
mod grants_test;
#[cfg(test)]
mod inode_test;
#[cfg(test)]
mod intent_test;
#[cfg(test)]
mod kept_test;
#[cfg(test)]
mod object_test;
#[cfg(test)]
mod partition_test;
#[cfg(test)]
mod passing_test;
#[cfg(test)]
mod placing_test;
#[cfg(test)]
mod whole_test;
