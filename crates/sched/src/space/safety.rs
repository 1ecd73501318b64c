//! Safety check: whether all remaining tasks can still run after one more task has started.
//!
//! A task that writes more than it frees may leave a pool in which no other task ever fits. So the
//! future is simulated first: the running tasks end, then the task runs, and then, one at a time,
//! the ready task with the largest gain of those that fit. This is the safety check of the banker's
//! algorithm (Dijkstra, Cooperating Sequential Processes, 1965, section 6) with bytes of the pool
//! as the currency: a task claims the bytes that it writes, and returns those of which it was the
//! last reader.
//!
//! A task of a tool that has not run yet claims as much as its largest input, whose size may be a
//! guess, too. It is assumed to write nothing, because guesses upon guesses would block tasks that
//! fit. The check becomes more precise as tools become known. The simulation succeeds as soon as
//! the pool is no fuller than before. It ends, and the task may start, after [`TASKS_MAX`] tasks or
//! [`EDGES_MAX`] edges, so a decision is bounded however many tasks there are.
//!
//! If nothing runs and no task passes the check, random orders are simulated until one completes
//! all tasks.

use super::{Rank, ReadyTask, SpaceRules, ToolStats, claim_of_guess, signed};
use crate::table::{DataState, TaskState, TaskTable};
use base::SplitMix64;
use flow::{DataId, TaskId};
use std::{
    collections::{BTreeSet, HashMap, HashSet, btree_set},
    iter::{Peekable, Rev},
};

/// The most tasks that one simulation runs: well under a millisecond.
const TASKS_MAX: u32 = 1000;
/// The most edges that one simulation follows.
const EDGES_MAX: u32 = 10_000;
/// The most tasks that a search for an order runs: about a hundredth of a second.
const SEARCH_MAX: u32 = 10_000;
/// The most random orders of one search. An order may end at its first task, so tasks alone are no
/// bound.
const ORDERS_MAX: u32 = 100;
/// A fixed seed, so that the same state gives the same order.
const SEED: u64 = 0x6D69_6C6C;
/// The number of outcomes of a random choice.
const CHANCES: usize = 1 << 16;

/// Returns whether all remaining tasks can run if the ready `task` starts now. Also true if that is
/// beyond the bounds of the simulation.
pub fn can_finish_after(task: TaskId, table: &TaskTable, space: &SpaceRules) -> bool {
    let Some(entry) = space.ready.get(task) else { return true };
    let mut simulation = SpaceSimulation::new(table, space);
    let before = simulation.used;
    simulation.remove_ready(task);
    simulation.run(task, *entry);
    for _ in 0..TASKS_MAX {
        if simulation.used <= before || simulation.edges_left == 0 {
            return true;
        }
        match simulation.next_step(None) {
            Step::Runs(task, entry) => simulation.run(task, entry),
            Step::NothingFits => return false,
            Step::NothingLeft => return true,
        }
    }
    true
}

/// The first task of an order in which all remaining tasks fit one after the other; `None` if the
/// search found no such order. Call it only if nothing runs.
pub fn find_order(table: &TaskTable, space: &SpaceRules) -> Option<TaskId> {
    let (mut random, mut tasks_left) = (SplitMix64::new(SEED), SEARCH_MAX);
    for _ in 0..ORDERS_MAX {
        if tasks_left == 0 {
            break;
        }
        let (mut simulation, mut first) = (SpaceSimulation::new(table, space), None);
        for _ in 0..TASKS_MAX {
            tasks_left = tasks_left.saturating_sub(1);
            match simulation.next_step(Some(&mut random)) {
                Step::Runs(task, entry) => {
                    first = first.or(Some(task));
                    simulation.run(task, entry);
                }
                Step::NothingFits => break,
                Step::NothingLeft => return first,
            }
        }
    }
    None
}

/// The next step of a simulation.
enum Step {
    Runs(TaskId, ReadyTask),
    NothingFits,
    NothingLeft,
}

/// The ready tasks of a tool in a simulation.
struct ToolQueue<'a> {
    stats: &'a ToolStats,
    /// The ready tasks of the space rules, the largest gain first.
    sorted: Peekable<Rev<btree_set::Iter<'a, Rank>>>,
    /// Tasks that became ready in the simulation, or free more by now.
    changed: BTreeSet<Rank>,
}

/// The state of a simulation, as a difference from the table and the space rules.
pub struct SpaceSimulation<'a> {
    table: &'a TaskTable,
    space: &'a SpaceRules,
    used: u64,
    tools: Vec<ToolQueue<'a>>,
    /// Tasks of the space rules that were removed, or that changed and are in `changed`.
    taken: HashSet<TaskId>,
    changed: HashMap<TaskId, ReadyTask>,
    sizes: HashMap<DataId, u64>,
    /// The number of tasks that still read a datum, and their numbers combined by XOR.
    readers: HashMap<DataId, (u32, u32)>,
    missing: HashMap<TaskId, u32>,
    /// The size of the largest input of each task whose tool is unknown.
    guesses: HashMap<TaskId, u64>,
    next: u64,
    edges_left: u32,
}

