//! The first line of a journal: which run it is, of which workflow, with which options.

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const JOURNAL_VERSION: u32 = 1;

/// The first line. Fields that a reader does not know are skipped.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalHeader {
    /// The version of the format: `JOURNAL_VERSION`.
    pub tidemill_journal: u32,
    /// Name of the run.
    pub run: String,
    /// Version of Tidemill.
    pub version: String,
    /// Start of the run as wall-clock time (RFC 3339, UTC).
    pub started: String,
    /// The same in milliseconds since 1970-01-01 UTC; the times of records count from it.
    pub started_unix_ms: u64,
    /// Id of the process that began the run.
    pub process: u32,
    /// Name of the host of that process.
    pub host: String,
    /// The workflow.
    pub workflow: JournalWorkflow,
    /// The options that matter for what runs where.
    pub options: JournalOptions,
    /// The command line.
    pub command_line: Vec<String>,
    /// Its working directory.
    pub directory: String,
}

/// The workflow of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalWorkflow {
    /// Name of the workflow.
    pub name: String,
    /// Path of the script or descriptor, as typed.
    pub source: String,
    /// BLAKE3 of the descriptor, which is `flow.json` beside the journal, in hexadecimal.
    pub hash: String,
    /// Number of tasks.
    pub tasks: u32,
    /// Number of members of all data elements.
    pub data: u32,
}

/// Options of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalOptions {
    /// The data directory, absolute.
    pub data: String,
    /// The directory for outputs, absolute.
    pub out: String,
    /// How tasks see the pool: `mount`, `preload`, `staging` or `none`.
    pub storage: String,
    /// Size of the pool in bytes.
    pub memory: u64,
    /// The scheduling policy.
    pub policy: String,
    /// True if nothing is deleted before the end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
    /// The cluster, if there is one: the address of its scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}
