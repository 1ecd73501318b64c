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

/// Makes the tasks of a workflow while it runs.
pub trait PlanSource: Debug {
    /// The next step; pending while it depends on tasks that have not ended, or on anything else
    /// that wakes the context. `flow` is the workflow so far.
    ///
    /// Only asked while few tasks are ready, so that a long loop is unfolded as slots become free,
    /// and further whenever all its tasks wait.
    fn poll_step(&mut self, flow: &CheckedWorkflow, context: &mut Context) -> Poll<PlanStep>;

    /// A task has ended: it is done, and its outputs exist, or it has failed for good.
    fn task_ended(&mut self, task: TaskId, is_done: bool);
}

/// A step of a growing plan.
#[derive(Debug)]
pub enum PlanStep {
    /// The plan goes on.
    Grow(PlanGrowth),
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
