//! Thousands of random runs on workers that join, drain and are lost, checked by an oracle.

use crate::*;
use base::SplitMix64;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeMap, BTreeSet};

const WORKERS: u32 = 6;
const PLACES: u32 = 3;
const LARGEST: MachineCapacity = MachineCapacity { slots: 4, memory: 100 };

/// A worker as the oracle knows it.
#[derive(Debug)]
struct WorkerModel {
    place: PlaceId,
    capacity: MachineCapacity,
    active: bool,
    /// True while it has no processors.
    paused: bool,
}

/// A random run and its state.
#[expect(clippy::struct_excessive_bools, reason = "each is a part of the state")]
struct ClusterRun {
    random: SplitMix64,
    scheduler: Scheduler,
    policy: PolicyKind,
    tasks: Vec<TaskSpec>,
    added: usize,
    workers: BTreeMap<WorkerId, WorkerModel>,
    next_worker: u32,
    running: BTreeMap<TaskId, (WorkerId, SlotId)>,
    /// True if short tasks are sent ahead, and the number that waits at each worker.
    sends_ahead: bool,
    ahead: BTreeMap<WorkerId, u32>,
    sent_ahead: u32,
    attempts: BTreeMap<TaskId, u32>,
    losses: BTreeMap<TaskId, u32>,
    done: BTreeSet<TaskId>,
    failed: BTreeMap<TaskId, FailureCause>,
    sealed: BTreeSet<DataId>,
    dropped: BTreeSet<DataId>,
    /// True if some locations never come into being.
    lacks_workers: bool,
    closed: bool,
    ended: bool,
}

