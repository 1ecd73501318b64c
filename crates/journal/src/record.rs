//! The lines of a journal after the first: what happened, and when.

use flow::{DataId, TaskId};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A record and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedRecord {
    /// Milliseconds since the start of the run; those of a resumed run go on after the first one's.
    #[serde(rename = "t")]
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub record: JournalRecord,
}

/// What identifies the state of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Length in bytes.
    pub bytes: u64,
    /// Time of its last change, in nanoseconds since 1970-01-01 UTC.
    pub changed_ns: i64,
}

impl FileIdentity {
    /// The identity that a file has now.
    pub fn of(metadata: &Metadata) -> Self {
        let changed_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { bytes: metadata.len(), changed_ns }
    }
}

/// An agent of a run on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentTrace {
    /// Path of its socket on its host.
    pub socket: PathBuf,
    /// Number of the pool's node that it holds; `None` if its host only computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JournalRecord {
    /// An input of the workflow, as it was at the start, or when the workflow grew.
    Input {
        /// The member.
        data: DataId,
        /// Its file.
        #[serde(flatten)]
        file: FileIdentity,
    },
    /// The program of a tool, as it was at the start.
    Program {
        /// Name of the tool.
        tool: String,
        /// Path of the program.
        path: String,
        /// The program's file.
        #[serde(flatten)]
        file: FileIdentity,
    },
    /// The workflow grew.
    Grew {
        /// Number of tasks that were added.
        tasks: u32,
        /// The addition, as `flow::growth_to_json` writes it.
        growth: String,
    },
    /// The hash of an input's content.
    InputHashed {
        /// The member.
        data: DataId,
        /// BLAKE3 of its bytes in hexadecimal.
        hash: String,
    },
    /// The hash of a tool: its declaration, its files and its program.
    ToolHashed {
        /// Name of the tool.
        tool: String,
        /// BLAKE3 in hexadecimal.
        hash: String,
    },
    /// Results of another run stand in for a task, which is done.
    Reused {
        /// The task.
        task: TaskId,
        /// Name of the other run.
        from: String,
        /// The data that it would write, each with its bytes.
        wrote: Vec<(DataId, u64)>,
    },
    /// A worker takes tasks from now on.
    WorkerJoined {
        /// Number of the worker.
        worker: u32,
        /// Name of its host.
        name: String,
        /// Its slots.
        slots: u32,
        /// The agent of its host; `None` for a run on one host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentTrace>,
    },
    /// The pool of a run on a cluster was formed, and workers follow. An earlier one is gone with
    /// all of its data, and so are its workers.
    PoolFormed {
        /// The agent of the first node, on the host of the run.
        first: AgentTrace,
    },
    /// A worker takes more tasks at once than before.
    WorkerResized {
        /// Number of the worker.
        worker: u32,
        /// Its slots.
        slots: u32,
    },
    /// A worker is gone, and so are its attempts.
    WorkerLost {
        /// Number of the worker.
        worker: u32,
    },
    /// An attempt started.
    Started {
        /// The task.
        task: TaskId,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The worker that runs it.
        worker: u32,
        /// Its slot there.
        slot: u32,
        /// Why the task was chosen and its worker too: a name of the scheduler's.
        reason: String,
        /// Bytes of its inputs that are at the worker's place.
        near: u64,
        /// Bytes of its inputs that are elsewhere.
        far: u64,
        /// Number of the node at which its directory is; `None` for a run on one host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u32>,
    },
    /// An attempt succeeded, and the task is done.
    Done {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
        /// Milliseconds from the order to the start of the process.
        prepared_ms: u64,
        /// Milliseconds that the process ran.
        ran_ms: u64,
        /// The data that it wrote, each with its bytes. It is at the attempt's worker.
        wrote: Vec<(DataId, u64)>,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
        /// Milliseconds from the order to the start of the process.
        prepared_ms: u64,
        /// Milliseconds that the process ran.
        ran_ms: u64,
        /// The reason, for people.
        why: String,
    },
    /// The task whose attempt failed waits for another one.
    Retried {
        /// The task.
        task: TaskId,
    },
    /// The task has failed for good.
    Failed {
        /// The task.
        task: TaskId,
        /// The reason, for people.
        why: String,
    },
    /// A task that was done runs again, since data that it wrote is gone and needed.
    Again {
        /// The task.
        task: TaskId,
    },
    /// A datum was removed from the pool.
    Dropped {
        /// The datum.
        data: DataId,
    },
    /// The last copy of a datum is lost.
    Lost {
        /// The datum.
        data: DataId,
    },
    /// A datum was written below the directory for outputs, completely.
    Exported {
        /// The datum.
        data: DataId,
        /// Path of the file, absolute.
        path: String,
        /// Its length.
        bytes: u64,
        /// BLAKE3 of its bytes in hexadecimal.
        hash: String,
    },
    /// The fill level of the pool.
    Pool {
        /// Bytes used.
        used: u64,
        /// Bytes that it can hold.
        capacity: u64,
    },
    /// A warning for the user.
    Warning {
        /// The warning.
        text: String,
    },
    /// A process goes on with the run after another one was killed. Attempts that ran are lost.
    Resumed {
        /// Id of the process.
        process: u32,
        /// Name of its host.
        host: String,
        /// Version of Tidemill.
        version: String,
    },
    /// A note of a script: an answer that it gets again when it is evaluated anew.
    Noted {
        /// The note.
        text: String,
    },
    /// The plan of a workflow that grows begins anew: what was added to it is gone, and tasks that
    /// were done stand in for those that do the same.
    PlanBegunAnew,
    /// The run is over.
    Ended {
        /// `done`, `failed` or `interrupted`.
        outcome: String,
    },
    /// A record that this program does not know; readers skip it.
    #[serde(other)]
    Unknown,
}
