//! What goes into the scheduler and what comes out of it.

use crate::room::{Machine, SlotId};
use crate::space::PoolState;
use flow::{DataId, TaskId, ToolId};
use thiserror::Error;

/// A task as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    /// Its number; numbers are dense, from 0, but may be added in any order.
    pub id: TaskId,
    /// Its tool: what tasks of one tool wrote tells what the next will write.
    pub tool: ToolId,
    /// Data it reads; named twice it counts once.
    pub inputs: Vec<DataId>,
    /// Data it writes.
    pub outputs: Vec<DataId>,
    /// Tasks that must be done first although no data passes.
    pub after: Vec<TaskId>,
    /// Processors it takes; 0 counts as 1.
    pub cpus: u32,
    /// Bytes of memory it takes; 0 is not accounted.
    pub memory: u64,
    /// How often it is tried again after a failed attempt.
    pub retries: u32,
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
        }
    }
}

/// What the user chose for the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// After the first task that failed for good nothing new starts; what runs may end.
    pub fail_fast: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The run begins: from now on tasks start.
    Begin,
    /// The workflow grew by a task.
    Add(Box<TaskSpec>),
    /// The workflow will not grow any more: data may be dropped, and the run can end.
    Close,
    /// The task's attempt succeeded and its outputs exist. How large those are is said before, by `Wrote`.
    Done(TaskId),
    /// A running task wrote this datum, of so many bytes.
    Wrote {
        /// The data; an output of the task that is about to be done.
        data: DataId,
        /// What it takes of the pool.
        bytes: u64,
    },
    /// How full the pool is now. Without a pool it is never said.
    Pool(PoolState),
    /// The task's attempt failed since the pool was full. It is tried again when there may be space, and for good it has failed
    /// only if it ran alone.
    NoSpace {
        /// The task.
        task: TaskId,
        /// Whether another attempt can help if it ran alone.
        retry: bool,
    },
    /// The task's attempt failed.
    Failed {
        /// The task.
        task: TaskId,
        /// Whether another attempt can help; false for a program that does not exist.
        retry: bool,
    },
    /// The user gave up: nothing new starts, and what runs is asked to stop.
    Cancel,
}

/// What to do about it, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Start an attempt of the task.
    Start {
        /// The task.
        task: TaskId,
        /// The lane it runs in: the smallest free number. Below `Machine::slots`, unless tasks that wait for space lend it theirs.
        slot: SlotId,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// End the task's process; answer with `Done` or `Failed` as it turns out.
    Stop {
        /// The task.
        task: TaskId,
    },
    /// The attempt failed; the task waits for another one.
    Retry {
        /// The task.
        task: TaskId,
        /// How many attempts are left, this next one counted. What found no space does not count.
        left: u32,
    },
    /// The task has failed for good.
    Failed {
        /// The task.
        task: TaskId,
        /// Why; see `Scheduler::chain` for the whole story.
        because: Because,
    },
    /// Nobody reads this any more: its bytes can go. Never said of kept data, nor of data that nobody ever read.
    Drop {
        /// The data; an input of the workflow or the output of a task that is done.
        data: DataId,
    },
    /// An added task can never run here; it does not count.
    Refused {
        /// The task.
        task: TaskId,
        /// Why not.
        why: Refused,
    },
    /// Every task has ended and none will come. Said once.
    Ended {
        /// Tasks that are done.
        done: u32,
        /// Tasks that failed, whatever the reason.
        failed: u32,
    },
}

/// Why a task failed: the last link of its chain of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Its own last attempt failed.
    Itself,
    /// Data that it reads was not written, since its writer failed.
    Input {
        /// The data.
        data: DataId,
        /// The task at the root of the chain.
        root: TaskId,
    },
    /// A task that had to be done first failed.
    After {
        /// That task.
        task: TaskId,
        /// The task at the root of the chain.
        root: TaskId,
    },
    /// Data that it reads is neither an input nor written by any task.
    NoWriter {
        /// The data.
        data: DataId,
    },
    /// It had to wait for a task that was never added.
    NoTask {
        /// That task.
        task: TaskId,
    },
    /// It had not started when another task failed, and the run stops at the first failure.
    FailFast {
        /// The task that failed first.
        root: TaskId,
    },
    /// It had not ended when the run was cancelled.
    Cancelled,
}

/// One step in the chain of reasons of a failed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The task that failed.
    pub task: TaskId,
    /// Why; the next link's task is the writer of the data, or the task, that is named here.
    pub because: Because,
}

/// Why a task cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// More processors than there are.
    #[error("the task needs {needs} cpus, and this run has {} slots; lower `cpus` of its tool or raise --slots", .machine.slots)]
    Cpus {
        /// What it asks for.
        needs: u32,
        /// What there is.
        machine: Machine,
    },
    /// More memory than there is.
    #[error("the task needs {} of memory, and tasks have {} here; lower `memory` of its tool", base::ByteSize(*.needs), base::ByteSize(.machine.memory))]
    Memory {
        /// Bytes it asks for.
        needs: u64,
        /// What there is.
        machine: Machine,
    },
    /// The number is taken.
    #[error("task {} was added before", .task.0)]
    Twice {
        /// The number.
        task: TaskId,
    },
    /// Data has one writer.
    #[error("task {} writes this data already", .writer.0)]
    WrittenTwice {
        /// The data.
        data: DataId,
        /// Who writes it; the task itself if it names the data twice.
        writer: TaskId,
    },
    /// Inputs of the workflow are not written.
    #[error("the data is an input of the workflow, so no task may write it")]
    WritesInput {
        /// The data.
        data: DataId,
    },
    /// The workflow was closed.
    #[error("the workflow was closed, so no task can be added")]
    Closed,
}
