//! Thousands of random runs on workers that join, drain and are lost, checked by an oracle; and
//! small scenarios of locations, losses and sealed data.

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
struct ClusterRun {
    random: SplitMix64,
    scheduler: Scheduler,
    policy: PolicyKind,
    tasks: Vec<TaskSpec>,
    added: usize,
    workers: BTreeMap<WorkerId, WorkerModel>,
    next_worker: u32,
    running: BTreeMap<TaskId, (WorkerId, SlotId)>,
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
        let tasks = (0..40).map(|id| random_task(id, &mut random)).collect();
        let options = SchedulerOptions { policy, ..SchedulerOptions::default() };
        Self {
            random,
            scheduler: Scheduler::without_workers(options),
            policy,
            tasks,
            added: 0,
            workers: BTreeMap::new(),
            next_worker: 0,
            running: BTreeMap::new(),
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
            SchedulerCommand::Start { task, worker, slot, attempt } => self.start(task, worker, slot, attempt),
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

    fn start(&mut self, task: TaskId, worker: WorkerId, slot: SlotId, attempt: u32) {
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
        assert!(slot.0 < model.capacity.slots && running().all(|(_, (_, lane))| *lane != slot), "a lane has one task");
        let others = || running().map(|(task, _)| &self.tasks[task.0 as usize]);
        assert!(others().map(|other| other.cpus.max(1)).sum::<u32>() + spec.cpus.max(1) <= model.capacity.slots);
        assert!(others().map(|other| other.memory).sum::<u64>() + spec.memory <= model.capacity.memory);
        assert_eq!(self.running.insert(task, (worker, slot)), None);
        let attempts = self.attempts.entry(task).or_default();
        *attempts += 1;
        assert_eq!(*attempts, attempt);
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
            self.running.remove(&task);
            return self.send(SchedulerEvent::Failed { attempt, retry: true });
        }
        for data in self.tasks[task.0 as usize].outputs.clone() {
            let bytes = u64::from(self.below(1000));
            self.send(SchedulerEvent::Wrote { attempt, data, bytes, place: Some(place) });
        }
        self.running.remove(&task);
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
            self.running.remove(&task);
            *self.losses.entry(task).or_default() += 1;
        }
        self.send(SchedulerEvent::LostWorker(worker));
    }

    /// Changes the processors of a worker that is there; 0 pauses it.
    fn resize_worker(&mut self, worker: WorkerId, slots: u32) {
        let Some(model) = self.workers.get_mut(&worker) else { return };
        if model.active || model.paused {
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
        for seed in 0..2000 {
            ClusterRun::new(seed, policy).run();
        }
    }
}

fn task(id: u32, inputs: &[u32], outputs: &[u32]) -> TaskSpec {
    let data = |ids: &[u32]| ids.iter().copied().map(DataId).collect();
    TaskSpec { inputs: data(inputs), outputs: data(outputs), ..TaskSpec::new(TaskId(id)) }
}

/// A begun scheduler; each call returns the commands of one event.
struct Cluster(Scheduler);

impl Cluster {
    /// Workers of one processor, each at a place of its own.
    fn new(policy: PolicyKind, workers: u32) -> Self {
        let options = SchedulerOptions { policy, ..SchedulerOptions::default() };
        let mut cluster = Self(Scheduler::without_workers(options));
        (0..workers).for_each(|worker| cluster.add_worker(worker));
        cluster.on(SchedulerEvent::Begin);
        cluster
    }

    fn add_worker(&mut self, worker: u32) {
        let capacity = MachineCapacity { slots: 1, memory: 0 };
        self.on(SchedulerEvent::AddWorker { worker: WorkerId(worker), place: PlaceId(worker), capacity });
    }

    fn on(&mut self, event: SchedulerEvent) -> Vec<SchedulerCommand> {
        let mut commands = Vec::new();
        self.0.on(event, 0, &mut commands);
        commands.retain(|command| !matches!(command, SchedulerCommand::Clean { .. }));
        commands
    }

    fn add(&mut self, task: TaskSpec) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::Add(Box::new(task)))
    }
}

/// The first attempt of a task.
fn first(task: u32) -> AttemptId {
    AttemptId { task: TaskId(task), attempt: 1 }
}

