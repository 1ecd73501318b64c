//! Layer 4: one run of a workflow: scheduler, processes and pool brought together.
//!
//! [`run`] takes an [`Order`] (a checked workflow and all settings), does it, tells [`Event`]s as they happen, and gives
//! back the report. What is refused before anything starts is a list of problems. It prints nothing and knows no flags.
//!
//! ```text
//! Order -> preflight -> ground (pool, mount or RAM disk) -> drive (the loop) -> report::Run
//! ```
#![forbid(unsafe_code)]

mod attempt;
mod checked;
mod drive;
mod event;
mod export;
mod ground;
mod guess;
mod layout;
mod memory;
mod order;
mod preflight;
mod provenance;
mod record;
mod start;
mod workspace;

pub use checked::Checked;
pub use event::{Event, Progress};
pub use ground::{Choice, choose, embedded_pool};
pub use memory::{Limits, POOL_BYTES_MIN};
pub use order::{Asked, Order, Storage};
pub use provenance::hash_file;
pub use start::{LastResort, check_before_start, run};
