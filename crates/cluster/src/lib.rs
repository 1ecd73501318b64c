//! Layer 2: which node serves which partition as a pool grows and shrinks. Pure deciders: loads and
//! times come in as values, and what comes out is a plan that others carry out.
//!
//! ```text
//!   capacities --> shares: partitions of each node --> move plan: which partitions go where
//!   usage, foresight, time --> elastic policy: add nodes, remove nodes, or stay, and why
//! ```
//!
//! - `cluster_state`: nodes, map and moves, as the managers agree on them by a log
//! - `members`: which nodes are the managers
//! - `coordinator`: the leader of the managers: which moves begin, which are committed
//! - `shares`: the number of partitions of each node, by its capacity
//! - `move_plan`: the fewest moves that lead from a map to these numbers
//! - `scale_rule`: the rules for adding and removing nodes, with their names
//! - `elastic_policy`: a decision from the usage of the pool, by these rules
//!
//! Invariants:
//! - Each node has the whole number below or above its exact share.
//! - No partition is moved twice by one plan, and none between nodes that both stay and have what
//!   they should.
//! - Nodes are removed only if the others hold the data and do not have to be added again for it.
//!
//! Not here: connections, copies of bytes, and who decides when two would.
#![forbid(unsafe_code)]

mod cluster_state;
mod coordinator;
mod elastic_policy;
mod members;
mod move_plan;
mod scale_rule;
mod shares;

pub use cluster_state::{
    ClusterAnswer, ClusterEntry, ClusterNode, ClusterRefusal, ClusterState, InvalidClusterState, NodePhase,
};
pub use coordinator::{ClusterCommand, ClusterEvent, Coordinator, CoordinatorSettings, NodeReport};
pub use elastic_policy::{ElasticPolicy, ForeseenUse, MemoryUse, NodeLimits, ScaleDecision, ScaleReason, StayReason};
pub use members::wanted_members;
pub use move_plan::{PartitionLoad, PartitionMove, plan_moves};
pub use scale_rule::{InvalidScaleRule, ScaleAmount, ScaleRule};
pub use shares::partition_shares;