fn start(task: u32, worker: u32, attempt: u32) -> SchedulerCommand {
    SchedulerCommand::Start { task: TaskId(task), worker: WorkerId(worker), slot: SlotId(0), attempt }
}

#[test]
fn without_workers_tasks_wait() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 0);
        assert_eq!(cluster.add(task(0, &[], &[])), []);
        let waits = cluster.0.explain(TaskId(0), 0);
        assert!(matches!(waits, Some(TaskExplanation::Ready { reason: WaitReason::NoWorker, .. })), "{waits:?}");
        let capacity = MachineCapacity { slots: 1, memory: 0 };
        let added = SchedulerEvent::AddWorker { worker: WorkerId(7), place: PlaceId(3), capacity };
        assert_eq!(cluster.on(added), [start(0, 7, 1)]);
        let mut early = Cluster::new(policy, 0);
        early.add(TaskSpec { cpus: 2, ..task(0, &[], &[]) });
        early.on(SchedulerEvent::Close);
        early.add_worker(0);
        let waits = early.0.explain(TaskId(0), 0);
        assert!(matches!(waits, Some(TaskExplanation::Ready { reason: WaitReason::NoWorkerFits, .. })), "{waits:?}");
        let wide = cluster.add(TaskSpec { cpus: 2, ..task(1, &[], &[]) });
        assert!(matches!(wide[..], [SchedulerCommand::Rejected { reason: AddError::Cpus { demand: 2, .. }, .. }]));
    }
}

#[test]
fn a_lost_worker_counts_no_attempt_at_first() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 1);
        cluster.add(task(0, &[], &[]));
        cluster.on(SchedulerEvent::Close);
        for worker in 0..=LOSSES_MAX {
            cluster.add_worker(worker + 1);
            let commands = cluster.on(SchedulerEvent::LostWorker(WorkerId(worker)));
            if worker == LOSSES_MAX {
                let cause = FailureCause::OwnAttempt;
                assert_eq!(commands[0], SchedulerCommand::Failed { task: TaskId(0), cause }, "it has no retries");
            } else {
                let retry = SchedulerCommand::Retry { task: TaskId(0), left: 1 };
                assert_eq!(commands, [retry, start(0, worker + 1, worker + 2)]);
            }
        }
    }
}

#[test]
fn a_task_waits_for_its_location_and_fails_when_that_is_gone() {
    let at = LocationTarget::Worker(WorkerId(0));
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 2);
        let only_there = |id| TaskSpec { location: Some(Location { at, hard: true }), ..task(id, &[], &[]) };
        assert_eq!(cluster.add(only_there(0)), [start(0, 0, 1)]);
        assert_eq!(cluster.add(only_there(1)), [], "its worker is busy, and the other is not its own");
        let waits = cluster.0.explain(TaskId(1), 0);
        assert!(matches!(waits, Some(TaskExplanation::Ready { reason: WaitReason::LocationBusy, .. })), "{waits:?}");
        assert_eq!(cluster.on(SchedulerEvent::Done(first(0))), [start(1, 0, 1)]);
        assert_eq!(cluster.add(only_there(2)), []);
        let cause = FailureCause::NoSuchLocation { at };
        let failed = |id| SchedulerCommand::Failed { task: TaskId(id), cause };
        assert_eq!(cluster.on(SchedulerEvent::DrainWorker(WorkerId(0))), [failed(2)]);
        assert_eq!(cluster.on(SchedulerEvent::Done(first(1))), [], "it was drained, not lost");
        assert_eq!(cluster.add(only_there(3)), [failed(3)]);
        let soft = TaskSpec { location: Some(Location { at, hard: false }), ..task(4, &[], &[]) };
        assert_eq!(cluster.add(soft), [start(4, 1, 1)], "it prefers a worker that is gone");
    }
}

