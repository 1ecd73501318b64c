//! Layer 2: which task runs next: the task table as a pure state machine.
//!
//! [`Scheduler::on`] takes a [`SchedulerEvent`] and the time, and appends [`SchedulerCommand`]s:
//! the tasks to start, the data that no task needs any more, the tasks that failed and the cause.
//! It uses no process, clock or file, so the same state machine runs on a laptop, on many machines
//! and in a simulation.
//!
//! ```text
//! add      begin                    start             done
//!  |  new ------> (inputs exist) ready ----> running ------> done
//!  |   |                            ^            |
//!  |   | an input is never written  +--- retry --+ failed, no retries left
//!  |   +---------------------------------------->+-------> failed (and the readers of its outputs)
//! ```
//!
//! Guarantees: every task ends exactly once. No task starts before its inputs exist. Running tasks
//! never exceed the cpus and memory of the machine, except for cpus that tasks lend while they wait
//! for space. Data that is not kept is dropped exactly once, after its last reader has ended. The
//! work is O(edges) in all, and O(tools + log tasks) for each start: nothing is rescanned.
//!
//! It does not prove that the graph has no cycle (`flow` did before), and does not know why a task
//! failed.
//!
//! Modules:
//! - `scheduler`: the state machine: what each event changes
//! - `messages`: events and commands
//! - `table`: a row for each task and each datum, and the edges
//! - `build`: a scheduler from a whole workflow
//! - `resources`: the machine's resources, those that are free, and lanes
//! - `policy`: which ready task starts next
//! - `space`: rules that keep a full pool moving; `space/safety`: a banker's check before a start
//! - `least_peak`: an estimate of the least memory that a workflow needs
//! - `median`: a running median
//! - `explain`: why a task waits, where it runs, why it failed
#![forbid(unsafe_code)]

mod build;
mod explain;
mod least_peak;
mod locations;
mod median;
mod messages;
mod policy;
mod resources;
mod scheduler;
mod space;
mod table;
mod workers;

pub use build::task_specs;
pub use explain::{TaskExplanation, WaitReason};
pub use least_peak::{LeastPeak, least_peak};
pub use messages::{
    AddError, CauseLink, FailureCause, Location, SchedulerCommand, SchedulerEvent, SchedulerOptions, Target, TaskSpec,
};
pub use policy::{PolicyKind, StartReason, UnknownPolicy};
pub use resources::{Demand, FreeResources, MachineCapacity, PlaceId, SlotId, WorkerId};
pub use scheduler::{LOSSES_MAX, Scheduler, TaskCounts};
pub use space::PoolState;

#[cfg(test)]
mod algorithm1_test;
#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod locality_test;
#[cfg(test)]
mod oracle_test;
#[cfg(test)]
mod scheduler_test;
#[cfg(test)]
mod simulation_test;
#[cfg(test)]
mod space_test;
