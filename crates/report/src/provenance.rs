//! Provenance: the tools, programs, files and seeds that the results depend on.
//!
//! Inputs and outputs, with their hashes, are in `RunReport::data`; commands are in
//! `RunReport::tasks`.

use serde::{Deserialize, Serialize};

/// Everything except inputs and commands that the results depend on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The tools that tasks called, in the order of the tool file.
    pub tools: Vec<ToolProvenance>,
    /// Config values and variables that make random choices repeatable: configs whose name is or
    /// ends in `seed`, and `TIDEMILL_*`.
    pub seeds: Vec<Seed>,
}

/// A tool as it was used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolProvenance {
    /// The name of the tool.
    pub name: String,
    /// A description for users in one sentence; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// BLAKE3 over the declaration and the files, hexadecimal; null if it was not computed.
    pub hash: Option<String>,
    /// The command as a template.
    pub command: Vec<String>,
    /// The path of the program that the command's first item names; none if it was not found.
    pub program: Option<String>,
    /// BLAKE3 of the program, hexadecimal; null if it was not hashed.
    pub program_hash: Option<String>,
    /// The version that the program reports; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_version: Option<String>,
    /// The files that belong to the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileProvenance>,
}

/// A file that belongs to a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProvenance {
    /// The path of the file, as the tool file gives it.
    pub path: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// BLAKE3 of its bytes, hexadecimal; null if it could not be read.
    pub hash: Option<String>,
}

/// A value that makes random choices repeatable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// The name of the config or variable.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
    /// The tool that it was given to; none for variables of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The number of tasks that had it.
    pub tasks: u32,
}
