//! Foresight: whether all remaining tasks can still run after one more task has started.
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

use super::{Held, OfTool, Rank, SpaceRules, claim_of_guess, signed};
use crate::least_peak::Dice;
use crate::table::{State, Table};
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
/// A fixed seed, so that the same state gives the same order.
const SEED: u64 = 0x6D69_6C6C;
/// The number of outcomes of a random choice.
const CHANCES: usize = 1 << 16;

/// Returns whether all remaining tasks can run if the ready `task` starts now. Also true if that is
/// beyond the bounds of the simulation.
pub fn can_finish_after(task: TaskId, table: &Table, space: &SpaceRules) -> bool {
    let Some(held) = space.ready.get(&task) else { return true };
    let mut play = Play::of(table, space);
    let before = play.used;
    play.take(task);
    play.run(task, *held);
    for _ in 0..TASKS_MAX {
        if play.used <= before || play.edges_left == 0 {
            return true;
        }
        match play.next(None) {
            Next::Runs(task, held) => play.run(task, held),
            Next::NothingFits => return false,
            Next::NothingLeft => return true,
        }
    }
    true
}

/// The first task of an order in which all remaining tasks fit one after the other; `None` if the
/// search found no such order. Call it only if nothing runs.
pub fn first_of_an_order(table: &Table, space: &SpaceRules) -> Option<TaskId> {
    let (mut dice, mut tasks_left) = (Dice(SEED), SEARCH_MAX);
    while tasks_left > 0 {
        let (mut play, mut first) = (Play::of(table, space), None);
        for _ in 0..TASKS_MAX {
            tasks_left = tasks_left.saturating_sub(1);
            match play.next(Some(&mut dice)) {
                Next::Runs(task, held) => {
                    first = first.or(Some(task));
                    play.run(task, held);
                }
                Next::NothingFits => break,
                Next::NothingLeft => return first,
            }
        }
    }
    None
}

/// The next step of a simulation.
enum Next {
    Runs(TaskId, Held),
    NothingFits,
    NothingLeft,
}

/// The ready tasks of a tool in a simulation.
struct Ready<'a> {
    of_tool: &'a OfTool,
    /// The ready tasks of the space rules, the largest gain first.
    held: Peekable<Rev<btree_set::Iter<'a, Rank>>>,
    /// Tasks that became ready in the simulation, or free more by now.
    own: BTreeSet<Rank>,
}

/// The state of a simulation, as a difference from the table and the space rules.
struct Play<'a> {
    table: &'a Table,
    space: &'a SpaceRules,
    used: u64,
    tools: Vec<Ready<'a>>,
    /// Tasks of the space rules that were removed, or that changed and are in `own`.
    taken: HashSet<TaskId>,
    own: HashMap<TaskId, Held>,
    sizes: HashMap<DataId, u64>,
    /// The number of tasks that still read a datum, and their numbers combined by XOR.
    readers: HashMap<DataId, (u32, u32)>,
    missing: HashMap<TaskId, u32>,
    /// The size of the largest input of each task whose tool is unknown.
    guesses: HashMap<TaskId, u64>,
    next: u64,
    edges_left: u32,
}

impl<'a> Play<'a> {
    /// The state after all running tasks have ended.
    fn of(table: &'a Table, space: &'a SpaceRules) -> Self {
        let ready =
            |of_tool: &'a OfTool| Ready { of_tool, held: of_tool.ready.iter().rev().peekable(), own: BTreeSet::new() };
        let mut play = Self {
            table,
            space,
            used: (space.pool.used + space.yet_to_write()).saturating_sub(space.pool.leaving),
            tools: space.tools.iter().map(ready).collect(),
            taken: HashSet::new(),
            own: HashMap::new(),
            sizes: HashMap::new(),
            readers: HashMap::new(),
            missing: HashMap::new(),
            guesses: HashMap::new(),
            next: space.next,
            edges_left: EDGES_MAX,
        };
        for task in &space.refused {
            play.becomes_ready(*task);
        }
        for (task, writes) in &space.running {
            play.end(*task, *writes);
        }
        play
    }

    /// Runs a task from its start to its end.
    fn run(&mut self, task: TaskId, held: Held) {
        let writes = self.of_tool(held).written.get().unwrap_or(0);
        self.used += writes;
        self.end(task, writes);
    }

