//! The scheduling policies: which ready task starts next, and on which worker.
//!
//! The space rules (module `space`), which keep a full pool moving, precede any policy. A policy is
//! asked while the pool has space, and the task that it chooses starts only if it fits into the
//! pool. For a task that the space rules choose, the policy chooses the worker.
//!
//! - [`PolicyKind::Fifo`] (`fifo`): first come, first served; it does not look at places
//! - [`PolicyKind::Algorithm1`] (`algorithm1`): the data-aware scheduler of the paper
//! - [`PolicyKind::Locality`] (`locality`): the task with most bytes at the place, with regard to
//!   waiting times and storage; where no place is better, neighbours at one place (`blocks`)
//!
//! All share the queue (`queue`): tasks by priority and order of arrival, tasks that may run at one
//! location only, and the rules against starvation.

mod algorithm1;
mod blocks;
mod fifo;
mod locality;
mod queue;

use crate::locations::{LocalInputs, ToolDurations};
use crate::messages::{Location, LocationTarget};
use crate::resources::{Demand, PlaceId, SlotId, WorkerId};
use crate::space::SpaceRules;
use crate::workers::Workers;
use flow::{TaskId, ToolId};
use std::fmt::{self, Debug, Display, Formatter};
use std::str::FromStr;
use thiserror::Error;

pub use queue::OVERTAKES_MAX;

/// The number of tasks from the front of a queue that are tried. It bounds the work for each event.
const LOOK_AHEAD: usize = 64;

/// The number of places of a task that are considered: those with most of its bytes.
const PLACES_MAX: usize = 8;

/// The bandwidth between places in bytes per second, unless the caller knows better.
const BANDWIDTH_DEFAULT: u64 = 100_000_000;

/// The most bytes that comparisons tell apart: an exbibyte.
const PART_BYTES_MAX: u64 = (1 << 60) - 1;

/// The policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// First come, first served, on the least loaded worker.
    Fifo,
    /// Most inputs at the place (paper 001, section 4.2.4, Algorithm 1).
    Algorithm1,
    /// Most bytes at the place, with regard to waiting times and storage.
    #[default]
    Locality,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Algorithm1, Self::Locality];

    fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Algorithm1 => "algorithm1",
            Self::Locality => "locality",
        }
    }

    /// An empty policy of this kind.
    pub(crate) fn policy(self) -> Box<dyn SchedulingPolicy> {
        match self {
            Self::Fifo => Box::new(fifo::FifoPolicy::default()),
            Self::Algorithm1 => Box::new(algorithm1::Algorithm1Policy::default()),
            Self::Locality => Box::new(locality::LocalityPolicy::default()),
        }
    }
}

impl Display for PolicyKind {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown policy `{name}`: use fifo, algorithm1 or locality")]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
}

/// The reason why a task was chosen and its worker too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartReason {
    /// It was the first of the queue, or the first that fits, and places did not matter.
    FirstInQueue,
    /// It had the highest priority.
    HighestPriority,
    /// Of the ready tasks it had most bytes at this place.
    MostBytesLocal,
    /// Of the ready tasks it had most inputs at this place.
    MostInputsLocal,
    /// Its turn had come, and the place with most of its bytes was free.
    BestPlace,
    /// Its best place was busy or full, and reading from afar is quicker than waiting.
    QuickerThanWaiting,
    /// It may run at this location only.
    HardLocation,
    /// It prefers this location.
    SoftLocation,
    /// It was overtaken too often, so it went to the first worker where it fits.
    Overtaken,
    /// The space rules chose it, because the pool is crowded.
    Space,
    /// It is a second attempt, because the first one takes much longer than others of its tool.
    Straggler,
    /// It ran there before the run was resumed.
    Resumed,
    /// It was sent ahead to a busy worker, since tasks of its tool are short.
    SentAhead,
}

