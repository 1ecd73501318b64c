//! Layer 9: one run of a workflow. It connects the scheduler, the tools' processes and the pool.
//!
//! [`run`] executes a [`RunSpec`] (a checked workflow and all settings), reports [`RunEvent`]s as
//! they happen, and returns the report. Everything that prevents a run from starting is returned as
//! a list of problems. The crate prints nothing and knows no command-line flags.
//!
//! ```text
//! RunSpec -> preflight, storage_choice -> environment (pool, tasks' access to it) -> event_loop
//!     -> report::RunReport
//! ```
//!
//! Modules before the start:
//! - `spec`: everything that is decided before a run starts
//! - `checked_workflow`, `prepare_run`, `preflight`, `overwrites`: collects what is needed, or all
//!   problems
//! - `memory`, `memory_limits`: the size of the pool, and the limits of tools
//! - `storage_choice`: mount, preload library or RAM-disk staging
//! - `resume`: what a resumed run does not do again
//! - `tool_versions`, `provenance`, `tool_manifest`: versions of tools, hashes of tools and inputs
//!
//! Modules while it runs:
//! - `start`: executes a run from start to cleanup
//! - `environment`: the pool and the tasks' access to it
//! - `event_loop`: connects scheduler, attempts and exports
//! - `plan_source`: a language that adds tasks while the workflow runs
//! - `attempt`: one attempt of a task
//! - `workspace`: the pool as tasks see it: `workspace/in_pool`, `workspace/preloaded`,
//!   `workspace/staged`
//! - `layout`: paths of members in the pool
//! - `machine`, `eta`, `event`: load of the machine, remaining time, events
//!
//! Modules for results:
//! - `export`, `keep_failed`: outputs below `--out`, files of failed tasks
//! - `recorder`, `run_journal`: fill in the report, and the journal while the run goes on
//! - `emergency_cleanup`: cleanup if the process must end at once
#![forbid(unsafe_code)]

mod attempt;
mod checked_workflow;
mod cluster;
mod cluster_run;
mod data_places;
mod elastic_run;
mod emergency_cleanup;
mod environment;
mod eta;
mod event;
mod event_loop;
mod executor;
mod export;
mod failure_text;
mod host_copies;
mod host_runner;
mod host_turns;
mod keep_failed;
mod layout;
mod machine;
mod memory;
mod memory_limits;
mod order;
mod outcome;
mod overwrites;
mod plan_source;
mod preflight;
mod prepare_run;
mod provenance;
mod recorder;
mod resume;
mod run_files;
mod run_journal;
mod spec;
mod start;
mod storage_choice;
mod tool_manifest;
mod tool_versions;
mod usage_refresh;
mod workspace;

pub use checked_workflow::CheckedWorkflow;
pub use cluster::run_agent;
pub use elastic_run::{ElasticRunSpec, named};
pub use emergency_cleanup::EmergencyCleanup;
pub use environment::{door, remove_stale_runs};
pub use event::{Progress, RunEvent};
pub use export::write_text;
pub use layout::{member as member_place, task_dir};
pub use memory::{MemoryBudget, POOL_BYTES_MIN, PoolSize};
pub use plan_source::{PlanGrowth, PlanHost, PlanSource, PlanStep, PlanView, READ_BYTES_MAX};
pub use preflight::{check_directory, open_file};
pub use prepare_run::check_before_start;
pub use provenance::hash_file;
pub use sched::{PolicyKind, StartReason};
pub use spec::{ClusterKind, ClusterSpec, ClusterTarget, RequestedOptions, RunSpec, StartedCluster, StorageRequest};
pub use start::run;
