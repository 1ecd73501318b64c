//! Tasks that an earlier process of the same run has done: they do not run again.

use super::cluster::StartKind;
use super::{EventContext, Growth, Scheduler};
use crate::messages::{AddError, AttemptId, TaskSpec};
use crate::policy::{Assignment, StartReason};
use crate::resources::{PlaceId, WorkerId};
use crate::table::{DataState, TaskState};
use flow::{DataId, TaskId};

/// A datum that a restored task wrote and that still exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredData {
    /// Its bytes in the pool.
    pub bytes: u64,
    /// The place where it is; `None` if places do not matter.
    pub place: Option<PlaceId>,
    /// True if it is never dropped, as an input that takes no memory of the pool.
    pub kept: bool,
}

impl Scheduler {
    /// Declares that tasks are done, before the run begins and after all tasks were added. `exists`
    /// returns what still exists of their outputs. The caller makes sure that every output exists
    /// which a task that is not done reads.
    pub fn restore(&mut self, done: &[TaskId], exists: impl Fn(DataId) -> Option<RestoredData>) {
        assert!(!self.begun && self.growth != Growth::Closed, "restored before the beginning");
        for task in done {
            if self.table.row_mut(*task).state == TaskState::Ready {
                self.policy.remove(*task);
                self.space.forget_ready(*task);
            }
            self.set_state(*task, TaskState::Done, 0);
            self.table.row_mut(*task).was_done = true;
            self.space.count_task_ended(self.tool(*task));
        }
        for task in done {
            let inputs = self.table.inputs(*task).len();
            for position in 0..inputs {
                let data = self.table.input(*task, position);
                self.table.remove_reader(data, *task);
            }
        }
        let mut unblocked = Vec::new();
        for task in done {
            for position in 0..self.table.outputs(*task).len() {
                let data = self.table.outputs(*task)[position];
                self.restore_data(data, exists(data), &mut unblocked);
            }
            unblocked.extend(self.table.waiters_of(*task));
        }
        // Only now: the sizes of all data are known.
        for waiter in unblocked {
            let row = self.table.row_mut(waiter);
            if row.state != TaskState::New {
                continue;
            }
            row.missing -= 1;
            if row.missing == 0 {
                self.make_ready(waiter, None, 0);
            }
        }
    }

    /// Adds a task that is done already while the workflow grows. `exists` returns what exists of
    /// its outputs; others are made again if a later task reads them.
    ///
    /// # Errors
    /// The task cannot be added.
    pub fn add_done(
        &mut self,
        spec: &TaskSpec,
        exists: impl Fn(DataId) -> Option<RestoredData>,
    ) -> Result<(), AddError> {
        self.admit(spec)?;
        self.table.insert(spec, 0)?;
        self.counts.new += 1;
        self.space.count_task(spec.tool);
        self.set_state(spec.id, TaskState::Done, 0);
        self.table.row_mut(spec.id).was_done = true;
        self.space.count_task_ended(spec.tool);
        for data in &spec.inputs {
            self.table.remove_reader(*data, spec.id);
        }
        for data in &spec.outputs {
            self.restore_data(*data, exists(*data), &mut Vec::new());
        }
        Ok(())
    }

    /// Declares how many attempts a task that will run had before: the numbers of further ones go
    /// on, and none of these counts as a retry.
    pub fn restore_attempts(&mut self, task: TaskId, attempts: u32) {
        let row = self.table.row_mut(task);
        (row.attempts, row.attempts_max) = (attempts, attempts.saturating_add(row.retries).saturating_add(1));
    }

    /// Lets the last attempt of a task go on that a worker runs already. The task starts anew
    /// instead if it is not ready or does not fit.
    pub(super) fn adopt(
        &mut self,
        AttemptId { task, attempt }: AttemptId,
        worker: WorkerId,
        context: &mut EventContext,
    ) {
        let Some(row) = self.table.row(task) else { return };
        let is_last = row.state == TaskState::Ready && row.attempts == attempt;
        if !is_last || !self.workers.fits(worker, row.demand) || self.stopped.is_some() {
            return;
        }
        // The attempt that starts has the next number.
        self.restore_attempts(task, attempt.saturating_sub(1));
        self.start(Assignment { task, worker, slot: None, reason: StartReason::Resumed }, StartKind::Other, context);
    }

