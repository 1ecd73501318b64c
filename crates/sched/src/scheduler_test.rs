//! Small scenarios of the scheduler, one guarantee each.

use crate::*;
use Command::{Drop, Ended, Failed, Retry, Start, Stop};
use flow::{DataId, TaskId, ToolId};

const MACHINE: Machine = Machine { slots: 2, memory: 100 };

fn task(id: u32, inputs: &[u32], outputs: &[u32]) -> TaskSpec {
    let data = |ids: &[u32]| ids.iter().copied().map(DataId).collect();
    TaskSpec { inputs: data(inputs), outputs: data(outputs), ..TaskSpec::new(TaskId(id)) }
}

/// A scheduler under test; each call returns the commands of one event.
struct Story(Scheduler);

impl Story {
    /// A scheduler with these tasks, in which datum 0 is an input.
    fn of(tasks: Vec<TaskSpec>) -> Self {
        Self::with(Options::default(), MACHINE, tasks)
    }

    fn with(options: Options, machine: Machine, tasks: Vec<TaskSpec>) -> Self {
        let mut story = Self(Scheduler::new(machine, options));
        story.0.give(DataId(0));
        for task in tasks {
            assert_eq!(story.on(Event::Add(Box::new(task))), []);
        }
        story
    }

    fn on(&mut self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        self.0.on(event, 0, &mut commands);
        commands
    }

    fn begin(&mut self) -> Vec<Command> {
        assert_eq!(self.on(Event::Close), []);
        self.on(Event::Begin)
    }

    fn done(&mut self, id: u32) -> Vec<Command> {
        self.on(Event::Done(TaskId(id)))
    }

    fn failed(&mut self, id: u32) -> Vec<Command> {
        self.on(Event::Failed { task: TaskId(id), retry: true })
    }
}

fn start(task: u32, slot: u32, attempt: u32) -> Command {
    Start { task: TaskId(task), slot: SlotId(slot), attempt }
}

fn drop_of(data: u32) -> Command {
    Drop { data: DataId(data) }
}

fn fail(task: u32, because: Because) -> Command {
    Failed { task: TaskId(task), because }
}

fn input(data: u32, root: u32) -> Because {
    Because::Input { data: DataId(data), root: TaskId(root) }
}

#[test]
fn an_empty_workflow_ends_at_once() {
    assert_eq!(Story::of(vec![]).begin(), [Ended { done: 0, failed: 0 }]);
}

