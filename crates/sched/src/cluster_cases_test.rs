//! Small scenarios of a cluster: locations, losses, sealed data, and tasks that are sent ahead.

use crate::*;
use flow::{DataId, TaskId};

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
    SchedulerCommand::Start { task: TaskId(task), worker: WorkerId(worker), slot: SlotId(0), attempt, ahead: false }
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
fn tasks_of_a_host_that_comes_with_another_number_run_there() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::new(policy, 0);
        let only_at = |id, at| TaskSpec { location: Some(Location { at, hard: true }), ..task(id, &[], &[]) };
        assert_eq!(cluster.add(only_at(0, LocationTarget::Worker(WorkerId(1)))), []);
        // Formed anew twice: workers 0 and 1, then 2 and 3, then 4 and 5.
        for (former, worker) in [(0, 2), (1, 3), (0, 4), (2, 4), (1, 5), (3, 5)] {
            cluster.0.replace_worker(WorkerId(former), WorkerId(worker));
        }
        assert_eq!(cluster.add(only_at(1, LocationTarget::Slot(WorkerId(2), SlotId(0)))), []);
        cluster.add_worker(4);
        cluster.add_worker(5);
        cluster.0.replace_worker(WorkerId(4), WorkerId(6));
        assert_eq!(cluster.add(only_at(2, LocationTarget::Worker(WorkerId(4)))), [], "it was not replaced here");
        cluster.add_worker(6);
        let worker_of = |id| match cluster.0.explain(TaskId(id), 0) {
            Some(TaskExplanation::Running { worker, .. }) => Some(worker.0),
            _ => None,
        };
        assert_eq!([0, 1].map(worker_of), [Some(5), Some(4)], "{policy:?}");
        assert_eq!(worker_of(2), None, "worker 4 is busy");
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

/// A scheduler that sends ahead, with workers of two processors, and tasks that read nothing; the
/// first eight have run for `ms` each. Also returns the tasks that run on processors, and the
/// starts ahead.
fn with_short_tasks(
    policy: PolicyKind,
    (workers, tasks): (u32, u32),
    ms: u64,
) -> (Cluster, Vec<TaskId>, Vec<SchedulerCommand>) {
    let options = SchedulerOptions { policy, sends_ahead: true, ..SchedulerOptions::default() };
    let mut cluster = Cluster(Scheduler::without_workers(options));
    for worker in 0..workers {
        let capacity = MachineCapacity { slots: 2, memory: 0 };
        cluster.on(SchedulerEvent::AddWorker { worker: WorkerId(worker), place: PlaceId(worker), capacity });
    }
    let mut all = cluster.on(SchedulerEvent::Begin);
    (0..tasks).for_each(|id| all.extend(cluster.add(task(id, &[], &[]))));
    for ended in 0..8 {
        assert!(all.iter().all(|command| matches!(command, SchedulerCommand::Start { ahead: false, .. })));
        let attempt = AttemptId { task: started(&all)[ended], attempt: 1 };
        cluster.0.record_run_time(attempt.task, ms);
        all.extend(cluster.on(SchedulerEvent::Done(attempt)));
    }
    let ahead = all.split_off(8 + 2 * workers as usize);
    (cluster, started(&all)[8..].to_vec(), ahead)
}

fn started(commands: &[SchedulerCommand]) -> Vec<TaskId> {
    let task = |command: &SchedulerCommand| match command {
        SchedulerCommand::Start { task, .. } => Some(*task),
        _ => None,
    };
    commands.iter().filter_map(task).collect()
}

#[test]
fn short_tasks_are_sent_ahead_as_many_as_a_worker_does_while_a_message_travels() {
    for policy in PolicyKind::ALL {
        // Two workers of two processors; 500 ms for each processor, but at most 32 tasks.
        for (ms, expected) in [(0, 128), (1, 128), (25, 80), (100, 20), (500, 4), (501, 0)] {
            let (cluster, _, ahead) = with_short_tasks(policy, (2, 400), ms);
            assert_eq!(ahead.len(), expected, "{policy} {ms}");
            assert!(ahead.iter().all(|command| matches!(command, SchedulerCommand::Start { ahead: true, .. })));
            let to = |worker| {
                let at = |command: &&SchedulerCommand| matches!(command, SchedulerCommand::Start { worker: WorkerId(at), .. } if *at == worker);
                ahead.iter().filter(at).count()
            };
            assert_eq!((to(0), to(1)), (expected / 2, expected / 2), "{policy} {ms}");
            let running = |id: &TaskId| {
                matches!(
                    cluster.0.explain(*id, 0),
                    Some(TaskExplanation::Running { reason: StartReason::SentAhead, .. })
                )
            };
            assert!(started(&ahead).iter().all(running));
        }
    }
}

#[test]
fn nothing_is_sent_ahead_while_the_pool_is_crowded() {
    let (mut cluster, running, _) = with_short_tasks(PolicyKind::Locality, (1, 400), 50);
    let crowded = PoolState { used: 60, capacity: 100, waiting: 0, leaving: 0 };
    assert_eq!(cluster.on(SchedulerEvent::Pool(crowded)), []);
    let attempt = AttemptId { task: running[0], attempt: 1 };
    assert_eq!(cluster.on(SchedulerEvent::Done(attempt)), []);
    let roomy = PoolState { used: 40, ..crowded };
    assert_eq!(started(&cluster.on(SchedulerEvent::Pool(roomy))).len(), 1);
}

#[test]
fn a_wide_task_is_not_starved_by_short_ones_that_are_sent_ahead() {
    for policy in PolicyKind::ALL {
        let (mut cluster, mut running, ahead) = with_short_tasks(policy, (1, 400), 10);
        running.extend(started(&ahead));
        let wide = TaskId(400);
        cluster.add(TaskSpec { cpus: 2, priority: 1, ..task(wide.0, &[], &[]) });
        for step in 0.. {
            assert!(step < 4 * policy::OVERTAKES_MAX, "{policy}: the wide task starves");
            let ended = running.remove(0);
            running.extend(started(&cluster.on(SchedulerEvent::Done(AttemptId { task: ended, attempt: 1 }))));
            if running.contains(&wide) {
                break;
            }
        }
    }
}
