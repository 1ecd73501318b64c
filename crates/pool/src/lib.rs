//! Layer 4: pools: the pool file, starting and stopping nodes, and connecting clients.
//!
//! ```text
//!   start ---- Order, Deal, Keep ----> attend    one for each node: local, over SSH or by srun
//!     |  <----- Here, Ready ------------ |
//!     v                                  v
//!   PoolFile (addresses, token)       Member: node and its sockets, until stopped
//!     |
//!   connect, connect_by_hand (a client)   roll (node status)   stop (end all nodes)
//!     ^
//!   Door (local endpoint of an embedded pool, for programs of this host)
//! ```
//!
//! - `file`: the pool file: addresses of the nodes, and the credentials
//! - `trusted`: ownership checks for pool files
//! - `begin`: start lock: one starter at a time for a pool file
//! - `start`: the start of a pool: all its nodes, or none
//! - `launch`: processes that become nodes: on this machine, over SSH, or by `srun`
//! - `order`: bootstrap messages between the starter and a node
//! - `serve`: a node's process: bootstrap, service, end
//! - `process`: identity of a node's process
//! - `roll`: status of the nodes: which ones answer, and their usage
//! - `stop`: the end of every node, and removal of what the start left
//! - `connect`: connection of a client to the pool of a pool file
//! - `ended`: detection that a connected pool has ended
//! - `embedded`: embedded pools: nodes in the memory of this process
//! - `door`: local endpoint of an embedded pool: a socket and a pool file
//!
//! Invariants:
//! - A start is all or nothing: no usable pool file exists until every node is ready, and a node
//!   whose starter has died exits.
//! - The pool file is private to its owner: a process that can read it has full access to the pool.
//! - Nodes stop on a request over their socket, so it does not matter how they were started.
#![forbid(unsafe_code)]

mod begin;
mod connect;
mod door;
mod embedded;
mod ended;
mod file;
mod launch;
mod order;
mod process;
mod roll;
mod serve;
mod start;
mod stop;
mod trusted;

pub use connect::{NoWay, carrier, connect, connect_by_hand, connect_with, runtime, way};
pub use door::Door;
pub use embedded::{embedded, embedded_client, embedded_node};
pub use ended::ConnectedPool;
pub use file::{NodeEntry, PoolFile};
pub use launch::Places;
pub use order::Memory;
pub use roll::{Present, State, roll};
pub use serve::{Ground, Member, Pick, Unseated, attend};
pub use start::{Started, Wanted, start};
pub use stop::{Stopped, stop};
pub use transport::Reactor;
