//! Layer 2: JS4Cloud scripts to workflows, on an embedded JavaScript engine.
//!
//! [`evaluate`] runs a script once and returns the workflow that its calls describe; nothing of the
//! script remains afterwards. A script is ordinary JavaScript with `Data`, a function for each
//! tool, and `print`. It is untrusted: its steps, memory, stack, tasks and members are limited, and
//! it has no access to files, network, clock or real randomness. The same script with the same
//! inputs gives the same workflow.
//!
//! ```text
//!   script --> engine (its own thread) --> host: Data, tools --> builder --> Workflow
//!                 |                                                |
//!              prelude.js: arrays of data, errors               catalogue of the data directory
//! ```
#![forbid(unsafe_code)]

mod builder;
mod call_site;
mod engine;
mod exception;
mod host;
mod overrides;

use base::{Problem, SourceLocation};
use flow::{Catalogue, ConfigValue, Tool, Workflow};
use std::time::Duration;

/// A script and its file name.
#[derive(Debug, Clone)]
pub struct Script {
    /// The file as the user named it, for messages; its stem names the workflow.
    pub file: String,
    /// The text of the script.
    pub source: String,
}

/// A callback for each line that a script prints, without its line end.
pub type Log = Box<dyn Fn(&str) + Send>;

/// The inputs of a script.
#[derive(Default)]
pub struct Inputs {
    /// The tools that it may call.
    pub tools: Vec<Tool>,
    /// The files that `Data.get` finds.
    pub catalogue: Catalogue,
    /// Values that replace the first values of top-level variables (`--set`).
    pub overrides: Vec<(String, ConfigValue)>,
    /// The limits of the script.
    pub limits: Limits,
    /// The callback for each line that the script prints; if `None`, the lines are dropped.
    pub log: Option<Log>,
}

/// Limits of a script.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Loop iterations, calls, and steps of regular expressions, which the engine counts in units
    /// of 10,000.
    pub steps: u64,
    /// The engine's memory in bytes.
    pub memory_bytes: usize,
    /// The engine's stack in bytes; at most a quarter of the thread's stack, which has
    /// `THREAD_STACK_BYTES`.
    pub stack_bytes: usize,
    /// Tasks of the workflow.
    pub tasks: u32,
    /// Members of all elements together. It also limits the members that calls pass one by one.
    pub members: u32,
    /// The time of the whole script: the last resort against a single call of the engine that
    /// counts no steps.
    pub time: Duration,
}

impl Default for Limits {
    /// Enough for a million tasks. Chosen so that a runaway script ends within a few seconds.
    fn default() -> Self {
        Self {
            steps: 100_000_000,
            memory_bytes: 512 << 20,
            stack_bytes: 1 << 20,
            tasks: 1_000_000,
            members: 8_000_000,
            time: Duration::from_mins(1),
        }
    }
}

/// Evaluates `script` to the workflow that it describes, or returns the first problem, with its
/// position.
pub fn evaluate(script: Script, inputs: Inputs) -> Result<Workflow, Problem> {
    if let Some(at) = script.source.find('\0') {
        let location = SourceLocation::at_offset(&script.file, &script.source, at);
        return Err(Problem::new("a zero byte: a script is text").at(location));
    }
    engine::evaluate(script, inputs)
}
