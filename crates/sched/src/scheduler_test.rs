//! Small scenarios of the scheduler, one guarantee each.

use crate::*;
use SchedulerCommand::{Drop, Ended, Failed, Retry, Start, Stop};
use flow::{DataId, TaskId, ToolId};

const MACHINE: MachineCapacity = MachineCapacity { slots: 2, memory: 100 };

fn task(id: u32, inputs: &[u32], outputs: &[u32]) -> TaskSpec {
    let data = |ids: &[u32]| ids.iter().copied().map(DataId).collect();
    TaskSpec { inputs: data(inputs), outputs: data(outputs), ..TaskSpec::new(TaskId(id)) }
}

/// A scheduler under test; each call returns the commands of one event.
struct Harness(Scheduler);

impl Harness {
    /// A scheduler with these tasks, in which datum 0 is an input.
    fn new(tasks: Vec<TaskSpec>) -> Self {
        Self::with(SchedulerOptions::default(), MACHINE, tasks)
    }

    fn with(options: SchedulerOptions, machine: MachineCapacity, tasks: Vec<TaskSpec>) -> Self {
        let mut harness = Self(Scheduler::new(machine, options));
        harness.0.add_existing(DataId(0));
        for task in tasks {
            assert_eq!(harness.on(SchedulerEvent::Add(Box::new(task))), []);
        }
        harness
    }

    fn on(&mut self, event: SchedulerEvent) -> Vec<SchedulerCommand> {
        let mut commands = Vec::new();
        self.0.on(event, 0, &mut commands);
        commands
    }

    fn begin(&mut self) -> Vec<SchedulerCommand> {
        assert_eq!(self.on(SchedulerEvent::Close), []);
        self.on(SchedulerEvent::Begin)
    }

    /// The running attempt of a task, or else its first one.
    fn attempt(&self, id: u32) -> AttemptId {
        let task = TaskId(id);
        self.0.running_attempt(task).unwrap_or(AttemptId { task, attempt: 1 })
    }

    fn done(&mut self, id: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::Done(self.attempt(id)))
    }

    fn failed(&mut self, id: u32) -> Vec<SchedulerCommand> {
        self.on(SchedulerEvent::Failed { attempt: self.attempt(id), retry: true })
    }
}

fn start(task: u32, slot: u32, attempt: u32) -> SchedulerCommand {
    Start { task: TaskId(task), worker: WorkerId(0), slot: SlotId(slot), attempt, ahead: false }
}

fn drop_of(data: u32) -> SchedulerCommand {
    Drop { data: DataId(data) }
}

fn fail(task: u32, cause: FailureCause) -> SchedulerCommand {
    Failed { task: TaskId(task), cause }
}

fn input(data: u32, root: u32) -> FailureCause {
    FailureCause::Input { data: DataId(data), root: TaskId(root) }
}

#[test]
fn an_empty_workflow_ends_at_once() {
    assert_eq!(Harness::new(vec![]).begin(), [Ended { done: 0, failed: 0 }]);
}

