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
//! Tasks run on workers, and a worker has a place, which stores data. Workers may join, drain and
//! be lost at any time. A single machine is worker 0 at place 0 ([`Scheduler::new`]).
//!
//! A task that is done runs again only if data that it wrote was lost and is needed. A task that
//! runs for much longer than others of its tool may get a second attempt at another place.
//!
//! Guarantees: every task ends exactly once, unless lost data makes it run again. No task starts
//! before its inputs exist. Running tasks never exceed the cpus and memory of their worker, except
//! for cpus that tasks lend while they wait for space. A task that is bound to a location runs
//! nowhere else. Data that is not kept is dropped after its last reader has ended, once each time
//! that it is written. The work is O(edges) in all, and a start takes O(tools + log tasks + log
//! workers): nothing is rescanned. A datum that comes to a place, or is lost, costs O(its readers).
//!
//! A decision is made only when an event comes. A caller that wants tasks to go to other places as
//! soon as waiting has become slower, or slow tasks to be found, sends `Tick` from time to time.
//!
//! It does not move data, does not prove that the graph has no cycle (`flow` did before), and does
//! not know why a task failed.
//!
//! Modules:
//! - `scheduler`: the state machine: what each event changes; `scheduler/cluster`: workers that
//!   come and go, places of data, starts; `scheduler/lineage`: lost data that is made again;
//!   `scheduler/restore`: tasks that an earlier process of the run has done;
//!   `scheduler/stragglers`: second attempts of slow tasks; `scheduler/failures`: failures, and the
//!   end of a run by them
//! - `messages`: events and commands
//! - `table`: a row for each task and each datum, and the edges
//! - `build`: a scheduler from a whole workflow
//! - `task_map`: a map from some tasks to values
//! - `resources`: a worker's resources, those that are free, and lanes
//! - `workers`: all workers and places; `workers/free_index`: an index of those with free resources
//! - `locations`: where data is, and how long tools take
//! - `policy`: which ready task starts next, and where: `policy/fifo`, `policy/algorithm1`,
//!   `policy/locality`; `policy/blocks`: neighbours in the queue that run at one place;
//!   `policy/queue`: what all share, with the rules against starvation
//! - `space`: rules that keep a full pool moving; `space/safety`: a banker's check before a start;
//!   `space/foresight`: the bytes that the next tasks will use
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
mod task_map;
mod workers;

pub use build::task_specs;
pub use explain::{TaskExplanation, WaitReason};
pub use least_peak::{LeastPeak, least_peak};
pub use messages::{
    AddError, AttemptId, CauseLink, DataTarget, FailureCause, Location, LocationTarget, SchedulerCommand,
    SchedulerEvent, SchedulerOptions, TaskSpec,
};
pub use policy::{PolicyKind, StartReason, UnknownPolicy};
pub use resources::{Demand, FreeResources, MachineCapacity, PlaceId, SlotId, WorkerId};
pub use scheduler::{LOSSES_MAX, RestoredData, Scheduler, TaskCounts};
pub use space::{ForeseenBytes, PoolState};

#[cfg(test)]
mod algorithm1_test;
#[cfg(test)]
mod cluster_cases_test;
#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod lineage_test;
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
#[cfg(test)]
mod stragglers_test;
