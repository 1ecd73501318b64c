//! Thousands of random graphs and runs, each checked by an oracle that knows only the scheduler's
//! guarantees.

use crate::*;
use flow::{DataId, TaskId, ToolId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A random run: the graph, the machine, and the random choices during the run.
#[derive(Debug, Clone)]
struct RandomRun {
    machine: MachineCapacity,
    fail_fast: bool,
    /// True if the scheduler gets `SchedulerEvent::Pool`.
    has_pool: bool,
    kept: BTreeSet<DataId>,
    tasks: Vec<TaskSpec>,
    /// For each event: which running task ends, and whether it succeeds.
    chances: Vec<(u8, u8)>,
    /// The number of events before the run is cancelled, if it has that many.
    cancel_at: usize,
    /// The number of tasks that are added before the run begins; the others are added one by one.
    at_begin: usize,
}

/// Data 0..GIVEN are inputs; task `i` writes up to two data from `GIVEN + 2 * i` on.
const GIVEN: u32 = 3;

fn spec(id: u32, (reads, after, writes, cpus, memory, retries): TaskDraw) -> TaskSpec {
    // A task can read only outputs of earlier tasks, so there is no cycle. Some of these outputs
    // may have no writer.
    let inputs = reads.into_iter().map(|pick| DataId(u32::from(pick) % (GIVEN + 2 * id))).collect();
    let after = after.into_iter().filter(|_| id > 0).map(|pick| TaskId(u32::from(pick) % id.max(1))).collect();
    let outputs = (0..u32::from(writes)).map(|at| DataId(GIVEN + 2 * id + at)).collect();
    TaskSpec { tool: ToolId(id % 3), inputs, outputs, after, cpus, memory, retries, ..TaskSpec::new(TaskId(id)) }
}

type TaskDraw = (Vec<u16>, Vec<u16>, u8, u32, u64, u32);

fn cases() -> impl Strategy<Value = RandomRun> {
    let reads = prop::collection::vec(any::<u16>(), 0..4);
    let after = prop::collection::vec(any::<u16>(), 0..2);
    let random = prop::collection::vec((reads, after, 0..3_u8, 0..4_u32, 0..50_u64, 0..3_u32), 0..25);
    let machine = (3..6_u32, 50..120_u64).prop_map(|(slots, memory)| MachineCapacity { slots, memory });
    let kept = prop::collection::btree_set((0..50_u32).prop_map(DataId), 0..6);
    let chances = prop::collection::vec((any::<u8>(), any::<u8>()), 100);
    (machine, any::<(bool, bool)>(), kept, random, chances, 0..120_usize, 0..30_usize).prop_map(
        |(machine, (fail_fast, has_pool), kept, random, chances, cancel_at, at_begin)| {
            let tasks: Vec<_> = (0..).zip(random).map(|(id, random)| spec(id, random)).collect();
            let at_begin = at_begin.min(tasks.len());
            RandomRun { machine, fail_fast, has_pool, kept, tasks, chances, cancel_at, at_begin }
        },
    )
}

/// The state of the run as the oracle knows it.
#[derive(Default)]
struct Oracle {
    running: BTreeMap<TaskId, SlotId>,
    attempts: BTreeMap<TaskId, u32>,
    /// The number of times that each task found no space.
    refused: BTreeMap<TaskId, u32>,
    /// The number of writers that wait for space.
    waiting: u64,
    done: BTreeSet<TaskId>,
    failed: BTreeMap<TaskId, FailureCause>,
    dropped: BTreeSet<DataId>,
    stopping: bool,
    closed: bool,
    ended: bool,
}

impl Oracle {
    fn has_ended(&self, task: TaskId) -> bool {
        self.done.contains(&task) || self.failed.contains_key(&task)
    }

    fn refused_of(&self, task: TaskId) -> u32 {
        self.refused.get(&task).copied().unwrap_or(0)
    }

    fn exists(&self, data: DataId, case: &RandomRun) -> bool {
        let writer = case.tasks.iter().find(|task| task.outputs.contains(&data));
        writer.map_or(data.0 < GIVEN, |writer| self.done.contains(&writer.id))
    }

    fn obey(&mut self, command: SchedulerCommand, case: &RandomRun) {
        assert!(!self.ended, "nothing comes after the end: {command:?}");
        match command {
            SchedulerCommand::Start { task, slot, attempt, .. } => self.start(task, slot, attempt, case),
            SchedulerCommand::Clean { .. } => {}
            SchedulerCommand::Stop { task, attempt } => {
                assert!(self.running.contains_key(&task) && self.attempts[&task] == attempt);
            }
            SchedulerCommand::Retry { task, left } => {
                let (given, refused) = (case.tasks[task.0 as usize].retries + 1, self.refused_of(task));
                // A refusal that nothing could help counts as a failure.
                assert!((given..=given + refused).contains(&(self.attempts[&task] + left)));
            }
            SchedulerCommand::Again { .. } | SchedulerCommand::Provide { .. } => panic!("no data is lost"),
            SchedulerCommand::Failed { task, cause } => self.fail(task, cause, case),
            SchedulerCommand::Drop { data } => self.drop_data(data, case),
            SchedulerCommand::Rejected { .. } => panic!("all tasks fit the machine"),
            SchedulerCommand::Ended { done, failed } => {
                assert_eq!((done as usize, failed as usize), (self.done.len(), self.failed.len()));
                self.ended = true;
            }
        }
    }

    fn start(&mut self, task: TaskId, slot: SlotId, attempt: u32, case: &RandomRun) {
        let spec = &case.tasks[task.0 as usize];
        assert!(!self.stopping && !self.has_ended(task));
        assert!(spec.inputs.iter().all(|data| self.exists(*data, case) && !self.dropped.contains(data)));
        assert!(spec.after.iter().all(|task| self.done.contains(task)));
        let free =
            (0..2 * case.machine.slots).map(SlotId).find(|slot| self.running.values().all(|taken| taken != slot));
        assert_eq!(Some(slot), free, "the smallest free lane");
        assert_eq!(self.running.insert(task, slot), None);
        *self.attempts.entry(task).or_default() += 1;
        assert_eq!(self.attempts[&task], attempt);
        assert!(attempt <= spec.retries + 1 + self.refused_of(task));
        let specs = || self.running.keys().map(|task| &case.tasks[task.0 as usize]);
        let cpus = specs().map(|spec| spec.cpus.max(1)).sum::<u32>();
        let lent = if self.waiting > 0 { case.machine.slots } else { 0 };
        assert!(cpus <= case.machine.slots + lent, "only tasks that wait for space lend cpus");
        assert!(specs().map(|spec| spec.memory).sum::<u64>() <= case.machine.memory);
    }

    fn fail(&mut self, task: TaskId, cause: FailureCause, case: &RandomRun) {
        assert!(!self.has_ended(task) && !self.running.contains_key(&task));
        let spec = &case.tasks[task.0 as usize];
        match cause {
            FailureCause::OwnAttempt => {
                let (given, refused) = (spec.retries + 1, self.refused_of(task));
                assert!((given..=given + refused).contains(&self.attempts[&task]) || self.stopping);
            }
            FailureCause::Input { data, root } => {
                assert!(spec.inputs.contains(&data) && !self.exists(data, case));
                assert!(self.failed.contains_key(&root));
            }
            FailureCause::Predecessor { task: before, root } => {
                assert!(spec.after.contains(&before) && self.failed.contains_key(&before));
                assert!(self.failed.contains_key(&root));
            }
            FailureCause::NoWriter { data } => assert!(spec.inputs.contains(&data) && !self.exists(data, case)),
            FailureCause::NoTask { .. } => panic!("all are added"),
            FailureCause::NoSuchLocation { .. } | FailureCause::NoWorker => panic!("no task names a location"),
            FailureCause::FailFast { root } => assert!(case.fail_fast && self.failed.contains_key(&root)),
            FailureCause::Cancelled => assert!(self.stopping),
        }
        self.failed.insert(task, cause);
        // With fail-fast, no task may start after the first task that failed by itself.
        self.stopping |= case.fail_fast && cause == FailureCause::OwnAttempt;
    }

    fn drop_data(&mut self, data: DataId, case: &RandomRun) {
        assert!(self.closed && self.dropped.insert(data), "dropped once, and not before all readers are known");
        assert!(self.exists(data, case) && !case.kept.contains(&data));
        let mut readers = case.tasks.iter().filter(|task| task.inputs.contains(&data)).peekable();
        assert!(readers.peek().is_some(), "what nobody reads stays");
        assert!(readers.all(|task| self.has_ended(task.id)), "dropped after its last reader");
    }

    /// Checks the final state, after all tasks have ended.
    fn check_end(&self, scheduler: &Scheduler, case: &RandomRun) {
        assert!(self.ended && self.running.is_empty());
        assert!(case.tasks.iter().all(|task| self.has_ended(task.id)));
        for data in case.tasks.iter().flat_map(|task| &task.inputs) {
            let spent = self.exists(*data, case) && !case.kept.contains(data);
            assert_eq!(self.dropped.contains(data), spent, "{data:?}");
        }
        for (task, cause) in &self.failed {
            let chain = scheduler.chain(*task);
            assert_eq!(chain[0], CauseLink { task: *task, cause: *cause });
            let last = chain[chain.len() - 1];
            assert!(
                !matches!(last.cause, FailureCause::Input { .. } | FailureCause::Predecessor { .. }),
                "a chain has a root"
            );
            if let FailureCause::Input { root, .. } | FailureCause::Predecessor { root, .. } = cause {
                assert_eq!(last.task, *root);
            }
        }
    }
}

/// A pool of 200 bytes in any state. If no task runs, nothing is leaving.
fn pool(step: usize, pick: u8, luck: u8, idle: bool) -> PoolState {
    let used = u64::from(luck).min(200);
    let leaving = if step.is_multiple_of(3) && !idle { used.min(u64::from(pick)) } else { 0 };
    PoolState { capacity: 200, used, leaving, waiting: u64::from(pick) % 4 }
}

/// Plays the case to its end; `fails_below` of 256 attempts fail, some of them because there is no
/// space.
fn run_case(case: &RandomRun, fails_below: u8) {
    let mut scheduler =
        Scheduler::new(case.machine, SchedulerOptions { fail_fast: case.fail_fast, ..SchedulerOptions::default() });
    (0..GIVEN).for_each(|data| scheduler.add_existing(DataId(data)));
    case.kept.iter().for_each(|data| scheduler.keep(*data));
    let mut oracle = Oracle::default();
    let mut send = |event: SchedulerEvent, oracle: &mut Oracle| {
        let mut commands = Vec::new();
        scheduler.on(event, 0, &mut commands);
        for command in commands {
            oracle.obey(command, case);
        }
        assert_eq!(scheduler.counts().running as usize, oracle.running.len());
    };
    let (first, later) = case.tasks.split_at(case.at_begin);
    for task in first {
        send(SchedulerEvent::Add(Box::new(task.clone())), &mut oracle);
    }
    if later.is_empty() {
        oracle.closed = true;
        send(SchedulerEvent::Close, &mut oracle);
    }
    send(SchedulerEvent::Begin, &mut oracle);
    let mut later = later.iter();
    for step in 0.. {
        if step == case.cancel_at {
            oracle.stopping = true;
            send(SchedulerEvent::Cancel, &mut oracle);
        }
        let (pick, luck) = case.chances[step % case.chances.len()];
        if case.has_pool {
            let state = pool(step, pick, luck, oracle.running.is_empty());
            oracle.waiting = state.waiting;
            send(SchedulerEvent::Pool(state), &mut oracle);
        }
        if let Some(task) = oracle.running.keys().nth(usize::from(pick) % oracle.running.len().max(1)).copied() {
            let fails = luck < fails_below;
            let attempt = AttemptId { task, attempt: oracle.attempts[&task] };
            for data in case.tasks[task.0 as usize].outputs.iter().filter(|_| !fails) {
                let bytes = u64::from(luck);
                send(SchedulerEvent::Wrote { attempt, data: *data, bytes, place: None }, &mut oracle);
            }
            oracle.running.remove(&task);
            if fails && case.has_pool && pick.is_multiple_of(2) {
                *oracle.refused.entry(task).or_default() += 1;
                send(SchedulerEvent::NoSpace { attempt, retry: true }, &mut oracle);
            } else if fails {
                send(SchedulerEvent::Failed { attempt, retry: true }, &mut oracle);
            } else {
                oracle.done.insert(task);
                send(SchedulerEvent::Done(attempt), &mut oracle);
            }
        }
        if let Some(task) = later.next() {
            send(SchedulerEvent::Add(Box::new(task.clone())), &mut oracle);
        } else if !oracle.closed {
            oracle.closed = true;
            send(SchedulerEvent::Close, &mut oracle);
        } else if oracle.ended {
            break;
        }
    }
    oracle.check_end(&scheduler, case);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_promise_holds_on_random_runs(case in cases()) {
        run_case(&case, 0);
        run_case(&case, 60);
        run_case(&case, 200);
    }
}
