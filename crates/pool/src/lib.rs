//! Layer 4: pools: the file that says where one is, how its nodes start and end, the way in.
//!
//! ```text
//!   start ---- Order, deal, keep ----> serve     one for each node, here, over SSH or by srun
//!     |  <----- here, ready ------------ |
//!     v                                  v
//!   PoolFile (who is where, token)     Member: node, its sockets, until it is asked to end
//!     |
//!   connect, connect_by_hand (a client)   roll (who answers)   stop (all end)
//!     ^
//!   Door (an embedded pool lets programs of this host in)
//! ```
//!
//! Invariants:
//! - Until all nodes are ready there is no pool file that can be used, and a node whose starter is gone ends: nothing is half started.
//! - The file is its owner's alone: who can read it may do everything with the pool.
//! - Nodes end when they are asked to over their socket, so it does not matter who started them and how.
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
pub use link::Hand;
pub use order::Memory;
pub use roll::{Present, State, roll};
pub use serve::{Ground, Member, Pick, Unseated, attend};
pub use start::{Started, Wanted, start};
pub use stop::{Stopped, stop};
