//! Layer 8: pools: the pool file, starting and stopping nodes, and connecting clients.
//!
//! ```text
//!   start -- BootstrapPlan, NodeEntries, Detach --> run_node   one for each node: local, over SSH
//!     |  <---------- Listening, Ready ---------------- |       or by srun
//!     v                                                v
//!   PoolFile (addresses, token)               RunningNode: node and its sockets, until stopped
//!     |
//!   connect, connect_short_lived (a client)   query_status (of nodes)   stop (end all nodes)
//!     ^
//!   LocalEndpoint (of an embedded pool, for programs of this host)
//! ```
//!
//! - `file`: the pool file: addresses of the nodes, and the credentials
//! - `ownership`: ownership checks for pool files
//! - `start_lock`: start lock: one starter at a time for a pool file
//! - `start`: the start of a pool: all its nodes, or none
//! - `launch`: processes that become nodes: on this machine, over SSH, or by `srun`
//! - `bootstrap`: bootstrap messages between the starter and a node
//! - `node_process`: a node's process: bootstrap, service, end
//! - `process`: identity of a node's process
//! - `status`: status of the nodes: which ones answer, and their usage
//! - `stop`: the end of every node, and removal of what the start left
//! - `resize`: growing and shrinking of a pool that runs
//! - `pins`: what the hosts have at their nodes, because of which drained nodes live on
//! - `observer`: what a pool does now, asked again and again
//! - `elastic_driver`: growing and shrinking without being asked, by a policy
//! - `provisioner`: what starts and ends machines for that: processes of this machine;
//!   `command_provisioner`: commands
//! - `owned_pool`: pools whose nodes end with this process
//! - `join`: this machine joins a pool that runs
//! - `connect`: connection of a client to the pool of a pool file
//! - `connected_pool`: detection that a connected pool has ended
//! - `embedded`: embedded pools: nodes in the memory of this process
//! - `metrics_server`: metrics of a node over HTTP
//! - `local_endpoint`: local endpoint of an embedded pool: a socket and a pool file
//!
//! Invariants:
//! - A start is all or nothing: no usable pool file exists until every node is ready, and a node
//!   whose starter has died exits.
//! - The pool file is private to its owner: a process that can read it has full access to the pool.
//! - Nodes stop on a request over their socket, so it does not matter how they were started.
#![forbid(unsafe_code)]

mod bootstrap;
mod command_provisioner;
mod connect;
mod connected_pool;
mod elastic_driver;
mod embedded;
mod file;
mod join;
mod launch;
mod local_endpoint;
mod metrics_server;
mod node_process;
mod observer;
mod owned_pool;
mod ownership;
mod pins;
mod process;
mod provisioner;
mod resize;
mod start;
mod start_lock;
mod status;
mod stop;

#[cfg(test)]
mod bootstrap_test;
#[cfg(test)]
mod connect_test;
#[cfg(test)]
mod start_test;

pub use bootstrap::Memory;
pub use cluster::{ElasticPolicy, ForeseenUse, InvalidScaleRule, NodeLimits, NodePhase};
pub use command_provisioner::{CommandProvisioner, MachineCommands};
pub use connect::{
    ConnectError, best_address, connect, connect_short_lived, connect_with_reactor, io_runtime, runtime,
};
pub use connected_pool::ConnectedPool;
pub use elastic_driver::{ElasticDriver, ElasticEvent, ElasticSpec, Foresight};
pub use embedded::{embedded, embedded_client, embedded_node};
pub use file::{NodeEntry, PoolFile};
pub use join::{JoinSpec, JoinedNode, admit_linked, dismiss_linked, join, join_linked};
pub use launch::{BootstrapLink, LaunchTarget, LinkedHost};
pub use local_endpoint::LocalEndpoint;
pub use manager::{
    ClientTraffic, ClusterStatus, ElasticReport, MoveProgress, NodeActivity, NodePin, PinKind, PinList, PinProcess,
    ReportedUsage,
};
pub use metrics_server::{MetricsListener, MetricsServer};
pub use node_process::{BootstrapError, HostEnv, NodeSelector, RunningNode, detach, run_node};
pub use observer::{ObservedNode, ObservedPool, PoolObserver};
pub use owned_pool::{OwnedPool, OwnedPoolSpec};
pub use pins::{NodePins, query_pins};
pub use provisioner::{LocalProvisioner, Provisioner};
pub use resize::{ResizeProgress, Resized, ShrinkTarget, cluster_status, grow, shrink};
pub use start::{PoolSpec, StartedPool, start, start_linked};
pub use status::{NodeState, NodeStatus, query_status};
pub use stop::{StopResult, stop};
pub use transport::Reactor;
