//! Data elements and their members: sizes, times, hashes, paths.

use crate::Seconds;
use serde::{Deserialize, Serialize};

/// A named data element: one file, or an n-dimensional array of files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElementInfo {
    /// The name by which scripts know it.
    pub name: String,
    /// The role of the element in the workflow.
    pub kind: DataKind,
    /// The length of each dimension; empty for a scalar.
    pub shape: Vec<u32>,
    /// The index of its first member in `RunReport::data`.
    pub first: u32,
    /// The number of members.
    pub count: u32,
    /// The bytes of all members that existed; filled by `RunReport::seal`.
    pub bytes: u64,
}

/// The role of an element in the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// The element existed before the run.
    Input,
    /// Tasks write the element, and tasks read every member of it.
    Temporary,
    /// Tasks write the element, and no task reads at least one of its members.
    Output,
}

/// A member: the unit that one file holds and one task writes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The name of the member in scripts: `Train`, `Model[0][3]`.
    pub name: String,
    /// The name of its element.
    pub element: String,
    /// The task that writes it; none for inputs.
    pub writer: Option<u32>,
    /// The size of the member in bytes; none if it never existed.
    pub bytes: Option<u64>,
    /// BLAKE3 of its bytes, hexadecimal; null if it was not hashed (temporaries are not).
    pub hash: Option<String>,
    /// The time at which it was written; none for inputs, and if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_s: Option<Seconds>,
    /// The time at which it was deleted from the pool; none if it stayed until the end or was never
    /// in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_s: Option<Seconds>,
    /// For inputs: the file from which it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The file to which it was exported; none if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
    /// The URL of `exported`, relative to the report; filled by `RunReport::link_outputs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// One or several members that a task reads or writes, by their names in `RunReport::data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DataRef {
    /// A single member.
    One(String),
    /// Consecutive members of `RunReport::data`.
    Run {
        /// The name of the first.
        from: String,
        /// The name of the last.
        to: String,
        /// The number of members, at least 2.
        count: u32,
    },
}
