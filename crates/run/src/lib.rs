//! Layer 4: one run of a workflow: scheduler, processes and pool brought together.
//!
//! [`run`] takes an [`Order`] (a checked workflow and all settings), does it, tells [`Event`]s as they happen, and gives
//! back the report. What is refused before anything starts is a list of problems. It prints nothing and knows no flags.
//!
//! ```text
//! Order -> preflight, choice -> ground (pool, and the ways to it) -> drive (the loop) -> report::Run
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
