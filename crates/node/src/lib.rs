//! Layer 3: a node: partitions and an engine behind requests.
//!
//! A [`Node`] takes [`wire::Request`]s and answers each with a [`Reply`]. Its partitions are pure
//! state machines. The node adds what they lack: a lock for each partition, the clock, the engine's
//! space, waiting, and files of the host.
//!
//! Modules for requests:
//! - `node`: a node's state, and the entry point for requests
//! - `meta`: commands for a partition, with space reserved before each
//! - `reply`: an answer that is ready, or the future of one
//! - `held`: the local partitions, which are the node's share of the pool's
//! - `object`: object operations: bytes, path walks, removal of the stripes of deleted files
//! - `host`: bytes of bound files, read from files of the host
//! - `settings`: settings of a node
//!
//! Modules for waiting and time:
//! - `space`: waiting for space in a full pool, with limits of time and number
//! - `locks`: waiting for file locks of programs, in order
//! - `timer`: timers for waiting requests and for pauses between tries
//! - `clock`: the one clock; its timestamps agree with those that the kernel gives to files
//!
//! Modules for extent files:
//! - `whole`: extent slots: the file in each slot, its users, and its return to the stock
//! - `whole_calls`: operations on extents
//! - `fold`: demotion of small, closed extent files: their bytes move to their inodes
//! - `thinning`: freeing of unwritten parts of huge pages of closed extent files
//! - `backing`: pinned descriptors of extent files, for frontends
//!
//! Modules for subscribers (sessions whose kernels cache answers):
//! - `grants`: the set of subscribers, and the invalidations of the partitions that concern each
//! - `watch`: a subscriber's threads, which deliver invalidations to its callback, and the acks
//! - `lane`: the invalidation queue of one thread
//! - `sync`: locks and atomics of `grants` and `lane`, in a form that a model checker can replace
//!
//! Modules for the end of sessions and of programs:
//! - `touched`: the end of a session, and an index of the partitions in which it has left state
//! - `strays`: stripes that an ended session wrote here and that belong to no file
//! - `marks`: open leases: opens of programs that have a descriptor of their own
//! - `owners`: owners of locks that outlive sessions: processes of this host, and open leases
//!
//! Invariants:
//! - A request is answered at once, unless it must wait for space, for a file lock or for
//!   cache-invalidation acks. A request that waits for space is woken when space is freed, and is
//!   refused with [`wire::Refusal::NoSpace`] after [`Settings::space_wait`]. Dropping its future
//!   leaves nothing behind.
//! - Commands that remove something never wait for space.
//! - No lock of a partition is held while bytes are copied, host files are read, or the engine
//!   frees space.
//!
//! A node knows neither paths nor open files: `vfs` does. It needs no async runtime.
#![forbid(unsafe_code)]

mod backing;
mod clock;
mod fold;
mod grants;
mod held;
mod host;
mod lane;
mod locks;
mod marks;
mod meta;
mod node;
mod object;
mod owners;
mod reply;
mod settings;
mod space;
mod strays;
mod sync;
mod thinning;
mod timer;
mod touched;
mod watch;
mod whole;
mod whole_calls;

pub use backing::{Backing, Loan};
pub use node::{Node, StopHook, embedded, member};
pub use reply::Reply;
pub use settings::Settings;
pub use strays::Question;
pub use timer::{Entered, LocalTime, SimulatedTime, Sleep, now, sleep_until};
pub use watch::Hear;

#[cfg(test)]
mod node_test;
