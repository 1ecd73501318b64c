//! What a crew and its workers say to each other: lines of JSON.

use crate::{Layout, Target};
use serde::{Deserialize, Serialize};

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where.
    pub target: Target,
    /// Below this folder there, which is made beforehand and removed afterwards by the crew.
    pub folder: String,
    /// Which worker it is, from 0.
    pub worker: u32,
    /// What.
    pub work: Work,
}

/// Kinds of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Phases `write`, `read` and `remove`: whole files of so many bytes, by chunks; the files read are those that were written.
    Filecopy(Copies),
    /// Phases `fill`, `put` and `get`: as many values as stand here, so many under way at once; `remove`.
    Objects {
        /// Of each value.
        bytes: u64,
        /// How many.
        count: u32,
        /// At once.
        under_way: u32,
    },
    /// Phases as [`crate::Metadata`] names them.
    Metadata {
        /// Where the files lie.
        layout: Layout,
        /// How many.
        files: u32,
    },
}

/// What each worker copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Copies {
    /// How many files, one after the other.
    pub files: u32,
    /// Of each.
    pub file_bytes: u64,
    /// Of one call, a GiB at most.
    pub chunk_bytes: u64,
    /// At which node they are to lie; none where that is as usual.
    pub near: Option<Near>,
    /// The worker holds itself to so many bytes a second.
    pub rate: Option<f64>,
}

/// Where a worker's files lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Near {
    /// At the node of its host.
    Local,
    /// At the next one, by ids; at that of its host if there is no other.
    Remote,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// It can begin.
    Ready,
    /// A phase is done.
    Done(Done),
    /// It cannot go on, and ends.
    Failed(String),
}

/// How a phase went for one worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Done {
    /// When it began, seconds of the machine's monotonic clock.
    pub began: f64,
    /// When it ended.
    pub ended: f64,
    /// Seconds of processors that the worker used for it.
    pub cpu: f64,
}