impl<'a> SpaceSimulation<'a> {
    /// The state after all running tasks have ended.
    pub fn new(table: &'a TaskTable, space: &'a SpaceRules) -> Self {
        let ready = |stats: &'a ToolStats| ToolQueue {
            stats,
            sorted: stats.ready.iter().rev().peekable(),
            changed: BTreeSet::new(),
        };
        let beside: u64 = space.beside.values().sum();
        let mut simulation = Self {
            table,
            space,
            used: (space.pool.used + space.yet_to_write()).saturating_sub(space.pool.leaving + beside),
            tools: space.tools.iter().map(ready).collect(),
            taken: HashSet::new(),
            changed: HashMap::new(),
            sizes: HashMap::new(),
            readers: HashMap::new(),
            missing: HashMap::new(),
            guesses: HashMap::new(),
            next: space.next,
            edges_left: EDGES_MAX,
        };
        for task in &space.refused {
            simulation.add_ready(*task);
        }
        for (task, writes) in space.running.iter() {
            simulation.end(task, *writes);
        }
        simulation
    }

    /// Runs a task from its start to its end.
    fn run(&mut self, task: TaskId, entry: ReadyTask) {
        let writes = self.stats(entry).written.get().unwrap_or(0);
        self.used += writes;
        self.end(task, writes);
    }

    fn stats(&self, entry: ReadyTask) -> &'a ToolStats {
        self.tools[entry.tool.0 as usize].stats
    }

    /// The bytes that must be free for the task, and its gain.
    fn claim(&mut self, task: TaskId, entry: ReadyTask) -> (u64, i64) {
        let stats = self.stats(entry);
        if let Some(writes) = stats.written.get() {
            return (stats.most_written, signed(entry.frees) - signed(writes));
        }
        let guess = self.guess(task);
        (claim_of_guess(guess), signed(entry.frees) - signed(guess))
    }

    /// The bytes that are used.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// True if the simulation may go on.
    pub fn has_edges_left(&self) -> bool {
        self.edges_left > 0
    }

    /// Starts the task that became ready first, whatever is free. Returns it with the bytes that it
    /// writes, which are used from now on.
    pub fn start_oldest(&mut self) -> Option<(TaskId, u64)> {
        let first = |simulation: &mut Self, tool| simulation.first_of(tool);
        let ready: Vec<_> = (0..self.tools.len()).filter_map(|tool| first(self, tool)).collect();
        let (task, entry) = ready.into_iter().min_by_key(|(_, entry)| entry.since)?;
        let known = self.stats(entry).written.get();
        let is_foreseen = |data| self.sizes.contains_key(&data);
        let existing = self.table.inputs(task).filter(|data| !is_foreseen(*data));
        // Guesses upon guesses are worth nothing.
        let writes = known.or_else(|| existing.map(|data| self.space.size(data)).max()).unwrap_or(0);
        self.remove_ready(task);
        self.used += writes;
        Some((task, writes))
    }

    /// The bytes that a task of a tool that has not run yet is expected to write.
    fn guess(&mut self, task: TaskId) -> u64 {
        self.guesses.get(&task).copied().unwrap_or_else(|| {
            let largest = self.table.inputs(task).map(|data| self.size(data)).max().unwrap_or(0);
            self.guesses.insert(task, largest);
            largest
        })
    }

    /// Ends a task that has written `writes` bytes.
    pub fn end(&mut self, task: TaskId, writes: u64) {
        let (table, outputs) = (self.table, self.table.outputs(task));
        let of_each = writes / (outputs.len().max(1) as u64);
        for data in outputs {
            if table.datum(*data).is_some_and(|datum| datum.state == DataState::Present) {
                continue; // The task runs again, for other data that was lost.
            }
            self.sizes.insert(*data, of_each);
            let mut stays = table.datum(*data).is_some_and(|datum| datum.kept);
            for reader in table.readers_of(*data) {
                stays = true;
                self.count_present(reader);
            }
            self.used -= if stays { 0 } else { of_each.min(self.used) };
        }
        if table.row(task).is_some_and(|row| !row.was_done) {
            table.waiters_of(task).for_each(|waiter| self.count_present(waiter));
        }
        for data in table.inputs(task) {
            self.remove_reader(data, task);
        }
    }

    fn count_edge(&mut self) {
        self.edges_left = self.edges_left.saturating_sub(1);
    }

    /// Counts one datum or task that the task waits for as present.
    fn count_present(&mut self, task: TaskId) {
        self.count_edge();
        let Some(row) = self.table.row(task).filter(|row| row.state == TaskState::New) else { return };
        let missing = self.missing.entry(task).or_insert(row.missing);
        *missing -= 1;
        if *missing == 0 {
            self.add_ready(task);
        }
    }

    fn add_ready(&mut self, task: TaskId) {
        let (mut frees, mut reads) = (0, 0);
        for data in self.table.inputs(task) {
            self.count_edge();
            let bytes = self.size(data);
            reads += bytes;
            frees += if self.last_reader(data) == Some(task) { bytes } else { 0 };
        }
        let tool = self.table.row(task).expect("it was added").tool;
        self.insert_ready(task, ReadyTask { tool, frees, reads, since: self.next });
        self.next += 1;
    }

    fn insert_ready(&mut self, task: TaskId, entry: ReadyTask) {
        let ready = &mut self.tools[entry.tool.0 as usize];
        ready.changed.insert(entry.rank(task, ready.stats));
        self.changed.insert(task, entry);
    }

    /// Removes a ready task.
    fn remove_ready(&mut self, task: TaskId) -> Option<ReadyTask> {
        if let Some(entry) = self.changed.remove(&task) {
            let ready = &mut self.tools[entry.tool.0 as usize];
            ready.changed.remove(&entry.rank(task, ready.stats));
            return Some(entry);
        }
        let entry = self.space.ready.get(task)?;
        self.taken.insert(task).then_some(*entry)
    }

    fn remove_reader(&mut self, data: DataId, reader: TaskId) {
        self.count_edge();
        let Some(datum) = self.table.datum(data) else { return };
        let entry = self.readers.entry(data).or_insert(datum.readers_left());
        // A look ahead must never end a run, whatever the table says.
        let Some(readers) = entry.0.checked_sub(1) else { return };
        *entry = (readers, entry.1 ^ reader.0);
        let goes = !datum.kept && datum.writer().is_some();
        match *entry {
            (0, _) if goes => self.used = self.used.saturating_sub(self.size(data)),
            (1, left) if goes => self.add_freed(TaskId(left), data),
            _ => {}
        }
    }

    /// Adds the datum to the bytes that the end of `task` frees, because the task is now its last
    /// reader.
    fn add_freed(&mut self, task: TaskId, data: DataId) {
        let bytes = self.size(data);
        if let Some(entry) = self.remove_ready(task) {
            self.insert_ready(task, ReadyTask { frees: entry.frees + bytes, ..entry });
        }
    }

    fn last_reader(&self, data: DataId) -> Option<TaskId> {
        let datum = self.table.datum(data)?;
        let (readers, left) = self.readers.get(&data).copied().unwrap_or_else(|| datum.readers_left());
        (readers == 1 && !datum.kept && datum.writer().is_some()).then_some(TaskId(left))
    }

    fn size(&self, data: DataId) -> u64 {
        self.sizes.get(&data).copied().unwrap_or_else(|| self.space.size(data))
    }

    /// The ready task with the largest gain of those that fit, or a random one if `random` is
    /// given.
    fn next_step(&mut self, mut random: Option<&mut SplitMix64>) -> Step {
        let free = self.space.pool.capacity.saturating_sub(self.used);
        let mut best: Option<((i64, u64), TaskId, ReadyTask)> = None;
        let mut is_any = false;
        for tool in 0..self.tools.len() {
            let Some((task, entry)) = self.first_of(tool) else { continue };
            is_any = true;
            let (claim, gain) = self.claim(task, entry);
            let chance = random.as_mut().map(|random| random.index(CHANCES));
            let chance = chance.map(|chance| i64::try_from(chance).expect("below CHANCES"));
            let key = (chance.unwrap_or(gain), entry.since);
            if claim <= free && best.is_none_or(|(most, ..)| key > most) {
                best = Some((key, task, entry));
            }
        }
        let Some((_, task, entry)) = best else {
            return if is_any { Step::NothingFits } else { Step::NothingLeft };
        };
        self.remove_ready(task);
        Step::Runs(task, entry)
    }

    /// The ready task of a tool that frees most.
    fn first_of(&mut self, tool: usize) -> Option<(TaskId, ReadyTask)> {
        let ready = &mut self.tools[tool];
        while ready.sorted.next_if(|(.., task)| self.taken.contains(task)).is_some() {}
        let &(.., task) = ready.sorted.peek().copied().max(ready.changed.last())?;
        let entry = self.changed.get(&task).or_else(|| self.space.ready.get(task)).expect("it is ready");
        Some((task, *entry))
    }
}
