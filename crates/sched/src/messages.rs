//! The messages of the scheduler: events and commands.

use crate::policy::PolicyKind;
use crate::resources::{MachineCapacity, PlaceId, SlotId, WorkerId};
use crate::space::PoolState;
use flow::{DataId, TaskId, ToolId};
use thiserror::Error;

/// A part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationTarget {
    /// Any worker at this place.
    Place(PlaceId),
    /// This worker.
    Worker(WorkerId),
    /// This lane of this worker.
    Slot(WorkerId, SlotId),
}

impl LocationTarget {
    /// The worker that it names.
    pub(crate) fn worker(self) -> Option<WorkerId> {
        match self {
            Self::Place(_) => None,
            Self::Worker(worker) | Self::Slot(worker, _) => Some(worker),
        }
    }
}

/// The location at which a task should run (Swift's `@location`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The part of the cluster.
    pub at: LocationTarget,
    /// True if the task may run nowhere else: it waits until that part has room, and fails if that
    /// part is gone or will never exist. Otherwise it runs elsewhere if that part is gone or has no
    /// room.
    pub hard: bool,
}

/// A datum beside which a task should run: at a place that has it when the task is ready, if there
/// is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataTarget {
    /// The datum.
    pub data: DataId,
    /// True if the task may run nowhere else, as for a [`Location`].
    pub hard: bool,
}

/// A task as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    /// The task's number. Numbers are dense, from 0, but may be added in any order.
    pub id: TaskId,
    /// The task's tool. The output sizes of a tool's tasks estimate those of its next ones.
    pub tool: ToolId,
    /// The data that it reads; a datum named twice counts once.
    pub inputs: Vec<DataId>,
    /// The data that it writes.
    pub outputs: Vec<DataId>,
    /// Tasks that must be done first although no data passes between them.
    pub after: Vec<TaskId>,
    /// The number of processors that it takes; 0 counts as 1.
    pub cpus: u32,
    /// The memory that it takes, in bytes; 0 is not accounted.
    pub memory: u64,
    /// The number of further attempts after a failed one.
    pub retries: u32,
    /// Ready tasks of higher priority start first.
    pub priority: i32,
    /// The location at which it should run; `None` leaves that to the policy.
    pub location: Option<Location>,
    /// The datum beside which it should run, if it has no location.
    pub beside: Option<DataTarget>,
}

impl TaskSpec {
    /// A task of one processor that reads and writes nothing.
    pub fn new(id: TaskId) -> Self {
        Self {
            id,
            tool: ToolId(0),
            inputs: Vec::new(),
            outputs: Vec::new(),
            after: Vec::new(),
            cpus: 1,
            memory: 0,
            retries: 0,
            priority: 0,
            location: None,
            beside: None,
        }
    }
}

/// An attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// The number of the attempt, from 1, as `SchedulerCommand::Start` gave it.
    pub attempt: u32,
}

/// The user's options for the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of the caller")]
pub struct SchedulerOptions {
    /// If a task fails for good, no further task starts; running tasks may end.
    pub fail_fast: bool,
    /// The policy that chooses among ready tasks.
    pub policy: PolicyKind,
    /// The estimated bandwidth in bytes per second with which a task reads data of another place;
    /// `None` stands for 100 MB/s.
    pub bandwidth: Option<u64>,
    /// Whether a task that runs much longer than others of its tool gets a second attempt at
    /// another place while processors are idle. The caller sends `Tick` from time to time.
    pub stragglers: bool,
    /// True if tasks of tools that are short are sent ahead to busy workers, which start them when
    /// others end. The caller calls `Scheduler::record_run_time`.
    pub sends_ahead: bool,
    /// Whether tasks are added after the beginning: the caller sends `Close` at last.
    pub grows: bool,
}

