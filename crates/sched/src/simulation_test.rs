//! A simulated cluster for tests of policies: tasks take their time and that of their remote reads.

use crate::*;
use base::SplitMix64;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeMap, BTreeSet};

/// The simulated bandwidth between places in bytes per ms.
const BYTES_PER_MS: u64 = 100_000;

/// A workflow with sizes, durations, and the places of its inputs.
pub struct Graph {
    pub tasks: Vec<TaskSpec>,
    /// The bytes of each datum.
    pub bytes: BTreeMap<DataId, u64>,
    /// The duration of each task in ms, without its reads.
    pub ms: Vec<u64>,
    /// The places of the workflow's inputs; each has at least one.
    pub given: Vec<(DataId, PlaceId)>,
}

/// A start, as a policy decided it.
pub type Start = (TaskId, WorkerId, SlotId);

/// A running simulation.
pub struct Simulation<'a> {
    pub graph: &'a Graph,
    pub scheduler: Scheduler,
    /// The place of each worker.
    pub places: &'a [PlaceId],
    /// The places of each datum.
    pub located: BTreeMap<DataId, BTreeSet<PlaceId>>,
    pub running: BTreeMap<TaskId, (WorkerId, SlotId)>,
    ends: BTreeSet<(u64, TaskId)>,
    pub now_ms: u64,
    /// The bytes that tasks read from other places.
    pub remote: u64,
    pub done: u32,
    pub ended: bool,
    pub cleaned: Vec<Start>,
}

impl<'a> Simulation<'a> {
    /// Workers with `slots` processors each, at these places.
    pub fn new(graph: &'a Graph, places: &'a [PlaceId], slots: u32, policy: PolicyKind) -> Self {
        let mut scheduler = Scheduler::without_workers(SchedulerOptions { policy, ..SchedulerOptions::default() });
        graph.given.iter().for_each(|(data, _)| scheduler.add_existing(*data));
        let mut simulation = Self {
            graph,
            scheduler,
            places,
            located: BTreeMap::new(),
            running: BTreeMap::new(),
            ends: BTreeSet::new(),
            now_ms: 0,
            remote: 0,
            done: 0,
            ended: false,
            cleaned: Vec::new(),
        };
        let capacity = MachineCapacity { slots, memory: 0 };
        for (worker, place) in (0..).map(WorkerId).zip(places) {
            simulation.send(SchedulerEvent::AddWorker { worker, place: *place, capacity });
        }
        for (data, place) in &graph.given {
            simulation.locate(*data, *place);
        }
        for task in &graph.tasks {
            simulation.send(SchedulerEvent::Add(Box::new(task.clone())));
        }
        simulation.send(SchedulerEvent::Close);
        simulation
    }

    /// Puts a copy of the datum at the place.
    pub fn locate(&mut self, data: DataId, place: PlaceId) {
        self.located.entry(data).or_default().insert(place);
        self.send(SchedulerEvent::Located { data, place, bytes: self.graph.bytes[&data] });
    }

