//! Specification of a run: everything that is decided before it starts.

use crate::checked_workflow::CheckedWorkflow;
use crate::elastic_run::ElasticRunSpec;
use crate::plan_source::PlanSource;
use base::ByteSize;
use flow::DataId;
use sched::PolicyKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Storage mode: how tasks see the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageRequest {
    /// The mount where FUSE is allowed, else the preload library, else staging.
    #[default]
    Auto,
    /// The mount; the run is refused with the reason if it is not possible.
    Mount,
    /// The preload library, with staging for tools that it cannot reach; the run is refused with
    /// the reason if the library reaches no tool.
    Preload,
    /// RAM-disk staging: inputs are copied from the pool before a task, outputs back into it
    /// afterwards (paper 001, section 4.2.3).
    Staging,
}

/// A checked workflow and all settings of its run.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of the user")]
pub struct RunSpec {
    /// The checked workflow.
    pub flow: Arc<CheckedWorkflow>,
    /// The source of more tasks; `None` unless the workflow grows while it runs.
    pub source: Option<Box<dyn PlanSource>>,
    /// Name that is unique on this host. It names the pool's directory and the default report
    /// directory.
    pub run_id: String,
    /// Absolute directory that relative input paths start from.
    pub data_dir: PathBuf,
    /// Directory for outputs, created with the first output.
    pub out_dir: PathBuf,
    /// Directory for the report, which no output may overwrite; `None`: no report.
    pub report_dir: Option<PathBuf>,
    /// Warnings for the user that were found while the specification was made.
    pub warnings: Vec<String>,
    /// The user's command line, script and `--set` values, for the report.
    pub requested: RequestedOptions,
    /// Upper bound of the pool's memory; `None`: half of the free memory.
    pub memory: Option<ByteSize>,
    /// Upper bound of the memory for staging's copies on the RAM disk; `None`: as much as the
    /// largest pool beside them.
    pub copies: Option<ByteSize>,
    /// Number of slots: tasks of one processor that may run at once.
    pub slots: u32,
    /// Storage mode.
    pub storage: StorageRequest,
    /// Enables passthrough: the kernel reads and writes files of the mount without us, where it
    /// can.
    pub passthrough: bool,
    /// Deletes nothing before the end of the run, and exports everything.
    pub keep: bool,
    /// Directory where failed tasks are kept; `None`: failed tasks are not kept.
    pub keep_failed: Option<PathBuf>,
    /// Members to export beside the outputs that nobody reads.
    pub exports: BTreeSet<DataId>,
    /// Copies inputs into the pool instead of binding them.
    pub stage_in: bool,
    /// Starts no task after the first failed one.
    pub fail_fast: bool,
    /// Policy that chooses among ready tasks.
    pub policy: PolicyKind,
    /// Runs tasks a second time elsewhere that take much longer than others of their tool.
    pub stragglers: bool,
    /// Time that a writer waits for space in a full pool.
    pub space_wait: Duration,
    /// Address at which the metrics of the pool are served; not on a cluster.
    pub metrics: Option<SocketAddr>,
    /// Time between SIGTERM and SIGKILL when a tool is ended.
    pub grace: Duration,
    /// Directory of the report of a run that was killed and that goes on; `None`: a new run.
    pub resume: Option<PathBuf>,
    /// Directory of the report of another run, whose results stand in for tasks that would do the
    /// same.
    pub reuse: Option<PathBuf>,
    /// The cluster on which tasks run; `None`: this host.
    pub cluster: Option<ClusterSpec>,
    /// How the pool grows and shrinks by itself; `None`: it does not. Then `memory` is that of a
    /// node.
    pub elastic: Option<ElasticRunSpec>,
}

/// A cluster that a run uses.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// Where it is, or how it is started.
    pub target: ClusterTarget,
    /// Number of workers to wait for; `None`: those that are there.
    pub workers: Option<u32>,
    /// A Python that has Dask.
    pub python: PathBuf,
    /// Time to wait for the scheduler, and for workers.
    pub wait: Duration,
    /// Time without a sign of a host after which its tasks run elsewhere.
    pub lease: Duration,
    /// Time without a sign of the run after which agents and nodes end.
    pub orphan_wait: Duration,
    /// Variables that tasks get beside those of their worker.
    pub environment: BTreeMap<String, String>,
    /// Path of this program.
    pub program: PathBuf,
}

/// A cluster that there is, or one that the run starts and ends.
#[derive(Debug, Clone)]
pub enum ClusterTarget {
    /// Address of the Dask scheduler, as Dask takes it.
    Scheduler(String),
    /// A cluster of the run's own.
    Start(StartedCluster),
}

/// How a run starts a Dask cluster; also the form in which the carrier is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartedCluster {
    /// What starts its processes.
    pub kind: ClusterKind,
    /// Hosts of SSH; empty for other kinds.
    pub hosts: Vec<String>,
    /// Number of workers; `None`: one on each host.
    pub workers: Option<u32>,
    /// The most workers that it may have later; `None` if it does not grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Options of Dask's class.
    pub options: serde_json::Map<String, serde_json::Value>,
}

/// What starts the processes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// SSH, on hosts that the user names.
    Ssh,
    /// Jobs of Slurm, or a step of the job around this process.
    Slurm,
    /// The operator of Dask for Kubernetes.
    Kubernetes,
}

impl ClusterTarget {
    /// What to do if there are fewer workers than wanted.
    pub(crate) fn hint_of_few_workers(&self) -> &'static str {
        match self {
            Self::Scheduler(_) => "start workers (`dask worker ADDRESS`), or lower --workers",
            Self::Start(started) => match started.kind {
                ClusterKind::Ssh => "what workers print on their hosts may say why; raise --wait, or lower --workers",
                ClusterKind::Slurm => "`squeue` shows jobs that wait: raise --wait, or lower --workers",
                ClusterKind::Kubernetes => "`kubectl get pods` shows pods that wait: raise --wait, or lower --workers",
            },
        }
    }
}

impl fmt::Display for ClusterTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler(address) => f.write_str(address),
            Self::Start(started) => match started.kind {
                ClusterKind::Ssh => write!(f, "ssh:{}", started.hosts.join(",")),
                ClusterKind::Slurm => f.write_str("slurm"),
                ClusterKind::Kubernetes => f.write_str("kubernetes"),
            },
        }
    }
}

/// The user's request as typed, for the report.
#[derive(Debug, Clone, Default)]
pub struct RequestedOptions {
    /// The words of the command line.
    pub command_line: Vec<String>,
    /// Path of the script or descriptor.
    pub source: String,
    /// Language of the source: `js4cloud` or `json`.
    pub language: String,
    /// Path of the tool file, if one was read.
    pub tools: Option<String>,
    /// Names and values of `--set`.
    pub sets: Vec<(String, flow::ConfigValue)>,
}
