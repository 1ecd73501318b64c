//! Second attempts of slow tasks: the rules one by one, and random runs, checked by an oracle.

use crate::*;
use SchedulerCommand::{Ended, Failed, Retry, Start, Stop};
use base::SplitMix64;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeMap, BTreeSet};

fn id(task: u32, attempt: u32) -> AttemptId {
    AttemptId { task: TaskId(task), attempt }
}

fn start(task: u32, worker: u32, attempt: u32) -> SchedulerCommand {
    Start { task: TaskId(task), worker: WorkerId(worker), slot: SlotId(0), attempt, ahead: false }
}

fn stop(task: u32, attempt: u32) -> SchedulerCommand {
    Stop { task: TaskId(task), attempt }
}

/// A begun scheduler with two workers of one processor, each at a place of its own.
struct Harness(Scheduler);

impl Harness {
    /// Tasks 0 to 3 of one tool; 0 to 2 took 1,000 ms each, and task 3 runs on worker 0 since 2,000
    /// ms.
    fn new() -> Self {
        Self::with_retries(0)
    }

    fn with_retries(retries: u32) -> Self {
        let mut harness = Self::empty();
        harness.add_worker(0, 0);
        harness.add_worker(1, 1);
        for id in 0..4 {
            let spec = TaskSpec { outputs: vec![DataId(id)], retries, ..TaskSpec::new(TaskId(id)) };
            harness.on(0, SchedulerEvent::Add(Box::new(spec)));
        }
        harness.on(0, SchedulerEvent::Close);
        assert_eq!(harness.on(0, SchedulerEvent::Begin), [start(0, 0, 1), start(1, 1, 1)]);
        assert_eq!(harness.done(1000, 0, 1), [start(2, 0, 1)]);
        assert_eq!(harness.on(1000, SchedulerEvent::DrainWorker(WorkerId(1))), []);
        assert_eq!(harness.done(1000, 1, 1), []);
        assert_eq!(harness.done(2000, 2, 1), [start(3, 0, 1)]);
        assert_eq!(harness.on(2000, SchedulerEvent::Tick), []);
        harness.add_worker(2, 2);
        harness
    }

    fn empty() -> Self {
        let policy = PolicyKind::Fifo;
        let options = SchedulerOptions { policy, stragglers: true, ..SchedulerOptions::default() };
        Self(Scheduler::without_workers(options))
    }

    fn add_worker(&mut self, worker: u32, place: u32) {
        let capacity = MachineCapacity { slots: 1, memory: 0 };
        self.on(0, SchedulerEvent::AddWorker { worker: WorkerId(worker), place: PlaceId(place), capacity });
    }

    fn on(&mut self, now_ms: u64, event: SchedulerEvent) -> Vec<SchedulerCommand> {
        let mut commands = Vec::new();
        self.0.on(event, now_ms, &mut commands);
        commands
    }

    fn done(&mut self, now_ms: u64, task: u32, attempt: u32) -> Vec<SchedulerCommand> {
        self.on(now_ms, SchedulerEvent::Done(id(task, attempt)))
    }

    fn failed(&mut self, now_ms: u64, task: u32, attempt: u32) -> Vec<SchedulerCommand> {
        self.on(now_ms, SchedulerEvent::Failed { attempt: id(task, attempt), retry: true })
    }

    fn second(&mut self) {
        assert_eq!(self.on(4001, SchedulerEvent::Tick), [start(3, 2, 2)]);
    }
}

const ENDED: SchedulerCommand = Ended { done: 4, failed: 0 };