#[test]
fn a_chain_runs_in_order_and_drops_what_is_read() {
    let mut story = Story::of(vec![task(0, &[0], &[1]), task(1, &[1], &[2]), task(2, &[2], &[3])]);
    assert_eq!(story.begin(), [start(0, 0, 1)]);
    assert_eq!(story.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(story.done(1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(story.done(2), [drop_of(2), Ended { done: 3, failed: 0 }]);
}

#[test]
fn kept_data_and_data_that_nobody_reads_stay() {
    let mut story = Story::of(vec![task(0, &[0], &[1, 2]), task(1, &[1], &[])]);
    story.0.keep(DataId(1));
    story.begin();
    assert_eq!(story.done(0), [drop_of(0), start(1, 0, 1)]);
    assert_eq!(story.done(1), [Ended { done: 2, failed: 0 }]);
}

#[test]
fn a_task_waits_for_tasks_without_data_too() {
    let second = TaskSpec { after: vec![TaskId(1)], ..task(0, &[], &[]) };
    let mut story = Story::of(vec![second, task(1, &[], &[])]);
    assert_eq!(story.begin(), [start(1, 0, 1)]);
    assert_eq!(story.done(1), [start(0, 0, 1)]);
}

#[test]
fn retries_are_counted_then_the_task_fails() {
    let mut story = Story::of(vec![TaskSpec { retries: 2, ..task(0, &[], &[]) }]);
    story.begin();
    assert_eq!(story.failed(0), [Retry { task: TaskId(0), left: 2 }, start(0, 0, 2)]);
    assert_eq!(story.failed(0), [Retry { task: TaskId(0), left: 1 }, start(0, 0, 3)]);
    assert_eq!(story.failed(0), [fail(0, Because::Itself), Ended { done: 0, failed: 1 }]);
}

#[test]
fn a_failure_that_cannot_heal_is_not_retried() {
    let mut story = Story::of(vec![TaskSpec { retries: 2, ..task(0, &[], &[]) }]);
    story.begin();
    let said = story.on(Event::Failed { task: TaskId(0), retry: false });
    assert_eq!(said, [fail(0, Because::Itself), Ended { done: 0, failed: 1 }]);
}

#[test]
fn dependents_fail_with_the_chain_of_reasons_and_release_what_they_held() {
    // 0 -> d1 -> 1 -> d2 -> 2 (also reads d0); 3 after 2.
    let last = TaskSpec { after: vec![TaskId(2)], ..task(3, &[], &[]) };
    let mut story = Story::of(vec![task(0, &[], &[1]), task(1, &[1], &[2]), task(2, &[2, 0], &[]), last]);
    story.begin();
    let after = Because::After { task: TaskId(2), root: TaskId(0) };
    let said = [fail(0, Because::Itself), fail(1, input(1, 0)), fail(2, input(2, 0)), drop_of(0), fail(3, after)];
    assert_eq!(story.failed(0), [&said[..], &[Ended { done: 0, failed: 4 }]].concat());
    let chain: Vec<_> = story.0.chain(TaskId(3)).iter().map(|link| (link.task.0, link.because)).collect();
    assert_eq!(chain, [(3, after), (2, input(2, 0)), (1, input(1, 0)), (0, Because::Itself)]);
    assert_eq!(story.0.explain(TaskId(2)), Some(Standing::Failed(input(2, 0))));
}

#[test]
fn the_rest_of_the_graph_is_finished_after_a_failure() {
    let mut story = Story::of(vec![task(0, &[], &[1]), task(1, &[1], &[]), task(2, &[], &[])]);
    assert_eq!(story.begin(), [start(0, 0, 1), start(2, 1, 1)]);
    assert_eq!(story.failed(0), [fail(0, Because::Itself), fail(1, input(1, 0))]);
    assert_eq!(story.done(2), [Ended { done: 1, failed: 2 }]);
}

#[test]
fn fail_fast_starts_nothing_new_and_lets_running_tasks_end() {
    let tasks =
        vec![task(0, &[], &[]), task(1, &[], &[]), TaskSpec { retries: 5, ..task(2, &[], &[]) }, task(3, &[], &[])];
    let mut story = Story::with(Options { fail_fast: true }, Machine { slots: 3, memory: 0 }, tasks);
    story.begin();
    let root = Because::FailFast { root: TaskId(0) };
    assert_eq!(story.failed(0), [fail(0, Because::Itself), fail(3, root)]);
    assert_eq!(story.done(1), []);
    assert_eq!(story.failed(2), [fail(2, Because::Itself), Ended { done: 1, failed: 3 }]);
}

#[test]
fn cancel_stops_what_runs_and_fails_the_rest() {
    let mut story = Story::of(vec![task(0, &[], &[1]), task(1, &[], &[]), task(2, &[1], &[])]);
    story.begin();
    let stops = [Stop { task: TaskId(0) }, Stop { task: TaskId(1) }];
    assert_eq!(story.on(Event::Cancel), [&stops[..], &[fail(2, Because::Cancelled)]].concat());
    assert_eq!(story.on(Event::Cancel), []);
    assert_eq!(story.done(0), [drop_of(1)]);
    assert_eq!(story.failed(1), [fail(1, Because::Cancelled), Ended { done: 1, failed: 2 }]);
}

#[test]
fn cancel_before_the_begin_ends_at_the_begin() {
    let mut story = Story::of(vec![task(0, &[], &[])]);
    assert_eq!(story.on(Event::Cancel), [fail(0, Because::Cancelled)]);
    assert_eq!(story.begin(), [Ended { done: 0, failed: 1 }]);
}

#[test]
fn a_task_that_needs_more_than_the_machine_has_is_refused() {
    let mut story = Story::of(vec![]);
    let wide = TaskSpec { cpus: 3, ..task(0, &[], &[]) };
    let [Command::Refused { why, .. }] = story.on(Event::Add(Box::new(wide)))[..] else { panic!("refused") };
    assert!(why.to_string().starts_with("the task needs 3 cpus, and this run has 2 slots; lower `cpus`"), "{why}");
    let large = TaskSpec { memory: 1 << 20, ..task(0, &[], &[]) };
    let [Command::Refused { why, .. }] = story.on(Event::Add(Box::new(large)))[..] else { panic!("refused") };
    assert!(why.to_string().starts_with("the task needs 1 MiB of memory, and tasks have 100 B here"), "{why}");
    assert_eq!(story.begin(), [Ended { done: 0, failed: 0 }]);
}

#[test]
fn data_has_one_writer_and_a_refused_task_leaves_no_trace() {
    let mut story = Story::of(vec![task(0, &[], &[1])]);
    let mut refused = |spec| match story.on(Event::Add(Box::new(spec)))[..] {
        [Command::Refused { why, .. }] => why,
        _ => panic!("refused"),
    };
    assert_eq!(refused(task(0, &[], &[])), Refused::Twice { task: TaskId(0) });
    assert_eq!(refused(task(1, &[], &[2, 1])), Refused::WrittenTwice { data: DataId(1), writer: TaskId(0) });
    assert_eq!(refused(task(1, &[], &[3, 3])), Refused::WrittenTwice { data: DataId(3), writer: TaskId(1) });
    assert_eq!(refused(task(1, &[], &[2, 0])), Refused::WritesInput { data: DataId(0) });
    assert_eq!(story.on(Event::Add(Box::new(task(1, &[], &[2, 3])))), []);
}

#[test]
fn a_big_task_is_overtaken_but_not_starved() {
    let big = TaskSpec { cpus: 2, ..task(1, &[], &[]) };
    let mut story =
        Story::of([vec![task(0, &[], &[]), big], (2..1000).map(|id| task(id, &[], &[])).collect()].concat());
    // Task 0 runs for long. Small tasks run beside it until the big one may not be overtaken any
    // more.
    assert_eq!(story.begin(), [start(0, 0, 1), start(2, 1, 1)]);
    let mut small = 2;
    while let [Start { task, .. }] = story.done(small)[..] {
        assert_eq!(task, TaskId(small + 1));
        small += 1;
    }
    assert_eq!(small, 1 + policy::OVERTAKES_MAX);
    assert_eq!(story.done(0), [start(1, 0, 1)]);
    assert_eq!(story.done(1).len(), 2);
}

#[test]
fn a_growing_workflow_drops_nothing_before_it_is_closed() {
    let mut story = Story::of(vec![task(0, &[0], &[1])]);
    assert_eq!(story.on(Event::Begin), [start(0, 0, 1)]);
    assert_eq!(story.done(0), []);
    assert_eq!(story.on(Event::Add(Box::new(task(1, &[0, 1], &[])))), [start(1, 0, 1)]);
    assert_eq!(story.done(1), []);
    assert_eq!(story.on(Event::Close), [drop_of(0), drop_of(1), Ended { done: 2, failed: 0 }]);
    let late = story.on(Event::Add(Box::new(task(2, &[], &[]))));
    assert_eq!(late, [Command::Refused { task: TaskId(2), why: Refused::Closed }]);
}

#[test]
fn a_task_added_after_its_writer_failed_fails_too() {
    let mut story = Story::of(vec![task(0, &[], &[1])]);
    story.on(Event::Begin);
    story.failed(0);
    assert_eq!(story.on(Event::Add(Box::new(task(1, &[1], &[])))), [fail(1, input(1, 0))]);
}

#[test]
fn what_nobody_will_write_or_add_is_known_when_it_is_closed() {
    let waits = TaskSpec { after: vec![TaskId(7)], ..task(1, &[], &[]) };
    let mut story = Story::of(vec![task(0, &[9], &[]), waits]);
    let no_writer = fail(0, Because::NoWriter { data: DataId(9) });
    let no_task = fail(1, Because::NoTask { task: TaskId(7) });
    assert_eq!(story.on(Event::Close), [no_writer, no_task]);
    assert_eq!(story.on(Event::Begin), [Ended { done: 0, failed: 2 }]);
}

/// The state of a pool of 1,000 bytes.
fn pool(used: u64, waiting: u64) -> Event {
    Event::Pool(PoolState { capacity: 1000, used, leaving: 0, waiting })
}

/// Makers and their readers: 0 -> d1 -> 1, 2 -> d3 -> 3, 4 -> d5 -> 5.
fn makers_and_readers() -> Vec<TaskSpec> {
    let pair = |at: u32| {
        let maker = TaskSpec { tool: ToolId(0), ..task(at, &[], &[at + 1]) };
        [maker, TaskSpec { tool: ToolId(1), ..task(at + 1, &[at + 1], &[at + 10]) }]
    };
    [0, 2, 4].into_iter().flat_map(pair).collect()
}

impl Story {
    /// A run of makers and readers in this many slots, begun in an empty pool.
    fn of_makers(slots: u32) -> Self {
        let mut story = Self::with(Options::default(), Machine { slots, memory: 0 }, makers_and_readers());
        story.on(pool(0, 0));
        story.begin();
        story
    }

    fn made(&mut self, id: u32, data: u32, bytes: u64) -> Vec<Command> {
        assert_eq!(self.on(Event::Wrote { data: DataId(data), bytes }), []);
        self.done(id)
    }
}

#[test]
fn above_half_of_the_pool_the_task_that_frees_most_goes_first_and_of_equals_the_youngest() {
    let mut story = Story::of_makers(2);
    assert_eq!(story.made(0, 1, 40), [start(4, 0, 1)], "in the order of their coming while there is space");
    story.on(pool(600, 0));
    assert_eq!(story.made(2, 3, 40), [start(3, 1, 1)], "of the readers the younger");
}

#[test]
fn what_writes_more_than_it_frees_waits_until_it_fits_or_nothing_else_can_run() {
    let mut story = Story::of_makers(1);
    story.on(pool(400, 0));
    assert_eq!(story.made(0, 1, 400), [start(1, 0, 1)], "two makers would leave no room for a reader");
    story.on(pool(401, 0));
    assert_eq!(story.made(1, 10, 1), [drop_of(1)], "what is leaving is waited for");
    let waits = story.0.explain(TaskId(2)).expect("it is ready");
    assert!(matches!(waits, Standing::Ready { lacks: 201, .. }), "{waits:?}");
    assert_eq!(story.on(pool(1, 0)), [start(2, 0, 1)]);
    story.on(pool(1000, 0));
    assert_eq!(
        story.on(Event::Failed { task: TaskId(2), retry: false })[2..],
        [start(4, 0, 1)],
        "nothing else can run"
    );
}

#[test]
fn a_slot_is_lent_to_who_frees_some_while_writers_wait() {
    let mut story = Story::of_makers(1);
    story.on(pool(600, 0));
    assert_eq!(story.made(0, 1, 400), [start(1, 0, 1)]);
    story.on(pool(1, 0));
    assert_eq!(story.made(1, 10, 1), [drop_of(1), start(2, 0, 1)]);
    assert_eq!(story.on(pool(1, 0)), []);
    assert_eq!(story.made(2, 3, 400), [start(4, 0, 1)]);
    assert_eq!(story.on(pool(990, 0)), [], "the one slot is taken");
    assert_eq!(story.on(pool(990, 1)), [start(3, 1, 1)], "a writer waits: the reader runs beside it");
    assert_eq!(story.on(pool(990, 1)), [], "it is lent once");
}

#[test]
fn who_finds_no_space_waits_for_others_and_fails_only_alone() {
    let mut story = Story::of_makers(2);
    let none = |id| Event::NoSpace { task: TaskId(id), retry: false };
    story.on(pool(1000, 0));
    assert_eq!(story.on(none(0))[0], Retry { task: TaskId(0), left: 1 });
    let retried = story.made(2, 3, 100);
    assert!(!retried.contains(&fail(0, Because::Itself)), "{retried:?}");
    let mut alone = Story::of(vec![task(0, &[], &[1])]);
    alone.on(pool(0, 0));
    alone.begin();
    assert_eq!(alone.on(none(0)), [fail(0, Because::Itself), Ended { done: 0, failed: 1 }]);
}

#[test]
fn explain_tells_what_a_task_waits_for() {
    let hungry = TaskSpec { memory: 60, ..task(1, &[], &[]) };
    let tasks = vec![TaskSpec { memory: 60, ..task(0, &[], &[1]) }, hungry, task(2, &[1, 0], &[])];
    let mut story = Story::of(tasks);
    story.begin();
    let running = Standing::Running { slot: SlotId(0), attempt: 1, since_ms: 0 };
    assert_eq!(story.0.explain(TaskId(0)), Some(running));
    let ready = Standing::Ready { ahead: 0, needs: Needs { cpus: 1, memory: 60 }, fits: false, lacks: 0, since_ms: 0 };
    assert_eq!(story.0.explain(TaskId(1)), Some(ready));
    let waits = Standing::Waits { missing: 1, data: Some((DataId(1), Some(TaskId(0)))), after: None };
    assert_eq!(story.0.explain(TaskId(2)), Some(waits));
    assert_eq!(story.0.explain(TaskId(3)), None);
}

#[test]
fn a_long_chain_fails_on_a_small_stack() {
    let mut story = Story::of((0..100_000).map(|id| task(id, &[id], &[id + 1])).collect());
    story.begin();
    assert_eq!(story.failed(0).len(), 100_002);
    assert_eq!(story.0.chain(TaskId(99_999)).len(), 100_000);
}

#[test]
#[should_panic(expected = "the graph has a cycle")]
fn a_cycle_is_a_broken_promise() {
    Story::of(vec![task(0, &[1], &[2]), task(1, &[2], &[1])]).begin();
}

#[test]
#[should_panic(expected = "only a running task reports its end")]
fn a_task_that_does_not_run_cannot_end() {
    let mut story = Story::of(vec![task(0, &[], &[])]);
    story.begin();
    story.done(0);
    story.done(0);
}
