//! Lost data: the rules one by one, and thousands of random runs with losses, checked by an oracle.

use crate::*;
use SchedulerCommand::{Again, Drop, Ended, Failed, Provide, Retry, Start};
use base::SplitMix64;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeMap, BTreeSet};

fn task(id: u32, inputs: &[u32], outputs: &[u32]) -> TaskSpec {
    let data = |ids: &[u32]| ids.iter().copied().map(DataId).collect();
    TaskSpec { inputs: data(inputs), outputs: data(outputs), ..TaskSpec::new(TaskId(id)) }
}

/// A begun scheduler of one worker with this many processors, in which datum 0 is an input.
struct Harness(Scheduler);

impl Harness {
    fn new(slots: u32, tasks: Vec<TaskSpec>) -> Self {
        Self::growing(slots, tasks).closed()
    }

    fn growing(slots: u32, tasks: Vec<TaskSpec>) -> Self {
        let mut harness = Self(Scheduler::without_workers(SchedulerOptions::default()));
        harness.0.add_existing(DataId(0));
        harness.add_worker(0, slots);
        for task in tasks {
            harness.on(SchedulerEvent::Add(Box::new(task)));
        }
        harness.on(SchedulerEvent::Begin);
        harness
    }

    fn closed(mut self) -> Self {
        self.on(SchedulerEvent::Close);
        self
    }

    fn add_worker(&mut self, id: u32, slots: u32) -> Vec<SchedulerCommand> {
        let capacity = MachineCapacity { slots, memory: 0 };
        self.on(SchedulerEvent::AddWorker { worker: WorkerId(id), place: PlaceId(id), capacity })
    }

    fn on(&mut self, event: SchedulerEvent) -> Vec<SchedulerCommand> {
        let mut commands = Vec::new();
        self.0.on(event, 0, &mut commands);
        commands
    }

    /// The running attempt of a task.
    fn attempt(&self, id: u32) -> AttemptId {
        self.0.running_attempt(TaskId(id)).expect("it runs")
    }

    fn done(&mut self, id: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::Done(self.attempt(id)))
    }

    fn failed(&mut self, id: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::Failed { attempt: self.attempt(id), retry: false })
    }

    fn lost(&mut self, data: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::LostData { data: DataId(data), needed: false })
    }

    fn needed(&mut self, data: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::LostData { data: DataId(data), needed: true })
    }
}

fn start(task: u32, slot: u32, attempt: u32) -> SchedulerCommand {
    Start { task: TaskId(task), worker: WorkerId(0), slot: SlotId(slot), attempt, ahead: false }
}

fn again(task: u32) -> SchedulerCommand {
    Again { task: TaskId(task) }
}

fn drop_of(data: u32) -> SchedulerCommand {
    Drop { data: DataId(data) }
}

fn retry(task: u32, left: u32) -> SchedulerCommand {
    Retry { task: TaskId(task), left }
}

fn input_failed(task: u32, data: u32, root: u32) -> SchedulerCommand {
    Failed { task: TaskId(task), cause: FailureCause::Input { data: DataId(data), root: TaskId(root) } }
}

/// 0 -> d1 -> 1 -> d2 -> 2 -> d3 -> 3.
fn chain() -> Vec<TaskSpec> {
    (0..4).map(|id| task(id, &[id], &[id + 1])).collect()
}

#[test]
fn a_reader_that_is_ready_waits_until_the_writer_has_run_again() {
    let mut harness = Harness::new(1, vec![task(0, &[], &[1]), task(1, &[], &[]), task(2, &[1], &[])]);
    assert_eq!(harness.done(0), [start(1, 0, 1)], "task 2 is ready");
    assert_eq!(harness.lost(1), [again(0)]);
    let waits = TaskExplanation::Waiting { missing: 1, data: Some((DataId(1), Some(TaskId(0)))), after: None };
    assert_eq!(harness.0.explain(TaskId(2), 0), Some(waits));
    assert_eq!(harness.done(1), [start(0, 0, 2)]);
    assert_eq!(harness.done(0), [start(2, 0, 1)]);
    assert_eq!(harness.done(2), [drop_of(1), Ended { done: 3, failed: 0 }]);
}

