//! Layer 2: the record of a run: run.json and report.html.
//!
//! [`RunReport`] is run.json as a value (format page: `docs/formats/run.md`, with the schema beside
//! it). [`html`] renders it as a self-contained page, whose code is in `web/report`. The crate has
//! no files and no clock. The code that runs the workflow fills a `RunReport`:
//!
//! ```text
//! RunReport::plan(&workflow)    every task `cancelled`, every member unwritten
//!   -> fill tasks, data, pool, settings while or after the tasks run
//!   -> seal()                   totals, totals by tool, critical path, sizes per task, truncation
//!   -> link_outputs(directory)  URLs of outputs, relative to the directory of the report
//!   -> write_json() / write_html()   the two files
//! ```
//!
//! Modules for the content of run.json:
//! - `run`: the whole: `RunReport`
//! - `plan`: its skeleton, made from the workflow
//! - `task`, `reads`, `data`, `pool`, `machine_use`, `provenance`: its parts
//! - `samples`, `truncation`: limits of its size
//! - `time`: seconds from the start, wall-clock times
//!
//! Modules for values that are computed from it:
//! - `totals`, `by_tool`: totals of the run, and of each tool
//! - `ready_times`: when each task could have started
//! - `causes`: the time of tasks by what they waited for
//! - `critical`: the critical path
//! - `load`: how many tasks ran and waited over time
//! - `links`: URLs of outputs
//!
//! For the files: `lined_json` writes run.json, `html` the page.
#![forbid(unsafe_code)]

mod by_tool;
mod causes;
mod critical;
mod data;
mod html;
mod lined_json;
mod links;
mod load;
mod machine_use;
mod plan;
mod pool;
mod provenance;
mod reads;
mod ready_times;
mod run;
mod samples;
mod task;
mod time;
mod totals;
mod truncation;

pub use by_tool::ToolTotals;
pub use causes::TimeByCause;
pub use critical::{CRITICAL_STEPS_MAX, CriticalPath, CriticalStep, StartCondition};
pub use data::{DataKind, DataRef, ElementInfo, Member};
pub use html::{html, write_html};
pub use load::{LOAD_SAMPLES_MAX, Load, LoadSample};
pub use machine_use::{MachineSample, MachineUse, MeasurementScope};
pub use pool::{PoolSample, PoolUsage};
pub use provenance::{FileProvenance, Provenance, Seed, ToolProvenance};
pub use reads::ReadBytes;
pub use run::{AccessMode, FORMAT_VERSION, Machine, NodeRecord, RunOutcome, RunReport, RunSettings, WorkflowInfo};
pub use samples::{SAMPLES_MAX, Samples};
pub use task::{Attempt, CapturedOutput, FailureReason, ReasonKind, Status, TaskRecord};
pub use time::{Seconds, rfc3339_utc};
pub use totals::Totals;
pub use truncation::{
    COMMAND_BYTES_MAX, FAILED_COMMAND_BYTES_MAX, OUTPUT_BYTES_MAX, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES,
};
