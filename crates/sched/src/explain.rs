//! Explains to a user why a task waits, where it runs, or why it failed.

use crate::messages::FailureCause;
use crate::messages::LocationTarget;
use crate::policy::{ClusterView, QueuedTask, SchedulingPolicy, StartReason};
use crate::resources::{Demand, SlotId, WorkerId};
use crate::table::{DataState, RunningAttempt, TaskState, TaskTable};
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
        /// True if those resources are free on some worker where it may run, so that it only waits
        /// for tasks ahead of it, for a better place or for space.
        fits: bool,
        /// The reason why it waits.
        reason: WaitReason,
        /// The bytes that must still be freed in the pool before it may start beside the running
        /// tasks; 0 if it does not wait for space.
        lacks: u64,
        /// The time since which it has been ready, on the caller's clock.
        since_ms: u64,
    },
    /// The task runs. Of two attempts this is the older one.
    Running {
        /// The worker that runs it.
        worker: WorkerId,
        /// The lane in which it runs.
        slot: SlotId,
        /// The reason why it was chosen, and why it runs there.
        reason: StartReason,
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

/// The reason why a ready task has not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// There is no worker.
    NoWorker,
    /// No worker is large enough.
    NoWorkerFits,
    /// It may run at one location only, which has had no worker so far.
    LocationMissing,
    /// It may run at one location only, which has no room now.
    LocationBusy,
    /// The place with most of its data has no room now, and waiting is quicker than reading from
    /// afar.
    PlaceBusy,
    /// No worker has room now.
    WorkersBusy,
    /// The pool has no space for what it writes.
    Space,
    /// It fits, but other tasks start first.
    Behind,
}

impl TaskExplanation {
    /// Explains a task. The work is proportional to the task's inputs and, for a ready task, to the
    /// queue.
    pub(crate) fn find(
        task: TaskId,
        table: &TaskTable,
        policy: &dyn SchedulingPolicy,
        view: &ClusterView,
        failure: impl Fn(TaskId) -> Option<FailureCause>,
    ) -> Option<Self> {
        let row = table.row(task)?;
        let (since_ms, demand) = (row.since_ms, row.demand);
        match row.state {
            TaskState::Vacant => None,
            TaskState::New => Some(Self::waiting(task, row.missing, table)),
            TaskState::Ready => {
                let ahead = policy.ahead_of(task).unwrap_or(0);
                let lacks = view.space.shortfall(task);
                let reason = WaitReason::find(task, demand, policy, view);
                let fits = view.workers.find(demand, hard_target(task, policy), &|_| true).is_some();
                Some(Self::Ready { ahead, demand, fits, reason, lacks, since_ms })
            }
            TaskState::Running(RunningAttempt { number: attempt, worker, slot, reason }) => {
                Some(Self::Running { worker, slot, reason, attempt, since_ms })
            }
            TaskState::Done => Some(Self::Done),
            TaskState::Failed => failure(task).map(Self::Failed),
        }
    }

    fn waiting(task: TaskId, missing: u32, table: &TaskTable) -> Self {
        let awaited = |data: DataId| table.datum(data).filter(|datum| datum.state == DataState::Awaited);
        let undone = |task: &TaskId| table.row(*task).is_some_and(|row| !row.was_done);
        Self::Waiting {
            missing,
            data: table.inputs(task).find_map(|data| awaited(data).map(|datum| (data, datum.writer()))),
            after: table.after(task).find(undone),
        }
    }
}

fn hard_target(task: TaskId, policy: &dyn SchedulingPolicy) -> Option<LocationTarget> {
    policy.get(task).and_then(QueuedTask::hard_target)
}

impl WaitReason {
    fn find(task: TaskId, demand: Demand, policy: &dyn SchedulingPolicy, view: &ClusterView) -> Self {
        let workers = view.workers;
        let fits = |target| workers.find(demand, target, &|_| true).is_some();
        let best = policy.get(task).and_then(|task| task.local.first()).map(|local| local.place);
        match hard_target(task, policy) {
            Some(target) if !is_there(target, view) => Self::LocationMissing,
            Some(target) if !fits(Some(target)) => Self::LocationBusy,
            None if workers.active() == 0 => Self::NoWorker,
            None if workers.too_small(demand).is_some() => Self::NoWorkerFits,
            None if !fits(None) => Self::WorkersBusy,
            _ if view.space.shortfall(task) > 0 => Self::Space,
            None if best.is_some_and(|place| !fits(Some(LocationTarget::Place(place)))) => Self::PlaceBusy,
            _ => Self::Behind,
        }
    }
}

fn is_there(target: LocationTarget, view: &ClusterView) -> bool {
    match target {
        LocationTarget::Place(place) => view.workers.is_active_place(place),
        LocationTarget::Worker(worker) | LocationTarget::Slot(worker, _) => view.workers.is_active(worker),
    }
}
