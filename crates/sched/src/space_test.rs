//! Random workflows in a simulated pool that is almost too small, with writers that wait or are
//! refused.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]
#![allow(clippy::print_stdout, reason = "how many finish is a measurement")]

use crate::least_peak::least_of_orders;
use crate::*;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeMap, BTreeSet};
use test_support::Random;

/// A tenth of the orders that a real run simulates: enough for graphs of this size, and ten times
/// as fast.
const ORDERS: u64 = 1000;

/// The behaviour of tools if there is no space.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FullPoolMode {
    /// Tools wait, as on the mount, until nothing moves any more.
    Waits,
    /// Tools fail at once, as writers to extent files do.
    Fails,
}

struct RandomWorkflow {
    tasks: Vec<TaskSpec>,
    bytes: Vec<u64>,
    slots: u32,
}

/// Layers of tasks of a few tools; each task writes one datum of about its tool's size.
fn random_workflow(random: &mut Random) -> RandomWorkflow {
    let (count, tools) = (4 + random.below(40_u32), 1 + random.below(5_u32));
    let sizes: Vec<u64> = (0..tools).map(|_| random.pick(&[0, 1, 10, 100, 300])).collect();
    let mut case = RandomWorkflow { tasks: Vec::new(), bytes: Vec::new(), slots: 1 + random.below(4) };
    for id in 0..count {
        let tool = random.below(tools);
        let reads = if id == 0 { 0 } else { random.below(4) };
        let near = 1 + random.below(id.max(1));
        let inputs = (0..reads).map(|_| DataId(id - 1 - random.below(near.min(id)))).collect();
        case.bytes.push(sizes[tool as usize] + random.below(1 + sizes[tool as usize] / 4));
        let (id, tool) = (TaskId(id), ToolId(tool));
        case.tasks.push(TaskSpec { tool, inputs, outputs: vec![DataId(id.0)], ..TaskSpec::new(id) });
    }
    case
}

/// Chains of tasks, each of which reads only its predecessor's output; `of_each` has the size of
/// each step's output. If `merged`, one more task reads the ends of all chains.
fn chains(length: u32, of_each: &[u64], merged: bool, slots: u32) -> RandomWorkflow {
    let mut case = RandomWorkflow { tasks: Vec::new(), bytes: Vec::new(), slots };
    let steps = of_each.len() as u32;
    for id in 0..length * steps {
        let step = id % steps;
        let inputs = if step == 0 { vec![] } else { vec![DataId(id - 1)] };
        let tool = ToolId(step);
        case.bytes.push(of_each[step as usize]);
        case.tasks.push(TaskSpec { tool, inputs, outputs: vec![DataId(id)], ..TaskSpec::new(TaskId(id)) });
    }
    if merged {
        let inputs = (0..length).map(|chain| DataId(chain * steps + steps - 1)).collect();
        let id = length * steps;
        case.bytes.push(1);
        case.tasks.push(TaskSpec {
            tool: ToolId(steps),
            inputs,
            outputs: vec![DataId(id)],
            ..TaskSpec::new(TaskId(id))
        });
    }
    case
}

/// The simulated pool and the running tasks.
struct PoolSimulation<'a> {
    case: &'a RandomWorkflow,
    scheduler: Scheduler,
    capacity: u64,
    mode: FullPoolMode,
    /// The bytes that each running task has written so far.
    running: BTreeMap<TaskId, u64>,
    waiting: BTreeSet<TaskId>,
    stored: BTreeMap<DataId, u64>,
    /// The bytes that were dropped and are not removed yet.
    leaving: u64,
    failed: u32,
    done: u32,
    ended: bool,
}

impl<'a> PoolSimulation<'a> {
    fn new(case: &'a RandomWorkflow, capacity: u64, mode: FullPoolMode) -> Self {
        let machine = MachineCapacity { slots: case.slots, memory: 0 };
        let scheduler = Scheduler::new(machine, SchedulerOptions::default());
        let (running, waiting, stored) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (leaving, failed, done, ended) = (0, 0, 0, false);
        Self { case, scheduler, capacity, mode, running, waiting, stored, leaving, failed, done, ended }
    }

    fn used(&self) -> u64 {
        self.stored.values().sum::<u64>() + self.running.values().sum::<u64>() + self.leaving
    }