    /// Sends an event; returns the starts that it brought.
    pub fn send(&mut self, event: SchedulerEvent) -> Vec<Start> {
        let (mut commands, mut starts) = (Vec::new(), Vec::new());
        self.scheduler.on(event, self.now_ms, &mut commands);
        for command in commands {
            match command {
                SchedulerCommand::Start { task, worker, slot, .. } => {
                    starts.push((task, worker, slot));
                    self.start((task, worker, slot));
                }
                SchedulerCommand::Clean { task, worker, slot } => self.cleaned.push((task, worker, slot)),
                SchedulerCommand::Ended { .. } => self.ended = true,
                SchedulerCommand::Drop { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        starts
    }

    fn start(&mut self, (task, worker, slot): Start) {
        let place = self.places[worker.0 as usize];
        let remote = |data: &&DataId| !self.located[data].contains(&place);
        let inputs: BTreeSet<DataId> = self.graph.tasks[task.0 as usize].inputs.iter().copied().collect();
        let remote: u64 = inputs.iter().filter(remote).map(|data| self.graph.bytes[data]).sum();
        self.remote += remote;
        let ms = self.graph.ms[task.0 as usize] + remote / BYTES_PER_MS;
        self.ends.insert((self.now_ms + ms, task));
        assert_eq!(self.running.insert(task, (worker, slot)), None);
    }

    /// Ends the task that ends next; returns it and the starts that followed.
    pub fn step(&mut self) -> Option<(TaskId, Vec<Start>)> {
        let (now_ms, task) = self.ends.pop_first()?;
        self.now_ms = now_ms;
        let (worker, _) = self.running.remove(&task).expect("it runs");
        let place = self.places[worker.0 as usize];
        let attempt = AttemptId { task, attempt: 1 };
        for data in &self.graph.tasks[task.0 as usize].outputs {
            self.located.entry(*data).or_default().insert(place);
            let (data, bytes, place) = (*data, self.graph.bytes[data], Some(place));
            self.send(SchedulerEvent::Wrote { attempt, data, bytes, place });
        }
        self.done += 1;
        let starts = self.send(SchedulerEvent::Done(attempt));
        Some((task, starts))
    }

    /// Runs to the end; returns all starts.
    pub fn run(&mut self) -> Vec<Start> {
        let mut starts = self.send(SchedulerEvent::Begin);
        while let Some((_, more)) = self.step() {
            starts.extend(more);
        }
        assert!(self.ended && self.done as usize == self.graph.tasks.len(), "every task is done");
        starts
    }
}

/// A random workflow: each task reads up to three data and writes one or two; inputs are at random
/// places, some at two.
pub fn random_graph(seed: u64, count: u32, places: u32) -> Graph {
    let random = &mut SplitMix64::new(seed);
    let mut below = |end: u32| u32::try_from(random.below(end.into())).expect("below a u32");
    let given = 4 + below(8);
    let mut graph = Graph { tasks: vec![], bytes: BTreeMap::new(), ms: vec![], given: vec![] };
    for data in (0..given).map(DataId) {
        graph.bytes.insert(data, u64::from(1 + below(1_000_000)));
        let copies = 1 + below(2);
        graph.given.extend((0..copies).map(|_| (data, PlaceId(below(places)))));
    }
    let mut next = given;
    for id in 0..count {
        let inputs = (0..below(4)).map(|_| DataId(next - 1 - below(next.min(30)))).collect();
        let outputs: Vec<_> = (next..=next + below(2)).map(DataId).collect();
        next += u32::try_from(outputs.len()).expect("one or two");
        graph.bytes.extend(outputs.iter().map(|data| (*data, u64::from(1 + below(1_000_000)))));
        graph.ms.push(u64::from(1 + below(100)));
        graph.tasks.push(TaskSpec { tool: ToolId(below(4)), inputs, outputs, ..TaskSpec::new(TaskId(id)) });
    }
    graph
}

/// The tools of [`montage`].
const SIZES: [(u64, u64); 6] =
    [(8_000_000, 3_000), (2_000_000, 1_000), (1_000, 300), (10_000, 500), (8_000_000, 500), (100_000_000, 2_000)];

/// A workflow of the shape of Montage: the images of a sky of `width` x `height` are projected, the
/// differences of neighbours are made and fitted, a background is modelled and subtracted from each
/// image, and all are added. Each place has a part of the sky.
pub fn montage(seed: u64, (width, height): (u32, u32), places: u32) -> Graph {
    let random = &mut SplitMix64::new(seed);
    let mut graph = Graph { tasks: vec![], bytes: BTreeMap::new(), ms: vec![], given: vec![] };
    let images = width * height;
    for image in 0..images {
        graph.bytes.insert(DataId(image), 3_000_000 + random.below(2_000_000));
        graph.given.push((DataId(image), PlaceId(image * places / images)));
    }
    let mut next = images;
    let mut task = |tool: u32, inputs: Vec<DataId>| {
        let (bytes, ms) = SIZES[tool as usize];
        let (id, output) = (TaskId(u32::try_from(graph.tasks.len()).expect("few")), DataId(next));
        next += 1;
        graph.bytes.insert(output, bytes / 2 + random.below(bytes));
        graph.ms.push(ms / 2 + random.below(ms));
        graph.tasks.push(TaskSpec { tool: ToolId(tool), inputs, outputs: vec![output], ..TaskSpec::new(id) });
        output
    };
    let projected: Vec<_> = (0..images).map(|image| task(0, vec![DataId(image)])).collect();
    let right = (0..images).filter(|image| image % width + 1 < width).map(|image| (image, image + 1));
    let below = (0..images - width).map(|image| (image, image + width));
    let pairs: Vec<_> = right.chain(below).map(|(a, b)| vec![projected[a as usize], projected[b as usize]]).collect();
    let differences: Vec<_> = pairs.into_iter().map(|pair| task(1, pair)).collect();
    let fits = differences.into_iter().map(|difference| task(2, vec![difference])).collect();
    let model = task(3, fits);
    let corrected = projected.iter().map(|image| task(4, vec![*image, model])).collect();
    task(5, corrected);
    graph
}
