//! Layer 8: tests only: simulation, linearizability checkers and models of the pool's file system.
//!
//! No other crate depends on this one, except tests. The library has the models and the checkers;
//! the unit tests run them against `partition`, `node`, `client` and `vfs`.
//!
//! - `clients`: clients whose messages interleave by a seed
//! - `linearizability`: the search for an order of concurrent operations that a model allows
//! - `names_model`: model of names, for the checker
//! - `object_model`: model of objects, for the checker
//! - `reference_fs`: a reference file system, for one client at a time
//! - `kernel_model`: model of a kernel that caches names, attributes and bytes
//! - `pool`: pools in this process
//! - `simulation`: pools that grow and shrink under clients, over a network and a clock that a seed
//!   controls
//! - `replicas`: replicas of partitions, which follow the log of a pool's nodes
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

pub mod clients;
pub mod kernel_model;
pub mod linearizability;
pub mod names_model;
pub mod object_model;
pub mod pool;
pub mod reference_fs;
#[cfg(test)]
mod replicas;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod evacuation_test;
#[cfg(test)]
mod grants_test;
#[cfg(test)]
mod hand_over_test;
#[cfg(test)]
mod hosted_test;
#[cfg(test)]
mod leave_test;
#[cfg(test)]
mod linear_test;
#[cfg(test)]
mod message_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod object_linear_test;
#[cfg(test)]
mod replay_test;
#[cfg(test)]
mod semantics_test;
#[cfg(test)]
mod sim_test;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod threads_test;
#[cfg(test)]
mod unlinked_test;