#[test]
fn a_slow_task_gets_a_second_attempt_at_another_place_and_the_first_that_is_done_counts() {
    for winner in [1, 2] {
        let mut harness = Harness::new();
        assert_eq!(harness.on(4000, SchedulerEvent::Tick), [], "twice the median, and a second more");
        harness.second();
        assert_eq!(harness.on(9000, SchedulerEvent::Tick), [], "two are enough");
        let loser = 3 - winner;
        let (data, bytes, place) = (DataId(3), 7, None);
        harness.on(9000, SchedulerEvent::Wrote { attempt: id(3, winner), data, bytes, place });
        assert_eq!(harness.done(9000, 3, winner), [stop(3, loser)]);
        harness.on(9000, SchedulerEvent::Wrote { attempt: id(3, loser), data, bytes: 9, place });
        assert_eq!(harness.0.bytes_of(data), 7, "what the other one wrote does not count");
        let end = if winner == 1 { harness.done(9001, 3, loser) } else { harness.failed(9001, 3, loser) };
        assert_eq!(end, [ENDED]);
    }
}

#[test]
fn without_the_option_a_slow_task_runs_alone() {
    let mut plain = Harness(Scheduler::without_workers(SchedulerOptions::default()));
    plain.add_worker(0, 0);
    plain.add_worker(1, 1);
    for id in 0..4 {
        plain.on(0, SchedulerEvent::Add(Box::new(TaskSpec::new(TaskId(id)))));
    }
    plain.on(0, SchedulerEvent::Begin);
    assert_eq!([plain.done(1, 0, 1).len(), plain.done(1, 1, 1).len(), plain.done(1, 2, 1).len()], [1, 1, 0]);
    assert_eq!(plain.on(1_000_000, SchedulerEvent::Tick), []);
}

#[test]
fn a_task_that_is_bound_to_a_location_gets_no_second_attempt() {
    for hard in [false, true] {
        let mut harness = Harness::empty();
        harness.add_worker(0, 0);
        harness.on(0, SchedulerEvent::Begin);
        let location = Some(Location { at: LocationTarget::Place(PlaceId(0)), hard });
        for id in 0..4 {
            harness.on(0, SchedulerEvent::Add(Box::new(TaskSpec { location, ..TaskSpec::new(TaskId(id)) })));
        }
        for id in 0..3 {
            assert_eq!(harness.done(1000, id, 1), [start(id + 1, 0, 1)]);
        }
        harness.add_worker(1, 1);
        let second = [start(3, 1, 2)];
        assert_eq!(harness.on(9000, SchedulerEvent::Tick), if hard { &[][..] } else { &second });
    }
}

#[test]
fn one_failed_attempt_of_two_counts_nothing_and_both_count_one() {
    for first in [1, 2] {
        let mut harness = Harness::with_retries(1);
        harness.second();
        assert_eq!(harness.failed(5000, 3, first), []);
        let runs = harness.0.running_attempt(TaskId(3));
        assert_eq!(runs, Some(id(3, 3 - first)));
        assert_eq!(harness.on(9000, SchedulerEvent::Tick), [], "no third attempt beside it");
        let said = harness.failed(9000, 3, 3 - first);
        assert_eq!(said, [Retry { task: TaskId(3), left: 1 }, start(3, 0, 3)]);
        let failed = Failed { task: TaskId(3), cause: FailureCause::OwnAttempt };
        assert_eq!(harness.failed(9001, 3, 3), [failed, Ended { done: 3, failed: 1 }]);
    }
}

#[test]
fn an_attempt_that_finds_no_space_leaves_the_other_running() {
    let mut harness = Harness::new();
    harness.second();
    assert_eq!(harness.on(5000, SchedulerEvent::NoSpace { attempt: id(3, 1), retry: true }), []);
    assert_eq!(harness.done(6000, 3, 2), [ENDED]);
}

#[test]
fn a_lost_worker_leaves_the_other_attempt_and_another_one_may_start() {
    for lost in [0, 2] {
        let mut harness = Harness::new();
        harness.second();
        assert_eq!(harness.on(5000, SchedulerEvent::LostWorker(WorkerId(lost))), []);
        harness.add_worker(3, 3);
        // The second attempt has run since 4,001.
        let slow = if lost == 0 { 6002 } else { 5000 };
        assert_eq!(harness.on(slow, SchedulerEvent::Tick), [start(3, 3, 3)]);
        let other = if lost == 0 { 2 } else { 1 };
        assert_eq!(harness.done(7000, 3, 3), [stop(3, other)]);
        assert_eq!(harness.on(7000, SchedulerEvent::LostWorker(WorkerId(2 - lost))), [ENDED]);
    }
}

