//! Layer 0: where things live: file ids, partitions, the partition map.
//!
//! Placement is computed in two steps, without asking any node. First, each object has a
//! **partition**: a file's metadata by its [`FileId`], a stripe by its file's [`Layout`]. Second,
//! the [`PartitionMap`] names the node that holds the partition. The first step gives the same
//! result for the life of the pool. The second may change at any time; the [`Epoch`] of a map tells
//! old maps from new ones. This crate uses no socket, clock or random source.
//!
//! Modules:
//! - `file`: file ids
//! - `fragment`: fragments of a split directory
//! - `home`: partitions of new files and directories
//! - `policy`: placement requests of users: a policy, a stripe size
//! - `layout`: where the stripes of one file lie
//! - `stripe`: the partition of a stripe
//! - `map`: the partition map and its epoch
//! - `hasher`: a fast hasher for sequential numbers
#![forbid(unsafe_code)]

mod file;
mod fragment;
mod hasher;
mod home;
mod layout;
mod map;
mod policy;
mod stripe;

pub use file::{FileId, ParseFileIdError};
pub use fragment::{FRAGMENT_BITS, FRAGMENTS, fragment_of, fragment_partition, name_hash};
pub use hasher::{BuildNumberHasher, NumberHasher};
pub use home::{directory_partition, single_partition};
pub use layout::{Distribution, Layout, PlacementDecision};
pub use map::{
    Epoch, InvalidPartitionCount, NodeId, PartitionEntry, PartitionId, PartitionMap, PartitionReplica, ReplicaState,
};
pub use policy::{InvalidPlacementSpec, PlacementSpec, Policy, StripeSize};
pub use stripe::{StripeNo, stripe_partition};

/// The most partitions that a pool can have: as many as the 16 partition bits of a [`FileId`] can
/// name.
pub const PARTITIONS_MAX: u32 = 1 << 16;
