//! Tests of `locality`: bytes that it saves on Montage-shaped workflows, and how it weighs waiting.
#![allow(clippy::print_stdout, reason = "the bytes are a measurement")]

use crate::simulation_test::{Simulation, montage, random_graph};
use crate::*;
use flow::{DataId, TaskId, ToolId};

const PLACES: [PlaceId; 4] = [PlaceId(0), PlaceId(1), PlaceId(2), PlaceId(3)];

/// The bytes that were read from other places, and the makespan in ms.
fn remote(seed: u64, policy: PolicyKind) -> (u64, u64) {
    let graph = montage(seed, (6, 4 + u32::try_from(seed % 3).expect("small")), 4);
    let mut simulation = Simulation::new(&graph, &PLACES, 2, policy);
    simulation.run();
    (simulation.remote, simulation.now_ms)
}

#[test]
fn locality_reads_at_most_half_as_much_from_afar_as_fifo_and_no_more_than_algorithm1() {
    let mut sums = [(0, 0); 3];
    for seed in 0..30 {
        let each = PolicyKind::ALL.map(|policy| remote(seed, policy));
        let [(fifo, _), _, (locality, _)] = each;
        assert!(locality <= fifo, "seed {seed}: {each:?}");
        sums.iter_mut().zip(each).for_each(|(sum, one)| *sum = (sum.0 + one.0, sum.1 + one.1));
    }
    println!("bytes from afar and ms of {:?}: {sums:?}", PolicyKind::ALL);
    let [(fifo, _), (algorithm1, _), (locality, _)] = sums;
    assert!(locality * 2 <= fifo && locality <= algorithm1, "{sums:?}");
}

#[test]
fn with_one_place_locality_starts_what_fifo_starts() {
    for seed in 0..50 {
        let (graph, places) = (random_graph(seed, 200, 1), [PlaceId(0)]);
        let starts = |policy| Simulation::new(&graph, &places, 3, policy).run();
        assert_eq!(starts(PolicyKind::Locality), starts(PolicyKind::Fifo), "seed {seed}");
    }
}

/// The bytes that were read from other places if the images are nowhere, or at all places.
fn remote_of_neighbours(seed: u64, policy: PolicyKind, everywhere: bool) -> u64 {
    let mut graph = montage(seed, (6, 4 + u32::try_from(seed % 3).expect("small")), 4);
    let images: Vec<DataId> = graph.given.drain(..).map(|(data, _)| data).collect();
    for data in images {
        graph.bytes.insert(data, 4_000_000);
        graph.given.extend(PLACES.map(|place| (data, place)));
    }
    if !everywhere {
        graph.given.clear();
        graph.tasks.iter_mut().filter(|task| task.tool == ToolId(0)).for_each(|task| task.inputs.clear());
    }
    let mut simulation = Simulation::new(&graph, &PLACES, 2, policy);
    simulation.run();
    simulation.remote
}

#[test]
fn where_all_places_are_equal_neighbours_run_at_one_place() {
    for everywhere in [false, true] {
        let mut sums = [0; 3];
        for seed in 0..30 {
            let each = PolicyKind::ALL.map(|policy| remote_of_neighbours(seed, policy, everywhere));
            sums.iter_mut().zip(each).for_each(|(sum, one)| *sum += one);
        }
        println!("bytes from afar, everywhere {everywhere}, of {:?}: {sums:?}", PolicyKind::ALL);
        let [fifo, algorithm1, locality] = sums;
        assert!(locality * 5 <= fifo * 2 && locality * 5 <= algorithm1 * 4, "{sums:?}");
    }
}

/// A scheduler with one worker of one processor at each of two places.
struct TwoPlaces(Scheduler);

impl TwoPlaces {
    fn new() -> Self {
        let mut two = Self::unbegun();
        two.on(SchedulerEvent::Begin, 0);
        two
    }

