//! Space of the pool: what keeps a pool moving that runs full. These rules stand before any policy.
//!
//! Each ready task has a *gain*: the bytes of temporaries that only it still reads, which go when it has ended, less the bytes that it
//! will write: what tasks of its tool wrote so far (the median), else as much as it reads.
//!
//! 1. Above half of the pool the largest gain starts first, of equals the task that became ready last. Below, the policy chooses.
//! 2. A task starts only if what it will write fits beside what running tasks have yet to write, or nothing else can run. One that writes
//!    more than it frees leaves room besides for a task of any tool that has still to come: what frees the most must write first. And all
//!    that is left must still be possible after it, as far as can be seen ([`foresight`]).
//! 3. Writers that wait for space lend their processors to tasks that free some.
//! 4. A task that found no space is tried again when some came, each time only if more is free than the last time; in the end alone. It
//!    fails for good when it ran alone and no other task could free anything.
//!
//! Ready tasks are kept by tool, in the order of their gains: those of one tool are all estimated by one number, so the order within stays
//! when that changes. A decision looks at the first of each tool: O(tools + log tasks), whatever else is ready.

mod foresight;

use crate::median::RunningMedian;
use crate::policy::OVERTAKES_MAX;
use crate::room::{Needs, Room};
use crate::table::Table;
use flow::{DataId, TaskId, ToolId};
use std::collections::{BTreeSet, HashMap};

/// How full the pool is; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolState {
    /// What it may hold; 0 without a pool.
    pub capacity: u64,
    /// What it holds.
    pub used: u64,
    /// The part of `used` that goes without any task's doing: what was dropped and is not removed yet, and outputs on their way to the disk.
    pub leaving: u64,
    /// How many writes wait for space now.
    pub waiting: u64,
}

/// After so many refusals a task is tried alone: before, each asks for twice as much free space as the one before.
const REFUSALS_BESIDE_OTHERS: u32 = 5;
/// So often an order is searched for in vain: a pool that is too small stays so.
const SEARCHES_IN_VAIN_MAX: u32 = 3;

/// The rules, and what they must know.
#[derive(Debug, Default)]
pub struct SpaceRules {
    pool: PoolState,
    /// Bytes of each datum that is there, by its number.
    sizes: Vec<u64>,
    /// What the pool holds beside what running tasks have written and what is leaving.
    settled: u64,
    /// By the tool's number.
    tools: Vec<OfTool>,
    ready: HashMap<TaskId, Held>,
    next: u64,
    /// What each running task will write, as far as is known.
    running: HashMap<TaskId, u64>,
    /// The sum of those.
    promised: u64,
    /// The running task beside which nothing ran so far, nor was leaving.
    alone: Option<TaskId>,
    /// How often tasks found no space.
    refusals: HashMap<TaskId, u32>,
    /// Those that wait until something is freed.
    refused: Vec<TaskId>,
    /// Whether something was since they were looked at last.
    freed: bool,
    /// Those of them that found no space although they were alone, since a task ended last.
    stuck: BTreeSet<TaskId>,
    /// How often the largest gain was overtaken by tasks that fit the machine.
    overtaken: u32,
    /// How often no order was found in which all that was left fits.
    searched_in_vain: u32,
}

/// Ready tasks of a tool, and what its tasks wrote.
#[derive(Debug, Default)]
struct OfTool {
    /// Tasks that have not ended.
    left: u32,
    written: RunningMedian,
    most_written: u64,
    /// By `Held::rank`.
    ready: BTreeSet<Rank>,
}

/// How much a task frees; until its tool is known, less what it reads. Then when it became ready.
type Rank = (i64, u64, TaskId);

/// A ready task.
#[derive(Debug, Clone, Copy)]
struct Held {
    tool: ToolId,
    /// Bytes that go with its end.
    frees: u64,
    /// Bytes that it reads.
    reads: u64,
    since: u64,
}

/// A ready task as it stands to the pool now.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    task: TaskId,
    gain: i64,
    since: u64,
    /// What must be free for it.
    claims: u64,
}

/// What became of a task that found no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It waits, and is ready again when there may be space.
    Waits,
    /// Nothing can help: it was alone, and nobody else frees anything.
    Final,
}