#[test]
fn a_worker_without_processors_gets_no_tasks_until_it_has_some_again() {
    let at = LocationTarget::Worker(WorkerId(0));
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 1);
        let resize = |slots| SchedulerEvent::ResizeWorker { worker: WorkerId(0), slots };
        cluster.add(task(0, &[], &[]));
        assert_eq!(cluster.on(resize(0)), [], "the task goes on");
        assert_eq!(cluster.add(TaskSpec { location: Some(Location { at, hard: true }), ..task(1, &[], &[]) }), []);
        assert_eq!(cluster.add(task(2, &[], &[])), []);
        assert_eq!(cluster.on(SchedulerEvent::NoMoreWorkers), [], "it may have processors again");
        assert_eq!(cluster.on(SchedulerEvent::Done(first(0))), []);
        let mut started = cluster.on(resize(2));
        started.sort_by_key(|command| matches!(command, SchedulerCommand::Start { task: TaskId(2), .. }));
        assert!(
            matches!(
                started[..],
                [SchedulerCommand::Start { task: TaskId(1), .. }, SchedulerCommand::Start { task: TaskId(2), .. },]
            ),
            "{started:?}"
        );
        assert_eq!(cluster.on(resize(1)), []);
        assert_eq!(cluster.add(task(3, &[], &[])), []);
        assert_eq!(cluster.on(SchedulerEvent::Done(first(1))), [], "one task runs on one processor");
        assert!(matches!(cluster.on(SchedulerEvent::Done(first(2)))[..], [SchedulerCommand::Start { .. }]));
    }
}

#[test]
fn a_task_fails_that_no_worker_can_hold_when_no_more_will_join() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 1);
        let capacity = MachineCapacity { slots: 2, memory: 0 };
        cluster.on(SchedulerEvent::AddWorker { worker: WorkerId(1), place: PlaceId(1), capacity });
        let wide = |id, inputs: &[u32]| TaskSpec { cpus: 2, ..task(id, inputs, &[id]) };
        cluster.add(wide(0, &[]));
        cluster.add(wide(1, &[]));
        cluster.add(wide(2, &[0]));
        cluster.on(SchedulerEvent::NoMoreWorkers);
        let failed = |id| SchedulerCommand::Failed { task: TaskId(id), cause: FailureCause::NoWorker };
        assert_eq!(cluster.on(SchedulerEvent::DrainWorker(WorkerId(1))), [failed(1)]);
        assert_eq!(cluster.on(SchedulerEvent::Done(first(0))), [failed(2)]);
        let ended = SchedulerCommand::Ended { done: 1, failed: 2 };
        assert_eq!(cluster.on(SchedulerEvent::Close).last(), Some(&ended));
    }
}

#[test]
fn a_task_fails_whose_location_will_never_exist() {
    let targets = [
        LocationTarget::Place(PlaceId(7)),
        LocationTarget::Worker(WorkerId(7)),
        LocationTarget::Slot(WorkerId(7), SlotId(0)),
    ];
    for (policy, at) in PolicyKind::ALL.into_iter().flat_map(|policy| targets.map(|at| (policy, at))) {
        let mut cluster = Cluster::new(policy, 1);
        let only_there =
            |id, inputs: &[u32]| TaskSpec { location: Some(Location { at, hard: true }), ..task(id, inputs, &[id]) };
        cluster.add(task(0, &[], &[0]));
        assert_eq!(cluster.add(only_there(1, &[])), [], "its location may come");
        assert_eq!(cluster.add(only_there(2, &[0])), []);
        let failed = |id, cause| SchedulerCommand::Failed { task: TaskId(id), cause };
        let missing = FailureCause::NoSuchLocation { at };
        assert_eq!(cluster.on(SchedulerEvent::NoMoreWorkers), [failed(1, missing)]);
        assert_eq!(cluster.on(SchedulerEvent::Done(first(0))), [failed(2, missing)]);
        let input = FailureCause::Input { data: DataId(2), root: TaskId(2) };
        assert_eq!(cluster.add(only_there(3, &[2])), [failed(3, input)]);
        assert_eq!(cluster.add(only_there(4, &[])), [failed(4, missing)]);
        let ended = SchedulerCommand::Ended { done: 1, failed: 4 };
        assert_eq!(cluster.on(SchedulerEvent::Close)[1..], [ended]);
    }
}

