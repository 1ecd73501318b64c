//! Explains to a user why a task waits, where it runs, or why it failed.

use crate::messages::FailureCause;
use crate::policy::SchedulingPolicy;
use crate::resources::{Demand, FreeResources, SlotId};
use crate::space::SpaceRules;
use crate::table::{DataState, TaskState, TaskTable};
use flow::{DataId, TaskId};

/// The state of a task, with its explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskExplanation {
    /// The task waits for data or tasks.
    Waiting {
        /// The number of data and tasks that are missing.
        missing: u32,
        /// The first missing datum, and the task that writes it.
        data: Option<(DataId, Option<TaskId>)>,
        /// The first task that must be done before this one and is not done.
        after: Option<TaskId>,
    },
    /// The task could start, but waits for resources or space.
    Ready {
        /// The number of tasks before it in the queue.
        ahead: usize,
        /// The resources that it takes.
        demand: Demand,
        /// True if those resources are free, so that it only waits for tasks ahead of it or for
        /// space.
        fits: bool,
        /// The bytes that must still be freed in the pool before it may start beside the running
        /// tasks; 0 if it does not wait for space.
        lacks: u64,
        /// The time since which it has been ready, on the caller's clock.
        since_ms: u64,
    },
    /// The task runs.
    Running {
        /// The lane in which it runs.
        slot: SlotId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The start of the attempt, on the caller's clock.
        since_ms: u64,
    },
    /// The task is done.
    Done,
    /// The task has failed for good.
    Failed(FailureCause),
}

impl TaskExplanation {
    /// Explains a task. The work is proportional to the task's inputs and, for a ready task, to the
    /// queue.
    pub(crate) fn find(
        task: TaskId,
        table: &TaskTable,
        (policy, space): (&dyn SchedulingPolicy, &SpaceRules),
        resources: &FreeResources,
        failure: impl Fn(TaskId) -> Option<FailureCause>,
    ) -> Option<Self> {
        let row = table.row(task)?;
        let since_ms = row.since_ms;
        match row.state {
            TaskState::Vacant => None,
            TaskState::New => Some(Self::waiting(task, row.missing, table)),
            TaskState::Ready => {
                let ahead = policy.ahead_of(task).unwrap_or(0);
                let (fits, lacks) = (resources.fits(row.demand), space.shortfall(task));
                Some(Self::Ready { ahead, demand: row.demand, fits, lacks, since_ms })
            }
            TaskState::Running(slot) => Some(Self::Running { slot, attempt: row.attempts, since_ms }),
            TaskState::Done => Some(Self::Done),
            TaskState::Failed => failure(task).map(Self::Failed),
        }
    }

    fn waiting(task: TaskId, missing: u32, table: &TaskTable) -> Self {
        let awaited = |data: DataId| table.datum(data).filter(|datum| datum.state == DataState::Awaited);
        let undone = |task: &TaskId| table.row(*task).is_some_and(|row| row.state != TaskState::Done);
        Self::Waiting {
            missing,
            data: table.inputs(task).find_map(|data| awaited(data).map(|datum| (data, datum.writer()))),
            after: table.after(task).find(undone),
        }
    }
}