#[test]
fn without_an_idle_processor_there_is_no_second_attempt() {
    let mut harness = Harness::new();
    harness.on(2000, SchedulerEvent::DrainWorker(WorkerId(2)));
    assert_eq!(harness.on(9000, SchedulerEvent::Tick), []);
    assert_eq!(harness.done(9000, 3, 1), [ENDED]);
}

#[test]
fn cancel_stops_both_attempts() {
    let mut harness = Harness::new();
    harness.second();
    assert_eq!(harness.on(5000, SchedulerEvent::Cancel), [stop(3, 1), stop(3, 2)]);
    assert_eq!(harness.failed(5000, 3, 2), []);
    let cancelled = Failed { task: TaskId(3), cause: FailureCause::Cancelled };
    assert_eq!(harness.failed(5000, 3, 1), [cancelled, Ended { done: 3, failed: 1 }]);
}

#[test]
fn a_full_pool_gets_no_second_attempts() {
    let mut harness = Harness::new();
    let pool = |used| SchedulerEvent::Pool(PoolState { capacity: 100, used, leaving: 0, waiting: 0 });
    assert_eq!(harness.on(9000, pool(60)), []);
    assert_eq!(harness.on(9000, SchedulerEvent::Tick), []);
    assert_eq!(harness.on(9000, pool(40)), []);
    assert_eq!(harness.on(9000, SchedulerEvent::Tick), [start(3, 2, 2)]);
}

/// A running attempt as the oracle knows it.
#[derive(Debug, Clone, Copy)]
struct AttemptModel {
    worker: WorkerId,
    slot: SlotId,
    since_ms: u64,
    /// The time at which it ends.
    end_ms: u64,
    fails: bool,
    stopped: bool,
}

/// A random run in which some attempts take much longer than others.
struct StragglerRun {
    random: SplitMix64,
    scheduler: Scheduler,
    tasks: Vec<TaskSpec>,
    /// The capacity of each active worker; its place is its number modulo [`PLACES`].
    workers: BTreeMap<WorkerId, u32>,
    next_worker: u32,
    running: BTreeMap<AttemptId, AttemptModel>,
    /// The durations of the attempts that counted, by tool.
    durations: BTreeMap<ToolId, Vec<u64>>,
    done: BTreeSet<TaskId>,
    failed: BTreeSet<TaskId>,
    /// The number of failures that count, and the number of losses of the last running attempt.
    failures: BTreeMap<TaskId, (u32, u32)>,
    now_ms: u64,
    seconds: u32,
    won: u32,
    ended: bool,
}

const PLACES: u32 = 3;

