//! The scheduling policy: which of the ready tasks starts next. Locality-aware policies will be
//! added beside [`Fifo`].
//!
//! The space rules (module `space`), which keep a full pool moving, precede any policy. A policy is
//! asked while the pool has space, and the task that it chooses starts only if it fits into the
//! pool.

use crate::resources::{Demand, FreeResources};
use flow::TaskId;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

/// Holds the ready tasks and chooses among them. It is not called any more once a run has stopped.
pub trait SchedulingPolicy: Debug + Send {
    /// Adds a task that may start from now on.
    fn add(&mut self, task: TaskId);

    /// The task that should start next with the free resources `resources`, if one may. `demand`
    /// returns the resources that each ready task takes.
    fn choose(&self, resources: &FreeResources, demand: &dyn Fn(TaskId) -> Demand) -> Option<TaskId>;

    /// Removes a task, because it started by this policy's choice (`chosen`) or another, or because
    /// it must wait for space.
    fn remove(&mut self, task: TaskId, chosen: bool);

    /// The number of held tasks before `task`; `None` if `task` is not held. Only for explanations
    /// to users, so it may be slow.
    fn ahead_of(&self, task: TaskId) -> Option<usize>;
}

/// First come, first served. If the first task does not fit, later ones that fit may overtake it,
/// but only `OVERTAKES_MAX` times. After that no task starts until the first one fits, so a big
/// task is never starved.
#[derive(Debug, Default)]
pub struct Fifo {
    /// Tasks by their order of arrival.
    queue: BTreeMap<u64, TaskId>,
    positions: HashMap<TaskId, u64>,
    next: u64,
    /// The number of times that the first of the queue was overtaken.
    overtaken: u32,
}

/// Enough to keep a machine busy while a big task waits for the running ones; small beside a long
/// queue.
pub const OVERTAKES_MAX: u32 = 64;

/// The number of tasks from the front of the queue that are tried. It bounds the work for each
/// event.
const LOOK_AHEAD: usize = 64;

impl SchedulingPolicy for Fifo {
    fn add(&mut self, task: TaskId) {
        self.queue.insert(self.next, task);
        self.positions.insert(task, self.next);
        self.next += 1;
    }

    fn choose(&self, resources: &FreeResources, demand: &dyn Fn(TaskId) -> Demand) -> Option<TaskId> {
        if resources.cpus() == 0 {
            return None;
        }
        let examined = if self.overtaken < OVERTAKES_MAX { LOOK_AHEAD } else { 1 };
        self.queue.values().take(examined).copied().find(|task| resources.fits(demand(*task)))
    }

    fn remove(&mut self, task: TaskId, chosen: bool) {
        let Some(position) = self.positions.remove(&task) else { return };
        let was_first = self.queue.first_key_value().is_some_and(|(first, _)| *first == position);
        self.queue.remove(&position);
        if was_first {
            self.overtaken = 0;
        } else if chosen {
            self.overtaken += 1;
        }
    }

    fn ahead_of(&self, task: TaskId) -> Option<usize> {
        Some(self.queue.range(..self.positions.get(&task)?).count())
    }
}
