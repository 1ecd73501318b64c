//! `RunReport`: run.json as one value.
//!
//! Times are seconds from the start of the run; only `started` and `ended` are wall-clock times.
//! Amounts of memory and data are bytes. The vectors `tasks` and `data` are indexed by
//! `flow::TaskId` and `flow::DataId`.

use crate::lined_json::write_lined;
use crate::{
    CriticalPath, ElementInfo, Load, MachineUse, Member, PoolUsage, Provenance, Seconds, TaskRecord, ToolTotals, Totals,
};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The version of the format; a reader refuses versions that it does not know.
pub const FORMAT_VERSION: u32 = 1;

/// Everything that is known of one run after it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// `FORMAT_VERSION`.
    pub tidemill_run: u32,
    /// The name of the run, unique on its machine; also the name of its report's directory.
    pub id: String,
    /// The workflow.
    pub workflow: WorkflowInfo,
    /// The version of Tidemill.
    pub version: String,
    /// The start of the run, RFC 3339 in UTC with milliseconds (see [`crate::rfc3339_utc`]).
    pub started: String,
    /// The end of the run, in the format of `started`.
    pub ended: String,
    /// The outcome of the run.
    pub outcome: RunOutcome,
    /// The exit code of `tidemill run`.
    pub exit_code: i32,
    /// The reason why the run as a whole failed, if no task gives it (outputs that could not be
    /// exported, a lost mount).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The machine on which it ran.
    pub machine: Machine,
    /// The settings with which it ran.
    pub settings: RunSettings,
    /// The command line, as typed.
    pub command_line: Vec<String>,
    /// The directory in which the command was typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The values given with `--set`, by name.
    pub sets: serde_json::Map<String, serde_json::Value>,
    /// The totals; filled by [`RunReport::seal`].
    pub totals: Totals,
    /// Sentences that the user should read: conditions that were not as expected but did not fail
    /// the run.
    pub warnings: Vec<String>,
    /// The tools, files and seeds that the results depend on.
    pub provenance: Provenance,
    /// The data elements, in the order of their first members.
    pub elements: Vec<ElementInfo>,
    /// One entry for each member of each element, in the order of ids.
    pub data: Vec<Member>,
    /// The memory of the pool over time.
    pub pool: PoolUsage,
    /// The processors and the memory of the machine over time; none if they could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_use: Option<MachineUse>,
    /// The hosts of a cluster on which tasks ran; empty for a run on one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRecord>,
    /// The number of tasks that ran and waited over time; filled by [`RunReport::seal`].
    #[serde(default)]
    pub load: Load,
    /// The chain of tasks that determined the end of the run; filled by [`RunReport::seal`].
    #[serde(default)]
    pub critical_path: CriticalPath,
    /// Sums and extremes of each tool's tasks; filled by [`RunReport::seal`].
    #[serde(default)]
    pub by_tool: Vec<ToolTotals>,
    /// One entry for each task, in the order of ids.
    pub tasks: Vec<TaskRecord>,
}

/// A host of a cluster that ran tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    /// The name or address of the host.
    pub name: String,
    /// The number of its first slot; the slots of the run are numbered over all hosts.
    pub first_slot: u32,
    /// The number of its slots.
    pub slots: u32,
    /// The time at which it joined.
    pub joined_s: Seconds,
    /// The time at which it was lost; none if it stayed until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_s: Option<Seconds>,
}

/// The workflow of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowInfo {
    /// The name for users.
    pub name: String,
    /// The path of the script or descriptor, as typed.
    pub source: String,
    /// The language in which it was written: `js4cloud` or `json`.
    pub language: String,
    /// BLAKE3 of the source file, hexadecimal.
    #[serde(default)]
    pub hash: Option<String>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// Every task succeeded and every output was exported.
    Done,
    /// A task failed, or `RunReport::problem` gives the reason.
    Failed,
    /// A signal ended the run.
    #[default]
    Interrupted,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name of the host.
    pub host: String,
    /// The operating system and kernel, such as `Linux 6.18.0 x86_64`.
    pub system: String,
    /// The number of processors that the process may use.
    pub cpus: u32,
    /// The memory in bytes: the machine's, or the cgroup's limit if that is lower.
    pub memory_bytes: u64,
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// The number of slots: the most tasks of one processor that may run at once.
    pub slots: u32,
    /// The capacity of the pool in bytes.
    pub memory_limit_bytes: u64,
    /// The way in which tools saw the pool.
    pub mode: AccessMode,
    /// The explanation of the mode, in one line.
    pub mode_reason: String,
    /// The directory of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The tool file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// The directory of the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// True if temporaries were kept until the end.
    #[serde(default)]
    pub keep: bool,
    /// True if inputs were copied into memory.
    #[serde(default)]
    pub stage_in: bool,
    /// True if the first failure ended the run.
    #[serde(default)]
    pub fail_fast: bool,
    /// The scheduling policy; absent in runs of versions that had only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The way in which tools saw the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// As a mounted directory.
    Mount,
    /// By the preload library; tools that it does not reach, as with staging.
    Preload,
    /// As copies on a RAM disk around each task.
    Staging,
    /// Not at all: no task used a file.
    #[default]
    None,
}

/// The part that every version of the format has.
#[derive(Deserialize)]
struct FormatVersion {
    tidemill_run: u32,
}

impl RunReport {
    /// run.json: compact, except that each task and each member has a line of its own, so that
    /// `grep` and `diff` work.
    pub fn json(&self) -> String {
        let mut text = Vec::new();
        self.write_json(&mut text).expect("memory takes it");
        String::from_utf8(text).expect("JSON is text")
    }

    /// Writes run.json.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_lined(self, out)
    }

    /// Reads run.json; the error message gives the reason if it cannot be read.
    pub fn from_json(text: &str) -> Result<Self, String> {
        // Check the version first, because a later one may have fields that this reader does not
        // know.
        let found: FormatVersion =
            serde_json::from_str(text).map_err(|error| format!("this is not a run.json: {error}"))?;
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
