//! Source of a plan that grows while it runs: a language whose scripts call tools as values become
//! known.
//!
//! ```text
//!  PlanSource -- PlanGrowth --> EventLoop -> CheckedWorkflow, RunFiles, Recorder, Scheduler
//!      ^                            |
//!      +-------- ends of tasks -----+
//! ```

use crate::checked_workflow::CheckedWorkflow;
use base::Problem;
use flow::{DataId, TaskId, WorkflowGrowth};
use std::fmt::Debug;
use std::path::PathBuf;
use std::task::{Context, Poll};

/// Most bytes of a file that a source reads: it holds them in memory, as text.
pub const READ_BYTES_MAX: usize = 64 << 20;

/// Makes the tasks of a workflow while it runs.
pub trait PlanSource: Debug {
    /// The next step; pending while it depends on tasks that have not ended, or on anything else
    /// that wakes the context.
    ///
    /// Only asked while few tasks are ready, so that a long loop is unfolded as slots become free,
    /// and further whenever all its tasks wait.
    fn poll_step(&mut self, run: &PlanView, context: &mut Context) -> Poll<PlanStep>;

    /// A task has ended: it is done, and its outputs exist, or it has failed for good.
    fn task_ended(&mut self, task: TaskId, is_done: bool);

    /// The content of a member after [`PlanStep::Read`], or the reason why it cannot be read.
    fn content(&mut self, _data: DataId, _content: Result<Vec<u8>, String>) {}
}

/// The run, as the source of its plan sees it.
#[derive(Debug)]
pub struct PlanView<'a> {
    /// The workflow so far.
    pub flow: &'a CheckedWorkflow,
    /// The hosts that were there when the run began.
    pub hosts: &'a [PlanHost],
    /// The notes of the run that is resumed or reused, in their order.
    pub notes: &'a [String],
}

/// A host of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanHost {
    /// Its number as a worker.
    pub worker: u32,
    /// Its name.
    pub name: String,
    /// The number of its slots.
    pub slots: u32,
}

/// A step of a growing plan.
#[derive(Debug)]
pub enum PlanStep {
    /// The plan goes on.
    Grow(PlanGrowth),
    /// The source wants the content of a member that a task has written.
    Read(DataId),
    /// The script prints a text.
    Print(String),
    /// A warning for the user.
    Warn(String),
    /// A note for the journal: the source has it again when the run is resumed or reused.
    Remember(String),
    /// The plan is complete.
    Complete,
    /// The plan cannot go on, so the run fails: no more tasks start, and those that run are ended.
    Failed(Problem),
}

/// An addition to a plan.
#[derive(Debug, Default)]
pub struct PlanGrowth {
    /// Elements and tasks.
    pub parts: WorkflowGrowth,
    /// Members to export, with the paths of their files. They may be of earlier steps, if their
    /// writers are not done yet.
    pub exports: Vec<(DataId, PathBuf)>,
    /// Members that no later task reads, perhaps of earlier steps. They leave the pool after their
    /// last reader, and after their export.
    pub sealed: Vec<DataId>,
}
