//! Layer 1: JS4Cloud scripts to workflows, on an embedded JavaScript engine.
//!
//! [`evaluate`] runs a script once and hands back the workflow that its calls describe; nothing of the script is left then.
//! A script is ordinary JavaScript with `Data`, a function for each tool, and `print`. It is untrusted: its steps, memory,
//! stack, tasks and members are bounded, and it reaches no file, network, clock or chance. The same script with the same
//! inputs gives the same workflow.
//!
//! ```text
//!   script --> engine (its own thread) --> host: Data, tools --> builder --> Workflow
//!                 |                                                |
//!              prelude.js: arrays of data, errors               catalogue of the data folder
//! ```
#![forbid(unsafe_code)]

mod builder;
mod engine;
mod host;
mod place;
mod sets;
mod site;

use base::{Place, Problem};
use flow::{Catalogue, ConfigValue, Tool, Workflow};
use std::time::Duration;

/// A script as it was read.
#[derive(Debug, Clone)]
pub struct Script {
    /// The file as the user named it, for messages; its stem names the workflow.
    pub file: String,
    /// Its text.
    pub source: String,
}

/// Takes a line that a script prints, without its end.
pub type Log = Box<dyn Fn(&str) + Send>;

/// What a script may use.
#[derive(Default)]
pub struct Inputs {
    /// The tools that it may call.
    pub tools: Vec<Tool>,
    /// The files that `Data.get` finds.
    pub catalogue: Catalogue,
    /// Values that replace the first values of top-level variables (`--set`).
    pub sets: Vec<(String, ConfigValue)>,
    /// What it may use up.
    pub limits: Limits,
    /// Takes each line that the script prints; None: they are dropped.
    pub log: Option<Log>,
}

/// What a script may use up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Turns of loops, calls, and steps of regular expressions, counted in thousands by the engine.
    pub steps: u64,
    /// Bytes of the engine's memory.
    pub memory_bytes: usize,
    /// Bytes of the engine's stack; at most a quarter of the thread's, which has `THREAD_STACK_BYTES`.
    pub stack_bytes: usize,
    /// Tasks of the workflow.
    pub tasks: u32,
    /// Members of all elements together, and members bound one by one.
    pub members: u32,
    /// The last resort against a single call of the engine that counts no steps.
    pub time: Duration,
}

impl Default for Limits {
    /// Enough for a million tasks; picked so that a runaway script ends within a few seconds.
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

/// The workflow that `script` describes, or the first thing that is wrong with it, at its place.
pub fn evaluate(script: Script, inputs: Inputs) -> Result<Workflow, Problem> {
    if let Some(at) = script.source.find('\0') {
        let place = Place::at_offset(&script.file, &script.source, at);
        return Err(Problem::new("a zero byte: this is no text of a script").at(place));
    }
    engine::evaluate(script, inputs)
}
