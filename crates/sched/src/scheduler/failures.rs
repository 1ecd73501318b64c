//! Attempts that fail, tasks that fail for good, and runs that stop.
//!
//! Failures spread by a worklist (`failing`), not by recursion, so a chain of 100,000 tasks fails
//! on a small stack.

use super::{EventContext, Scheduler};
use crate::messages::{AttemptId, FailureCause, SchedulerCommand};
use crate::space::NoSpaceOutcome;
use crate::table::{DataState, TaskState};
use flow::{DataId, TaskId};

impl Scheduler {
    pub(super) fn on_no_space(&mut self, task: TaskId, retry: bool, context: &mut EventContext) {
        let is_deprived = self.deprived.contains(&task);
        if self.stopped.is_some() || is_deprived || self.space.on_no_space(task) == NoSpaceOutcome::Final {
            return self.on_attempt_failed(task, retry, context);
        }
        self.release_resources(task);
        self.set_state(task, TaskState::Ready, context.now_ms);
        let row = self.table.row_mut(task);
        row.attempts_max += 1;
        context.commands.push(SchedulerCommand::Retry { task, left: row.attempts_max - row.attempts });
    }

    /// A failed attempt counts, unless an input was lost meanwhile.
    pub(super) fn on_attempt_failed(&mut self, task: TaskId, retry: bool, context: &mut EventContext) {
        let is_deprived = self.deprived.contains(&task);
        self.table.row_mut(task).attempts_max += u32::from(is_deprived);
        self.fail_attempt(task, retry || is_deprived, context);
    }

    pub(super) fn fail_attempt(&mut self, task: TaskId, retry: bool, context: &mut EventContext) {
        self.release_resources(task);
        self.space.end(task, self.tool(task), None);
        let row = self.table.row_mut(task);
        let left = row.attempts_max - row.attempts;
        if retry && left > 0 && self.stopped.is_none() {
            return self.try_again(task, left, context);
        }
        let cancelled = self.stopped == Some(FailureCause::Cancelled);
        self.failing.push_back((task, if cancelled { FailureCause::Cancelled } else { FailureCause::OwnAttempt }));
        self.propagate_failures(context);
        if self.options.fail_fast && self.stopped.is_none() {
            self.stop(FailureCause::FailFast { root: task });
        }
    }

    pub(super) fn on_cancel(&mut self, context: &mut EventContext) {
        if self.ended || self.stopped == Some(FailureCause::Cancelled) {
            return;
        }
        self.stop(FailureCause::Cancelled);
        let running = (0..self.table.len()).map(TaskId).filter_map(|task| self.running_attempt(task));
        let running = running.flat_map(|first| [Some(first), self.stragglers.second_of(first.task)]);
        let stop = |AttemptId { task, attempt }| SchedulerCommand::Stop { task, attempt };
        context.commands.extend(running.flatten().map(stop));
    }

    /// Stops the run: no task starts any more, and all that have not started are about to fail.
    pub(super) fn stop(&mut self, cause: FailureCause) {
        self.stopped = Some(cause);
        for task in (0..self.table.len()).map(TaskId) {
            if matches!(self.table.row_mut(task).state, TaskState::New | TaskState::Ready) {
                self.failing.push_back((task, cause));
            }
        }
    }

    /// Fails the failing tasks and all tasks that depend on them.
    pub(super) fn propagate_failures(&mut self, context: &mut EventContext) {
        while let Some((task, cause)) = self.failing.pop_front() {
            if self.table.row_mut(task).state != TaskState::Failed {
                self.fail(task, cause, context);
            }
        }
    }

    fn fail(&mut self, task: TaskId, cause: FailureCause, context: &mut EventContext) {
        self.set_state(task, TaskState::Failed, context.now_ms);
        self.space.count_task_ended(self.tool(task));
        self.failures.insert(task, cause);
        context.commands.push(SchedulerCommand::Failed { task, cause });
        let root = self.root(task);
        for position in 0..self.table.outputs(task).len() {
            let data = self.table.outputs(task)[position];
            // One that ran again may have written this datum before.
            if self.table.datum_mut(data).state != DataState::Present {
                self.table.datum_mut(data).state = DataState::Lost;
                self.fail_waiting_readers(data, FailureCause::Input { data, root });
            }
        }
        if !self.table.row_mut(task).was_done {
            let cause = FailureCause::Predecessor { task, root };
            self.failing.extend(self.table.waiters_of(task).map(|waiter| (waiter, cause)));
        }
        self.release_inputs(task, context);
    }

    pub(super) fn cause_by_data(&self, data: DataId) -> Option<FailureCause> {
        let writer = self.table.datum(data)?.writer()?;
        Some(FailureCause::Input { data, root: self.root(writer) })
    }

    pub(super) fn cause_by_task(&self, task: TaskId) -> FailureCause {
        FailureCause::Predecessor { task, root: self.root(task) }
    }

    /// The task at the root of a task's failure.
    pub(super) fn root(&self, failed: TaskId) -> TaskId {
        match self.failures.get(&failed) {
            Some(FailureCause::Input { root, .. } | FailureCause::Predecessor { root, .. }) => *root,
            _ => failed,
        }
    }
}