impl SpaceRules {
    /// How full the pool is now.
    pub fn pool(&mut self, state: PoolState) {
        if state.leaving < self.pool.leaving {
            self.hope();
        }
        self.pool = state;
        // Files take a little more or less than was told: what running tasks cannot have written is not theirs, nor is what is not there.
        let held = state.used.saturating_sub(state.leaving);
        self.settled = self.settled.clamp(held.saturating_sub(self.promised), held);
    }

    /// Something was freed: who found no space may try again.
    fn hope(&mut self) {
        self.freed = true;
        self.stuck.clear();
    }

    /// A datum is there, of so many bytes; whether it stays until its readers have ended.
    pub fn wrote(&mut self, data: DataId, bytes: u64, stays: bool) {
        let at = data.0 as usize;
        if at >= self.sizes.len() {
            self.sizes.resize(at + 1, 0);
        }
        self.sizes[at] = bytes;
        self.settled += if stays { bytes } else { 0 };
    }

    /// Its bytes, as far as is known.
    pub fn size(&self, data: DataId) -> u64 {
        self.sizes.get(data.0 as usize).copied().unwrap_or(0)
    }

    /// A temporary was dropped: it is leaving.
    pub fn dropped(&mut self, data: DataId) {
        let bytes = self.size(data);
        self.settled = self.settled.saturating_sub(bytes);
        self.pool.leaving += bytes;
    }

    /// There is a task of this tool more.
    pub fn expect(&mut self, tool: ToolId) {
        self.tool(tool).left += 1;
    }

    /// A task of this tool has ended for good.
    pub fn expect_no_more(&mut self, tool: ToolId) {
        self.tool(tool).left -= 1;
    }

    /// The task is ready, to free and to read so many bytes.
    pub fn ready(&mut self, task: TaskId, tool: ToolId, frees: u64, reads: u64) {
        let held = Held { tool, frees, reads, since: self.next };
        self.next += 1;
        self.hold(task, held);
    }

    fn hold(&mut self, task: TaskId, held: Held) {
        let of_tool = self.tool(held.tool);
        let rank = held.rank(task, of_tool);
        of_tool.ready.insert(rank);
        self.ready.insert(task, held);
    }

    fn let_go(&mut self, task: TaskId) -> Option<Held> {
        let held = self.ready.remove(&task)?;
        let of_tool = self.tool(held.tool);
        let rank = held.rank(task, of_tool);
        of_tool.ready.remove(&rank);
        Some(held)
    }

    fn tool(&mut self, tool: ToolId) -> &mut OfTool {
        let at = tool.0 as usize;
        if at >= self.tools.len() {
            self.tools.resize_with(at + 1, OfTool::default);
        }
        &mut self.tools[at]
    }

    /// Of a datum that others read, the task is the last reader now.
    pub fn inherits(&mut self, task: TaskId, data: DataId) {
        let bytes = self.size(data);
        if let Some(held) = self.let_go(task) {
            self.hold(task, Held { frees: held.frees + bytes, ..held });
        }
    }

    /// A ready task starts.
    pub fn start(&mut self, task: TaskId) {
        let claims = self.candidate(task).map_or(0, |candidate| candidate.claims);
        self.alone = (self.running.is_empty() && self.pool.leaving == 0).then_some(task);
        self.let_go(task);
        self.running.insert(task, claims);
        self.promised += claims;
    }

    /// A running task has ended well, having written so many bytes, or badly.
    pub fn end(&mut self, task: TaskId, tool: ToolId, written: Option<u64>) {
        self.leave(task);
        self.hope();
        let Some(written) = written else { return };
        self.refusals.remove(&task);
        let of_tool = self.tool(tool);
        let was_unknown = !of_tool.is_known();
        of_tool.written.push(written);
        of_tool.most_written = of_tool.most_written.max(written);
        if was_unknown {
            // From now on its tasks are estimated by this.
            let waiting = std::mem::take(&mut of_tool.ready);
            for (_, _, task) in waiting {
                let held = self.ready[&task];
                self.hold(task, held);
            }
        }
    }