impl ClusterRun {
    fn new(seed: u64, policy: PolicyKind) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut tasks: Vec<TaskSpec> = (0..40).map(|id| random_task(id, &mut random)).collect();
        let sends_ahead = seed % 4 < 2;
        if sends_ahead {
            // Many are ready at once.
            for task in &mut tasks {
                (task.tool, task.memory) = (ToolId(0), task.memory / 8);
                task.inputs.retain(|data| data.0 < GIVEN || data.0 % 4 == 0);
            }
        }
        let options = SchedulerOptions { policy, sends_ahead, ..SchedulerOptions::default() };
        Self {
            random,
            scheduler: Scheduler::without_workers(options),
            policy,
            tasks,
            added: 0,
            workers: BTreeMap::new(),
            next_worker: 0,
            running: BTreeMap::new(),
            sends_ahead,
            ahead: BTreeMap::new(),
            sent_ahead: 0,
            attempts: BTreeMap::new(),
            losses: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: BTreeMap::new(),
            sealed: BTreeSet::new(),
            dropped: BTreeSet::new(),
            lacks_workers: seed.is_multiple_of(2),
            closed: false,
            ended: false,
        }
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
        assert_eq!(counts.running as usize, self.running.len());
    }

    fn obey(&mut self, command: SchedulerCommand) {
        assert!(!self.ended, "nothing comes after the end: {command:?}");
        match command {
            SchedulerCommand::Start { task, worker, slot, attempt, ahead } => {
                self.start(task, (worker, slot), ahead);
                let attempts = self.attempts.entry(task).or_default();
                *attempts += 1;
                assert_eq!(*attempts, attempt);
            }
            SchedulerCommand::Clean { .. } => assert_eq!(self.policy, PolicyKind::Algorithm1),
            SchedulerCommand::Retry { task, .. } => assert!(!self.has_ended(task)),
            SchedulerCommand::Failed { task, cause } => {
                assert!(!self.has_ended(task) && !self.running.contains_key(&task));
                if let FailureCause::NoSuchLocation { at } = cause {
                    let location = self.tasks[task.0 as usize].location.expect("it has one");
                    assert!(location.hard && location.at == at && !self.can_run_at(task, at), "{task:?} {at:?}");
                }
                self.failed.insert(task, cause);
            }
            SchedulerCommand::Drop { data } => {
                assert!(self.dropped.insert(data) && (self.closed || self.sealed.contains(&data)), "{data:?}");
                let mut readers = self.tasks[..self.added].iter().filter(|task| task.inputs.contains(&data));
                assert!(readers.all(|task| self.has_ended(task.id)), "dropped after its last reader");
            }
            SchedulerCommand::Rejected { task, reason } => panic!("{task:?}: {reason}"),
            SchedulerCommand::Ended { .. } => self.ended = true,
            SchedulerCommand::Stop { .. } => panic!("it is not cancelled"),
            SchedulerCommand::Again { .. } | SchedulerCommand::Provide { .. } => panic!("no data is lost"),
        }
    }

    fn has_ended(&self, task: TaskId) -> bool {
        self.done.contains(&task) || self.failed.contains_key(&task)
    }

    /// Returns whether an active worker of the target can hold the task.
    fn can_run_at(&self, task: TaskId, at: LocationTarget) -> bool {
        let spec = &self.tasks[task.0 as usize];
        self.workers.iter().any(|(id, worker)| {
            let holds = worker.capacity.slots >= spec.cpus.max(1) && worker.capacity.memory >= spec.memory;
            let (holds, active) = (holds || worker.paused, worker.active || worker.paused);
            let has = |slot: SlotId| worker.paused || slot.0 < worker.capacity.slots;
            active
                && match at {
                    LocationTarget::Place(place) => worker.place == place,
                    LocationTarget::Worker(one) => one == *id && holds,
                    LocationTarget::Slot(one, slot) => one == *id && holds && has(slot),
                }
        })
    }

    fn start(&mut self, task: TaskId, (worker, slot): (WorkerId, SlotId), ahead: bool) {
        let spec = &self.tasks[task.0 as usize];
        let model = &self.workers[&worker];
        assert!(!self.has_ended(task) && model.active, "{task:?} on {worker:?}");
        if let Some(Location { at, .. }) = spec.location.filter(|location| location.hard) {
            let kept = match at {
                LocationTarget::Place(place) => place == model.place,
                LocationTarget::Worker(one) => one == worker,
                LocationTarget::Slot(one, lane) => (one, lane) == (worker, slot),
            };
            assert!(kept, "{task:?} at {at:?} on {worker:?} {slot:?}");
        }
        assert!(spec.inputs.iter().all(|data| self.exists(*data) && !self.dropped.contains(data)));
        let running = || self.running.iter().filter(|(_, (other, _))| *other == worker);
        assert!(running().all(|(_, (_, lane))| *lane != slot), "a lane has one task");
        let others = || running().map(|(task, _)| &self.tasks[task.0 as usize]);
        let (busy, slots) = (others().map(|other| other.cpus.max(1)).sum::<u32>(), model.capacity.slots);
        if ahead {
            assert!(self.sends_ahead && busy >= slots && spec.cpus <= 1, "{task:?} is sent ahead to a busy worker");
        } else {
            assert!(busy + spec.cpus.max(1) <= slots && slot.0 < slots);
            assert_eq!(self.ahead.get(&worker).copied().unwrap_or(0), 0, "those that wait there go first");
        }
        assert!(others().map(|other| other.memory).sum::<u64>() + spec.memory <= model.capacity.memory);
        assert_eq!(self.running.insert(task, (worker, slot)), None);
        *self.ahead.entry(worker).or_default() += u32::from(ahead);
        self.sent_ahead += u32::from(ahead);
    }

    /// Ends a running attempt: those that wait at its worker take its processors.
    fn end(&mut self, task: TaskId) {
        let (worker, _) = self.running.remove(&task).expect("it runs");
        let waiting = self.ahead.entry(worker).or_default();
        *waiting = waiting.saturating_sub(self.tasks[task.0 as usize].cpus.max(1));
    }

    fn exists(&self, data: DataId) -> bool {
        data.0 < GIVEN || self.tasks.iter().any(|task| task.outputs.contains(&data) && self.done.contains(&task.id))
    }

    fn add_worker(&mut self, capacity: MachineCapacity) {
        let (worker, place) = (WorkerId(self.next_worker), PlaceId(self.next_worker % PLACES));
        self.next_worker += 1;
        self.workers.insert(worker, WorkerModel { place, capacity, active: true, paused: false });
        self.send(SchedulerEvent::AddWorker { worker, place, capacity });
    }

    fn add_task(&mut self) {
        let task = self.tasks[self.added].clone();
        self.added += 1;
        self.send(SchedulerEvent::Add(Box::new(task)));
        // Later tasks read outputs of the last ten tasks only.
        if self.added > 12 {
            let data = DataId(GIVEN + u32::try_from(self.added).expect("few") - 13);
            self.sealed.insert(data);
            self.send(SchedulerEvent::Sealed(data));
        }
    }

    fn end_task(&mut self, succeeds: bool) {
        let pick = self.below(u32::try_from(self.running.len().max(1)).expect("few"));
        let Some((task, (worker, _))) = self.running.iter().nth(pick as usize).map(|(task, at)| (*task, *at)) else {
            return;
        };
        let attempt = AttemptId { task, attempt: self.attempts[&task] };
        let place = self.workers[&worker].place;
        if !succeeds {
            self.end(task);
            return self.send(SchedulerEvent::Failed { attempt, retry: true });
        }
        for data in self.tasks[task.0 as usize].outputs.clone() {
            let bytes = u64::from(self.below(1000));
            self.send(SchedulerEvent::Wrote { attempt, data, bytes, place: Some(place) });
        }
        let ms = u64::from(self.below(60));
        self.scheduler.record_run_time(task, ms);
        self.end(task);
        self.done.insert(task);
        self.send(SchedulerEvent::Done(attempt));
    }

    fn lose_worker(&mut self, worker: WorkerId, drains: bool) {
        let Some(model) = self.workers.get_mut(&worker) else { return };
        (model.active, model.paused) = (false, false);
        if drains {
            return self.send(SchedulerEvent::DrainWorker(worker));
        }
        let lost: Vec<TaskId> =
            self.running.iter().filter(|(_, (other, _))| *other == worker).map(|(task, _)| *task).collect();
        for task in lost {
            self.end(task);
            *self.losses.entry(task).or_default() += 1;
        }
        self.send(SchedulerEvent::LostWorker(worker));
    }

    /// Changes the processors of a worker that is there; 0 pauses it.
    fn resize_worker(&mut self, worker: WorkerId, slots: u32) {
        let Some(model) = self.workers.get_mut(&worker) else { return };
        if model.active || model.paused {
            let running = self.running.iter().filter(|(_, (other, _))| *other == worker);
            let busy: u32 = running.map(|(task, _)| self.tasks[task.0 as usize].cpus.max(1)).sum();
            let waiting = self.ahead.entry(worker).or_default();
            *waiting = busy.saturating_sub(slots).min(*waiting);
            (model.active, model.paused, model.capacity.slots) = (slots > 0, slots == 0, slots);
        }
        self.send(SchedulerEvent::ResizeWorker { worker, slots });
    }

    /// One random event.
    fn step(&mut self) {
        let (place, data) = (PlaceId(self.below(PLACES)), DataId(self.below(GIVEN + 40)));
        match self.below(22) {
            0..5 if self.added < self.tasks.len() => self.add_task(),
            5..7 if self.next_worker < WORKERS => {
                let slots = 3 + self.below(2);
                self.add_worker(MachineCapacity { slots, memory: 60 });
            }
            7 => {
                let (worker, drains) = (WorkerId(self.below(WORKERS)), self.below(2) == 0);
                self.lose_worker(worker, drains);
            }
            8 => self.send(SchedulerEvent::Located { data, place, bytes: 10 }),
            9 => self.send(SchedulerEvent::Unlocated { data, place }),
            10 => {
                let used = u64::from(self.below(1000));
                self.send(SchedulerEvent::PlaceState { place, capacity: 1000, used });
            }
            11 => self.end_task(false),
            12..14 => {
                let (worker, slots) = (WorkerId(self.below(WORKERS)), [0, 3, 4][self.below(3) as usize]);
                self.resize_worker(worker, slots);
            }
            _ => self.end_task(true),
        }
    }

    fn run(&mut self) {
        (0..GIVEN).for_each(|data| self.scheduler.add_existing(DataId(data)));
        self.send(SchedulerEvent::Begin);
        for _ in 0..200 {
            self.step();
        }
        while self.added < self.tasks.len() {
            self.add_task();
        }
        self.closed = true;
        self.send(SchedulerEvent::Close);
        (0..WORKERS).for_each(|worker| self.resize_worker(WorkerId(worker), 3));
        // A large worker stays at each place, and every location has come into being now or never
        // will.
        let most = if self.lacks_workers { self.next_worker + PLACES } else { WORKERS + PLACES };
        while self.next_worker < most {
            self.add_worker(LARGEST);
        }
        if self.lacks_workers {
            self.send(SchedulerEvent::NoMoreWorkers);
        }
        for step in 0.. {
            assert!(step < 1000, "it goes on for ever: {:?}", self.scheduler.counts());
            if self.ended {
                break;
            }
            self.end_task(true);
        }
        assert!(self.running.is_empty() && self.tasks.iter().all(|task| self.has_ended(task.id)));
        for (task, attempts) in &self.attempts {
            let losses = self.losses.get(task).copied().unwrap_or(0);
            assert!(*attempts <= self.tasks[task.0 as usize].retries + 1 + losses, "{task:?}");
        }
        for data in self.tasks.iter().flat_map(|task| &task.inputs) {
            assert_eq!(self.dropped.contains(data), self.exists(*data), "{data:?}");
        }
    }
}