impl StragglerRun {
    fn new(seed: u64, policy: PolicyKind) -> Self {
        let mut random = SplitMix64::new(seed);
        let tasks = (0..25).map(|id| random_task(id, &mut random)).collect();
        let options = SchedulerOptions { policy, stragglers: true, ..SchedulerOptions::default() };
        Self {
            random,
            scheduler: Scheduler::without_workers(options),
            tasks,
            workers: BTreeMap::new(),
            next_worker: 0,
            running: BTreeMap::new(),
            durations: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
            failures: BTreeMap::new(),
            now_ms: 0,
            seconds: 0,
            won: 0,
            ended: false,
        }
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.random.below(end.into())).expect("below a u32")
    }

    fn add_worker(&mut self) {
        let (worker, slots) = (WorkerId(self.next_worker), 2 + self.below(2));
        self.next_worker += 1;
        self.workers.insert(worker, slots);
        let (place, capacity) = (PlaceId(worker.0 % PLACES), MachineCapacity { slots, memory: 0 });
        self.send(SchedulerEvent::AddWorker { worker, place, capacity });
    }

    fn send(&mut self, event: SchedulerEvent) {
        let mut commands = Vec::new();
        self.scheduler.on(event, self.now_ms, &mut commands);
        for command in commands {
            self.obey(command);
        }
        let live: BTreeSet<TaskId> =
            self.running.iter().filter(|(_, model)| !model.stopped).map(|(id, _)| id.task).collect();
        assert_eq!(self.scheduler.counts().running as usize, live.len());
    }

    fn obey(&mut self, command: SchedulerCommand) {
        assert!(!self.ended, "nothing comes after the end: {command:?}");
        match command {
            Start { task, worker, slot, attempt, .. } => self.start(AttemptId { task, attempt }, worker, slot),
            Stop { task, attempt } => {
                assert!(self.done.contains(&task));
                let model = self.running.get_mut(&AttemptId { task, attempt }).expect("it runs");
                assert!(!std::mem::replace(&mut model.stopped, true), "it is stopped once");
                // It ends as it would have, or is killed.
                model.end_ms = model.end_ms.min(self.now_ms + 20);
            }
            Retry { task, left } => {
                let counted = self.failures.get(&task).map_or(0, |failures| failures.0);
                assert_eq!(left + counted, self.tasks[task.0 as usize].retries + 1);
            }
            Failed { task, cause } => {
                assert!(self.others(task).is_empty() && self.failed.insert(task));
                if cause == FailureCause::OwnAttempt {
                    assert_eq!(self.failures[&task].0, self.tasks[task.0 as usize].retries + 1);
                }
            }
            Ended { done, failed } => {
                assert_eq!((done as usize, failed as usize), (self.done.len(), self.failed.len()));
                assert!(self.running.is_empty());
                self.ended = true;
            }
            SchedulerCommand::Clean { .. } | SchedulerCommand::Drop { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// The attempts of a task that run and were not stopped.
    fn others(&self, task: TaskId) -> Vec<(AttemptId, AttemptModel)> {
        let all = self.running.iter().filter(|(id, model)| id.task == task && !model.stopped);
        all.map(|(id, model)| (*id, *model)).collect()
    }

    fn start(&mut self, id: AttemptId, worker: WorkerId, slot: SlotId) {
        let spec = &self.tasks[id.task.0 as usize];
        assert!(!self.done.contains(&id.task) && !self.failed.contains(&id.task));
        let others = self.others(id.task);
        if let [(_, first)] = others[..] {
            assert_ne!(first.worker.0 % PLACES, worker.0 % PLACES, "at another place");
            let mut ended = self.durations[&spec.tool].clone();
            ended.sort_unstable();
            let median = ended[(ended.len() - 1) / 2];
            assert!(ended.len() >= 3 && self.now_ms - first.since_ms > (2 * median).max(median + 1000));
            assert!(spec.location.is_none_or(|location| !location.hard));
            self.seconds += 1;
        }
        assert!(others.len() < 2, "two attempts are enough");
        let mut here: Vec<AttemptId> = vec![id];
        for (other, model) in self.running.iter().filter(|(_, model)| model.worker == worker) {
            assert_ne!(model.slot, slot, "a lane has one attempt");
            here.push(*other);
        }
        let cpus: u32 = here.iter().map(|id| self.tasks[id.task.0 as usize].cpus).sum();
        assert!(cpus <= self.workers[&worker], "{here:?} on {worker:?}");
        let slow = self.below(6) == 0;
        let ms = u64::from(if slow { 3000 + self.below(9000) } else { 50 + self.below(400) });
        let fails = self.below(8) == 0;
        let model =
            AttemptModel { worker, slot, since_ms: self.now_ms, end_ms: self.now_ms + ms, fails, stopped: false };
        assert!(self.running.insert(id, model).is_none(), "a number is used once");
    }

    /// Ends the attempt that ends next.
    fn end_attempt(&mut self) {
        let Some((id, model)) = self.running.iter().min_by_key(|(_, model)| model.end_ms) else { return };
        let (id, model) = (*id, *model);
        self.now_ms = self.now_ms.max(model.end_ms);
        for data in self.tasks[id.task.0 as usize].outputs.clone().into_iter().filter(|_| !model.fails) {
            let place = Some(PlaceId(model.worker.0 % PLACES));
            self.send(SchedulerEvent::Wrote { attempt: id, data, bytes: 10, place });
        }
        self.running.remove(&id);
        if model.fails {
            if !model.stopped && self.others(id.task).is_empty() {
                self.failures.entry(id.task).or_default().0 += 1;
            }
            let no_space = !model.stopped && !self.others(id.task).is_empty() && self.below(2) == 0;
            let failed = SchedulerEvent::Failed { attempt: id, retry: true };
            return self.send(if no_space { SchedulerEvent::NoSpace { attempt: id, retry: true } } else { failed });
        }
        if !model.stopped {
            self.won += u32::from(self.others(id.task).iter().any(|(other, _)| other.attempt < id.attempt));
            let spec = &self.tasks[id.task.0 as usize];
            self.durations.entry(spec.tool).or_default().push(self.now_ms - model.since_ms);
            assert!(self.done.insert(id.task));
        }
        self.send(SchedulerEvent::Done(id));
    }

    fn lose_worker(&mut self) {
        let pick = self.below(u32::try_from(self.workers.len()).expect("few"));
        let worker = *self.workers.keys().nth(pick as usize).expect("one is there");
        self.workers.remove(&worker);
        let lost: Vec<_> = self.running.iter().filter(|(_, model)| model.worker == worker).collect();
        let lost: Vec<(AttemptId, bool)> = lost.into_iter().map(|(id, model)| (*id, model.stopped)).collect();
        for (id, stopped) in lost {
            self.running.remove(&id);
            if !stopped && self.others(id.task).is_empty() {
                let (failures, losses) = self.failures.entry(id.task).or_default();
                *losses += 1;
                *failures += u32::from(*losses > LOSSES_MAX);
            }
        }
        self.send(SchedulerEvent::LostWorker(worker));
    }

    fn step(&mut self) {
        match self.below(40) {
            0..12 => {
                self.now_ms += u64::from(self.below(300));
                let late = self.running.values().any(|model| model.end_ms < self.now_ms);
                if late {
                    self.end_attempt();
                }
                self.send(SchedulerEvent::Tick);
            }
            12 if self.next_worker < 12 => {
                self.add_worker();
                self.lose_worker();
            }
            _ => self.end_attempt(),
        }
    }

    fn run(&mut self) -> (u32, u32) {
        for task in self.tasks.clone() {
            self.send(SchedulerEvent::Add(Box::new(task)));
        }
        (0..4).for_each(|_| self.add_worker());
        self.send(SchedulerEvent::Close);
        self.send(SchedulerEvent::Begin);
        for step in 0.. {
            assert!(step < 10_000, "it goes on for ever: {:?}", self.scheduler.counts());
            if self.ended {
                break;
            }
            self.step();
        }
        (self.seconds, self.won)
    }
}

/// A task that reads outputs of earlier tasks.
fn random_task(id: u32, random: &mut SplitMix64) -> TaskSpec {
    let mut below = |end: u32| u32::try_from(random.below(end.into())).expect("below a u32");
    let reads = if id > 0 { below(3) } else { 0 };
    let inputs = (0..reads).map(|_| DataId(below(id))).collect();
    let location = match below(10) {
        0 => Some(Location { at: LocationTarget::Place(PlaceId(below(PLACES))), hard: false }),
        _ => None,
    };
    TaskSpec {
        tool: ToolId(below(2)),
        inputs,
        outputs: vec![DataId(id)],
        cpus: 1 + below(2),
        retries: below(3),
        location,
        ..TaskSpec::new(TaskId(id))
    }
}

#[test]
fn every_promise_holds_with_two_attempts_of_slow_tasks() {
    let (mut seconds, mut won) = (0, 0);
    for policy in PolicyKind::ALL {
        for seed in 0..1000 {
            let (more, won_more) = StragglerRun::new(seed, policy).run();
            (seconds, won) = (seconds + more, won + won_more);
        }
    }
    assert!(seconds > 1000 && won > 500, "second attempts: {seconds}, of which {won} were done first");
}