    fn leave(&mut self, task: TaskId) {
        self.promised -= self.running.remove(&task).unwrap_or(0);
        self.alone = self.alone.filter(|alone| *alone != task);
    }

    /// A running task found no space.
    pub fn refuse(&mut self, task: TaskId) -> Refusal {
        let was_alone = self.alone == Some(task);
        self.leave(task);
        *self.refusals.entry(task).or_default() += 1;
        if was_alone {
            self.stuck.insert(task);
            let others_free = self.ready.keys().any(|other| self.candidate(*other).is_some_and(|other| other.gain > 0));
            let others_wait = self.refused.iter().any(|other| !self.stuck.contains(other));
            if !others_free && !others_wait {
                return Refusal::Final;
            }
        }
        self.refused.push(task);
        Refusal::Waits
    }

    /// Those that found no space and may be tried again: to be made ready.
    pub fn take_back(&mut self) -> Vec<TaskId> {
        if !std::mem::take(&mut self.freed) && !self.running.is_empty() {
            return Vec::new();
        }
        let stuck = &self.stuck;
        self.refused.extract_if(.., |task| !stuck.contains(task)).collect()
    }

    /// Whether ready tasks wait until what is leaving has gone.
    pub fn waits_for_leaving(&self) -> bool {
        self.pool.leaving > 0
    }

    /// Whether more than half of the pool is used, or will be by what runs.
    fn is_crowded(&self) -> bool {
        self.pool.used + self.yet_to_write() > self.pool.capacity / 2 && self.pool.capacity > 0
    }

    /// What running tasks have yet to write: their estimates less what they have written.
    fn yet_to_write(&self) -> u64 {
        let written = self.pool.used.saturating_sub(self.pool.leaving).saturating_sub(self.settled);
        self.promised.saturating_sub(written)
    }

    /// Bytes that the task lacks before it may start beside those that run; 0 if it may.
    pub fn lacks(&self, task: TaskId) -> u64 {
        self.candidate(task).map_or(0, |candidate| self.lacking(&candidate))
    }

    fn lacking(&self, candidate: &Candidate) -> u64 {
        if self.pool.capacity == 0 {
            return 0;
        }
        // Who found no space underestimates: it asks for a sixteenth of the pool, then for an eighth ...
        let least = match self.refusals.get(&candidate.task) {
            None => 0,
            Some(refusals) => self.pool.capacity >> REFUSALS_BESIDE_OTHERS.saturating_sub(*refusals),
        };
        let beside = if candidate.gain < 0 { self.reserve() } else { 0 };
        let free = self.pool.capacity.saturating_sub(self.pool.used);
        (candidate.claims.max(least) + self.yet_to_write() + beside).saturating_sub(free)
    }

    /// What a task of any tool that has still to come will write, as far as is known.
    fn reserve(&self) -> u64 {
        let to_come = self.tools.iter().filter(|of_tool| of_tool.left > 0);
        to_come.filter_map(|of_tool| of_tool.written.get()).max().unwrap_or(0)
    }

    fn candidate(&self, task: TaskId) -> Option<Candidate> {
        let held = self.ready.get(&task)?;
        Some(held.candidate(task, &self.tools[held.tool.0 as usize]))
    }

    /// The first of each tool: none of its others gains more or needs less.
    fn firsts(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.tools.iter().filter_map(|of_tool| {
            let (_, _, task) = of_tool.ready.last()?;
            Some(self.ready[task].candidate(*task, of_tool))
        })
    }

    fn best(&self, may: impl Fn(&Candidate) -> bool) -> Option<TaskId> {
        let best = self.firsts().filter(may).max_by_key(|candidate| (candidate.gain, candidate.since))?;
        Some(best.task)
    }

    /// The ready task that starts next for the sake of space, whatever a policy says; `preferred` is what that says.
    pub fn choose(&mut self, preferred: Option<TaskId>, room: &Room, table: &Table) -> Option<TaskId> {
        if self.alone.is_some_and(|task| self.refusals.contains_key(&task)) {
            return None;
        }
        if !self.is_crowded() && preferred.is_none_or(|task| self.lacks(task) == 0 && self.is_safe(task, table)) {
            return preferred;
        }
        let needs = &|task| table.row(task).expect("ready tasks have rows").needs;
        let of_gain = self.of_gain(room, needs, table);
        of_gain.or_else(|| self.lend(room, needs)).or_else(|| self.as_last(room, needs, table))
    }

