//! Layer 6: a reactor: client connections that the threads that wait for replies drive themselves.
//!
//! It is for a process that is not ours: it starts no thread, uses no signal, keeps its descriptors
//! at high numbers, and survives a fork. It does not know what travels on a connection: its user
//! implements [`Driven`] over [`RawSocket`]s.
//!
//! ```text
//!   thread A --block_on--> leader: polls or sleeps in epoll --> Driven::poll of each ready one
//!   thread B --block_on--> follower: sleeps on a futex until woken, or until it becomes the leader
//!   thread C --poll, poll_io--> an event loop of its own, which watches Reactor::descriptor
//! ```
//!
//! Modules:
//! - `reactor`: the [`Reactor`]; `driven_connection`: a connection of it
//! - `leader_follower`: the threads that wait; `fork_lock`: keeps them out during a fork
//! - `spin_policy`: whether a thread that waits busy-polls or sleeps, also of nodes
//! - `raw_socket`: sockets and the epoll instance; `nonblocking`: calls on them
//! - `reserved_fd`: descriptors that a program does not expect
//!
//! Invariants:
//! - Futures over the connections make progress only while some thread waits with the reactor.
//! - One thread at a time drives a connection.
//! - A forked child sends nothing over its parent's connections.
#![forbid(unsafe_code)]

mod driven_connection;
mod fork_lock;
mod leader_follower;
pub mod nonblocking;
mod raw_socket;
mod reactor;
mod reserved_fd;
mod spin_policy;

pub use driven_connection::{Driven, Input};
pub use raw_socket::{PollEntry, RawSocket};
pub use reactor::Reactor;
pub use reserved_fd::{RESERVED_FDS, ReservedFd, is_reserved, move_high};
pub use spin_policy::{SpinPolicy, SpinStep};
