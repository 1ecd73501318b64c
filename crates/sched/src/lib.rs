//! Layer 2: which task runs next: the task table as a pure decider.
//!
//! [`Scheduler::on`] takes an [`Event`] and the time, and pushes [`Command`]s: what to start, what data nobody needs any
//! more, who failed and because of whom. It sees no process, no clock and no file, so the same decider runs on a laptop,
//! on many machines and in a simulation.
//!
//! ```text
//! add      begin                    start             done
//!  |  new ------> (inputs exist) ready ----> running ------> done
//!  |   |                            ^            |
//!  |   | an input is never written  +--- retry --+ failed, no retries left
//!  |   +---------------------------------------->+---------> failed  (and so do those that read its outputs)
//! ```
//!
//! Promises: every task ends exactly once; none starts before its inputs exist; cpus and memory are never exceeded, but for
//! cpus that tasks lend while they wait for space; data
//! that is not kept is dropped exactly once, after its last reader has ended. The work is
//! O(edges) in all, and O(tools + log tasks) for each start: nothing is rescanned. What it does not do: prove that the graph has no cycle (`flow` does, before), or know why a task failed.
#![forbid(unsafe_code)]

mod build;
mod explain;
mod least_peak;
mod median;
mod policy;
mod room;
mod scheduler;
mod space;
mod table;
mod words;

pub use build::tasks_of;
pub use explain::Standing;
pub use least_peak::{LeastPeak, least_peak};
pub use policy::{Fifo, Policy};
pub use room::{Machine, Needs, Room, SlotId};
pub use scheduler::{Counts, Scheduler};
pub use space::PoolState;
pub use words::{Because, Command, Event, Link, Options, Refused, TaskSpec};

#[cfg(test)]
mod oracle_test;
#[cfg(test)]
mod scheduler_test;
#[cfg(test)]
mod space_test;
