//! `Run`: run.json as one value.
//!
//! Instants are seconds from the start of the run; only `started` and `ended` are wall-clock times. Amounts of memory and
//! data are bytes. Vectors `tasks` and `data` are indexed by `flow::TaskId` and `flow::DataId`.

use crate::{CriticalPath, Element, Load, MachineUse, Member, Pool, Provenance, Seconds, Task, ToolTotals, Totals};
use serde::{Deserialize, Serialize};

/// The version of the format; a reader refuses what it does not know.
pub const FORMAT_VERSION: u32 = 1;

/// Everything that is known of one run after it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// `FORMAT_VERSION`.
    pub tidemill_run: u32,
    /// The run's own name, unique on its machine; also the name of its report's folder.
    pub id: String,
    /// What was run.
    pub workflow: WorkflowInfo,
    /// The version of Tidemill.
    pub version: String,
    /// When the run started, RFC 3339 in UTC with milliseconds (see [`crate::rfc3339_utc`]).
    pub started: String,
    /// When it ended, the same.
    pub ended: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The exit code of `tidemill run`.
    pub exit_code: i32,
    /// Why the run as a whole failed, when no task says it (outputs that could not be exported, a lost mount).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Where it ran.
    pub machine: Machine,
    /// How it ran.
    pub settings: Settings,
    /// The command line, as typed.
    pub command_line: Vec<String>,
    /// The directory it was typed in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// Values given with `--set`, by name.
    pub sets: serde_json::Map<String, serde_json::Value>,
    /// The numbers that sum everything up; filled by [`Run::seal`].
    pub totals: Totals,
    /// Sentences the user should read: what was not as expected but did not fail.
    pub warnings: Vec<String>,
    /// Tools, files and seeds that made the results what they are.
    pub provenance: Provenance,
    /// The data elements, in the order of their first members.
    pub elements: Vec<Element>,
    /// One entry for each member of each element, in the order of ids.
    pub data: Vec<Member>,
    /// Memory of the pool over time.
    pub pool: Pool,
    /// The processors and the memory of the machine over time; none if they could not be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_use: Option<MachineUse>,
    /// How many tasks ran and waited over time; filled by [`Run::seal`].
    #[serde(default)]
    pub load: Load,
    /// The chain of tasks that decided when the run ended; filled by [`Run::seal`].
    #[serde(default)]
    pub critical_path: CriticalPath,
    /// Sums and extremes of each tool's tasks; filled by [`Run::seal`].
    #[serde(default)]
    pub by_tool: Vec<ToolTotals>,
    /// One entry for each task, in the order of ids.
    pub tasks: Vec<Task>,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowInfo {
    /// The name for people.
    pub name: String,
    /// The path of the script or descriptor, as typed.
    pub source: String,
    /// The language it was written in: `js4cloud` or `json`.
    pub language: String,
    /// BLAKE3 of the source file, hexadecimal.
    #[serde(default)]
    pub hash: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every task is done and every output is where it should be.
    Done,
    /// A task failed, or `Run::problem` says what did.
    Failed,
    /// A signal ended it.
    #[default]
    Interrupted,
}

/// Where a run took place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The host's name.
    pub host: String,
    /// Operating system and kernel: `Linux 6.18.0 x86_64`.
    pub system: String,
    /// Processors that the process may use.
    pub cpus: u32,
    /// Memory in bytes: the machine's, or the cgroup's limit where that is lower.
    pub memory_bytes: u64,
}

/// How a run was set up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Slots: tasks of one processor that may run at once.
    pub slots: u32,
    /// The pool's limit in bytes.
    pub memory_limit_bytes: u64,
    /// How tools saw the pool.
    pub mode: Mode,
    /// The line that says why this mode.
    pub mode_reason: String,
    /// The folder that inputs came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The tool file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// The folder that outputs went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Whether temporaries were kept until the end.
    #[serde(default)]
    pub keep: bool,
    /// Whether inputs were copied into memory.
    #[serde(default)]
    pub stage_in: bool,
    /// Whether the first failure ended the run.
    #[serde(default)]
    pub fail_fast: bool,
}

/// How tools saw the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As a mounted directory.
    Mount,
    /// By the preload library; tools that it does not reach as with staging.
    Preload,
    /// As copies on a RAM disk around each task.
    Staging,
    /// Not at all: no task touched a file.
    #[default]
    None,
}

/// What every version of the format has.
#[derive(Deserialize)]
struct Version {
    tidemill_run: u32,
}

impl Run {
    /// run.json: compact, except that each task and each member has a line of its own (so that `grep` and `diff` work).
    pub fn json(&self) -> String {
        let whole = serde_json::to_value(self).expect("strings, numbers and maps of strings always become JSON");
        let serde_json::Value::Object(fields) = whole else { unreachable!("a struct becomes an object") };
        let lines: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{}", lined(value))).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    /// Reads run.json; the error says what stands in the way.
    pub fn from_json(text: &str) -> Result<Self, String> {
        // The version first: a later one may have fields that this reader does not know.
        let found: Version = serde_json::from_str(text).map_err(|error| format!("this is no run.json: {error}"))?;
        if found.tidemill_run != FORMAT_VERSION {
            let found = found.tidemill_run;
            return Err(format!(
                "this run.json has version {found}, and this tidemill reads version {FORMAT_VERSION}; use the tidemill that wrote it"
            ));
        }
        serde_json::from_str(text).map_err(|error| format!("this run.json is damaged: {error}"))
    }

    /// The length of the whole run.
    pub fn makespan(&self) -> Seconds {
        self.totals.makespan_s
    }
}

/// `value` on one line; a list of objects with a line for each.
fn lined(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) if items.iter().any(serde_json::Value::is_object) => {
            let lines: Vec<String> = items.iter().map(ToString::to_string).collect();
            format!("[\n{}\n]", lines.join(",\n"))
        }
        other => other.to_string(),
    }
}
