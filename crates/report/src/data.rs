//! Data elements and their members: sizes, lives, hashes, places.

use crate::Seconds;
use serde::{Deserialize, Serialize};

/// A named data element: one file, or an n-dimensional array of files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// The name that scripts know it by.
    pub name: String,
    /// Its part in the workflow.
    pub kind: DataKind,
    /// The length of each dimension; empty for a scalar.
    pub shape: Vec<u32>,
    /// The place of its first member in `Run::data`.
    pub first: u32,
    /// How many members it has.
    pub count: u32,
    /// Bytes of all members together that were there; filled by `Run::seal`.
    pub bytes: u64,
}

/// The part of an element in the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// It was there before the run.
    Input,
    /// A task wrote it, and every member that was written was read again.
    Temporary,
    /// A task wrote it, and nobody read one of its members.
    Output,
}

/// One member: the unit that one file holds and one task writes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name as scripts write it: `Train`, `Model[0][3]`.
    pub name: String,
    /// The name of its element.
    pub element: String,
    /// The task that writes it; none for inputs.
    pub writer: Option<u32>,
    /// Its size in bytes; none if it was never there.
    pub bytes: Option<u64>,
    /// BLAKE3 of its bytes, hexadecimal; null if it was not hashed (temporaries are not).
    pub hash: Option<String>,
    /// When it was written; none for inputs, and if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_s: Option<Seconds>,
    /// When it was deleted from the pool; none if it lived until the end or was never in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_s: Option<Seconds>,
    /// For inputs: the file it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The file it was exported to; none if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
    /// That file as a URL relative to the report; filled by `Run::link_outputs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// One or several members that a task reads or writes, by their names in `Run::data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DataRef {
    /// A single member.
    One(String),
    /// Consecutive members of `Run::data`.
    Run {
        /// The first.
        from: String,
        /// The last.
        to: String,
        /// How many, at least 2.
        count: u32,
    },
}