    fn unbegun() -> Self {
        let mut two = Self(Scheduler::without_workers(SchedulerOptions::default()));
        for id in 0..2 {
            let capacity = MachineCapacity { slots: 1, memory: 0 };
            two.on(SchedulerEvent::AddWorker { worker: WorkerId(id), place: PlaceId(id), capacity }, 0);
        }
        two
    }

    fn on(&mut self, event: SchedulerEvent, now_ms: u64) -> Vec<(u32, u32)> {
        let mut commands = Vec::new();
        self.0.on(event, now_ms, &mut commands);
        let start = |command: &SchedulerCommand| match command {
            SchedulerCommand::Start { task, worker, .. } => Some((task.0, worker.0)),
            _ => None,
        };
        commands.iter().filter_map(start).collect()
    }

    /// An existing datum of this size at this place.
    fn given(&mut self, data: u32, place: u32, bytes: u64) {
        self.0.add_existing(DataId(data));
        self.on(SchedulerEvent::Located { data: DataId(data), place: PlaceId(place), bytes }, 0);
    }

    fn add(&mut self, id: u32, inputs: &[u32], now_ms: u64) -> Vec<(u32, u32)> {
        let inputs = inputs.iter().copied().map(DataId).collect();
        self.on(SchedulerEvent::Add(Box::new(TaskSpec { inputs, ..TaskSpec::new(TaskId(id)) })), now_ms)
    }

    fn reason(&self, id: u32) -> StartReason {
        match self.0.explain(TaskId(id), 0) {
            Some(TaskExplanation::Running { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// The end of the first attempt of a task.
fn done(task: u32) -> SchedulerEvent {
    SchedulerEvent::Done(AttemptId { task: TaskId(task), attempt: 1 })
}

#[test]
fn a_task_waits_for_its_place_until_reading_from_afar_is_quicker() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 100_000_000);
    assert_eq!(two.add(0, &[0], 0), [(0, 0)], "at its place");
    assert_eq!(two.reason(0), StartReason::MostBytesLocal);
    // The bytes take a second from afar. Nothing is known of the tool, so it waits as long.
    assert_eq!(two.add(1, &[0], 900), []);
    let waits = two.0.explain(TaskId(1), 900);
    assert!(matches!(waits, Some(TaskExplanation::Ready { reason: WaitReason::PlaceBusy, .. })), "{waits:?}");
    assert_eq!(two.on(SchedulerEvent::Pool(PoolState::default()), 1001), [(1, 1)]);
    assert_eq!(two.reason(1), StartReason::QuickerThanWaiting);
}

#[test]
fn a_long_queue_at_one_place_is_shared_with_others() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 100_000_000);
    two.add(0, &[0], 0);
    assert_eq!(two.on(done(0), 400), []);
    assert_eq!(two.add(1, &[0], 400), [(1, 0)]);
    assert_eq!([two.add(2, &[0], 400), two.add(3, &[0], 400)], [vec![], vec![]], "400 ms each");
    assert_eq!(two.add(4, &[0], 400), [(2, 1)], "three wait: the last one for longer than a second");
}

#[test]
fn a_place_that_is_nearly_full_gets_nothing_that_does_not_fit() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 1_000_000);
    two.on(SchedulerEvent::PlaceState { place: PlaceId(0), capacity: 10_000_000, used: 9_500_000 }, 0);
    assert_eq!(two.add(0, &[0], 0), [(0, 1)], "it is taken to write as much as it reads");
    two.on(SchedulerEvent::PlaceState { place: PlaceId(1), capacity: 10_000_000, used: 9_500_000 }, 0);
    assert_eq!(two.add(1, &[0], 0), [(1, 0)], "nowhere is more room");
}

#[test]
fn a_copy_that_comes_later_moves_a_waiting_task() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 100_000_000_000);
    two.add(0, &[0], 0);
    assert_eq!(two.add(1, &[0], 0), []);
    let copied = SchedulerEvent::Located { data: DataId(0), place: PlaceId(1), bytes: 0 };
    assert_eq!(two.on(copied, 0), [(1, 1)]);
}

