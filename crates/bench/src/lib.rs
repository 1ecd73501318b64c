//! Layer 4: benchmarks: the same work on pools and on other storage.
//!
//! ```text
//!   filecopy, locality (over copies), metadata, objects: cases and results
//!        |
//!      Crew  ---- Order, phase by phase ---->  attend (one process per worker, on its host)
//!        |  <---- Ready, Done -------------      |
//!      Hosts (network namespaces,              Job over a Store: pool, directory, redis, memcached
//!        |    shaped links)
//!      Report (JSON), plot (SVG)
//! ```
//!
//! Invariants:
//! - A phase begins for all workers at once and has ended when the last is done; its time is from
//!   the first beginning to the last end.
//! - Data that is read is checked against the data that was written.
//! - Everything that a benchmark starts or makes (nodes, hosts, workers, files) is removed with it,
//!   also when it fails.
#![forbid(unsafe_code)]

mod copies;
mod cpu;
mod crew;
mod filecopy;
mod ground;
mod hosts;
mod interrupt;
mod key_values;
mod locality;
mod metadata;
mod objects;
mod order;
mod plot;
mod report;
mod stores;
mod target;
mod worker;

pub use filecopy::{Copying, Experiment, Filecopy};
pub use interrupt::Interrupt;
pub use locality::{Across, Locality, Shared};
pub use metadata::{Layout, Metadata};
pub use objects::ObjectsBench;
pub use report::Report;
pub use target::Target;
pub use worker::attend;

/// Options of all benchmarks.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The program that runs workers (`bench-worker`) and nodes (`node`).
    pub program: std::path::PathBuf,
    /// Repetitions of each case; the median of each number is reported.
    pub runs: u32,
    /// Flag that ends the benchmark early.
    pub interrupt: Interrupt,
}