    /// The largest gain of those that may start. One that does not fit the machine is overtaken so often only.
    fn of_gain(&mut self, room: &Room, needs: &dyn Fn(TaskId) -> Needs, table: &Table) -> Option<TaskId> {
        let has_space = |candidate: &Candidate| self.lacking(candidate) == 0 && self.is_safe(candidate.task, table);
        let fits = |candidate: &Candidate| room.fits(needs(candidate.task));
        let first = self.best(has_space)?;
        let chosen = self.best(|candidate| has_space(candidate) && fits(candidate));
        if chosen == Some(first) {
            self.overtaken = 0;
        } else if chosen.is_some() {
            self.overtaken += 1;
        }
        chosen.filter(|_| self.overtaken <= OVERTAKES_MAX)
    }

    /// Whether all that is left can still be done after the task.
    fn is_safe(&self, task: TaskId, table: &Table) -> bool {
        let grows = self.candidate(task).is_some_and(|candidate| candidate.gain < 0);
        self.pool.capacity == 0 || !grows || foresight::can_finish_after(task, table, self)
    }

    /// Writers that wait for space have no use for their processors: a task that frees some has.
    fn lend(&self, room: &Room, needs: &dyn Fn(TaskId) -> Needs) -> Option<TaskId> {
        let waiting = u32::try_from(self.pool.waiting).unwrap_or(u32::MAX);
        let all_wait = waiting as usize >= self.running.len();
        let slots = room.machine().slots;
        let lendable = if all_wait && waiting > 0 { slots } else { waiting.min(slots) };
        self.best(|candidate| {
            let frees = candidate.gain > 0 && self.lacking(candidate) == 0;
            lendable > 0 && frees && room.fits_lent(needs(candidate.task), lendable)
        })
    }

    /// Nothing runs and nothing goes by itself, so waiting would be for ever: the first of an order in which all fits, else the largest gain.
    fn as_last(&mut self, room: &Room, needs: &dyn Fn(TaskId) -> Needs, table: &Table) -> Option<TaskId> {
        if !self.running.is_empty() || self.pool.leaving > 0 {
            return None;
        }
        let planned = self.planned(table).filter(|task| self.ready.contains_key(task));
        planned.or_else(|| self.best(|candidate| room.fits(needs(candidate.task))))
    }

    /// The first task of an order in which all that is left fits, if one is found.
    fn planned(&mut self, table: &Table) -> Option<TaskId> {
        if self.ready.is_empty() || self.searched_in_vain >= SEARCHES_IN_VAIN_MAX {
            return None;
        }
        let planned = foresight::first_of_an_order(table, self);
        self.searched_in_vain += u32::from(planned.is_none());
        planned
    }
}

impl OfTool {
    /// Whether a task of it has ended, so that the others need not be guessed.
    fn is_known(&self) -> bool {
        self.written.get().is_some()
    }
}

impl Held {
    fn rank(&self, task: TaskId, of_tool: &OfTool) -> Rank {
        let unknown = if of_tool.is_known() { 0 } else { self.reads };
        (signed(self.frees) - signed(unknown), self.since, task)
    }

    fn candidate(&self, task: TaskId, of_tool: &OfTool) -> Candidate {
        let known = of_tool.written.get();
        let gain = signed(self.frees) - signed(known.unwrap_or(self.reads));
        let claims = known.unwrap_or_else(|| claim_of_guess(self.reads));
        Candidate { task, gain, since: self.since, claims }
    }
}

/// What is set aside for a task that is guessed to write so much: a quarter more, for guesses are wrong, files take whole pages and stripes
/// grow by doubling.
fn claim_of_guess(bytes: u64) -> u64 {
    bytes + bytes / 4
}

/// Pools are far below 2^62 bytes.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 2).min(i64::MAX / 2)
}
