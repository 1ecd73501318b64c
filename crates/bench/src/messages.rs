//! Messages between a worker pool and its workers: lines of JSON.

use crate::{BenchTarget, FileLayout};
use serde::{Deserialize, Serialize};

/// Command to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerCommand {
    /// The target to work on.
    pub target: BenchTarget,
    /// Directory in the target to work in; the worker pool makes and removes it.
    pub directory: String,
    /// Number of the worker, from 0.
    pub worker: u32,
    /// The work to do.
    pub work: Work,
}

/// Kinds of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Files written in chunks, then read. Phases `write`, `read` and `remove`.
    Filecopy(CopySpec),
    /// Objects put and got. Phases `fill`, `put`, `get` and `remove`.
    Objects {
        /// Bytes of each value.
        bytes: u64,
        /// Number of values.
        count: u32,
        /// Number of requests in flight.
        under_way: u32,
    },
    /// Metadata operations. Phases as in [`crate::FileLayout::phases`].
    Metadata {
        /// Layout of the files.
        layout: FileLayout,
        /// Number of files.
        files: u32,
    },
}

/// The copies of each worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopySpec {
    /// Number of files, copied one after the other.
    pub files: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of one call, at most 1 GiB.
    pub chunk_bytes: u64,
    /// Node of the files; `None`: default placement.
    pub placement: Option<FilePlacement>,
    /// Bytes per second that the worker is limited to.
    pub rate: Option<f64>,
}

/// Location of a worker's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePlacement {
    /// At the node of the worker's host.
    Local,
    /// At the node with the next id; at the node of the worker's host if there is no other.
    Remote,
}

/// Message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    /// The worker is ready to begin.
    Ready,
    /// A phase is done.
    Done(WorkerPhase),
    /// The worker cannot go on, and ends.
    Failed(String),
}

/// Result of a phase for one worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WorkerPhase {
    /// Time of the beginning, in seconds of the machine's monotonic clock.
    pub began: f64,
    /// Time of the end.
    pub ended: f64,
    /// Processor seconds that the worker used.
    pub cpu: f64,
}
