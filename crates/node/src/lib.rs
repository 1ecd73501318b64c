//! Layer 5: a node: partitions and an engine behind requests.
//!
//! A [`Node`] takes [`wire::Request`]s and answers each with a [`ReplyFuture`]. Its partitions are
//! pure state machines. The node adds what they lack: a lock for each partition, the clock, the
//! engine's space, waiting, and files of the host.
//!
//! Modules for requests:
//! - `node`: a node's state, and the entry point for requests
//! - `execute`: commands for a partition, with space reserved before each
//! - `reply_future`: an answer that is ready, or the future of one
//! - `partitions`: the local partitions, which are the node's share of the pool's
//! - `stripes`: bytes of one stripe, of an engine that may be slow
//! - `object`: object operations: bytes, path walks, removal of the stripes of deleted files
//! - `host_files`: bytes of bound files, read from files of the host
//! - `hosted`: files whose bytes are here and whose inodes are elsewhere; work for other nodes
//! - `settings`: settings of a node
//! - `metrics`, `observe`: metrics, and spans of requests with their ids
//!
//! Modules for waiting and time:
//! - `space`: waiting for space in a full pool, with limits of time and number
//! - `lock_queue`: waiting for file locks of programs, in order
//! - `timer`: timers for waiting requests and for pauses between tries
//! - `clock`: the one clock; its timestamps agree with those that the kernel gives to files
//!
//! Modules for extent files:
//! - `extents`: extent slots: the file in each slot, its users, and its return to the stock
//! - `extent_ops`: operations on extents
//! - `demotion`: demotion of small, closed extent files: their bytes move to their inodes
//! - `thinning`: freeing of unwritten parts of huge pages of closed extent files
//! - `backing`: pinned descriptors of extent files, for frontends
//!
//! Modules for subscribers (sessions whose kernels cache answers):
//! - `subscriber_set`: the set of subscribers, and the invalidations of the partitions that concern
//!   each
//! - `subscriber_index`: the subscribers' sessions and numbers, readable without a lock
//! - `subscriber`: a subscriber's threads, which deliver invalidations to its callback, and the
//!   acks
//! - `invalidation_sender`: the invalidation queue of one thread
//! - `loom_shim`: locks and atomics of `subscriber_set`, `subscriber_index` and
//!   `invalidation_sender`, in a form that a model checker can replace
//!
//! Modules for work beside requests:
//! - `background`: what a worker is, the list of all workers, and the record of what each did
//!
//! Modules for moves of partitions between nodes:
//! - `map_entries`: the node's knowledge of the map: requests that are served, refused, or wait
//! - `migration`: the move of a partition: its source, its target, changes that are forwarded
//!
//! Modules for those who ask what is here:
//! - `pins`: what the host has at the node, because of which it is needed whatever it serves
//! - `connected_clients`, `host_processes`: clients and programs that have something of it
//!
//! Modules for the end of sessions and of programs:
//! - `session_index`: the end of a session, and an index of the partitions in which it has left
//!   state
//! - `strays`: stripes that an ended session wrote here and that belong to no file
//! - `open_leases`: open leases: opens of programs that have a descriptor of their own
//! - `process_liveness`: owners of locks that outlive sessions: processes of this host, and open
//!   leases
//!
//! Invariants:
//! - A request is answered at once, unless it must wait for a slow engine, for space, for a file
//!   lock or for cache-invalidation acks. A request that waits for space is woken when space is
//!   freed, and is refused with [`wire::Refusal::NoSpace`] after [`NodeSettings::space_wait`].
//!   Dropping its future leaves nothing behind.
//! - Commands that remove something never wait for space.
//! - No lock of a partition is held while bytes are copied, host files are read, or the engine
//!   completes an operation or frees space. Submitting one under the lock orders it before later
//!   ones on that stripe.
//!
//! A node knows neither paths nor open files: `vfs` does. It needs no async runtime.
#![forbid(unsafe_code)]

mod awaited_sessions;
mod background;
mod backing;
mod clock;
mod connected_clients;
mod demotion;
mod entry_log;
mod evacuation;
mod execute;
mod extent_ops;
mod extents;
mod host_files;
mod host_processes;
mod hosted;
mod invalidation_sender;
mod lock_queue;
mod loom_shim;
mod map_entries;
mod metrics;
mod migration;
mod node;
mod object;
mod observe;
mod open_leases;
mod partitions;
mod pins;
mod process_liveness;
mod reply_future;
mod session_index;
mod settings;
mod space;
mod strays;
mod stripes;
mod subscriber;
mod subscriber_index;
mod subscriber_set;
mod thinning;
mod timer;

pub use background::{BackgroundWorker, WorkerKind, WorkerRecord, run_worker};
pub use backing::{BackingFd, BackingLease};
pub use connected_clients::{ClientRegistration, ClientTraffic};
pub use entry_log::EntryLog;
pub use evacuation::{FrozenEvacuation, HostedEvacuation};
pub use hosted::{HostWork, HostedDemotion};
pub use metrics::MetricsRecorder;
pub use migration::{LocalLoad, MoveError, MoveLink, MoveProgress};
pub use node::{ManagerHook, ManagerState, ManagerStateHook, Node, StopHook, embedded};
pub use partition::HostedBytes;
pub use pins::{NodePin, PinKind, PinList, PinProcess};
pub use reply_future::ReplyFuture;
pub use settings::NodeSettings;
pub use strays::StrayQuery;
pub use subscriber::OnInvalidate;
pub use timer::{LocalTime, SimulatedTime, Sleep, TimerScope, now, sleep_until};

#[cfg(test)]
mod metrics_test;
#[cfg(test)]
mod node_test;
#[cfg(test)]
mod stripes_test;
#[cfg(test)]
mod subscriber_set_test;