impl StartReason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::FirstInQueue,
        Self::HighestPriority,
        Self::MostBytesLocal,
        Self::MostInputsLocal,
        Self::BestPlace,
        Self::QuickerThanWaiting,
        Self::HardLocation,
        Self::SoftLocation,
        Self::Overtaken,
        Self::Space,
        Self::Straggler,
        Self::Resumed,
        Self::SentAhead,
    ];

    /// The name in journals.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstInQueue => "first-in-queue",
            Self::HighestPriority => "highest-priority",
            Self::MostBytesLocal => "most-bytes-local",
            Self::MostInputsLocal => "most-inputs-local",
            Self::BestPlace => "best-place",
            Self::QuickerThanWaiting => "quicker-than-waiting",
            Self::HardLocation => "hard-location",
            Self::SoftLocation => "soft-location",
            Self::Overtaken => "overtaken",
            Self::Space => "space",
            Self::Straggler => "straggler",
            Self::Resumed => "resumed",
            Self::SentAhead => "sent-ahead",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl Display for StartReason {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.pad(match self {
            Self::FirstInQueue => "it was the first of the queue that fitted, and places did not matter",
            Self::HighestPriority => "it had the highest priority of the ready tasks",
            Self::MostBytesLocal => "of the ready tasks it had most bytes at this place",
            Self::MostInputsLocal => "of the ready tasks it had most inputs at this place",
            Self::BestPlace => "its turn had come, and the place with most of its bytes was free",
            Self::QuickerThanWaiting => {
                "its best place was busy or full, and reading from afar is quicker than waiting"
            }
            Self::HardLocation => "it may run at this location only",
            Self::SoftLocation => "it prefers this location",
            Self::Overtaken => "it had been overtaken too often, so it went to the first worker where it fits",
            Self::Space => {
                "the pool was crowded, and the space rules chose it: of the tasks that may start it frees most"
            }
            Self::Straggler => "it is a second attempt: the first one takes much longer than others of its tool",
            Self::Resumed => "it ran there already when the run was resumed",
            Self::SentAhead => "tasks of its tool are short, so it was sent ahead to wait there for a processor",
        })
    }
}

/// A ready task as a policy holds it.
#[derive(Debug, Clone)]
pub struct QueuedTask {
    /// The task.
    pub id: TaskId,
    /// The task's tool.
    pub tool: ToolId,
    /// The task's priority; higher ones start first.
    pub priority: i32,
    /// The resources that the task takes.
    pub demand: Demand,
    /// The location at which the task should run.
    pub location: Option<Location>,
    /// The task's inputs by place, that with most bytes first.
    pub local: Vec<LocalInputs>,
    /// The bytes of all its inputs.
    pub reads: u64,
    /// The place of the location that the task prefers; it is in `local`, at least without inputs.
    pub preferred: Option<PlaceId>,
    /// The lane in which the task ran that wrote the last missing input.
    pub activated_in: Option<(WorkerId, SlotId)>,
}

impl QueuedTask {
    /// The only target at which the task may run.
    pub fn hard_target(&self) -> Option<LocationTarget> {
        self.location.filter(|location| location.hard).map(|location| location.at)
    }

    /// The number of inputs at a place, for comparisons; a preferred place has more than any other.
    pub fn count_rank(&self, local: &LocalInputs) -> u32 {
        if self.preferred == Some(local.place) { local.count.saturating_add(u32::MAX / 2) } else { local.count }
    }

    /// The bytes at a place, for comparisons. A place with all of them has more than one with a
    /// part, and a preferred place more than any other.
    pub fn bytes_rank(&self, local: &LocalInputs) -> u64 {
        let is_all = local.bytes == self.reads && local.bytes > 0;
        let class = if self.preferred == Some(local.place) { 2 } else { u64::from(is_all) };
        local.bytes.min(PART_BYTES_MAX) + class * (PART_BYTES_MAX + 1)
    }

