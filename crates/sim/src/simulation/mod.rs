//! Deterministic simulation of a pool that grows and shrinks while clients use it, on one thread,
//! over a network and a clock that a seed controls.
//!
//! What is real: clients, nodes, partitions, engines, the moves of partitions, and who decides on
//! them (`cluster`). What stands in: the network, and the log by which the managers agree
//! (`managers`); it is late, doubles entries, and loses its leader.
//!
//! ```text
//!   world: a seed --> clients, a script of joins, drains, deaths and cuts, the end
//!     byte_clients, names clients --network--> sim_node (the real node, and what a process does
//!       beside it) --ordered_link--> sim_node
//!     sim_node --reports--> managers --starts of moves, entries of the map--> sim_node
//!   promises: a checker for each
//! ```
//!
//! - `executor`: tasks, one random step at a time, and their clock
//! - `network`: hosts; latency, bandwidth, cuts, deaths; what happened in number
//! - `connection`: a client's connection, which loses, doubles and delays
//! - `ordered_link`: a connection that keeps the order of its requests, or breaks
//! - `sim_node`: a node with its workers, its reports, and its hand in moves
//! - `managers`: the leader, and the log's stand-in
//! - `byte_files`, `byte_clients`: files with what reads of them may return, and those who use them
//! - `causes`: what clients have in common, and for which causes an operation may fail
//! - `course`: what happens to the nodes
//! - `world`: all of it together, from the first client to the end
//! - `promises`: the checkers
//!
//! Not here: kernels that cache. They run on threads of a node, so the seed would not decide
//! (`hand_over_test`, `grants_test`).

pub mod byte_clients;
pub mod byte_files;
pub mod causes;
pub mod connection;
pub mod course;
pub mod executor;
pub mod managers;
pub mod network;
pub mod ordered_link;
pub mod promises;
pub mod sim_node;
pub mod world;
