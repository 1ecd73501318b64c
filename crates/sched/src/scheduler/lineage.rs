//! Data that is lost, and the tasks that make it again.
//!
//! A lost datum is made again only if it is needed: its writer runs again, and so do the writers of
//! those of its inputs that were lost or dropped, by a worklist (`again`). Invariant: a datum that
//! is `Dropped` has no reader that waits. A reader that runs goes on, and needs the datum only if
//! it fails.

use super::{EventContext, Scheduler};
use crate::messages::{FailureCause, SchedulerCommand};
use crate::table::{DataState, TaskState};
use flow::{DataId, TaskId};

impl Scheduler {
    pub(super) fn on_lost_data(&mut self, data: DataId, needed: bool, context: &mut EventContext) {
        let Some(datum) = self.table.datum(data).filter(|datum| datum.writer().is_some()) else { return };
        match datum.state {
            DataState::Present => self.forget_copies(data, context.now_ms),
            DataState::Dropped => {}
            DataState::Awaited | DataState::Lost => return,
        }
        let waits = |task: TaskId| self.table.row(task).is_some_and(|row| row.state == TaskState::New);
        if self.stopped.is_none() && (needed || self.table.readers_of(data).any(waits)) {
            self.remake(data, context);
            self.run_again(context);
        }
    }

    /// Counts a datum as gone. Its readers that are ready wait again.
    fn forget_copies(&mut self, data: DataId, now_ms: u64) {
        self.locations.clear(data);
        let datum = self.table.datum_mut(data);
        datum.state = DataState::Dropped;
        if datum.has_readers() || datum.kept {
            self.space.forget_data(data);
        }
        let readers: Vec<TaskId> = self.table.readers_of(data).collect();
        for reader in readers {
            match self.table.row_mut(reader).state {
                TaskState::New => self.table.row_mut(reader).missing += 1,
                TaskState::Ready => self.withdraw(reader, now_ms),
                TaskState::Running(..) => drop(self.deprived.insert(reader)),
                TaskState::Done | TaskState::Failed | TaskState::Vacant => {}
            }
        }
    }

    /// Makes a ready task wait for one input.
    fn withdraw(&mut self, task: TaskId, now_ms: u64) {
        self.policy.remove(task);
        self.space.forget_ready(task);
        self.set_state(task, TaskState::New, now_ms);
        self.table.row_mut(task).missing = 1;
    }

    /// Decides how a datum that is gone comes into being again.
    fn remake(&mut self, data: DataId, context: &mut EventContext) {
        let Some(writer) = self.table.datum_mut(data).writer() else {
            self.table.datum_mut(data).state = DataState::Present;
            return context.commands.push(SchedulerCommand::Provide { data });
        };
        self.table.datum_mut(data).state = DataState::Awaited;
        match self.table.row_mut(writer).state {
            TaskState::Done => self.again.push_back(writer),
            TaskState::Failed => {
                self.table.datum_mut(data).state = DataState::Lost;
                let root = self.root(writer);
                self.fail_waiting_readers(data, FailureCause::Input { data, root });
            }
            TaskState::New | TaskState::Ready | TaskState::Running(..) | TaskState::Vacant => {}
        }
    }

    /// Fails the readers of a lost datum that wait for it. Those that run go on.
    pub(super) fn fail_waiting_readers(&mut self, data: DataId, cause: FailureCause) {
        let waits = |task: &TaskId| self.table.row(*task).is_some_and(|row| row.state == TaskState::New);
        self.failing.extend(self.table.readers_of(data).filter(waits).map(|reader| (reader, cause)));
    }

    fn run_again(&mut self, context: &mut EventContext) {
        while let Some(task) = self.again.pop_front() {
            // A task that lost two outputs is named twice.
            if self.table.row_mut(task).state == TaskState::Done {
                self.revive(task, context);
            }
        }
    }

    /// Makes a task that is done new again.
    fn revive(&mut self, task: TaskId, context: &mut EventContext) {
        let row = self.table.row_mut(task);
        row.state = TaskState::New;
        row.since_ms = context.now_ms;
        row.attempts_max = row.attempts.saturating_add(row.retries).saturating_add(1);
        self.counts.done -= 1;
        self.counts.new += 1;
        self.ended = false;
        self.losses.remove(&task);
        self.space.count_task(self.tool(task));
        context.commands.push(SchedulerCommand::Again { task });
        let inputs = self.table.inputs(task).len();
        for position in 0..inputs {
            let data = self.table.input(task, position);
            if let Some(last) = self.table.datum_mut(data).last_reader() {
                self.space.remove_freed(last, data);
            }
            self.table.readd_reader(data, task);
        }
        self.await_inputs(task, context);
    }

    /// Makes the inputs that a new task lacks again. The task is ready if it lacks none then.
    fn await_inputs(&mut self, task: TaskId, context: &mut EventContext) {
        let lacking: Vec<DataId> = self.lacking(task).collect();
        for data in lacking {
            match self.table.datum_mut(data).state {
                DataState::Dropped => self.remake(data, context),
                DataState::Lost => self.failing.extend(self.cause_by_data(data).map(|cause| (task, cause))),
                DataState::Awaited | DataState::Present => {}
            }
        }
        self.count_missing(task, context.now_ms);
    }

    /// Makes the inputs of an added task that are gone again.
    pub(super) fn remake_inputs(&mut self, task: TaskId, context: &mut EventContext) {
        let is_gone = |data: &DataId| self.table.datum(*data).is_some_and(|datum| datum.state == DataState::Dropped);
        let gone: Vec<DataId> = self.lacking(task).filter(is_gone).collect();
        if self.stopped.is_none() && !gone.is_empty() {
            for data in gone {
                self.remake(data, context);
            }
            self.run_again(context);
        }
    }

    /// A task whose attempt failed is ready again, or waits for inputs that were lost, or fails if
    /// they will never exist.
    pub(super) fn try_again(&mut self, task: TaskId, left: u32, context: &mut EventContext) {
        self.set_state(task, TaskState::New, context.now_ms);
        self.await_inputs(task, context);
        self.run_again(context);
        if self.failing.iter().all(|(other, _)| *other != task) {
            context.commands.push(SchedulerCommand::Retry { task, left });
        }
    }
}