    /// The target at which the task should run if there is room.
    pub fn soft_target(&self) -> Option<LocationTarget> {
        self.location.filter(|location| !location.hard).map(|location| location.at)
    }
}

/// A task and the worker on which it should start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The task.
    pub task: TaskId,
    /// The worker.
    pub worker: WorkerId,
    /// The lane; `None` for the smallest free one.
    pub slot: Option<SlotId>,
    /// The reason.
    pub reason: StartReason,
}

/// The part of the scheduler that a policy sees.
#[derive(Debug, Clone, Copy)]
pub struct ClusterView<'a> {
    /// The workers and their free resources.
    pub workers: &'a Workers,
    /// The space rules, with the estimates of what tasks will write.
    pub space: &'a SpaceRules,
    /// The median durations of the tools.
    pub durations: &'a ToolDurations,
    /// The bandwidth between places, in bytes per second; `None` if the caller gave none.
    pub bandwidth: Option<u64>,
    /// The time, on the caller's clock.
    pub now_ms: u64,
}

impl ClusterView<'_> {
    /// The time in ms in which this many bytes come from another place.
    pub fn transfer_ms(&self, bytes: u64) -> u64 {
        let bandwidth = self.bandwidth.unwrap_or(BANDWIDTH_DEFAULT).max(1);
        u64::try_from(u128::from(bytes) * 1000 / u128::from(bandwidth)).unwrap_or(u64::MAX)
    }
}

/// Holds the ready tasks and chooses among them. It is not called any more once a run has stopped.
pub trait SchedulingPolicy: Debug + Send {
    /// Adds a task that may start from now on.
    fn add(&mut self, task: QueuedTask);

    /// The task that should start next, and where, if one may.
    fn choose(&mut self, view: &ClusterView) -> Option<Assignment>;

    /// The worker on which a held task can start now, the best one for this task.
    fn assign(&self, task: TaskId, view: &ClusterView) -> Option<Assignment>;

    /// Removes a task that starts on a worker, in a lane, by this policy's choice (`chosen`) or
    /// another. Called before the resources are taken.
    fn start(&mut self, assignment: &Assignment, slot: SlotId, chosen: bool, workers: &Workers);

    /// Removes a task that will not start, or not yet, if it is held.
    fn remove(&mut self, task: TaskId);

    /// Updates the inputs by place of a task, if it is held.
    fn relocate(&mut self, moved: QueuedTask);

    /// The worker has joined, or has more free resources than before.
    fn on_free(&mut self, worker: WorkerId, workers: &Workers);

    /// The worker gets no more tasks. Returns the tasks that may run there only and whose location
    /// is gone; they are no longer held.
    fn on_worker_gone(&mut self, worker: WorkerId, workers: &Workers) -> Vec<TaskId>;

    /// Returns whether a worker is reserved for a task that waits.
    fn is_reserved(&self, worker: WorkerId) -> bool;

    /// Removes and returns the tasks that may run at one location only, if that is gone.
    fn take_unlocatable(&mut self, workers: &Workers) -> Vec<TaskId>;

    /// Returns whether the places of a task's inputs matter.
    fn uses_places(&self) -> bool {
        true
    }

    /// Returns whether the caller should clean a lane before a task starts there.
    fn cleans(&self) -> bool {
        false
    }

    /// The held task; `None` if it is not held.
    fn get(&self, task: TaskId) -> Option<&QueuedTask>;

    /// The number of held tasks before `task`; `None` if `task` is not held. Only for explanations
    /// to users, so it may be slow.
    fn ahead_of(&self, task: TaskId) -> Option<usize>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_written_and_read_by_their_names() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for reason in StartReason::ALL {
            assert_eq!(StartReason::from_name(reason.name()), Some(reason));
        }
        let unknown = "lifo".parse::<PolicyKind>().expect_err("no such policy");
        assert_eq!(unknown.to_string(), "unknown policy `lifo`: use fifo, algorithm1 or locality");
    }
}
