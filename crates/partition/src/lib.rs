//! Layer 4: one partition's metadata as a pure state machine: entry in, answer and effects out.
//!
//! A [`Partition`] holds inodes, and the entries of its directories. It has no clock, no lock and
//! no I/O. The same entries give the same answers and the same state, so a partition can be saved,
//! replayed and replicated. The bytes of striped files are in an engine that the partition never
//! calls; it only says where they go.
//!
//! Modules for commands:
//! - `partition`: the state of one partition, and access to its inodes
//! - `entry`: entries, which change a partition, and their results
//! - `apply`: execution of entries, and dispatch of commands
//! - `snapshot`: the durable state as bytes
//! - `reply_cache`: reply cache for changes that may be resent
//! - `session_ranges`: set of sessions
//! - `memory_cost`: memory cost of metadata, and how much a command may add
//!
//! Modules for names:
//! - `directory`: entries of a directory, or of a fragment of one, ordered by cookie
//! - `names`: lookup, listing and creation
//! - `rename`: renames within this partition
//! - `unlink`: removal of names, inodes, directories and sessions; unfinished work
//! - `traverse`: permission checks on a path, and opens by name that are certainly allowed
//! - `object`: objects: entries that are put, got and deleted as a whole
//!
//! Modules for inodes and files:
//! - `inode`: attributes, opens, and the body of each type
//! - `rare_attributes`: rare attributes, which take one word in inodes that have none
//! - `xattr`: extended attributes, including ACLs
//! - `acl`: what new inodes inherit: group, permissions, placement
//! - `locks`: locks of one file: owners, ranges and conflicts
//! - `files`: open, read, write, truncate, and the move from inline to stripes
//! - `allocate`: allocating, punching, zeroing and searching ranges of a file
//! - `extent_file`: extent files, all of whose bytes are in one extent of a node
//! - `placement_request`: placement of bytes: the request for a file or directory, and the
//!   decision
//!
//! Modules for transactions over several partitions (intents):
//! - `intent`: prepare, commit, settle: this partition's part in a transaction
//! - `intents`: intents that the partition knows: prepared parts, their locks, decisions
//! - `transaction_parts`: parts of intents: preconditions and effects
//!
//! Modules for caches of kernels:
//! - `cache_grants`: cache grants: the state that kernels may cache, and the subscribers to notify
//! - `subscriber_ids`: subscribers as small numbers, and sets of them
//! - `inode_grants`: the grants of one inode
//! - `unlinked`: unlinked inodes that still exist because kernels know them
//! - `soft_state`: the soft state, which goes along when another node serves
//! - `transfer`: the state of a partition on its way to another node
//!
//! Invariants:
//! - A directory's entries are stored with its inode. Above a limit they are in fragments, which
//!   are directories of their own. A new file's inode is created in the partition of its entry.
//!   Create, stat, unlink, list, and a rename within one directory or fragment are therefore one
//!   command.
//! - A change of several partitions is an intent, a two-phase transaction: each partition checks
//!   its part, locks the targets and reserves space; one partition decides; then all apply the
//!   change or none. A locked target accepts no other change.
//! - A resent change (same session, same number) is answered from the reply cache and not repeated.
//! - Stripes are recorded with the inode before they are written, and forgotten after they are
//!   removed: none is ever leaked.
//!
//! A file's bytes are in one of three places, and move only to the right (an extent file's are in a
//! fourth, see the module `extent_file`):
//!
//! ```text
//!   Inline  --a write beyond 4 KiB-->  Spilling  --SpillDone-->  Striped
//!   (with the inode)                   (still with the inode;    (in stripes; a truncation is
//!                                       a client copies them)     finished before the file grows)
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the method of a command takes its fields, and may refuse it"
)]

mod acl;
mod allocate;
mod apply;
mod cache_grants;
mod directory;
mod entry;
mod extent_file;
mod files;
mod inode;
mod inode_grants;
mod intent;
mod intents;
mod locks;
mod memory_cost;
mod names;
mod object;
mod partition;
mod placement_request;
mod rare_attributes;
mod rename;
mod reply_cache;
mod session_ranges;
mod snapshot;
mod soft_state;
mod subscriber_ids;
mod transaction_parts;
mod transfer;
mod traverse;
mod unlink;
mod unlinked;
mod xattr;

pub use cache_grants::{CommandCaller, Invalidation};
pub use entry::{Applied, EntryBody, LogEntry, PartitionDelta, UnlinkedDecisions};
pub use extent_file::{Effects, ExtentHead};
pub use locks::{Holder, LOCKS_MAX};
pub use memory_cost::{ENTRY_BYTES, INODE_BYTES};
pub use partition::{Partition, SPLIT_ENTRIES, Settings};
pub use reply_cache::ReplyCache;
pub use session_ranges::SessionRanges;
pub use snapshot::{SnapshotError, SnapshotVersion};
pub use soft_state::{HostedBytes, SoftState};
pub use subscriber_ids::{SUBSCRIBER_WORDS, SubscriberId, SubscriberIds};
pub use transfer::PartitionTransfer;

#[cfg(test)]
mod acl_test;
#[cfg(test)]
mod cache_grants_test;
#[cfg(test)]
mod extent_file_test;
#[cfg(test)]
mod inode_test;
#[cfg(test)]
mod intent_test;
#[cfg(test)]
mod object_test;
#[cfg(test)]
mod partition_test;
#[cfg(test)]
mod placement_request_test;
#[cfg(test)]
mod snapshot_test;
#[cfg(test)]
mod traverse_test;
#[cfg(test)]
mod unlinked_test;