/// Data below are inputs; task `i` writes datum `GIVEN + i`.
const GIVEN: u32 = 3;

/// A task that reads inputs and outputs of the ten tasks before it.
fn random_task(id: u32, random: &mut SplitMix64) -> TaskSpec {
    let mut below = |end: u32| u32::try_from(random.below(end.into())).expect("below a u32");
    let mut inputs: Vec<_> =
        (0..below(3)).filter(|_| id > 0).map(|_| DataId(GIVEN + id - 1 - below(id.min(10)))).collect();
    inputs.extend((below(3) == 0).then(|| DataId(below(GIVEN))));
    let at = match below(9) {
        0 => Some(LocationTarget::Place(PlaceId(below(PLACES)))),
        1 => Some(LocationTarget::Worker(WorkerId(below(WORKERS)))),
        2 => Some(LocationTarget::Slot(WorkerId(below(WORKERS)), SlotId(below(2)))),
        _ => None,
    };
    let location = at.map(|at| Location { at, hard: below(2) == 0 });
    TaskSpec {
        tool: ToolId(below(3)),
        inputs,
        outputs: vec![DataId(GIVEN + id)],
        cpus: below(4),
        memory: u64::from(below(60)),
        retries: below(3),
        priority: i32::try_from(below(3)).expect("small") - 1,
        location,
        ..TaskSpec::new(TaskId(id))
    }
}

#[test]
fn every_promise_holds_while_workers_come_and_go() {
    for policy in PolicyKind::ALL {
        let mut sent_ahead = 0;
        for seed in 0..2000 {
            let mut run = ClusterRun::new(seed, policy);
            run.run();
            sent_ahead += run.sent_ahead;
        }
        assert!(sent_ahead > 500, "{policy}: {sent_ahead}");
    }
}