#[test]
fn a_chain_runs_in_order_and_drops_what_is_read() {
    let mut harness = Harness::new(vec![task(0, &[0], &[1]), task(1, &[1], &[2]), task(2, &[2], &[3])]);
    assert_eq!(harness.begin(), [start(0, 0, 1)]);
    assert_eq!(harness.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(harness.done(1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(harness.done(2), [drop_of(2), Ended { done: 3, failed: 0 }]);
}

#[test]
fn kept_data_and_data_that_nobody_reads_stay() {
    let mut harness = Harness::new(vec![task(0, &[0], &[1, 2]), task(1, &[1], &[])]);
    harness.0.keep(DataId(1));
    harness.begin();
    assert_eq!(harness.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(harness.done(1), [Ended { done: 2, failed: 0 }]);
}

#[test]
fn a_task_waits_for_tasks_without_data_too() {
    let second = TaskSpec { after: vec![TaskId(1)], ..task(0, &[], &[]) };
    let mut harness = Harness::new(vec![second, task(1, &[], &[])]);
    assert_eq!(harness.begin(), [start(1, 0, 1)]);
    assert_eq!(harness.done(1), [start(0, 0, 1)]);
}

#[test]
fn retries_are_counted_then_the_task_fails() {
    let mut harness = Harness::new(vec![TaskSpec { retries: 2, ..task(0, &[], &[]) }]);
    harness.begin();
    assert_eq!(harness.failed(0), [Retry { task: TaskId(0), left: 2 }, start(0, 0, 2)]);
    assert_eq!(harness.failed(0), [Retry { task: TaskId(0), left: 1 }, start(0, 0, 3)]);
    assert_eq!(harness.failed(0), [fail(0, FailureCause::OwnAttempt), Ended { done: 0, failed: 1 }]);
}

#[test]
fn a_failure_that_cannot_heal_is_not_retried() {
    let mut harness = Harness::new(vec![TaskSpec { retries: 2, ..task(0, &[], &[]) }]);
    harness.begin();
    let said = harness.on(SchedulerEvent::Failed { attempt: harness.attempt(0), retry: false });
    assert_eq!(said, [fail(0, FailureCause::OwnAttempt), Ended { done: 0, failed: 1 }]);
}

#[test]
fn dependents_fail_with_the_chain_of_reasons_and_release_what_they_held() {
    // 0 -> d1 -> 1 -> d2 -> 2 (also reads d0); 3 after 2.
    let last = TaskSpec { after: vec![TaskId(2)], ..task(3, &[], &[]) };
    let mut harness = Harness::new(vec![task(0, &[], &[1]), task(1, &[1], &[2]), task(2, &[2, 0], &[]), last]);
    harness.begin();
    let after = FailureCause::Predecessor { task: TaskId(2), root: TaskId(0) };
    let said =
        [fail(0, FailureCause::OwnAttempt), fail(1, input(1, 0)), fail(2, input(2, 0)), drop_of(0), fail(3, after)];
    assert_eq!(harness.failed(0), [&said[..], &[Ended { done: 0, failed: 4 }]].concat());
    let chain: Vec<_> = harness.0.chain(TaskId(3)).iter().map(|link| (link.task.0, link.cause)).collect();
    assert_eq!(chain, [(3, after), (2, input(2, 0)), (1, input(1, 0)), (0, FailureCause::OwnAttempt)]);
    assert_eq!(harness.0.explain(TaskId(2), 0), Some(TaskExplanation::Failed(input(2, 0))));
}

#[test]
fn the_rest_of_the_graph_is_finished_after_a_failure() {
    let mut harness = Harness::new(vec![task(0, &[], &[1]), task(1, &[1], &[]), task(2, &[], &[])]);
    assert_eq!(harness.begin(), [start(0, 0, 1), start(2, 1, 1)]);
    assert_eq!(harness.failed(0), [fail(0, FailureCause::OwnAttempt), fail(1, input(1, 0))]);
    assert_eq!(harness.done(2), [Ended { done: 1, failed: 2 }]);
}

#[test]
fn fail_fast_starts_nothing_new_and_lets_running_tasks_end() {
    let tasks =
        vec![task(0, &[], &[]), task(1, &[], &[]), TaskSpec { retries: 5, ..task(2, &[], &[]) }, task(3, &[], &[])];
    let mut harness = Harness::with(
        SchedulerOptions { fail_fast: true, ..SchedulerOptions::default() },
        MachineCapacity { slots: 3, memory: 0 },
        tasks,
    );
    harness.begin();
    let root = FailureCause::FailFast { root: TaskId(0) };
    assert_eq!(harness.failed(0), [fail(0, FailureCause::OwnAttempt), fail(3, root)]);
    assert_eq!(harness.done(1), []);
    assert_eq!(harness.failed(2), [fail(2, FailureCause::OwnAttempt), Ended { done: 1, failed: 3 }]);
}

#[test]
fn cancel_stops_what_runs_and_fails_the_rest() {
    let mut harness = Harness::new(vec![task(0, &[], &[1]), task(1, &[], &[]), task(2, &[1], &[])]);
    harness.begin();
    let stops = [0, 1].map(|task| Stop { task: TaskId(task), attempt: 1 });
    assert_eq!(harness.on(SchedulerEvent::Cancel), [&stops[..], &[fail(2, FailureCause::Cancelled)]].concat());
    assert_eq!(harness.on(SchedulerEvent::Cancel), []);
    assert_eq!(harness.done(0), [drop_of(1)]);
    assert_eq!(harness.failed(1), [fail(1, FailureCause::Cancelled), Ended { done: 1, failed: 2 }]);
}

#[test]
fn cancel_before_the_begin_ends_at_the_begin() {
    let mut harness = Harness::new(vec![task(0, &[], &[])]);
    assert_eq!(harness.on(SchedulerEvent::Cancel), [fail(0, FailureCause::Cancelled)]);
    assert_eq!(harness.begin(), [Ended { done: 0, failed: 1 }]);
}

#[test]
fn a_task_that_needs_more_than_the_machine_has_is_refused() {
    let mut harness = Harness::new(vec![]);
    let wide = TaskSpec { cpus: 3, ..task(0, &[], &[]) };
    let [SchedulerCommand::Rejected { reason, .. }] = harness.on(SchedulerEvent::Add(Box::new(wide)))[..] else {
        panic!("refused")
    };
    assert!(
        reason.to_string().starts_with("the task needs 3 cpus, and this run has 2 slots; lower `cpus`"),
        "{reason}"
    );
    let large = TaskSpec { memory: 1 << 20, ..task(0, &[], &[]) };
    let [SchedulerCommand::Rejected { reason, .. }] = harness.on(SchedulerEvent::Add(Box::new(large)))[..] else {
        panic!("refused")
    };
    assert!(reason.to_string().starts_with("the task needs 1 MiB of memory, and tasks have 100 B here"), "{reason}");
    assert_eq!(harness.begin(), [Ended { done: 0, failed: 0 }]);
}

#[test]
fn data_has_one_writer_and_a_refused_task_leaves_no_trace() {
    let mut harness = Harness::new(vec![task(0, &[], &[1])]);
    let mut refused = |spec| match harness.on(SchedulerEvent::Add(Box::new(spec)))[..] {
        [SchedulerCommand::Rejected { reason, .. }] => reason,
        _ => panic!("refused"),
    };
    assert_eq!(refused(task(0, &[], &[])), AddError::DuplicateTask { task: TaskId(0) });
    assert_eq!(refused(task(1, &[], &[2, 1])), AddError::DuplicateWriter { data: DataId(1), writer: TaskId(0) });
    assert_eq!(refused(task(1, &[], &[3, 3])), AddError::DuplicateWriter { data: DataId(3), writer: TaskId(1) });
    assert_eq!(refused(task(1, &[], &[2, 0])), AddError::WritesInput { data: DataId(0) });
    assert_eq!(harness.on(SchedulerEvent::Add(Box::new(task(1, &[], &[2, 3])))), []);
}

#[test]
fn a_big_task_is_overtaken_but_not_starved() {
    let big = TaskSpec { cpus: 2, ..task(1, &[], &[]) };
    let mut harness =
        Harness::new([vec![task(0, &[], &[]), big], (2..1000).map(|id| task(id, &[], &[])).collect()].concat());
    // Task 0 runs for long. Small tasks run beside it until the big one may not be overtaken any
    // more.
    assert_eq!(harness.begin(), [start(0, 0, 1), start(2, 1, 1)]);
    let mut small = 2;
    while let [Start { task, .. }] = harness.done(small)[..] {
        assert_eq!(task, TaskId(small + 1));
        small += 1;
    }
    assert_eq!(small, 1 + policy::OVERTAKES_MAX);
    assert_eq!(harness.done(0), [start(1, 0, 1)]);
    assert_eq!(harness.done(1).len(), 2);
}

#[test]
fn a_growing_workflow_drops_nothing_before_it_is_closed() {
    let mut harness = Harness::new(vec![task(0, &[0], &[1])]);
    assert_eq!(harness.on(SchedulerEvent::Begin), [start(0, 0, 1)]);
    assert_eq!(harness.done(0), []);
    assert_eq!(harness.on(SchedulerEvent::Add(Box::new(task(1, &[0, 1], &[])))), [start(1, 0, 1)]);
    assert_eq!(harness.done(1), []);
    assert_eq!(harness.on(SchedulerEvent::Close), [drop_of(0), drop_of(1), Ended { done: 2, failed: 0 }]);
    let late = harness.on(SchedulerEvent::Add(Box::new(task(2, &[], &[]))));
    assert_eq!(late, [SchedulerCommand::Rejected { task: TaskId(2), reason: AddError::Closed }]);
}

#[test]
fn a_task_added_after_its_writer_failed_fails_too() {
    let mut harness = Harness::new(vec![task(0, &[], &[1])]);
    harness.on(SchedulerEvent::Begin);
    harness.failed(0);
    assert_eq!(harness.on(SchedulerEvent::Add(Box::new(task(1, &[1], &[])))), [fail(1, input(1, 0))]);
}

#[test]
fn what_nobody_will_write_or_add_is_known_when_it_is_closed() {
    let waits = TaskSpec { after: vec![TaskId(7)], ..task(1, &[], &[]) };
    let mut harness = Harness::new(vec![task(0, &[9], &[]), waits]);
    let no_writer = fail(0, FailureCause::NoWriter { data: DataId(9) });
    let no_task = fail(1, FailureCause::NoTask { task: TaskId(7) });
    assert_eq!(harness.on(SchedulerEvent::Close), [no_writer, no_task]);
    assert_eq!(harness.on(SchedulerEvent::Begin), [Ended { done: 0, failed: 2 }]);
}

/// The state of a pool of 1,000 bytes.
fn pool(used: u64, waiting: u64) -> SchedulerEvent {
    SchedulerEvent::Pool(PoolState { capacity: 1000, used, leaving: 0, waiting })
}

/// Makers and their readers: 0 -> d1 -> 1, 2 -> d3 -> 3, 4 -> d5 -> 5.
fn makers_and_readers() -> Vec<TaskSpec> {
    let pair = |at: u32| {
        let maker = TaskSpec { tool: ToolId(0), ..task(at, &[], &[at + 1]) };
        [maker, TaskSpec { tool: ToolId(1), ..task(at + 1, &[at + 1], &[at + 10]) }]
    };
    [0, 2, 4].into_iter().flat_map(pair).collect()
}

impl Harness {
    /// A run of makers and readers in this many slots, begun in an empty pool.
    fn of_makers(slots: u32) -> Self {
        let mut harness =
            Self::with(SchedulerOptions::default(), MachineCapacity { slots, memory: 0 }, makers_and_readers());
        harness.on(pool(0, 0));
        harness.begin();
        harness
    }

    fn made(&mut self, id: u32, data: u32, bytes: u64) -> Vec<SchedulerCommand> {
        let attempt = self.attempt(id);
        assert_eq!(self.on(SchedulerEvent::Wrote { attempt, data: DataId(data), bytes, place: None }), []);
        self.done(id)
    }
}

#[test]
fn above_half_of_the_pool_the_task_that_frees_most_goes_first_and_of_equals_the_youngest() {
    let mut harness = Harness::of_makers(2);
    assert_eq!(harness.made(0, 1, 40), [start(4, 0, 1)], "in the order of their coming while there is space");
    harness.on(pool(600, 0));
    assert_eq!(harness.made(2, 3, 40), [start(3, 1, 1)], "of the readers the younger");
}

#[test]
fn what_writes_more_than_it_frees_waits_until_it_fits_or_nothing_else_can_run() {
    let mut harness = Harness::of_makers(1);
    harness.on(pool(400, 0));
    assert_eq!(harness.made(0, 1, 400), [start(1, 0, 1)], "two makers would leave no room for a reader");
    harness.on(pool(401, 0));
    assert_eq!(harness.made(1, 10, 1), [drop_of(1)], "what is leaving is waited for");
    let waits = harness.0.explain(TaskId(2), 0).expect("it is ready");
    assert!(matches!(waits, TaskExplanation::Ready { lacks: 201, .. }), "{waits:?}");
    assert_eq!(harness.on(pool(1, 0)), [start(2, 0, 1)]);
    harness.on(pool(1000, 0));
    assert_eq!(
        harness.on(SchedulerEvent::Failed { attempt: harness.attempt(2), retry: false })[2..],
        [start(4, 0, 1)],
        "nothing else can run"
    );
}

#[test]
fn a_slot_is_lent_to_a_task_that_frees_some_while_writers_wait() {
    let mut harness = Harness::of_makers(1);
    harness.on(pool(600, 0));
    assert_eq!(harness.made(0, 1, 400), [start(1, 0, 1)]);
    harness.on(pool(1, 0));
    assert_eq!(harness.made(1, 10, 1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(harness.on(pool(1, 0)), []);
    assert_eq!(harness.made(2, 3, 400), [start(4, 0, 1)]);
    assert_eq!(harness.on(pool(990, 0)), [], "the one slot is taken");
    assert_eq!(harness.on(pool(990, 1)), [start(3, 1, 1)], "a writer waits: the reader runs beside it");
    assert_eq!(harness.on(pool(990, 1)), [], "it is lent once");
}

#[test]
fn a_task_that_finds_no_space_waits_for_others_and_fails_only_alone() {
    let mut harness = Harness::of_makers(2);
    let none = |id| SchedulerEvent::NoSpace { attempt: AttemptId { task: TaskId(id), attempt: 1 }, retry: false };
    harness.on(pool(1000, 0));
    assert_eq!(harness.on(none(0))[0], Retry { task: TaskId(0), left: 1 });
    let retried = harness.made(2, 3, 100);
    assert!(!retried.contains(&fail(0, FailureCause::OwnAttempt)), "{retried:?}");
    let mut alone = Harness::new(vec![task(0, &[], &[1])]);
    alone.on(pool(0, 0));
    alone.begin();
    assert_eq!(alone.on(none(0)), [fail(0, FailureCause::OwnAttempt), Ended { done: 0, failed: 1 }]);
}

#[test]
fn explain_tells_what_a_task_waits_for() {
    let hungry = TaskSpec { memory: 60, ..task(1, &[], &[]) };
    let tasks = vec![TaskSpec { memory: 60, ..task(0, &[], &[1]) }, hungry, task(2, &[1, 0], &[])];
    let mut harness = Harness::new(tasks);
    harness.begin();
    let (worker, slot, reason) = (WorkerId(0), SlotId(0), StartReason::FirstInQueue);
    let running = TaskExplanation::Running { worker, slot, reason, attempt: 1, since_ms: 0 };
    assert_eq!(harness.0.explain(TaskId(0), 0), Some(running));
    let (demand, reason) = (Demand { cpus: 1, memory: 60 }, WaitReason::WorkersBusy);
    let ready = TaskExplanation::Ready { ahead: 0, demand, fits: false, reason, lacks: 0, since_ms: 0 };
    assert_eq!(harness.0.explain(TaskId(1), 0), Some(ready));
    let waits = TaskExplanation::Waiting { missing: 1, data: Some((DataId(1), Some(TaskId(0)))), after: None };
    assert_eq!(harness.0.explain(TaskId(2), 0), Some(waits));
    assert_eq!(harness.0.explain(TaskId(3), 0), None);
}

#[test]
fn a_long_chain_fails_on_a_small_stack() {
    let mut harness = Harness::new((0..100_000).map(|id| task(id, &[id], &[id + 1])).collect());
    harness.begin();
    assert_eq!(harness.failed(0).len(), 100_002);
    assert_eq!(harness.0.chain(TaskId(99_999)).len(), 100_000);
}

#[test]
#[should_panic(expected = "the graph has a cycle")]
fn a_cycle_is_a_broken_promise() {
    Harness::new(vec![task(0, &[1], &[2]), task(1, &[2], &[1])]).begin();
}

#[test]
#[should_panic(expected = "only a running task reports its end")]
fn a_task_that_does_not_run_cannot_end() {
    let mut harness = Harness::new(vec![task(0, &[], &[])]);
    harness.begin();
    harness.done(0);
    harness.done(0);
}