#[test]
fn a_task_fails_whose_location_will_never_be_large_enough() {
    let at = LocationTarget::Place(PlaceId(0));
    let mut cluster = Cluster::new(PolicyKind::Locality, 1);
    cluster.0.on(
        SchedulerEvent::AddWorker {
            worker: WorkerId(1),
            place: PlaceId(1),
            capacity: MachineCapacity { slots: 4, memory: 0 },
        },
        0,
        &mut Vec::new(),
    );
    let wide = |id| TaskSpec { cpus: 2, location: Some(Location { at, hard: true }), ..task(id, &[], &[]) };
    assert_eq!(cluster.add(wide(0)), [], "a larger worker may come");
    let failed = |id| SchedulerCommand::Failed { task: TaskId(id), cause: FailureCause::NoSuchLocation { at } };
    assert_eq!(cluster.on(SchedulerEvent::NoMoreWorkers), [failed(0)]);
    assert_eq!(cluster.add(wide(1)), [failed(1)]);
}

#[test]
fn a_soft_location_is_preferred_while_it_is_free() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 3);
        let location = Some(Location { at: LocationTarget::Place(PlaceId(2)), hard: false });
        let prefers = |id| TaskSpec { location, ..task(id, &[], &[]) };
        assert_eq!(cluster.add(prefers(0)), [start(0, 2, 1)], "{policy}");
        assert_eq!(cluster.add(prefers(1)), [start(1, 0, 1)], "{policy}: it does not wait");
    }
}

#[test]
fn higher_priorities_go_first() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 1);
        cluster.add(task(0, &[], &[]));
        for (id, priority) in [(1, 0), (2, 5), (3, -1), (4, 5)] {
            cluster.add(TaskSpec { priority, ..task(id, &[], &[]) });
        }
        let mut ended = 0;
        for next in [2, 4, 1, 3] {
            assert_eq!(cluster.on(SchedulerEvent::Done(first(ended))), [start(next, 0, 1)], "{policy}");
            ended = next;
        }
    }
}

#[test]
fn a_wide_task_is_not_starved_by_narrow_ones_on_many_workers() {
    for policy in PolicyKind::ALL {
        let options = SchedulerOptions { policy, ..SchedulerOptions::default() };
        let mut cluster = Cluster(Scheduler::without_workers(options));
        for worker in 0..4 {
            let capacity = MachineCapacity { slots: 2, memory: 0 };
            cluster.on(SchedulerEvent::AddWorker { worker: WorkerId(worker), place: PlaceId(worker), capacity });
        }
        cluster.on(SchedulerEvent::Begin);
        (0..8).for_each(|id| drop(cluster.add(task(id, &[], &[]))));
        cluster.add(TaskSpec { cpus: 2, ..task(8, &[], &[]) });
        (9..500).for_each(|id| drop(cluster.add(task(id, &[], &[]))));
        let mut running: Vec<u32> = (0..8).collect();
        for step in 0.. {
            assert!(step < 2 * policy::OVERTAKES_MAX, "{policy}: the wide task starves");
            let ended = running.remove(0);
            let commands = cluster.on(SchedulerEvent::Done(first(ended)));
            let started = |command: &SchedulerCommand| match command {
                SchedulerCommand::Start { task, .. } => Some(task.0),
                _ => None,
            };
            running.extend(commands.iter().filter_map(started));
            if running.contains(&8) {
                break;
            }
        }
    }
}

#[test]
fn sealed_data_is_dropped_before_the_workflow_is_closed() {
    let mut cluster = Cluster::new(PolicyKind::Locality, 1);
    cluster.add(task(0, &[], &[1]));
    cluster.add(task(1, &[1], &[]));
    assert_eq!(cluster.on(SchedulerEvent::Done(first(0))), [start(1, 0, 1)]);
    assert_eq!(cluster.on(SchedulerEvent::Sealed(DataId(1))), []);
    assert_eq!(cluster.on(SchedulerEvent::Done(first(1))), [SchedulerCommand::Drop { data: DataId(1) }]);
    let reason = AddError::Sealed { data: DataId(1) };
    assert_eq!(cluster.add(task(2, &[1], &[])), [SchedulerCommand::Rejected { task: TaskId(2), reason }]);
    assert_eq!(reason.to_string(), "data 1 was sealed, so no further task can read it");
}
