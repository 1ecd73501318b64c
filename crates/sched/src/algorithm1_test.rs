//! Replays the paper's listing: a plain transcription of Algorithm 1 beside the real scheduler.

use crate::simulation_test::{Graph, Simulation, Start, random_graph};
use crate::*;
use flow::{DataId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Algorithm 1, line by line, with lists that are scanned.
struct Listing<'a> {
    places: &'a [PlaceId],
    slots: u32,
    /// The tasks that each task waits for; only of tasks that are `new`.
    dependencies: BTreeMap<TaskId, BTreeSet<TaskId>>,
    queue: Vec<TaskId>,
    locally_activated: BTreeMap<(WorkerId, SlotId), Vec<TaskId>>,
    running: BTreeMap<(WorkerId, SlotId), TaskId>,
}

impl<'a> Listing<'a> {
    fn new(graph: &Graph, places: &'a [PlaceId], slots: u32) -> Self {
        let writer = |data: &DataId| graph.tasks.iter().find(|task| task.outputs.contains(data)).map(|task| task.id);
        let dependencies: BTreeMap<TaskId, BTreeSet<TaskId>> =
            graph.tasks.iter().map(|task| (task.id, task.inputs.iter().filter_map(writer).collect())).collect();
        let queue = dependencies.iter().filter(|(_, on)| on.is_empty()).map(|(task, _)| *task).collect();
        let dependencies = dependencies.into_iter().filter(|(_, on)| !on.is_empty()).collect();
        let (locally_activated, running) = (BTreeMap::new(), BTreeMap::new());
        Self { places, slots, dependencies, queue, locally_activated, running }
    }

    /// Lines 15-21: a task is done.
    fn done(&mut self, task: TaskId) -> (WorkerId, SlotId) {
        let lane = *self.running.iter().find(|(_, other)| **other == task).expect("it runs").0;
        self.running.remove(&lane);
        let list = self.locally_activated.entry(lane).or_default();
        for (other, on) in &mut self.dependencies {
            if on.remove(&task) && on.is_empty() {
                list.push(*other);
            }
        }
        self.dependencies.retain(|_, on| !on.is_empty());
        lane
    }

    /// Lines 2-4: idle workers select tasks; first the one whose task ended.
    fn select_all(&mut self, ended: Option<(WorkerId, SlotId)>, at: &dyn Fn(TaskId, PlaceId) -> usize) -> Vec<Start> {
        let mut starts: Vec<Start> = ended.and_then(|lane| self.select(lane, at)).into_iter().collect();
        while let Some(lane) = self.first_idle() {
            let Some(start) = self.select(lane, at) else { break };
            starts.push(start);
        }
        starts
    }

    fn first_idle(&self) -> Option<(WorkerId, SlotId)> {
        let workers = (0..).map(WorkerId).zip(self.places);
        let lanes = workers.flat_map(|(worker, place)| {
            let idle: Vec<_> =
                (0..self.slots).map(SlotId).filter(|slot| !self.running.contains_key(&(worker, *slot))).collect();
            let busy = self.slots as usize - idle.len();
            idle.into_iter().map(move |slot| (*place, busy, worker, slot))
        });
        lanes.min().map(|(_, _, worker, slot)| (worker, slot))
    }

    /// Lines 24-34.
    fn select(&mut self, lane: (WorkerId, SlotId), at: &dyn Fn(TaskId, PlaceId) -> usize) -> Option<Start> {
        let place = self.places[lane.0.0 as usize];
        let local = self.locally_activated.remove(&lane).unwrap_or_default();
        let mut best = *local.first().or(self.queue.first())?;
        for task in local.iter().chain(&self.queue) {
            if at(*task, place) > at(best, place) {
                best = *task;
            }
        }
        self.queue.retain(|task| *task != best);
        self.queue.extend(local.into_iter().filter(|task| *task != best));
        self.running.insert(lane, best);
        Some((best, lane.0, lane.1))
    }
}

/// The number of a task's inputs at a place, each once.
fn count(graph: &Graph, located: &BTreeMap<DataId, BTreeSet<PlaceId>>, task: TaskId, place: PlaceId) -> usize {
    let inputs: BTreeSet<&DataId> = graph.tasks[task.0 as usize].inputs.iter().collect();
    inputs.iter().filter(|data| located.get(data).is_some_and(|places| places.contains(&place))).count()
}

#[test]
fn the_scheduler_chooses_as_the_listing_does() {
    for seed in 0..20 {
        let places: Vec<_> = [0, 1, 1, 2, 3].map(PlaceId).to_vec();
        let (slots, graph) = (1 + u32::try_from(seed % 3).expect("small"), random_graph(seed, 300, 4));
        let mut simulation = Simulation::new(&graph, &places, slots, PolicyKind::Algorithm1);
        let mut listing = Listing::new(&graph, &places, slots);
        let (mut ended, mut starts) = (None, simulation.send(SchedulerEvent::Begin));
        let mut all = Vec::new();
        loop {
            let expected = listing.select_all(ended, &|task, place| count(&graph, &simulation.located, task, place));
            assert_eq!(starts, expected, "seed {seed}, after {ended:?}");
            all.append(&mut starts);
            let Some((task, more)) = simulation.step() else { break };
            ended = Some(listing.done(task));
            starts = more;
        }
        assert!(simulation.ended && all.len() == 300);
        assert_eq!(simulation.cleaned, all, "each lane is cleaned for the task that starts there");
    }
}
