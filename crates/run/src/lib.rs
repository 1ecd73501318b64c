//! Layer 4: one run of a workflow. It connects the scheduler, the tools' processes and the pool.
//!
//! [`run`] executes an [`Order`] (a checked workflow and all settings), reports [`Event`]s as they
//! happen, and returns the report. Everything that prevents a run from starting is returned as a
//! list of problems. The crate prints nothing and knows no command-line flags.
//!
//! ```text
//! Order -> preflight, choice -> ground (pool, tasks' access to it) -> drive (loop) -> report::Run
//! ```
#![forbid(unsafe_code)]

mod attempt;
mod checked;
mod choice;
mod drive;
mod event;
mod export;
mod ground;
mod guess;
mod keep_failed;
mod last_resort;
mod layout;
mod machine;
mod memory;
mod memory_limits;
mod order;
mod overwrites;
mod preflight;
mod prepare;
mod provenance;
mod record;
mod start;
mod version;
mod workspace;

pub use checked::Checked;
pub use event::{Event, Progress};
pub use last_resort::LastResort;
pub use layout::{member as member_place, task_dir};
pub use memory::{Limits, POOL_BYTES_MIN, PoolSize};
pub use order::{Asked, Order, Storage};
pub use preflight::folder as check_folder;
pub use prepare::check_before_start;
pub use provenance::hash_file;
pub use start::run;