/// An event: an input of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// The run begins: from now on tasks start.
    Begin,
    /// The workflow grew by a task.
    Add(Box<TaskSpec>),
    /// The workflow will not grow any more: data may be dropped, and the run can end.
    Close,
    /// Time has passed. Sent now and then, for example each second: second attempts of slow tasks
    /// start only then.
    Tick,
    /// The attempt succeeded and the task's outputs exist. A `Wrote` event for each output comes
    /// before. Ignored if another attempt of the task succeeded before.
    Done(AttemptId),
    /// A running attempt wrote this datum. Ignored if another attempt succeeded before.
    Wrote {
        /// The attempt, which is about to be done.
        attempt: AttemptId,
        /// The datum: an output of the task.
        data: DataId,
        /// The bytes that it takes in the pool.
        bytes: u64,
        /// The place where it is; `None` if places do not matter.
        place: Option<PlaceId>,
    },
    /// No more readers of this datum will be added: it may be dropped before the workflow is
    /// closed.
    Sealed(DataId),
    /// A copy of a datum is at a place: the first one or a cached one.
    Located {
        /// The datum.
        data: DataId,
        /// The place.
        place: PlaceId,
        /// The bytes of the datum, used if its size is not known yet.
        bytes: u64,
    },
    /// A copy of a datum is no longer at a place.
    Unlocated {
        /// The datum.
        data: DataId,
        /// The place.
        place: PlaceId,
    },
    /// The last copy of a datum that a task wrote is gone. If it is needed, its writer runs again,
    /// and so do the writers of those of its inputs that are gone, too. It is needed if a task that
    /// waits reads it, if a task that runs reads it and fails later, or if the caller says so.
    /// Otherwise nothing happens. If a worker and data are lost together, this event must precede
    /// `LostWorker`, so that no task starts without its inputs. Ignored for inputs of the workflow,
    /// which the caller provides again by itself.
    LostData {
        /// The datum.
        data: DataId,
        /// True if the caller needs it, for example to export it.
        needed: bool,
    },
    /// A worker has joined and gets tasks from now on.
    AddWorker {
        /// The worker, with a number that was never used before.
        worker: WorkerId,
        /// The place whose storage is on its host.
        place: PlaceId,
        /// Its resources.
        capacity: MachineCapacity,
    },
    /// The same for a worker that runs attempts already, since before the scheduler was restored.
    /// Those whose tasks are ready and fit go on, and are answered by `Start`.
    AddBusyWorker {
        /// The worker.
        worker: WorkerId,
        /// The place whose storage is on its host.
        place: PlaceId,
        /// Its resources.
        capacity: MachineCapacity,
        /// The attempts that it runs.
        runs: Vec<AttemptId>,
    },
    /// No more workers will join: tasks fail if no worker is large enough for them, or none at the
    /// only location where they may run. Before this event they wait for one that may join.
    NoMoreWorkers,
    /// A worker gets no more tasks; those that it runs go on.
    DrainWorker(WorkerId),
    /// The number of a worker's processors has changed. Tasks that run go on, also if they take
    /// more than that. With 0, the worker gets no tasks until the number changes again, and tasks
    /// that are bound to it wait. Ignored after `DrainWorker` and `LostWorker`.
    ResizeWorker {
        /// The worker.
        worker: WorkerId,
        /// Its processors.
        slots: u32,
    },
    /// A worker is lost, and so are the attempts that it ran: the caller sends nothing more about
    /// them. Their tasks become ready again.
    LostWorker(WorkerId),
    /// The state of the storage of a place.
    PlaceState {
        /// The place.
        place: PlaceId,
        /// The capacity in bytes.
        capacity: u64,
        /// The bytes that are used.
        used: u64,
    },
    /// The current state of the pool. Never sent without a pool.
    Pool(PoolState),
    /// The attempt failed because the pool was full. The task is tried again when there may be
    /// space; it fails for good only if it ran alone. Counts nothing while another attempt of the
    /// task runs, or after one has succeeded.
    NoSpace {
        /// The attempt.
        attempt: AttemptId,
        /// True if another attempt can help even if it ran alone.
        retry: bool,
    },
    /// The attempt failed. Counts nothing while another attempt of the task runs, or after one has
    /// succeeded; two attempts that both fail count as one.
    Failed {
        /// The attempt.
        attempt: AttemptId,
        /// True if another attempt can help; false, for example, if the program does not exist.
        retry: bool,
    },
    /// The user cancelled the run: no task starts any more, and running tasks are stopped.
    Cancel,
}

