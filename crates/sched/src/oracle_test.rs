//! Thousands of random graphs and runs, each checked by an oracle that knows only the scheduler's
//! guarantees.

use crate::*;
use flow::{DataId, TaskId, ToolId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A random run: the graph, the machine, and the random choices during the run.
#[derive(Debug, Clone)]
struct Case {
    machine: Machine,
    fail_fast: bool,
    /// True if the scheduler gets `Event::Pool`.
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

fn spec(id: u32, (reads, after, writes, cpus, memory, retries): Dice) -> TaskSpec {
    // A task can read only outputs of earlier tasks, so there is no cycle. Some of these outputs
    // may have no writer.
    let inputs = reads.into_iter().map(|pick| DataId(u32::from(pick) % (GIVEN + 2 * id))).collect();
    let after = after.into_iter().filter(|_| id > 0).map(|pick| TaskId(u32::from(pick) % id.max(1))).collect();
    let outputs = (0..u32::from(writes)).map(|at| DataId(GIVEN + 2 * id + at)).collect();
    TaskSpec { id: TaskId(id), tool: ToolId(id % 3), inputs, outputs, after, cpus, memory, retries }
}

type Dice = (Vec<u16>, Vec<u16>, u8, u32, u64, u32);

fn cases() -> impl Strategy<Value = Case> {
    let reads = prop::collection::vec(any::<u16>(), 0..4);
    let after = prop::collection::vec(any::<u16>(), 0..2);
    let dice = prop::collection::vec((reads, after, 0..3_u8, 0..4_u32, 0..50_u64, 0..3_u32), 0..25);
    let machine = (3..6_u32, 50..120_u64).prop_map(|(slots, memory)| Machine { slots, memory });
    let kept = prop::collection::btree_set((0..50_u32).prop_map(DataId), 0..6);
    let chances = prop::collection::vec((any::<u8>(), any::<u8>()), 100);
    (machine, any::<(bool, bool)>(), kept, dice, chances, 0..120_usize, 0..30_usize).prop_map(
        |(machine, (fail_fast, has_pool), kept, dice, chances, cancel_at, at_begin)| {
            let tasks: Vec<_> = (0..).zip(dice).map(|(id, dice)| spec(id, dice)).collect();
            let at_begin = at_begin.min(tasks.len());
            Case { machine, fail_fast, has_pool, kept, tasks, chances, cancel_at, at_begin }
        },
    )
}

/// The state of the run as the oracle knows it.
#[derive(Default)]
struct Seen {
    running: BTreeMap<TaskId, SlotId>,
    attempts: BTreeMap<TaskId, u32>,
    /// The number of times that each task found no space.
    refused: BTreeMap<TaskId, u32>,
    /// The number of writers that wait for space.
    waiting: u64,
    done: BTreeSet<TaskId>,
    failed: BTreeMap<TaskId, Because>,
    dropped: BTreeSet<DataId>,
    stopping: bool,
    closed: bool,
    ended: bool,
}

impl Seen {
    fn has_ended(&self, task: TaskId) -> bool {
        self.done.contains(&task) || self.failed.contains_key(&task)
    }

    fn refused_of(&self, task: TaskId) -> u32 {
        self.refused.get(&task).copied().unwrap_or(0)
    }

    fn exists(&self, data: DataId, case: &Case) -> bool {
        let writer = case.tasks.iter().find(|task| task.outputs.contains(&data));
        writer.map_or(data.0 < GIVEN, |writer| self.done.contains(&writer.id))
    }

    fn obey(&mut self, command: Command, case: &Case) {
        assert!(!self.ended, "nothing comes after the end: {command:?}");
        match command {
            Command::Start { task, slot, attempt } => self.start(task, slot, attempt, case),
            Command::Stop { task } => assert!(self.running.contains_key(&task)),
            Command::Retry { task, left } => {
                let (given, refused) = (case.tasks[task.0 as usize].retries + 1, self.refused_of(task));
                // A refusal that nothing could help counts as a failure.
                assert!((given..=given + refused).contains(&(self.attempts[&task] + left)));
            }
            Command::Failed { task, because } => self.fail(task, because, case),
            Command::Drop { data } => self.drop_data(data, case),
            Command::Refused { .. } => panic!("all tasks fit the machine"),
            Command::Ended { done, failed } => {
                assert_eq!((done as usize, failed as usize), (self.done.len(), self.failed.len()));
                self.ended = true;
            }
        }
    }

    fn start(&mut self, task: TaskId, slot: SlotId, attempt: u32, case: &Case) {
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
        assert!(cpus <= case.machine.slots + lent, "only who waits for space lends its cpus");
        assert!(specs().map(|spec| spec.memory).sum::<u64>() <= case.machine.memory);
    }

    fn fail(&mut self, task: TaskId, because: Because, case: &Case) {
        assert!(!self.has_ended(task) && !self.running.contains_key(&task));
        let spec = &case.tasks[task.0 as usize];
        match because {
            Because::Itself => {
                let (given, refused) = (spec.retries + 1, self.refused_of(task));
                assert!((given..=given + refused).contains(&self.attempts[&task]) || self.stopping);
            }
            Because::Input { data, root } => {
                assert!(spec.inputs.contains(&data) && !self.exists(data, case));
                assert!(self.failed.contains_key(&root));
            }
            Because::After { task: before, root } => {
                assert!(spec.after.contains(&before) && self.failed.contains_key(&before));
                assert!(self.failed.contains_key(&root));
            }
            Because::NoWriter { data } => assert!(spec.inputs.contains(&data) && !self.exists(data, case)),
            Because::NoTask { .. } => panic!("all are added"),
            Because::FailFast { root } => assert!(case.fail_fast && self.failed.contains_key(&root)),
            Because::Cancelled => assert!(self.stopping),
        }
        self.failed.insert(task, because);
        // With fail-fast, no task may start after the first task that failed by itself.
        self.stopping |= case.fail_fast && because == Because::Itself;
    }

    fn drop_data(&mut self, data: DataId, case: &Case) {
        assert!(self.closed && self.dropped.insert(data), "dropped once, and not before all readers are known");
        assert!(self.exists(data, case) && !case.kept.contains(&data));
        let mut readers = case.tasks.iter().filter(|task| task.inputs.contains(&data)).peekable();
        assert!(readers.peek().is_some(), "what nobody reads stays");
        assert!(readers.all(|task| self.has_ended(task.id)), "dropped after its last reader");
    }

    /// Checks the final state, after all tasks have ended.
    fn check_end(&self, scheduler: &Scheduler, case: &Case) {
        assert!(self.ended && self.running.is_empty());
        assert!(case.tasks.iter().all(|task| self.has_ended(task.id)));
        for data in case.tasks.iter().flat_map(|task| &task.inputs) {
            let spent = self.exists(*data, case) && !case.kept.contains(data);
            assert_eq!(self.dropped.contains(data), spent, "{data:?}");
        }
        for (task, because) in &self.failed {
            let chain = scheduler.chain(*task);
            assert_eq!(chain[0], Link { task: *task, because: *because });
            let last = chain[chain.len() - 1];
            assert!(!matches!(last.because, Because::Input { .. } | Because::After { .. }), "a chain has a root");
            if let Because::Input { root, .. } | Because::After { root, .. } = because {
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
fn play(case: &Case, fails_below: u8) {
    let mut scheduler = Scheduler::new(case.machine, Options { fail_fast: case.fail_fast });
    (0..GIVEN).for_each(|data| scheduler.give(DataId(data)));
    case.kept.iter().for_each(|data| scheduler.keep(*data));
    let mut seen = Seen::default();
    let mut tell = |event: Event, seen: &mut Seen| {
        let mut commands = Vec::new();
        scheduler.on(event, 0, &mut commands);
        for command in commands {
            seen.obey(command, case);
        }
        assert_eq!(scheduler.counts().running as usize, seen.running.len());
    };
    let (first, later) = case.tasks.split_at(case.at_begin);
    for task in first {
        tell(Event::Add(Box::new(task.clone())), &mut seen);
    }
    if later.is_empty() {
        seen.closed = true;
        tell(Event::Close, &mut seen);
    }
    tell(Event::Begin, &mut seen);
    let mut later = later.iter();
    for step in 0.. {
        if step == case.cancel_at {
            seen.stopping = true;
            tell(Event::Cancel, &mut seen);
        }
        let (pick, luck) = case.chances[step % case.chances.len()];
        if case.has_pool {
            let state = pool(step, pick, luck, seen.running.is_empty());
            seen.waiting = state.waiting;
            tell(Event::Pool(state), &mut seen);
        }
        if let Some(task) = seen.running.keys().nth(usize::from(pick) % seen.running.len().max(1)).copied() {
            let fails = luck < fails_below;
            for data in case.tasks[task.0 as usize].outputs.iter().filter(|_| !fails) {
                tell(Event::Wrote { data: *data, bytes: u64::from(luck) }, &mut seen);
            }
            seen.running.remove(&task);
            if fails && case.has_pool && pick.is_multiple_of(2) {
                *seen.refused.entry(task).or_default() += 1;
                tell(Event::NoSpace { task, retry: true }, &mut seen);
            } else if fails {
                tell(Event::Failed { task, retry: true }, &mut seen);
            } else {
                seen.done.insert(task);
                tell(Event::Done(task), &mut seen);
            }
        }
        if let Some(task) = later.next() {
            tell(Event::Add(Box::new(task.clone())), &mut seen);
        } else if !seen.closed {
            seen.closed = true;
            tell(Event::Close, &mut seen);
        } else if seen.ended {
            break;
        }
    }
    seen.check_end(&scheduler, case);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_promise_holds_on_random_runs(case in cases()) {
        play(&case, 0);
        play(&case, 60);
        play(&case, 200);
    }
}
