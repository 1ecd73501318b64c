//! Runs on a cluster: the hosts of a Dask cluster form a pool and execute attempts.
//!
//! ```text
//!  run -- carrier (Python, a client of Dask) -- plug-in in each worker -- agent of each host
//!   |                                                                      |  HostRunner
//!   +---------------- the pool: a node on each host, the first beside the run ----+
//! ```
//!
//! - `dask_carrier`: the process that passes lines, and its messages (docs/formats/carrier.md)
//! - `messages`: what the run and an agent say to each other
//! - `agent_link`: the dialogue in which an agent starts
//! - `form`: forms the pool of the hosts that are there; `join`: joins one that waits for its run
//! - `first_agent`: the agent of the first node; `former_agents`: those of an earlier pool
//! - `cluster_executor`, `executor_host`: gives orders, and watches leases
//! - `mailbox`: the same messages through the pool while no worker carries them
//! - `agent`, `agent_service`: the other side: one process on each host
//! - `host_inputs`: inputs that a host has itself
//! - `input_copies`, `copy_table`: copies of inputs at a host's node
//! - `tool_trees`: tools' files on their way into the pool
//! - `host_tools`, `tree_copy`: tools' programs and files on a host

mod agent;
mod agent_link;
mod agent_service;
mod beat_clock;
mod cluster_executor;
mod cluster_provisioner;
mod copy_table;
mod dask_carrier;
mod executor_host;
mod first_agent;
mod form;
mod former_agents;
mod host_inputs;
mod host_tools;
mod input_copies;
mod join;
mod mailbox;
mod messages;
mod tool_trees;
mod tree_copy;

pub use agent::run_agent;
pub use cluster_executor::ClusterExecutor;
pub use cluster_provisioner::{BoardHandle, ClusterProvisioner};
pub use dask_carrier::CarrierHandle;
pub use form::{BeforePool, FormedCluster, OwnTools, form};
pub use former_agents::FormerAgents;
pub use host_tools::HostTools;
pub use input_copies::InputCopies;
pub use join::join;
pub use messages::end_line;
pub use tool_trees::ToolTrees;
