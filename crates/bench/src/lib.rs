//! Layer 9: benchmarks: the same work on pools and on other storage.
//!
//! ```text
//!   filecopy, locality (over copies), metadata, objects: cases and results
//!        |
//!   WorkerPool ---- WorkerCommand, phases ---->  worker_main (one process per worker, on its host)
//!        |     <---- Ready, Done --------------      |
//!      Hosts (network namespaces,             WorkerJob over a BenchStore: pool, directory,
//!        |    shaped links)                          redis, memcached
//!      BenchReport (JSON), plot (SVG)
//! ```
//!
//! Modules for experiments:
//! - `filecopy`, `locality`, `metadata`, `objects`: cases and results; `copies`: what two of them
//!   share
//!
//! Modules for their set-up:
//! - `target`, `stores`, `key_values`: what is measured, behind one interface
//! - `fixture`, `hosts`: the pool of a case, and hosts with shaped links
//! - `worker_pool`, `worker`, `messages`: worker processes, led through phases
//! - `interrupt`, `cpu`: interruption; clock and processor time
//!
//! Modules for results:
//! - `report`, `plot`: JSON and SVG
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
mod filecopy;
mod fixture;
mod hosts;
mod interrupt;
mod key_values;
mod locality;
mod messages;
mod metadata;
mod objects;
mod plot;
mod report;
mod stores;
mod target;
mod worker;
mod worker_pool;

pub use filecopy::{CopyCase, Experiment, Filecopy};
pub use interrupt::Interrupt;
pub use locality::{Locality, SharedDirectory, SweepAxis};
pub use metadata::{FileLayout, Metadata};
pub use objects::ObjectsBench;
pub use report::BenchReport;
pub use target::BenchTarget;
pub use worker::worker_main;

/// Options of all benchmarks.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The program that runs workers (`bench-worker`) and nodes (`node`).
    pub program: std::path::PathBuf,
    /// Repetitions of each case; the median of each number is reported.
    pub runs: u32,
    /// Flag that ends the benchmark early.
    pub interrupt: Interrupt,
}