    fn of_tool(&self, held: Held) -> &'a OfTool {
        self.tools[held.tool.0 as usize].of_tool
    }

    /// The bytes that must be free for the task, and its gain.
    fn claim(&mut self, task: TaskId, held: Held) -> (u64, i64) {
        let of_tool = self.of_tool(held);
        if let Some(writes) = of_tool.written.get() {
            return (of_tool.most_written, signed(held.frees) - signed(writes));
        }
        let guess = self.guesses.get(&task).copied().unwrap_or_else(|| {
            let largest = self.table.inputs(task).map(|data| self.size(data)).max().unwrap_or(0);
            self.guesses.insert(task, largest);
            largest
        });
        (claim_of_guess(guess), signed(held.frees) - signed(guess))
    }

    /// Ends a task that has written `writes` bytes.
    fn end(&mut self, task: TaskId, writes: u64) {
        let (table, outputs) = (self.table, self.table.outputs(task));
        let of_each = writes / (outputs.len().max(1) as u64);
        for data in outputs {
            self.sizes.insert(*data, of_each);
            let mut stays = table.datum(*data).is_some_and(|datum| datum.kept);
            for reader in table.readers_of(*data) {
                stays = true;
                self.ease(reader);
            }
            self.used -= if stays { 0 } else { of_each.min(self.used) };
        }
        table.waiters_of(task).for_each(|waiter| self.ease(waiter));
        for data in table.inputs(task) {
            self.read_no_more(data, task);
        }
    }

    fn follow(&mut self) {
        self.edges_left = self.edges_left.saturating_sub(1);
    }

    /// Counts one datum or task that the task waits for as present.
    fn ease(&mut self, task: TaskId) {
        self.follow();
        let Some(row) = self.table.row(task).filter(|row| row.state == State::New) else { return };
        let missing = self.missing.entry(task).or_insert(row.missing);
        *missing -= 1;
        if *missing == 0 {
            self.becomes_ready(task);
        }
    }

    fn becomes_ready(&mut self, task: TaskId) {
        let (mut frees, mut reads) = (0, 0);
        for data in self.table.inputs(task) {
            self.follow();
            let bytes = self.size(data);
            reads += bytes;
            frees += if self.last_reader(data) == Some(task) { bytes } else { 0 };
        }
        let tool = self.table.row(task).expect("it was added").tool;
        self.hold(task, Held { tool, frees, reads, since: self.next });
        self.next += 1;
    }

    fn hold(&mut self, task: TaskId, held: Held) {
        let ready = &mut self.tools[held.tool.0 as usize];
        ready.own.insert(held.rank(task, ready.of_tool));
        self.own.insert(task, held);
    }

    /// Removes a ready task.
    fn take(&mut self, task: TaskId) -> Option<Held> {
        if let Some(held) = self.own.remove(&task) {
            let ready = &mut self.tools[held.tool.0 as usize];
            ready.own.remove(&held.rank(task, ready.of_tool));
            return Some(held);
        }
        let held = self.space.ready.get(&task)?;
        self.taken.insert(task).then_some(*held)
    }

    fn read_no_more(&mut self, data: DataId, reader: TaskId) {
        self.follow();
        let Some(datum) = self.table.datum(data) else { return };
        let entry = self.readers.entry(data).or_insert(datum.readers_left());
        *entry = (entry.0 - 1, entry.1 ^ reader.0);
        let goes = !datum.kept && datum.writer().is_some();
        match *entry {
            (0, _) if goes => self.used = self.used.saturating_sub(self.size(data)),
            (1, left) if goes => self.inherits(TaskId(left), data),
            _ => {}
        }
    }

    /// Adds the datum to the bytes that the end of `task` frees, because the task is now its last
    /// reader.
    fn inherits(&mut self, task: TaskId, data: DataId) {
        let bytes = self.size(data);
        if let Some(held) = self.take(task) {
            self.hold(task, Held { frees: held.frees + bytes, ..held });
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

    /// The ready task with the largest gain of those that fit, or a random one if `dice` is given.
    fn next(&mut self, mut dice: Option<&mut Dice>) -> Next {
        let free = self.space.pool.capacity.saturating_sub(self.used);
        let mut best: Option<((i64, u64), TaskId, Held)> = None;
        let mut is_any = false;
        for tool in 0..self.tools.len() {
            let Some((task, held)) = self.first_of(tool) else { continue };
            is_any = true;
            let (claim, gain) = self.claim(task, held);
            let chance = dice.as_mut().map(|dice| dice.below(CHANCES));
            let chance = chance.map(|chance| i64::try_from(chance).expect("below CHANCES"));
            let key = (chance.unwrap_or(gain), held.since);
            if claim <= free && best.is_none_or(|(most, ..)| key > most) {
                best = Some((key, task, held));
            }
        }
        let Some((_, task, held)) = best else {
            return if is_any { Next::NothingFits } else { Next::NothingLeft };
        };
        self.take(task);
        Next::Runs(task, held)
    }

    /// The ready task of a tool that frees most.
    fn first_of(&mut self, tool: usize) -> Option<(TaskId, Held)> {
        let ready = &mut self.tools[tool];
        while ready.held.next_if(|(.., task)| self.taken.contains(task)).is_some() {}
        let &(.., task) = ready.held.peek().copied().max(ready.own.last())?;
        let held = self.own.get(&task).or_else(|| self.space.ready.get(&task)).expect("it is ready");
        Some((task, *held))
    }
}
