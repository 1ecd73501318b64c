//! Layer 7: a node's part in the management of its pool: which node serves which partition, as
//! nodes join and leave.
//!
//! ```text
//!   every node   Report, each second ---->  leader: Coordinator  --propose-->  ClusterLog (1 or 3
//! nodes)
//!                <---- the newer map            | StartMove, CancelMove, StopNode
//!   source       <---- Start -------------------'
//!     Node::send_partition --> target: is prepared ---- Report --> leader: Commit
//!   source, target <---- Learn: the partition's next entry -------'
//! ```
//!
//! - `manager`: the manager of a node: what it reports, does and answers
//! - `leader`: what it does while it leads
//! - `message`: the messages between managers, and from tools
//! - `peers`: connections to the managers of other nodes
//! - `remote_manager`: the managers of a pool, as a tool sees them
//!
//! Invariants:
//! - What a leader remembers beside the log may be lost with it: the next one learns it from
//!   reports.
//! - A source resumes only by the leader's word once its target may be ready.
#![forbid(unsafe_code)]

mod leader;
mod manager;
mod message;
mod peers;
mod remote_manager;

pub use manager::{Manager, RunningManager};
pub use message::{ClusterStatus, ElasticReport, NodeActivity, ReportedUsage};
pub use node::{ClientTraffic, MoveProgress, NodePin, PinKind, PinList, PinProcess};
pub use remote_manager::{ManagerError, RemoteManager};