#[test]
fn a_long_queue_that_waits_for_one_place_does_not_hide_tasks_that_may_go_anywhere() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 1_000_000_000_000);
    (0..200).for_each(|id| drop(two.add(id, &[0], 0)));
    assert_eq!(two.add(200, &[], 0), [(200, 1)]);
}

#[test]
fn a_priority_counts_more_than_bytes_at_the_place() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 1_000_000);
    two.add(0, &[], 0);
    two.add(1, &[], 0);
    two.add(2, &[0], 0);
    let high = TaskSpec { priority: 1, ..TaskSpec::new(TaskId(3)) };
    two.on(SchedulerEvent::Add(Box::new(high)), 0);
    assert_eq!(two.on(done(0), 1), [(3, 0)]);
    assert_eq!(two.reason(3), StartReason::HighestPriority);
}

#[test]
fn data_that_is_no_longer_at_a_place_does_not_draw_tasks_there() {
    let mut two = TwoPlaces::new();
    two.given(0, 1, 1_000_000);
    two.given(1, 1, 500_000);
    two.add(0, &[], 0);
    two.add(1, &[], 0);
    two.add(2, &[0], 0);
    two.add(3, &[1], 0);
    two.on(SchedulerEvent::Unlocated { data: DataId(0), place: PlaceId(1) }, 0);
    assert_eq!(two.on(done(1), 1), [(3, 1)], "the other one has no bytes there now");
    assert_eq!(two.on(done(0), 1), [(2, 0)]);
}

#[test]
fn the_block_of_a_busy_place_is_taken_by_another_place() {
    let mut two = TwoPlaces::unbegun();
    (0..8).for_each(|id| drop(two.add(id, &[], 0)));
    assert_eq!(two.on(SchedulerEvent::Begin, 0), [(0, 0), (4, 1)]);
    // Place 1 ends its block, and then takes what place 0 has left from its end.
    for (ended, next) in [(4, 5), (5, 6), (6, 7), (7, 2), (2, 3), (3, 1)] {
        assert_eq!(two.on(done(ended), 1), [(next, 1)]);
    }
}

#[test]
fn no_task_waits_for_the_place_of_its_block_for_ever() {
    let mut two = TwoPlaces::unbegun();
    (0..4).for_each(|id| drop(two.add(id, &[], 0)));
    assert_eq!(two.on(SchedulerEvent::Begin, 0), [(0, 0), (2, 1)]);
    let mut running = 2;
    for next in 4.. {
        two.add(next, &[], 0);
        let started = two.on(done(running), 0);
        assert!(next < 3 * policy::OVERTAKES_MAX, "task 1 starves in the block of place 0");
        running = started[0].0;
        if running == 1 {
            break;
        }
    }
    assert_eq!(two.reason(1), StartReason::Overtaken);
}

#[test]
fn no_task_waits_for_its_place_for_ever() {
    let mut two = TwoPlaces::new();
    two.given(0, 0, 1_000_000_000_000);
    two.given(1, 1, 2_000_000_000_000);
    assert_eq!(two.add(0, &[0], 0), [(0, 0)]);
    assert_eq!(two.add(1, &[0], 0), [], "its bytes take hours from afar");
    let spec = |id| TaskSpec { tool: ToolId(1), inputs: vec![DataId(1)], ..TaskSpec::new(TaskId(id)) };
    let mut overtaken = 0;
    let mut started = two.on(SchedulerEvent::Add(Box::new(spec(2))), 0);
    for id in 2.. {
        assert_eq!(started, [(id, 1)], "the next one at place 1");
        overtaken += 1;
        two.on(SchedulerEvent::Add(Box::new(spec(id + 1))), 0);
        started = two.on(done(id), 0);
        if started == [(1, 1)] {
            break;
        }
    }
    assert_eq!((overtaken, two.reason(1)), (policy::OVERTAKES_MAX, StartReason::Overtaken));
}