    fn send(&mut self, event: SchedulerEvent) {
        let mut commands = Vec::new();
        self.scheduler.on(event, 0, &mut commands);
        for command in commands {
            match command {
                SchedulerCommand::Start { task, .. } => {
                    let is_lent = self.running.len() >= self.case.slots as usize;
                    assert!(!is_lent || !self.waiting.is_empty(), "a slot is lent only by tasks that wait for space");
                    assert_eq!(self.running.insert(task, 0), None);
                }
                SchedulerCommand::Drop { data } => self.leaving += self.stored.remove(&data).expect("dropped once"),
                SchedulerCommand::Failed { .. } => self.failed += 1,
                SchedulerCommand::Ended { .. } => self.ended = true,
                SchedulerCommand::Retry { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(self.running.len() <= 2 * self.case.slots as usize, "a slot is lent once");
    }

    fn send_pool_state(&mut self) {
        let waiting = self.waiting.len() as u64;
        let (capacity, used, leaving) = (self.capacity, self.used(), self.leaving);
        assert!(used <= capacity);
        self.send(SchedulerEvent::Pool(PoolState { capacity, used, leaving, waiting }));
    }

    fn begin(&mut self) {
        for task in &self.case.tasks {
            self.send(SchedulerEvent::Add(Box::new(task.clone())));
        }
        self.send(SchedulerEvent::Close);
        self.send_pool_state();
        self.send(SchedulerEvent::Begin);
    }

    /// Plays to the end; returns whether every task succeeded.
    fn run(&mut self, random: &mut Random) -> bool {
        self.begin();
        let bound = 1000 * self.case.tasks.len();
        for step in 0.. {
            assert!(step < bound, "it goes on for ever");
            if self.ended {
                break;
            }
            self.step(random);
        }
        let tasks = self.case.tasks.len() as u32;
        assert_eq!(self.done + self.failed, tasks);
        self.done == tasks
    }

    fn step(&mut self, random: &mut Random) {
        self.leaving -= if self.leaving > 0 { random.below(self.leaving) + 1 } else { 0 };
        self.send_pool_state();
        let ForeseenBytes { soon, ever } = self.scheduler.foresee();
        assert!(soon <= ever);
        let at = random.below(self.running.len());
        let Some((task, written)) = self.running.iter().nth(at).map(|(task, written)| (*task, *written)) else {
            return;
        };
        let left = self.case.bytes[task.0 as usize] - written;
        if left == 0 {
            return self.end_task(task);
        }
        let wanted = left.min(1 + random.below(left));
        if self.used() + wanted <= self.capacity {
            self.waiting.remove(&task);
            *self.running.get_mut(&task).expect("it runs") += wanted;
        } else if self.mode == FullPoolMode::Fails {
            self.fail_no_space(task);
        } else {
            self.waiting.insert(task);
            self.send_pool_state();
            if self.waiting.len() == self.running.len() && self.leaving == 0 {
                self.fail_no_space(task);
            }
        }
    }

    fn fail_no_space(&mut self, task: TaskId) {
        self.running.remove(&task);
        self.waiting.remove(&task);
        self.send_pool_state();
        self.send(SchedulerEvent::NoSpace { attempt: self.attempt(task), retry: false });
    }

    fn attempt(&self, task: TaskId) -> AttemptId {
        self.scheduler.running_attempt(task).expect("it runs")
    }

    fn end_task(&mut self, task: TaskId) {
        self.running.remove(&task);
        self.done += 1;
        let (data, bytes) = (DataId(task.0), self.case.bytes[task.0 as usize]);
        let is_read = self.case.tasks.iter().any(|other| other.inputs.contains(&data));
        if is_read {
            self.stored.insert(data, bytes);
        } else {
            self.leaving += bytes;
        }
        self.send(SchedulerEvent::Wrote { attempt: self.attempt(task), data, bytes, place: None });
        self.send_pool_state();
        self.send(SchedulerEvent::Done(self.attempt(task)));
    }
}

fn least(case: &RandomWorkflow) -> u64 {
    let bytes = |data: DataId| case.bytes[data.0 as usize];
    least_of_orders(&case.tasks, case.slots, (bytes, |_| false), ORDERS).expect("no cycle").bytes
}

fn run_case(case: &RandomWorkflow, capacity: u64, mode: FullPoolMode, seed: u64) -> bool {
    PoolSimulation::new(case, capacity, mode).run(&mut Random::new(seed))
}

#[test]
fn foresight_tells_the_most_that_a_workflow_uses_soon_and_ever_as_soon_as_each_tool_is_known() {
    for slots in 1..5_u32 {
        let (case, mut random) = (chains(40, &[50, 20], true, slots), Random::new(slots.into()));
        let mut pool = PoolSimulation::new(&case, 100_000, FullPoolMode::Waits);
        pool.begin();
        let (mut foreseen, mut used, mut most) = (Vec::new(), Vec::new(), 0);
        while !pool.ended {
            pool.step(&mut random);
            used.push(pool.used() - pool.leaving);
            foreseen.push((pool.done, pool.scheduler.foresee()));
            most = most.max(pool.used());
        }
        let known = foreseen.iter().position(|(done, _)| *done > 0).expect("tasks end");
        for (at, (done, ForeseenBytes { soon, ever })) in foreseen.iter().enumerate().skip(known) {
            let later = used[at..].iter().max().copied().unwrap_or(0);
            // Tools that have not run yet are not counted as long as their inputs are foreseen too.
            let unknown = u64::from(slots) * 50;
            assert!(
                ever + unknown >= later,
                "{slots} slots: {ever} foreseen after {done} tasks, then {later} were used"
            );
            assert!(*ever <= most + unknown, "{slots} slots: {ever} of {most}");
            assert!(soon <= ever);
        }
        let last = foreseen.last().expect("it ran").1;
        assert!(last.ever <= 100, "{last:?}: nothing is left to run");
    }
}

#[test]
fn foresight_follows_a_datum_that_many_tasks_read() {
    for slots in 1..5_u32 {
        let mut case = chains(1, &[50], false, slots);
        for id in 1..21 {
            let (inputs, outputs) = (vec![DataId(0)], vec![DataId(id)]);
            case.bytes.push(10);
            case.tasks.push(TaskSpec { tool: ToolId(1), inputs, outputs, ..TaskSpec::new(TaskId(id)) });
        }
        assert!(run_case(&case, 100_000, FullPoolMode::Waits, slots.into()));
    }
}

#[test]
fn forty_chains_finish_in_the_space_of_six_files() {
    for mode in [FullPoolMode::Waits, FullPoolMode::Fails] {
        for (seed, slots) in (0..60).zip([1, 2, 3, 4].into_iter().cycle()) {
            assert!(run_case(&chains(40, &[50, 1], false, slots), 300, mode, seed), "{mode:?} {slots} {seed}");
        }
    }
}

#[test]
fn twenty_chains_with_one_merge_finish_where_their_ends_and_two_steps_fit() {
    for mode in [FullPoolMode::Waits, FullPoolMode::Fails] {
        for (seed, slots) in (0..60).zip([1, 2, 3, 4].into_iter().cycle()) {
            let case = chains(20, &[50, 50, 25], true, slots);
            assert!(run_case(&case, 640, mode, seed), "{mode:?} {slots} {seed}");
        }
    }
}

/// The number of these random workflows that finish in a pool of `percent` percent of their least
/// peak.
fn finished(cases: u64, percent: u64, mode: FullPoolMode) -> u64 {
    let mut finished = 0;
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let case = random_workflow(&mut random);
        let done = run_case(&case, least(&case) * percent / 100, mode, seed);
        finished += u64::from(done);
    }
    println!("{mode:?}, {percent} %: {finished} of {cases}");
    finished
}

#[test]
fn most_random_workflows_finish_in_a_fifth_more_than_their_least_peak() {
    for mode in [FullPoolMode::Waits, FullPoolMode::Fails] {
        let finished = finished(200, 120, mode);
        assert!(finished >= 183, "{mode:?}: {finished} of 200");
    }
}

#[test]
fn what_cannot_fit_fails_in_the_end_and_nothing_goes_on_for_ever() {
    for mode in [FullPoolMode::Waits, FullPoolMode::Fails] {
        for percent in [40, 90] {
            finished(20, percent, mode);
        }
    }
}