/// A command: an output of the scheduler. The caller executes commands in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerCommand {
    /// Start an attempt of the task. It may be a second one beside another that is slow; the first
    /// one that succeeds counts.
    Start {
        /// The task.
        task: TaskId,
        /// The worker that runs it.
        worker: WorkerId,
        /// The lane of the worker it runs in: the smallest free number, unless the policy or the
        /// task's location names another. It is below `MachineCapacity::slots`, unless tasks that
        /// wait for space lend their processors, or it is sent ahead.
        slot: SlotId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// True if it must wait at the worker until another attempt has ended there: those that run
        /// take all its processors.
        ahead: bool,
    },
    /// Remove the copies of data and tools that earlier tasks of this lane left and that `task`,
    /// which starts next, does not use. Only `PolicyKind::Algorithm1` sends it.
    Clean {
        /// The worker.
        worker: WorkerId,
        /// The lane.
        slot: SlotId,
        /// The task that starts next there.
        task: TaskId,
    },
    /// End the attempt's process; then send `Done` or `Failed`, as it turns out. Sent when the run
    /// is cancelled, and to an attempt when another one of the task has succeeded: then its end
    /// only frees its resources, and what it wrote does not count.
    Stop {
        /// The task.
        task: TaskId,
        /// The number of the attempt.
        attempt: u32,
    },
    /// The attempt failed; the task waits for another one.
    Retry {
        /// The task.
        task: TaskId,
        /// The number of attempts left, including the next one. Attempts that found no space do not
        /// count.
        left: u32,
    },
    /// A task that was done runs again, because data that it wrote is lost and needed. It counts as
    /// new, has all its retries again, and writes all its outputs again, also those that still
    /// exist.
    Again {
        /// The task.
        task: TaskId,
    },
    /// An input of the workflow that was dropped is needed again: the caller must make it available
    /// before it executes the commands that follow. It is dropped again after its last reader.
    Provide {
        /// The datum.
        data: DataId,
    },
    /// The task has failed for good.
    Failed {
        /// The task.
        task: TaskId,
        /// The cause; `Scheduler::chain` has all causes up to the root.
        cause: FailureCause,
    },
    /// No task reads this datum any more: its bytes can be removed. Never sent for kept data, or
    /// for data that no task ever read. Sent again if the datum is made again.
    Drop {
        /// The datum: an input of the workflow, or an output of a task that is done.
        data: DataId,
    },
    /// An added task can never run here; it does not count.
    Rejected {
        /// The task.
        task: TaskId,
        /// The reason.
        reason: AddError,
    },
    /// Every task and attempt has ended and none will be added. Sent once, or again after `Again`
    /// if data was lost later.
    Ended {
        /// The number of tasks that succeeded.
        done: u32,
        /// The number of tasks that failed, for whatever reason.
        failed: u32,
    },
}

/// The cause of a task's failure: the last link of its chain of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The task's own last attempt failed.
    OwnAttempt,
    /// A datum that it reads was not written, because the writer failed.
    Input {
        /// The datum.
        data: DataId,
        /// The task at the root of the chain.
        root: TaskId,
    },
    /// A task that had to be done first failed.
    Predecessor {
        /// The task that failed.
        task: TaskId,
        /// The task at the root of the chain.
        root: TaskId,
    },
    /// A datum that it reads is neither an input nor written by any task.
    NoWriter {
        /// The datum.
        data: DataId,
    },
    /// The task had to wait for another one that was never added.
    NoTask {
        /// The task that is missing.
        task: TaskId,
    },
    /// The task had not started when another one failed, and the run stops at the first failure.
    FailFast {
        /// The task that failed first.
        root: TaskId,
    },
    /// The task had not ended when the run was cancelled.
    Cancelled,
    /// The task may run at one location only, and no worker is there any more, or none that is
    /// large enough, or none will ever be there.
    NoSuchLocation {
        /// The location.
        at: LocationTarget,
    },
    /// No worker that is left is large enough for the task, and no more workers will join.
    NoWorker,
}

/// One link in the chain of causes of a failed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CauseLink {
    /// The task that failed.
    pub task: TaskId,
    /// The cause. The next link's task is the one that the cause names, or the writer of the datum
    /// that it names.
    pub cause: FailureCause,
}

/// The reason why a task cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddError {
    /// The task needs more processors than any machine has.
    #[error("the task needs {demand} cpus, and this run has {} slots; lower `cpus` of its tool or raise --slots", .machine.slots)]
    Cpus {
        /// The number of processors that it needs.
        demand: u32,
        /// The resources of the largest machine.
        machine: MachineCapacity,
    },
    /// The task needs more memory than any machine has.
    #[error("the task needs {} of memory, and tasks have {} here; lower `memory` of its tool", base::ByteSize(*.demand), base::ByteSize(.machine.memory))]
    Memory {
        /// The bytes that it needs.
        demand: u64,
        /// The resources of the largest machine.
        machine: MachineCapacity,
    },
    /// A task with this number exists.
    #[error("task {} was added before", .task.0)]
    DuplicateTask {
        /// The number.
        task: TaskId,
    },
    /// The datum has a writer already.
    #[error("task {} writes this data already", .writer.0)]
    DuplicateWriter {
        /// The datum.
        data: DataId,
        /// The writer of the datum: the new task itself if it names the datum twice.
        writer: TaskId,
    },
    /// The datum is an input of the workflow, which no task may write.
    #[error("the data is an input of the workflow, so no task may write it")]
    WritesInput {
        /// The datum.
        data: DataId,
    },
    /// The datum was sealed: it has no further readers.
    #[error("data {} was sealed, so no further task can read it", .data.0)]
    Sealed {
        /// The datum.
        data: DataId,
    },
    /// The workflow was closed.
    #[error("the workflow was closed, so no task can be added")]
    Closed,
}
