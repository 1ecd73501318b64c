//! Layer 4: benchmarks: the same work on pools and on what users have otherwise.
//!
//! ```text
//!   filecopy, locality (over copies), metadata, objects: which cases, which numbers
//!        |
//!      Crew  ---- Order, phase by phase ---->  attend (one process for each worker, on the host that is its own)
//!        |  <---- Ready, Done -------------          |
//!      Hosts (network namespaces, shaped links)    Job over a Store: pool, directory, redis, memcached
//!        |
//!      Report (JSON), plot (SVG)
//! ```
//!
//! Invariants:
//! - A phase begins for all workers at once and has ended when the last is done; its time is from the first beginning to the last end.
//! - What is read is checked against what was written.
//! - Whatever a benchmark starts or makes (nodes, hosts, workers, files) goes with it, also when it fails.
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

/// How benchmarks are run.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The program whose `bench-worker` is a worker, and whose `node` is a node.
    pub program: std::path::PathBuf,
    /// How often each case is measured; of each number the median is told.
    pub runs: u32,
    /// Ends it before its time.
    pub interrupt: Interrupt,
}
