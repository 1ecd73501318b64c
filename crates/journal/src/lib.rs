//! Layer 2: the journal of a run: one JSON value a line, written while the run goes on.
//!
//! The journal (format page: `docs/formats/journal.md`) tells what has happened in a run so far. It
//! survives `kill -9` of the run, so the run can be resumed, and other processes read it while the
//! run goes on.
//!
//! ```text
//! JournalWriter::create  -> append(record)...      the run; holds the lock
//! JournalWriter::resume  -> (writer, state)        the run that goes on with a killed one
//! JournalReader::open    -> next_record()...       anybody, also while it is written
//! JournalState::read     -> tasks, data, workers   all records, applied in order
//! ```
//!
//! The crate does not know what a scheduler or a pool is, and it decides nothing.
//!
//! Modules:
//! - `header`: the first line
//! - `record`: the lines after it
//! - `writer`: appends lines, and holds the lock
//! - `reader`: reads lines one by one
//! - `state`: what the records say together
//! - `error`: errors of reading and writing
#![forbid(unsafe_code)]

mod error;
mod header;
mod reader;
mod record;
mod state;
mod writer;

pub use error::JournalError;
pub use header::{JOURNAL_VERSION, JournalHeader, JournalOptions, JournalWorkflow};
pub use reader::{JournalReader, is_live};
pub use record::{AgentTrace, FileIdentity, JournalRecord, TimedRecord};
pub use state::{AttemptTrace, DataTrace, ExportTrace, FormerPlan, JournalState, TaskPhase, TaskTrace, WorkerTrace};
pub use writer::{JournalWriter, unix_ms};

/// Name of the journal's file in the directory of the report.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// Name of the workflow's descriptor beside the journal.
pub const WORKFLOW_FILE: &str = "flow.json";

#[cfg(test)]
mod journal_test;
