//! Measures decisions: a small and a large run of each policy.
//!
//! Prints a line for each: the time to load the tasks, the memory of a task, and the time of a
//! decision (the end of a task and the start of the next ones).
#![allow(clippy::print_stdout, reason = "the numbers are for the terminal")]

use base::SplitMix64;
use flow::{DataId, TaskId, ToolId};
use sched::{
    AttemptId, MachineCapacity, PlaceId, PolicyKind, Scheduler, SchedulerCommand, SchedulerEvent, SchedulerOptions,
    TaskSpec, WorkerId,
};
use std::collections::VecDeque;
use std::time::Instant;

/// Each place has this many workers.
const WORKERS_OF_PLACE: u32 = 4;

/// The largest difference between the number of a task and that of the writers of its inputs.
const NEAR: u64 = 20_000;

/// A running task of the example.
type Running = (TaskId, PlaceId);

struct Run {
    scheduler: Scheduler,
    running: VecDeque<Running>,
    commands: Vec<SchedulerCommand>,
    started: u64,
    now_ms: u64,
}

impl Run {
    fn send(&mut self, event: SchedulerEvent) {
        self.scheduler.on(event, self.now_ms, &mut self.commands);
        for command in self.commands.drain(..) {
            if let SchedulerCommand::Start { task, worker, .. } = command {
                self.running.push_back((task, PlaceId(worker.0 / WORKERS_OF_PLACE)));
                self.started += 1;
            }
        }
    }
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

/// A third of the tasks reads inputs of the workflow; the others read two outputs of earlier tasks.
fn load(run: &mut Run, tasks: u32, workers: u32, random: &mut SplitMix64) {
    let places = workers.div_ceil(WORKERS_OF_PLACE);
    let mut below = |end: u64| u32::try_from(random.below(end)).expect("below a u32");
    for worker in (0..workers).map(WorkerId) {
        let (place, capacity) = (PlaceId(worker.0 / WORKERS_OF_PLACE), MachineCapacity { slots: 1, memory: 0 });
        run.send(SchedulerEvent::AddWorker { worker, place, capacity });
    }
    for id in 0..tasks {
        let (input, output) = (DataId(2 * id), DataId(2 * id + 1));
        let inputs = if id < tasks / 3 {
            run.scheduler.add_existing(input);
            run.send(SchedulerEvent::Located { data: input, place: PlaceId(below(places.into())), bytes: 1 << 20 });
            vec![input]
        } else {
            (0..2).map(|_| DataId(2 * (id - 1 - below(NEAR.min(id.into()))) + 1)).collect()
        };
        let spec = TaskSpec { tool: ToolId(id % 8), inputs, outputs: vec![output], ..TaskSpec::new(TaskId(id)) };
        run.send(SchedulerEvent::Add(Box::new(spec)));
    }
    run.send(SchedulerEvent::Close);
}

#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn measure(policy: PolicyKind, tasks: u32, workers: u32) {
    let before = resident();
    let options = SchedulerOptions { policy, ..SchedulerOptions::default() };
    let scheduler = Scheduler::without_workers(options);
    let mut run = Run { scheduler, running: VecDeque::new(), commands: Vec::new(), started: 0, now_ms: 0 };
    let mut random = SplitMix64::new(7);
    let begun = Instant::now();
    load(&mut run, tasks, workers, &mut random);
    let loaded = begun.elapsed();
    let begun = Instant::now();
    run.send(SchedulerEvent::Begin);
    while let Some((task, place)) = run.running.pop_front() {
        run.now_ms += 1;
        let (attempt, data) = (AttemptId { task, attempt: 1 }, DataId(2 * task.0 + 1));
        run.send(SchedulerEvent::Wrote { attempt, data, bytes: 1 << 20, place: Some(place) });
        run.send(SchedulerEvent::Done(attempt));
    }
    let took = begun.elapsed();
    // The heap does not shrink, so this is about the most that was needed.
    let memory = resident().saturating_sub(before);
    assert_eq!(run.started, u64::from(tasks), "every task ran");
    println!(
        "{policy:10} {tasks:8} tasks {workers:5} workers: loaded in {:7.1} ms, {:4} bytes a task, {:8.0} decisions/s, {:6.0} ns each",
        loaded.as_secs_f64() * 1e3,
        memory / u64::from(tasks),
        f64::from(tasks) / took.as_secs_f64(),
        took.as_secs_f64() * 1e9 / f64::from(tasks),
    );
}

/// Measures what the arguments say: policy, tasks, workers. Without arguments measures all, each in
/// a process of its own, so that none finds memory that another one freed.
fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [policy, tasks, workers] = &given[..] {
        let number = |text: &String| text.parse().expect("a number");
        return measure(policy.parse().expect("a policy"), number(tasks), number(workers));
    }
    let program = std::env::current_exe().expect("this program");
    for policy in PolicyKind::ALL {
        for size in [["1000", "4"], ["1000000", "1000"]] {
            let status = std::process::Command::new(&program).arg(policy.to_string()).args(size).status();
            assert!(status.expect("it starts").success(), "{policy} {size:?}");
        }
    }
}
