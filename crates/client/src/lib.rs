//! Layer 6: the client of a pool: routes requests by the partition map, retries, stripes data.
//!
//! A [`Client`] computes where everything is (the map, the hashes, the directories that are split)
//! and sends its requests there. A change that one partition cannot do alone is an intent, a
//! two-phase commit: prepared at all partitions, decided at one, settled at all. An intent of a
//! dead client is finished or undone by the next client that conflicts with it, and by
//! [`Client::recover`].
//!
//! ```text
//!   verb (names, rename, files) -> intent -> call -> Router: route, retry -> Connection -> node
//! ```
//!
//! Modules for calls:
//! - `client`: a client: the way to the nodes, and what the verbs remember
//! - `router`: the way to the nodes: the map, the connections, the session, retries
//! - `call`: a call: a command that is sent in whichever session, and past conflicts
//! - `connection`: the trait of a connection to a node, and the connection in one process
//! - `connector`: the trait that makes connections to nodes that the map names
//!
//! Modules for sessions:
//! - `session`: the session that a call is made in, and the next one
//! - `recovery`: removal of stripes, the end of a session, and recovery of what a dead client left
//! - `subscription`: subscription to cache invalidations
//!
//! Modules for names and transactions:
//! - `names`: lookup, listing, creation and removal
//! - `rename`: renames
//! - `path_cache`: paths that were walked, and the directories that they led to
//! - `path_hint`: operations on names in directories whose paths were walked before
//! - `split`: split directories: the fragment of a name, splitting, operations on all fragments
//! - `split_attributes`: attributes of a split directory, combined with those of its fragments
//! - `intent`: the driver of transactions: prepare, commit, settle
//! - `conflict`: conflicts with intents of other clients
//!
//! Modules for files and objects:
//! - `files`: opening, reading, writing, truncating
//! - `hosted`: bytes that are at another node than their inode
//! - `allocate`: preallocation, hole punching, search for data and holes
//! - `inode`: extended attributes, unnamed files
//! - `locks`: locks of files
//! - `program_open`: opens of programs of this host with descriptors of their own
//! - `stripe_ranges`: pieces of a byte range, each within one stripe
//! - `file_placement`: placement of new stripes, objects and directories by policy
//! - `locate`: locations of bytes
//! - `usage`: usage of the pool, asked of all nodes
//! - `objects`: objects: bytes put and got as one under a key
//!
//! `testing`: test doubles of connections.
//!
//! Invariants:
//! - A change is resent with its request id until it is answered, so it is done once, whatever
//!   messages the connection loses.
//! - A session ends at a node when the connection to it breaks. Later calls are made in the next
//!   session; handles of what was open there are refused with `SessionEnded`.
//! - Every wait is bounded: tries are counted, pauses grow to a limit, then the call fails with
//!   `Unavailable`.
//! - Dropping a future is like a crash of the client at that point: nothing stays locked, and the
//!   tree stays consistent.
#![forbid(unsafe_code)]

mod allocate;
mod call;
mod client;
mod conflict;
mod connection;
mod connector;
mod evacuation;
mod file_placement;
mod files;
mod hosted;
mod inode;
mod intent;
mod locate;
mod locks;
mod names;
pub mod objects;
mod path_cache;
mod path_hint;
mod program_open;
mod recovery;
mod rename;
mod router;
mod session;
mod split;
mod split_attributes;
mod stripe_ranges;
mod subscription;
pub mod testing;
mod usage;

pub use client::{Client, poll_now};
pub use connection::{Connection, FdLeaseFuture, InProcessConnection, ProgramFdFuture};
pub use connector::Connector;
pub use files::{OpenedInode, WrittenRange};
pub use locate::{ExpectedLocation, FileLocation};
pub use node::{BackingFd, BackingLease, OnInvalidate};
pub use objects::Objects;
pub use path_cache::{KnownPaths, PathCache, PathText, WalkedPath};
pub use path_hint::PathHint;
pub use program_open::ProgramOpen;
pub use router::{nodes::Nodes, retry::RetryPolicy};

#[cfg(test)]
mod file_placement_test;
#[cfg(test)]
mod nodes_test;
#[cfg(test)]
mod object_fault_test;
#[cfg(test)]
mod object_test;
#[cfg(test)]
mod path_hint_test;
#[cfg(test)]
mod pool_test;
#[cfg(test)]
mod share_test;
#[cfg(test)]
mod split_test;