    fn restore_data(&mut self, data: DataId, exists: Option<RestoredData>, unblocked: &mut Vec<TaskId>) {
        let Some(RestoredData { bytes, place, kept }) = exists else {
            self.table.datum_mut(data).state = DataState::Dropped;
            return;
        };
        self.table.datum_mut(data).state = DataState::Present;
        let stays = self.table.datum_mut(data).kept || self.table.readers_of(data).next().is_some();
        self.space.set_size(data, bytes, stays && !kept);
        self.table.datum_mut(data).kept |= kept;
        if let Some(place) = place {
            self.locations.add(data, place);
        }
        unblocked.extend(self.table.readers_of(data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MachineCapacity, SchedulerCommand, SchedulerEvent, SchedulerOptions};

    /// Four tasks: 0 writes datum 0, 1 reads it and writes 1, 2 reads 1 and writes 2, 3 comes after
    /// 0.
    fn chain() -> Scheduler {
        let options = SchedulerOptions::default();
        let mut scheduler = Scheduler::new(MachineCapacity { slots: 1, memory: 0 }, options);
        for id in 0..3 {
            let inputs = if id > 0 { vec![DataId(id - 1)] } else { vec![] };
            let spec = TaskSpec { inputs, outputs: vec![DataId(id)], ..TaskSpec::new(TaskId(id)) };
            scheduler.add(&spec, 0).expect("it fits");
        }
        let last = TaskSpec { after: vec![TaskId(0)], ..TaskSpec::new(TaskId(3)) };
        scheduler.add(&last, 0).expect("it fits");
        scheduler.mark_complete();
        scheduler
    }

    fn starts(commands: &[SchedulerCommand]) -> Vec<u32> {
        let start = |command: &SchedulerCommand| match command {
            SchedulerCommand::Start { task, .. } => Some(task.0),
            _ => None,
        };
        commands.iter().filter_map(start).collect()
    }

    fn run(scheduler: &mut Scheduler) -> Vec<SchedulerCommand> {
        let mut all = Vec::new();
        scheduler.on(SchedulerEvent::Begin, 0, &mut all);
        let mut seen = 0;
        while seen < all.len() {
            if let SchedulerCommand::Start { task, attempt, .. } = all[seen] {
                scheduler.on(SchedulerEvent::Done(AttemptId { task, attempt }), 1, &mut all);
            }
            seen += 1;
        }
        all
    }

    #[test]
    fn what_is_done_does_not_run_and_the_rest_does() {
        let mut scheduler = chain();
        let data = RestoredData { bytes: 9, place: None, kept: false };
        scheduler.restore(&[TaskId(0), TaskId(1)], |id| (id == DataId(1)).then_some(data));
        let commands = run(&mut scheduler);
        let mut started = starts(&commands);
        started.sort_unstable();
        assert_eq!(started, [2, 3]);
        assert!(commands.contains(&SchedulerCommand::Drop { data: DataId(1) }), "its last reader has ended");
        assert!(!commands.contains(&SchedulerCommand::Drop { data: DataId(0) }), "it did not exist");
        assert_eq!(commands.last(), Some(&SchedulerCommand::Ended { done: 4, failed: 0 }));
        assert_eq!(scheduler.bytes_of(DataId(1)), 9);
    }

    #[test]
    fn a_task_that_is_added_as_done_runs_only_if_a_later_one_needs_what_is_gone() {
        let options = SchedulerOptions { grows: true, ..SchedulerOptions::default() };
        let mut scheduler = Scheduler::new(MachineCapacity { slots: 1, memory: 0 }, options);
        let mut commands = Vec::new();
        scheduler.on(SchedulerEvent::Begin, 0, &mut commands);
        let writes =
            |id, inputs, output| TaskSpec { inputs, outputs: vec![DataId(output)], ..TaskSpec::new(TaskId(id)) };
        let file = RestoredData { bytes: 9, place: None, kept: true };
        for id in 0..2 {
            scheduler.add_done(&writes(id, vec![], id), |data| (data == DataId(0)).then_some(file)).expect("it fits");
        }
        assert!(scheduler.exists(DataId(0)) && !scheduler.exists(DataId(1)));
        scheduler.on(SchedulerEvent::Add(Box::new(writes(2, vec![DataId(0)], 2))), 0, &mut commands);
        assert_eq!(starts(&commands), [2], "its input is a file");
        scheduler.on(SchedulerEvent::Add(Box::new(writes(3, vec![DataId(1)], 3))), 0, &mut commands);
        assert!(commands.contains(&SchedulerCommand::Again { task: TaskId(1) }), "its input is gone: {commands:?}");
        for task in [2, 1, 3] {
            scheduler.on(SchedulerEvent::Done(AttemptId { task: TaskId(task), attempt: 1 }), 1, &mut commands);
        }
        scheduler.on(SchedulerEvent::Close, 2, &mut commands);
        assert_eq!(starts(&commands), [2, 1, 3]);
        assert_eq!(commands.last(), Some(&SchedulerCommand::Ended { done: 4, failed: 0 }));
    }

    #[test]
    fn attempts_are_numbered_on_and_a_retry_is_left_all_the_same() {
        let mut scheduler = Scheduler::new(MachineCapacity { slots: 1, memory: 0 }, SchedulerOptions::default());
        scheduler.add(&TaskSpec { retries: 1, ..TaskSpec::new(TaskId(0)) }, 0).expect("it fits");
        scheduler.mark_complete();
        scheduler.restore_attempts(TaskId(0), 3);
        let mut commands = Vec::new();
        scheduler.on(SchedulerEvent::Begin, 0, &mut commands);
        for attempt in [4, 5] {
            scheduler.on(
                SchedulerEvent::Failed { attempt: AttemptId { task: TaskId(0), attempt }, retry: true },
                1,
                &mut commands,
            );
        }
        let number = |command: &SchedulerCommand| match command {
            SchedulerCommand::Start { attempt, .. } => Some(*attempt),
            _ => None,
        };
        assert_eq!(commands.iter().filter_map(number).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(commands.last(), Some(&SchedulerCommand::Ended { done: 0, failed: 1 }));
    }

    #[test]
    fn an_attempt_that_a_worker_runs_already_goes_on_there_before_anything_starts() {
        let mut scheduler = Scheduler::without_workers(SchedulerOptions::default());
        for id in 0..4 {
            scheduler.add(&TaskSpec::new(TaskId(id)), 0).expect("there are no limits yet");
        }
        scheduler.mark_complete();
        [0, 1, 2, 2].into_iter().enumerate().for_each(|(task, attempts)| {
            scheduler.restore_attempts(TaskId(u32::try_from(task).expect("small")), attempts);
        });
        let mut commands = Vec::new();
        scheduler.on(SchedulerEvent::Begin, 0, &mut commands);
        let runs = [(3, 1), (3, 2), (2, 2), (1, 1)].map(|(task, attempt)| AttemptId { task: TaskId(task), attempt });
        let (worker, place, capacity) = (WorkerId(5), PlaceId(1), MachineCapacity { slots: 2, memory: 0 });
        scheduler.on(SchedulerEvent::AddBusyWorker { worker, place, capacity, runs: runs.to_vec() }, 1, &mut commands);
        let start = |command: &SchedulerCommand| match command {
            SchedulerCommand::Start { task, attempt, .. } => Some((task.0, *attempt)),
            _ => None,
        };
        assert_eq!(commands.iter().filter_map(start).collect::<Vec<_>>(), [(3, 2), (2, 2)], "the last does not fit");
        scheduler.on(SchedulerEvent::Failed { attempt: runs[1], retry: false }, 2, &mut commands);
        assert_eq!(commands.iter().filter_map(start).next_back().map(|(task, _)| task), Some(0));
    }

    #[test]
    fn a_run_of_which_all_is_done_ends_at_once() {
        let mut scheduler = chain();
        scheduler.restore(&[0, 1, 2, 3].map(TaskId), |_| None);
        assert_eq!(run(&mut scheduler), [SchedulerCommand::Ended { done: 4, failed: 0 }]);
    }

    #[test]
    fn kept_data_is_not_dropped_and_lost_data_is_made_again_with_all_that_it_needs() {
        let mut scheduler = chain();
        let data = RestoredData { bytes: 9, place: Some(PlaceId(0)), kept: true };
        scheduler.restore(&[TaskId(0), TaskId(1)], |id| (id == DataId(1)).then_some(data));
        let mut commands = Vec::new();
        scheduler.on(SchedulerEvent::LostData { data: DataId(1), needed: false }, 0, &mut commands);
        let again = |task| SchedulerCommand::Again { task: TaskId(task) };
        assert!(commands.contains(&again(0)) && commands.contains(&again(1)), "{commands:?}");
        commands.extend(run(&mut scheduler));
        assert!(!commands.contains(&SchedulerCommand::Drop { data: DataId(1) }));
        assert_eq!(commands.last(), Some(&SchedulerCommand::Ended { done: 4, failed: 0 }));
    }
}
