//! What to run and how: everything that is decided before a run starts.

use crate::checked::Checked;
use base::ByteSize;
use flow::DataId;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How tasks see the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// The mount where it is allowed, else the preload library, else staging.
    #[default]
    Auto,
    /// The mount, or a refusal that says why not.
    Mount,
    /// The preload library, with staging for tools that it does not reach; or a refusal that says why not.
    Preload,
    /// RAM-disk staging: inputs copied from the pool before a task, outputs back after it (paper 001, section 4.2.3).
    Staging,
}

/// A checked workflow with everything that its run needs to know.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of the user")]
pub struct Order {
    /// The workflow, checked.
    pub flow: Arc<Checked>,
    /// A name that is unique on this host: names the pool's folder and the default report folder.
    pub run_id: String,
    /// The folder that relative input paths start from, absolute.
    pub data_dir: PathBuf,
    /// Where outputs go; made when the first one comes.
    pub out_dir: PathBuf,
    /// Where the report goes: no output is written over it. None: there is none.
    pub report_dir: Option<PathBuf>,
    /// What the user should know that was found out before.
    pub warnings: Vec<String>,
    /// The user's words for the report: command line, script, `--set`s.
    pub asked: Asked,
    /// The most memory the pool takes; none: half of what is free.
    pub memory: Option<ByteSize>,
    /// The most memory that staging's copies take on the RAM disk; none: as much as the largest pool beside them.
    pub copies: Option<ByteSize>,
    /// Slots: tasks of one processor that may run at once.
    pub slots: u32,
    /// How tasks see the pool.
    pub storage: Storage,
    /// Whether the kernel may read and write files of the mount past us, where it can.
    pub passthrough: bool,
    /// Nothing is deleted before the end, and everything is exported.
    pub keep: bool,
    /// The folder that failed tasks are kept in; none: they are not.
    pub keep_failed: Option<PathBuf>,
    /// Members to export beside the outputs that nobody reads.
    pub exports: BTreeSet<DataId>,
    /// Inputs are copied into the pool instead of bound.
    pub stage_in: bool,
    /// After the first failed task nothing new starts.
    pub fail_fast: bool,
    /// How long a writer waits for space in a full pool.
    pub space_wait: Duration,
    /// How long a tool has between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// What the user typed, for the report.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The command line.
    pub command_line: Vec<String>,
    /// The script or descriptor.
    pub source: String,
    /// `js4cloud` or `json`.
    pub language: String,
    /// The tool file, if one was read.
    pub tools: Option<String>,
    /// The values of `--set`.
    pub sets: Vec<(String, flow::ConfigValue)>,
}
