//! Status of a worker: what a node does beside requests.

use serde::{Deserialize, Serialize};

/// Status of one worker of a node, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Name of the worker.
    pub name: String,
    /// Turns that are under way now.
    pub running: u64,
    /// Turns that have ended. Most find nothing to do.
    pub turns: u64,
    /// Things that were done: files, leases, sessions.
    pub done: u64,
    /// Turns that failed.
    pub failed: u64,
    /// The last failure.
    pub last_error: Option<String>,
    /// Things that wait to be done, or to be looked at again.
    pub backlog: u64,
}