#[test]
fn a_reader_that_waits_for_other_data_waits_for_the_lost_one_too() {
    let mut harness = Harness::new(2, vec![task(0, &[], &[1]), task(1, &[], &[2]), task(2, &[1, 2], &[])]);
    assert_eq!(harness.done(0), []);
    assert_eq!(harness.lost(1), [again(0), start(0, 0, 2)]);
    assert_eq!(harness.lost(1), [], "it is on its way");
    assert_eq!([harness.done(1), harness.done(0)], [vec![], vec![start(2, 0, 1)]]);
}

#[test]
fn dropped_data_is_made_again_for_a_task_that_runs_again_and_dropped_again() {
    let mut harness = Harness::new(1, chain());
    assert_eq!(harness.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(harness.done(1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(harness.done(2), [drop_of(2), start(3, 0, 1)]);
    assert_eq!(harness.lost(3), [], "its reader runs");
    let said = harness.failed(3);
    let chain = [again(2), again(1), again(0), Provide { data: DataId(0) }, retry(3, 1), start(0, 0, 2)];
    assert_eq!(said, chain, "the attempt does not count");
    assert_eq!(harness.done(0), [drop_of(0), start(1, 0, 2)]);
    assert_eq!(harness.done(1), [drop_of(1), start(2, 0, 2)]);
    assert_eq!(harness.done(2), [drop_of(2), start(3, 0, 2)]);
    assert_eq!(harness.done(3), [drop_of(3), Ended { done: 4, failed: 0 }]);
}

#[test]
fn a_reader_that_runs_to_its_end_makes_nothing_run_again() {
    let mut harness = Harness::new(1, vec![task(0, &[], &[1]), task(1, &[1], &[])]);
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    assert_eq!(harness.lost(1), []);
    assert_eq!(harness.done(1), [Ended { done: 2, failed: 0 }]);
}

#[test]
fn a_failure_does_not_count_even_if_the_lost_input_exists_again() {
    let tasks = vec![task(0, &[], &[1]), task(1, &[1], &[]), task(2, &[], &[]), task(3, &[1], &[])];
    let mut harness = Harness::new(2, tasks);
    assert_eq!(harness.done(2), [], "task 0 runs");
    assert_eq!(harness.done(0), [start(1, 0, 1), start(3, 1, 1)]);
    assert_eq!(harness.lost(1), []);
    assert_eq!(harness.failed(1), [again(0), retry(1, 1), start(0, 0, 2)]);
    assert_eq!(harness.done(0), [start(1, 0, 2)]);
    assert_eq!(harness.failed(3), [retry(3, 1), start(3, 1, 2)]);
    let failed = Failed { task: TaskId(3), cause: FailureCause::OwnAttempt };
    assert_eq!(harness.failed(3), [failed], "nothing was lost in this attempt");
}

#[test]
fn data_that_nobody_needs_is_not_made_again_unless_the_caller_needs_it() {
    let mut harness = Harness::new(1, vec![task(0, &[0], &[1]), task(1, &[], &[])]);
    assert_eq!(harness.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(harness.lost(1), []);
    assert_eq!(harness.lost(0), [], "an input of the workflow");
    assert_eq!(harness.done(1), [Ended { done: 2, failed: 0 }]);
    assert_eq!(harness.needed(1), [again(0), Provide { data: DataId(0) }, start(0, 0, 2)], "after the end");
    assert_eq!(harness.done(0), [drop_of(0), Ended { done: 2, failed: 0 }]);
}

#[test]
fn only_what_was_lost_is_waited_for_and_copies_that_nobody_needs_are_dropped_again() {
    // 0 writes d1, d2 and d3. Reader 1 of d1 is done, reader 2 of d2 runs, reader 3 of d3 is ready.
    let readers = (1..4).map(|id| task(id, &[id], &[]));
    let mut harness = Harness::new(1, [task(0, &[], &[1, 2, 3])].into_iter().chain(readers).collect());
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    assert_eq!(harness.done(1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(harness.lost(3), [again(0)]);
    assert_eq!(harness.done(2), [drop_of(2), start(0, 0, 2)]);
    assert_eq!(harness.done(0), [drop_of(1), drop_of(2), start(3, 0, 1)]);
    assert_eq!(harness.done(3), [drop_of(3), Ended { done: 4, failed: 0 }]);
}

#[test]
fn a_writer_whose_second_run_fails_for_good_fails_the_readers_of_what_was_lost_only() {
    let after = TaskSpec { after: vec![TaskId(0)], ..task(3, &[], &[]) };
    let mut harness =
        Harness::new(1, vec![task(0, &[], &[1, 2]), task(1, &[], &[]), task(2, &[1], &[]), after, task(4, &[2], &[])]);
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    assert_eq!(harness.lost(1), [again(0)]);
    assert_eq!(harness.done(1), [start(4, 0, 1)], "it became ready first");
    assert_eq!(harness.done(4), [drop_of(2), start(3, 0, 1)], "the order of the tasks was kept");
    assert_eq!(harness.done(3), [start(0, 0, 2)]);
    let own = Failed { task: TaskId(0), cause: FailureCause::OwnAttempt };
    assert_eq!(harness.failed(0), [own, input_failed(2, 1, 0), Ended { done: 3, failed: 2 }]);
}

#[test]
fn a_running_reader_fails_for_good_if_its_input_will_never_exist_again() {
    let mut harness = Harness::new(2, vec![task(0, &[], &[1]), task(1, &[1], &[]), task(2, &[1], &[])]);
    assert_eq!(harness.done(0), [start(1, 0, 1), start(2, 1, 1)]);
    harness.lost(1);
    assert_eq!(harness.failed(1), [again(0), retry(1, 1), start(0, 0, 2)]);
    let own = Failed { task: TaskId(0), cause: FailureCause::OwnAttempt };
    assert_eq!(harness.failed(0), [own, input_failed(1, 1, 0)]);
    assert_eq!(harness.failed(2), [input_failed(2, 1, 0), Ended { done: 0, failed: 3 }]);
}

#[test]
fn a_task_that_runs_again_has_all_its_retries() {
    let flaky = TaskSpec { retries: 1, ..task(0, &[], &[1]) };
    let mut harness = Harness::new(1, vec![flaky, task(1, &[], &[]), task(2, &[1], &[])]);
    let failed =
        |harness: &mut Harness| harness.on(SchedulerEvent::Failed { attempt: harness.attempt(0), retry: true });
    assert_eq!(failed(&mut harness)[0], retry(0, 1));
    assert_eq!(harness.done(1), [start(0, 0, 2)]);
    harness.done(0);
    harness.lost(1);
    // Task 2 runs; it fails and waits.
    assert_eq!(harness.failed(2), [again(0), retry(2, 1), start(0, 0, 3)]);
    assert_eq!(failed(&mut harness), [retry(0, 1), start(0, 0, 4)]);
}

#[test]
fn a_task_added_later_makes_lost_data_again() {
    let mut harness = Harness::growing(1, vec![task(0, &[], &[1])]);
    assert_eq!(harness.done(0), []);
    assert_eq!(harness.lost(1), [], "it has no reader yet");
    assert_eq!(harness.on(SchedulerEvent::Add(Box::new(task(1, &[1], &[])))), [again(0), start(0, 0, 2)]);
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    let mut harness = harness.closed();
    assert_eq!(harness.done(1), [drop_of(1), Ended { done: 2, failed: 0 }]);
}

#[test]
fn a_task_that_found_no_space_waits_for_its_input_again() {
    let mut harness = Harness::new(2, vec![task(0, &[], &[1]), task(1, &[], &[]), task(2, &[1], &[])]);
    harness.on(SchedulerEvent::Pool(PoolState { capacity: 1000, used: 0, leaving: 0, waiting: 0 }));
    assert_eq!(harness.done(0), [start(2, 0, 1)]);
    assert_eq!(harness.on(SchedulerEvent::NoSpace { attempt: harness.attempt(2), retry: false }), [retry(2, 1)]);
    assert_eq!(harness.lost(1), [again(0), start(0, 0, 2)]);
    assert_eq!(harness.done(1), []);
    assert_eq!(harness.done(0), [start(2, 0, 2)]);
}

#[test]
fn a_lost_worker_takes_data_and_readers_with_it() {
    let mut harness = Harness::new(1, vec![task(0, &[], &[1]), task(1, &[1], &[])]);
    harness.add_worker(1, 1);
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    assert_eq!(harness.lost(1), []);
    let said = harness.on(SchedulerEvent::LostWorker(WorkerId(0)));
    let elsewhere = Start { task: TaskId(0), worker: WorkerId(1), slot: SlotId(0), attempt: 2, ahead: false };
    assert_eq!(said, [again(0), retry(1, 1), elsewhere]);
}

#[test]
fn a_run_that_was_stopped_makes_nothing_again() {
    let mut harness = Harness::new(1, vec![task(0, &[], &[1]), task(1, &[1], &[])]);
    harness.done(0);
    harness.on(SchedulerEvent::Cancel);
    assert_eq!(harness.needed(1), []);
    let failed = Failed { task: TaskId(1), cause: FailureCause::Cancelled };
    assert_eq!(harness.failed(1), [failed, Ended { done: 1, failed: 1 }]);
}

/// Data below are inputs of the workflow; task `i` writes data `GIVEN + 2 * i` and the next one.
const GIVEN: u32 = 2;

/// A random run with losses. The oracle knows which data exists and which tasks have to run.
struct LossyRun {
    random: SplitMix64,
    scheduler: Scheduler,
    tasks: Vec<TaskSpec>,
    /// The next task to add.
    added: usize,
    kept: BTreeSet<DataId>,
    existing: BTreeSet<DataId>,
    running: BTreeMap<TaskId, WorkerId>,
    done: BTreeSet<TaskId>,
    /// Data that was lost or dropped, and not written since.
    gone: BTreeSet<DataId>,
    workers: BTreeSet<WorkerId>,
    next_worker: u32,
    /// The number of times that a task ran again.
    again: u32,
    has_pool: bool,
    closed: bool,
    ended: bool,
}

impl LossyRun {
    fn new(seed: u64, policy: PolicyKind) -> Self {
        let mut random = SplitMix64::new(seed);
        let tasks: Vec<TaskSpec> = (0..12).map(|id| random_task(id, &mut random)).collect();
        let mut run = Self {
            random,
            scheduler: Scheduler::without_workers(SchedulerOptions { policy, ..SchedulerOptions::default() }),
            tasks,
            added: 0,
            kept: BTreeSet::new(),
            existing: (0..GIVEN).map(DataId).collect(),
            running: BTreeMap::new(),
            done: BTreeSet::new(),
            gone: BTreeSet::new(),
            workers: BTreeSet::new(),
            next_worker: 0,
            again: 0,
            has_pool: seed.is_multiple_of(2),
            closed: false,
            ended: false,
        };
        (0..GIVEN).for_each(|data| run.scheduler.add_existing(DataId(data)));
        for data in (GIVEN..GIVEN + 24).map(DataId) {
            if run.below(6) == 0 {
                run.kept.insert(data);
                run.scheduler.keep(data);
            }
        }
        run
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.random.below(end.into())).expect("below a u32")
    }

    fn send(&mut self, event: SchedulerEvent) {
        let mut commands = Vec::new();
        self.scheduler.on(event, 0, &mut commands);
        for command in commands {
            self.obey(command);
        }
        let counts = self.scheduler.counts();
        assert_eq!((counts.running as usize, counts.done as usize), (self.running.len(), self.done.len()));
    }

    fn obey(&mut self, command: SchedulerCommand) {
        match command {
            Start { task, worker, .. } => {
                let spec = &self.tasks[task.0 as usize];
                assert!(spec.inputs.iter().all(|data| self.existing.contains(data)), "{task:?} lacks an input");
                assert!(!self.done.contains(&task) && self.workers.contains(&worker));
                assert_eq!(self.running.insert(task, worker), None);
            }
            Again { task } => {
                assert!(self.done.remove(&task), "{task:?} was not done");
                let outputs = &self.tasks[task.0 as usize].outputs;
                assert!(outputs.iter().any(|data| self.is_wanted(*data)), "{task:?} runs again for nothing");
                self.again += 1;
                self.ended = false;
            }
            Provide { data } => {
                assert!(data.0 < GIVEN && self.gone.remove(&data) && self.existing.insert(data));
            }
            Drop { data } => {
                let mut readers = self.tasks.iter().filter(|task| task.inputs.contains(&data));
                assert!(self.closed && !self.kept.contains(&data), "{data:?}");
                assert!(readers.all(|task| self.done.contains(&task.id)), "{data:?} has readers");
                assert!(self.existing.remove(&data) && self.gone.insert(data));
            }
            Ended { done, failed } => {
                assert_eq!((done as usize, failed), (self.tasks.len(), 0));
                assert!(self.running.is_empty() && !self.ended);
                self.ended = true;
            }
            Retry { task, left } => assert!(!self.done.contains(&task) && left > 0),
            SchedulerCommand::Clean { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether a datum is gone and a task that has to run reads it, or the caller needs it.
    fn is_wanted(&self, data: DataId) -> bool {
        let has_to_run = |task: &TaskSpec| !self.done.contains(&task.id) && !self.running.contains_key(&task.id);
        let is_read = self.tasks[..self.added].iter().any(|task| task.inputs.contains(&data) && has_to_run(task));
        self.gone.contains(&data) && (is_read || self.kept.contains(&data))
    }

    fn add_worker(&mut self) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        self.workers.insert(worker);
        let capacity = MachineCapacity { slots: 1 + self.below(2), memory: 0 };
        self.send(SchedulerEvent::AddWorker { worker, place: PlaceId(worker.0 % 3), capacity });
    }

    fn add_task(&mut self) {
        let spec = self.tasks[self.added].clone();
        self.added += 1;
        self.send(SchedulerEvent::Add(Box::new(spec)));
    }

    fn lose_data(&mut self) {
        let lossy: Vec<DataId> = self.existing.iter().copied().filter(|data| data.0 >= GIVEN).collect();
        if lossy.is_empty() {
            return;
        }
        let data = lossy[self.below(u32::try_from(lossy.len()).expect("few")) as usize];
        self.existing.remove(&data);
        self.gone.insert(data);
        self.send(SchedulerEvent::LostData { data, needed: self.kept.contains(&data) });
    }

    fn pick_running(&mut self) -> Option<(TaskId, WorkerId)> {
        let pick = self.below(u32::try_from(self.running.len().max(1)).expect("few"));
        self.running.iter().nth(pick as usize).map(|(task, worker)| (*task, *worker))
    }

    fn end_task(&mut self) {
        let Some((task, worker)) = self.pick_running() else { return };
        let attempt = self.scheduler.running_attempt(task).expect("it runs");
        for data in self.tasks[task.0 as usize].outputs.clone() {
            let (bytes, place) = (u64::from(self.below(100)), Some(PlaceId(worker.0 % 3)));
            self.send(SchedulerEvent::Wrote { attempt, data, bytes, place });
        }
        for data in &self.tasks[task.0 as usize].outputs {
            self.existing.insert(*data);
            self.gone.remove(data);
        }
        self.running.remove(&task);
        self.done.insert(task);
        self.send(SchedulerEvent::Done(attempt));
    }

    /// Fails a running task of which an input is gone: it has no retries, and still goes on.
    fn fail_deprived(&mut self) {
        let Some((task, _)) = self.pick_running() else { return };
        if self.tasks[task.0 as usize].inputs.iter().any(|data| self.gone.contains(data)) {
            self.running.remove(&task);
            let retry = self.below(2) == 0;
            let no_space = self.below(4) == 0;
            let attempt = self.scheduler.running_attempt(task).expect("it runs");
            let failed = SchedulerEvent::Failed { attempt, retry };
            self.send(if no_space { SchedulerEvent::NoSpace { attempt, retry } } else { failed });
        }
    }

    fn lose_worker(&mut self) {
        let Some(worker) = self.workers.first().copied().filter(|_| self.workers.len() > 1) else { return };
        self.workers.remove(&worker);
        self.running.retain(|_, other| *other != worker);
        self.send(SchedulerEvent::LostWorker(worker));
    }

    fn step(&mut self, lossy: bool) {
        match self.below(16) {
            0..3 if self.added < self.tasks.len() => self.add_task(),
            3..6 if lossy => self.lose_data(),
            6..8 => self.fail_deprived(),
            9 if self.has_pool => {
                let used = u64::from(self.below(1000));
                self.send(SchedulerEvent::Pool(PoolState { capacity: 1000, used, leaving: 0, waiting: 0 }));
            }
            // Each task loses its worker three times at most, so none fails.
            8 if self.next_worker < 4 && lossy => {
                self.add_worker();
                self.lose_worker();
            }
            _ => self.end_task(),
        }
        if !self.closed && self.added == self.tasks.len() {
            self.closed = true;
            self.send(SchedulerEvent::Close);
        }
    }

    fn run(&mut self) -> u32 {
        self.add_worker();
        self.send(SchedulerEvent::Begin);
        for step in 0.. {
            assert!(step < 5000, "it goes on for ever: {:?}", self.scheduler.counts());
            // Data may be lost after the end, too.
            if self.ended && step >= 200 {
                break;
            }
            self.step(step < 200);
        }
        assert!(self.kept.iter().all(|data| self.existing.contains(data) || !self.has_writer(*data)));
        self.again
    }

    fn has_writer(&self, data: DataId) -> bool {
        self.tasks.iter().any(|task| task.outputs.contains(&data))
    }
}

fn random_task(id: u32, random: &mut SplitMix64) -> TaskSpec {
    let mut below = |end: u32| u32::try_from(random.below(end.into())).expect("below a u32");
    let inputs = (0..below(4)).map(|_| match below(GIVEN + 2 * id) {
        data if data < GIVEN => DataId(data),
        // The first output always exists.
        data => DataId(GIVEN + (data - GIVEN) / 2 * 2),
    });
    let inputs = inputs.collect();
    let outputs = (0..=below(2)).map(|at| DataId(GIVEN + 2 * id + at)).collect();
    let after = (0..below(2)).filter(|_| id > 0).map(|_| TaskId(below(id))).collect();
    TaskSpec { tool: ToolId(below(3)), inputs, outputs, after, ..TaskSpec::new(TaskId(id)) }
}

#[test]
fn every_task_is_done_in_the_end_and_only_what_was_lost_and_needed_is_made_again() {
    let mut again = 0;
    for policy in PolicyKind::ALL {
        for seed in 0..1500 {
            again += LossyRun::new(seed, policy).run();
        }
    }
    assert!(again > 10_000, "tasks ran again: {again}");
}
