//! Space rules: they keep a pool moving that runs full, and precede any policy.
//!
//! Each ready task has a *gain*: the bytes that its end frees minus the bytes that it will write.
//! Its end frees the temporaries that no other task still reads. The bytes that it will write are
//! estimated as the median of what tasks of its tool wrote so far, or else as the bytes that it
//! reads.
//!
//! 1. While more than half of the pool is used, the task with the largest gain starts first; of
//!    equals, the one that became ready last. Otherwise the policy chooses.
//! 2. A task starts only if its estimated output fits beside that which running tasks have yet to
//!    write, or if nothing else can run. A task that writes more than it frees must also leave
//!    space for one task of any tool that still has tasks to run, because a task that frees much
//!    must write first. After it, all remaining tasks must still be possible, as far as can be
//!    foreseen ([`safety`]).
//! 3. Writers that wait for space lend their processors to tasks that free some.
//! 4. A task that found no space is tried again after some was freed, each time only if more is
//!    free than the last time; in the end it runs alone. It fails for good if it ran alone and no
//!    other task could free anything.
//!
//! Ready tasks are kept by tool, in the order of their gains. One number estimates the writes of
//! all tasks of a tool, so the order within a tool stays when that number changes. A decision
//! examines the first task of each tool: O(tools + log tasks), independent of the number of ready
//! tasks.

mod foresight;
mod safety;

use crate::locations::ToolDurations;
use crate::median::RunningMedian;
use crate::messages::AttemptId;
use crate::policy::{Assignment, ClusterView, OVERTAKES_MAX, QueuedTask, SchedulingPolicy, StartReason};
use crate::table::TaskTable;
use crate::task_map::TaskMap;
use crate::workers::Workers;
use flow::{DataId, TaskId, ToolId};
pub use foresight::{ForeseenBytes, expected_bytes, foresee};
use std::collections::{BTreeSet, HashMap};

/// The state of the pool, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolState {
    /// The capacity; 0 without a pool.
    pub capacity: u64,
    /// The bytes that are used.
    pub used: u64,
    /// The part of `used` that is freed without any further task: dropped data that is not removed
    /// yet, and outputs that are being copied to the disk.
    pub leaving: u64,
    /// The number of writes that wait for space now.
    pub waiting: u64,
}

/// After this many refusals a task runs alone. Before that, each attempt asks for twice as much
/// free space as the one before.
const REFUSALS_BESIDE_OTHERS: u32 = 5;
/// The number of failed searches for an order after which none is tried: a pool that is too small
/// stays too small.
const FAILED_SEARCHES_MAX: u32 = 3;

/// The number of tasks of one tool that are passed over because they wait for their location.
const LOCATED_MAX: usize = 64;

/// The part of the scheduler that the space rules see when they choose.
#[derive(Debug, Clone, Copy)]
pub struct SpaceContext<'a> {
    /// The task table.
    pub table: &'a TaskTable,
    /// The policy, which chooses the worker.
    pub policy: &'a dyn SchedulingPolicy,
    /// The workers and their free resources.
    pub workers: &'a Workers,
    /// The median durations of the tools.
    pub durations: &'a ToolDurations,
    /// The bandwidth between places, in bytes per second; `None` if the caller gave none.
    pub bandwidth: Option<u64>,
    /// The time, on the caller's clock.
    pub now_ms: u64,
}

/// The space rules and their state.
#[derive(Debug, Default)]
pub struct SpaceRules {
    pool: PoolState,
    /// The bytes of each existing datum, by its number.
    sizes: Vec<u64>,
    /// The bytes in the pool, without those that running tasks have written and those that are
    /// leaving.
    settled: u64,
    /// The tools by their numbers.
    tools: Vec<ToolStats>,
    ready: TaskMap<ReadyTask>,
    /// True if the tools' ready tasks are ranked: there is or was a pool.
    is_ranked: bool,
    next: u64,
    /// The estimated output of each running task.
    running: TaskMap<u64>,
    /// The estimated output of each attempt that runs beside another one of its task.
    beside: HashMap<AttemptId, u64>,
    /// The sum of `running` and `beside`.
    promised: u64,
    /// The running task, if nothing has run beside it so far, and nothing was leaving when it
    /// started.
    alone: Option<TaskId>,
    /// The number of times that each task found no space.
    refusals: HashMap<TaskId, u32>,
    /// Tasks that found no space and wait until some is freed.
    refused: Vec<TaskId>,
    /// True if space was freed since `refused` was last examined.
    freed: bool,
    /// Tasks of `refused` that found no space although they ran alone, since space was last freed.
    stuck: BTreeSet<TaskId>,
    /// The number of times that the task with the largest gain was overtaken by tasks that fit the
    /// machine.
    overtaken: u32,
    /// The number of searches that found no order in which all remaining tasks fit.
    failed_searches: u32,
}

/// The ready tasks of a tool, and the bytes that its tasks wrote.
#[derive(Debug, Default)]
struct ToolStats {
    /// The number of tasks that have not ended.
    left: u32,
    written: RunningMedian,
    most_written: u64,
    /// Sorted by `ReadyTask::rank`; empty while there is no pool.
    ready: BTreeSet<Rank>,
}

/// The bytes that the task frees (minus those that it reads, while no task of its tool has ended),
/// then the order in which it became ready.
type Rank = (i64, u64, TaskId);

/// A ready task, as the space rules hold it.
#[derive(Debug, Clone, Copy)]
struct ReadyTask {
    tool: ToolId,
    /// The bytes that its end frees.
    frees: u64,
    /// The bytes that it reads.
    reads: u64,
    since: u64,
}

/// A ready task with its current estimates.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    task: TaskId,
    gain: i64,
    since: u64,
    /// The bytes that must be free for it.
    claims: u64,
}

/// The consequence for a task that found no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSpaceOutcome {
    /// The task waits, and becomes ready again when there may be space.
    Waits,
    /// The task fails for good: it ran alone, and no other task can free anything.
    Final,
}

impl SpaceRules {
    /// Updates the state of the pool.
    pub fn update_pool(&mut self, state: PoolState) {
        if state.capacity > 0 && !self.is_ranked {
            self.rank_all();
        }
        if state.leaving < self.pool.leaving {
            self.on_space_freed();
        }
        self.pool = state;
        // Files take a little more or less space than reported. Running tasks cannot have written
        // more than their estimates, so the other bytes are settled; and at most the bytes that are
        // in the pool are.
        let staying = state.used.saturating_sub(state.leaving);
        self.settled = self.settled.clamp(staying.saturating_sub(self.promised), staying);
    }

    /// Space was freed: tasks that found none may try again.
    fn on_space_freed(&mut self) {
        self.freed = true;
        self.stuck.clear();
    }

    /// Records the size of a datum; `stays` is true if it stays in the pool until its readers have
    /// ended.
    pub fn set_size(&mut self, data: DataId, bytes: u64, stays: bool) {
        let at = data.0 as usize;
        if at >= self.sizes.len() {
            self.sizes.resize(at + 1, 0);
        }
        self.sizes[at] = bytes;
        self.settled += if stays { bytes } else { 0 };
    }

    /// The size of a datum in bytes, 0 if unknown.
    pub fn size(&self, data: DataId) -> u64 {
        self.sizes.get(data.0 as usize).copied().unwrap_or(0)
    }

    /// Counts a dropped temporary as leaving.
    pub fn count_leaving(&mut self, data: DataId) {
        let bytes = self.size(data);
        self.settled = self.settled.saturating_sub(bytes);
        self.pool.leaving += bytes;
    }

    /// Counts one more task of this tool.
    pub fn count_task(&mut self, tool: ToolId) {
        self.tool(tool).left += 1;
    }

    /// Counts one task of this tool as ended for good.
    pub fn count_task_ended(&mut self, tool: ToolId) {
        self.tool(tool).left -= 1;
    }

    /// Adds a ready task, with the bytes that its end frees and that it reads.
    pub fn add_ready(&mut self, task: TaskId, tool: ToolId, frees: u64, reads: u64) {
        let entry = ReadyTask { tool, frees, reads, since: self.next };
        self.next += 1;
        self.insert_ready(task, entry);
    }

    fn insert_ready(&mut self, task: TaskId, entry: ReadyTask) {
        let is_ranked = self.is_ranked;
        let stats = self.tool(entry.tool);
        if is_ranked {
            let rank = entry.rank(task, stats);
            stats.ready.insert(rank);
        }
        self.ready.insert(task, entry);
    }

    /// Ranks the ready tasks from now on: without a pool no rank is used.
    fn rank_all(&mut self) {
        self.is_ranked = true;
        let ready: Vec<(TaskId, ReadyTask)> = self.ready.iter().map(|(task, entry)| (task, *entry)).collect();
        for (task, entry) in ready {
            self.insert_ready(task, entry);
        }
    }

    fn remove_ready(&mut self, task: TaskId) -> Option<ReadyTask> {
        let entry = self.ready.remove(task)?;
        if !self.is_ranked {
            return Some(entry);
        }
        let stats = self.tool(entry.tool);
        let rank = entry.rank(task, stats);
        stats.ready.remove(&rank);
        Some(entry)
    }

    /// Removes a ready task that will not start, or not yet.
    pub fn forget_ready(&mut self, task: TaskId) {
        self.remove_ready(task);
        self.refused.retain(|other| *other != task);
        self.stuck.remove(&task);
    }

    /// Counts a lost datum as no longer in the pool.
    pub fn forget_data(&mut self, data: DataId) {
        self.settled = self.settled.saturating_sub(self.size(data));
    }

    /// The bytes that must be free for a ready task; 0 if it is not ready.
    pub fn claims(&self, task: TaskId) -> u64 {
        self.candidate(task).map_or(0, |candidate| candidate.claims)
    }

    fn tool(&mut self, tool: ToolId) -> &mut ToolStats {
        let at = tool.0 as usize;
        if at >= self.tools.len() {
            self.tools.resize_with(at + 1, ToolStats::default);
        }
        &mut self.tools[at]
    }

    /// Adds a datum to the bytes that the end of `task` frees, because the task is now its last
    /// reader.
    pub fn add_freed(&mut self, task: TaskId, data: DataId) {
        let bytes = self.size(data);
        if !self.is_ranked {
            if let Some(entry) = self.ready.get_mut(task) {
                entry.frees += bytes;
            }
        } else if let Some(entry) = self.remove_ready(task) {
            self.insert_ready(task, ReadyTask { frees: entry.frees + bytes, ..entry });
        }
    }

    /// Takes a datum from the bytes that the end of `task` frees, because it has another reader
    /// again.
    pub fn remove_freed(&mut self, task: TaskId, data: DataId) {
        let bytes = self.size(data);
        if let Some(entry) = self.remove_ready(task) {
            self.insert_ready(task, ReadyTask { frees: entry.frees.saturating_sub(bytes), ..entry });
        }
    }

    /// Counts a ready task as running.
    pub fn start(&mut self, task: TaskId) {
        let claims = self.claims(task);
        self.alone = (self.is_idle() && self.pool.leaving == 0).then_some(task);
        self.remove_ready(task);
        self.running.insert(task, claims);
        self.promised += claims;
    }

    /// Returns whether a second attempt of a task of this tool may start: the pool is not crowded,
    /// and will not be.
    pub fn has_room_beside(&self, tool: ToolId) -> bool {
        let claims = self.claims_beside(tool);
        self.pool.capacity == 0 || self.pool.used + self.yet_to_write() + claims <= self.pool.capacity / 2
    }

    /// The bytes that a second attempt of a task of this tool is expected to write.
    pub fn claims_beside(&self, tool: ToolId) -> u64 {
        self.tools.get(tool.0 as usize).and_then(|stats| stats.written.get()).unwrap_or(0)
    }

    /// Counts a second attempt of a running task.
    pub fn start_beside(&mut self, attempt: AttemptId, tool: ToolId) {
        let claims = self.claims_beside(tool);
        self.alone = None;
        self.beside.insert(attempt, claims);
        self.promised += claims;
    }

    /// Lets two attempts of a task change places: `second` counts as its attempt, `first` as the
    /// one beside.
    pub fn swap_beside(&mut self, first: AttemptId, second: AttemptId) {
        let claims = self.beside.remove(&second).unwrap_or(0);
        let before = self.running.insert(first.task, claims).unwrap_or(0);
        self.beside.insert(first, before);
    }

    /// Counts an attempt beside another one as ended.
    pub fn end_beside(&mut self, attempt: AttemptId) {
        self.promised -= self.beside.remove(&attempt).unwrap_or(0);
        self.on_space_freed();
    }

    /// Returns whether no attempt runs.
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.beside.is_empty()
    }

    /// Counts a running task as ended: successfully, with the bytes that it wrote, or not.
    pub fn end(&mut self, task: TaskId, tool: ToolId, written: Option<u64>) {
        self.remove_running(task);
        self.on_space_freed();
        let Some(written) = written else { return };
        if !self.refusals.is_empty() {
            self.refusals.remove(&task);
        }
        let stats = self.tool(tool);
        let was_unknown = !stats.is_known();
        stats.written.push(written);
        stats.most_written = stats.most_written.max(written);
        if was_unknown {
            // From now on this number estimates the other tasks of the tool.
            let waiting = std::mem::take(&mut stats.ready);
            for (_, _, task) in waiting {
                let entry = self.ready[task];
                self.insert_ready(task, entry);
            }
        }
    }

    fn remove_running(&mut self, task: TaskId) {
        self.promised -= self.running.remove(task).unwrap_or(0);
        self.alone = self.alone.filter(|alone| *alone != task);
    }

    /// Counts a running task as one that found no space.
    pub fn on_no_space(&mut self, task: TaskId) -> NoSpaceOutcome {
        let was_alone = self.alone == Some(task);
        self.remove_running(task);
        *self.refusals.entry(task).or_default() += 1;
        if was_alone {
            self.stuck.insert(task);
            let others_free =
                self.ready.iter().any(|(other, _)| self.candidate(other).is_some_and(|other| other.gain > 0));
            let others_wait = self.refused.iter().any(|other| !self.stuck.contains(other));
            if !others_free && !others_wait {
                return NoSpaceOutcome::Final;
            }
        }
        self.refused.push(task);
        NoSpaceOutcome::Waits
    }

    /// Removes and returns the tasks that found no space and may be tried again; the caller makes
    /// them ready.
    pub fn take_retryable(&mut self) -> Vec<TaskId> {
        if !std::mem::take(&mut self.freed) && !self.is_idle() {
            return Vec::new();
        }
        let stuck = &self.stuck;
        self.refused.extract_if(.., |task| !stuck.contains(task)).collect()
    }

    /// Returns whether bytes are leaving the pool, for which ready tasks may wait.
    pub fn waits_for_leaving(&self) -> bool {
        self.pool.leaving > 0
    }

    /// Returns whether more than half of the pool is used, or will be by the running tasks.
    pub fn is_crowded(&self) -> bool {
        self.pool.used + self.yet_to_write() > self.pool.capacity / 2 && self.pool.capacity > 0
    }

    /// The bytes that running tasks have yet to write: their estimates minus the bytes they have
    /// written.
    fn yet_to_write(&self) -> u64 {
        let written = self.pool.used.saturating_sub(self.pool.leaving).saturating_sub(self.settled);
        self.promised.saturating_sub(written)
    }

    /// The bytes that must be freed before the task may start beside the running ones; 0 if it may
    /// start.
    pub fn shortfall(&self, task: TaskId) -> u64 {
        if self.pool.capacity == 0 {
            return 0;
        }
        self.candidate(task).map_or(0, |candidate| self.candidate_shortfall(&candidate))
    }

    fn candidate_shortfall(&self, candidate: &Candidate) -> u64 {
        if self.pool.capacity == 0 {
            return 0;
        }
        // A task that found no space was underestimated. It asks for a sixteenth of the pool, then
        // for an eighth, and so on.
        let least = match self.refusals.get(&candidate.task) {
            None => 0,
            Some(refusals) => self.pool.capacity >> REFUSALS_BESIDE_OTHERS.saturating_sub(*refusals),
        };
        let beside = if candidate.gain < 0 { self.reserve() } else { 0 };
        let free = self.pool.capacity.saturating_sub(self.pool.used);
        (candidate.claims.max(least) + self.yet_to_write() + beside).saturating_sub(free)
    }

    /// The largest estimated output of one task of any tool that still has tasks to run.
    fn reserve(&self) -> u64 {
        let to_come = self.tools.iter().filter(|stats| stats.left > 0);
        to_come.filter_map(|stats| stats.written.get()).max().unwrap_or(0)
    }

    fn candidate(&self, task: TaskId) -> Option<Candidate> {
        let entry = self.ready.get(task)?;
        Some(entry.candidate(task, &self.tools[entry.tool.0 as usize]))
    }

    /// The first ready task of each tool: no other of the tool has a larger gain or needs less.
    /// Tasks that may run at one location only are passed over if that has no room.
    fn first_candidates<'a>(&'a self, context: &'a SpaceContext) -> impl Iterator<Item = Candidate> + 'a {
        let is_blocked = |task: TaskId| {
            let hard = context.policy.get(task).is_some_and(|task| task.hard_target().is_some());
            hard && self.assign(task, context).is_none()
        };
        self.tools.iter().filter_map(move |stats| {
            let mut tasks = stats.ready.iter().rev().take(LOCATED_MAX);
            let (_, _, task) = tasks.find(|(_, _, task)| !is_blocked(*task))?;
            Some(self.ready[*task].candidate(*task, stats))
        })
    }

    fn best(&self, context: &SpaceContext, may: impl Fn(&Candidate) -> bool) -> Option<TaskId> {
        let may = self.first_candidates(context).filter(may);
        Some(may.max_by_key(|candidate| (candidate.gain, candidate.since))?.task)
    }

    /// The worker on which the task can start now.
    fn assign(&self, task: TaskId, context: &SpaceContext) -> Option<Assignment> {
        let SpaceContext { policy, workers, durations, bandwidth, now_ms, .. } = *context;
        policy.assign(task, &ClusterView { workers, space: self, durations, bandwidth, now_ms })
    }

    /// Chooses the ready task that starts next, and where. `preferred` is the policy's choice,
    /// which the space rules may override.
    pub fn choose(&mut self, preferred: Option<Assignment>, context: &SpaceContext) -> Option<Assignment> {
        if self.alone.is_some_and(|task| self.refusals.contains_key(&task)) {
            return None;
        }
        let may = |task| self.shortfall(task) == 0 && self.is_safe(task, context.table);
        if !self.is_crowded() && preferred.is_none_or(|preferred| may(preferred.task)) {
            return preferred;
        }
        let by_gain = self.by_gain(context).and_then(|task| self.assign(task, context));
        let chosen = by_gain
            .or_else(|| self.borrow_slot(context))
            .or_else(|| self.choose_when_idle(context).and_then(|task| self.assign(task, context)));
        // The policy may have found a better worker for the same task.
        let same = preferred.filter(|preferred| chosen.is_some_and(|chosen| chosen.task == preferred.task));
        same.or(chosen)
    }

    /// The task with the largest gain of those that may start. Overtakes one that does not fit the
    /// workers a limited number of times.
    fn by_gain(&mut self, context: &SpaceContext) -> Option<TaskId> {
        let has_space = |candidate: &Candidate| {
            self.candidate_shortfall(candidate) == 0 && self.is_safe(candidate.task, context.table)
        };
        let fits = |candidate: &Candidate| self.assign(candidate.task, context).is_some();
        let first = self.best(context, has_space)?;
        let chosen = self.best(context, |candidate| has_space(candidate) && fits(candidate));
        if chosen == Some(first) {
            self.overtaken = 0;
        } else if chosen.is_some() {
            self.overtaken += 1;
        }
        chosen.filter(|_| self.overtaken <= OVERTAKES_MAX)
    }

    /// Returns whether all remaining tasks can still run after this one.
    fn is_safe(&self, task: TaskId, table: &TaskTable) -> bool {
        if self.pool.capacity == 0 {
            return true;
        }
        let grows = self.candidate(task).is_some_and(|candidate| candidate.gain < 0);
        !grows || safety::can_finish_after(task, table, self)
    }

    /// A task that frees space, if writers that wait for space can lend it their processors.
    fn borrow_slot(&self, context: &SpaceContext) -> Option<Assignment> {
        let waiting = u32::try_from(self.pool.waiting).unwrap_or(u32::MAX);
        let all_wait = waiting as usize >= self.running.len() + self.beside.len();
        let slots = context.workers.slots();
        let lendable = if all_wait && waiting > 0 { slots } else { waiting.min(slots) };
        let lender = |task: TaskId| {
            let demand = context.table.row(task).expect("ready tasks have rows").demand;
            let target = context.policy.get(task).and_then(QueuedTask::hard_target);
            context.workers.find_lender(demand, target, lendable)
        };
        let task = self.best(context, |candidate| {
            let frees = candidate.gain > 0 && self.candidate_shortfall(candidate) == 0;
            lendable > 0 && frees && lender(candidate.task).is_some()
        })?;
        Some(Assignment { task, worker: lender(task)?, slot: None, reason: StartReason::Space })
    }

    /// The task to start if nothing runs and nothing is leaving, so that waiting would never end:
    /// the first of an order in which all tasks fit, or else the one with the largest gain.
    fn choose_when_idle(&mut self, context: &SpaceContext) -> Option<TaskId> {
        if !self.is_idle() || self.pool.leaving > 0 {
            return None;
        }
        let planned = self.planned(context.table).filter(|task| self.assign(*task, context).is_some());
        planned.or_else(|| self.best(context, |candidate| self.assign(candidate.task, context).is_some()))
    }

    /// The first task of an order in which all remaining tasks fit, if the search finds one.
    fn planned(&mut self, table: &TaskTable) -> Option<TaskId> {
        if self.ready.is_empty() || self.failed_searches >= FAILED_SEARCHES_MAX {
            return None;
        }
        let planned = safety::find_order(table, self);
        self.failed_searches += u32::from(planned.is_none());
        planned
    }
}

impl ToolStats {
    /// Returns whether a task of the tool has succeeded, so that the output of the others is
    /// estimated by it.
    fn is_known(&self) -> bool {
        self.written.get().is_some()
    }
}

impl ReadyTask {
    fn rank(&self, task: TaskId, stats: &ToolStats) -> Rank {
        let unknown = if stats.is_known() { 0 } else { self.reads };
        (signed(self.frees) - signed(unknown), self.since, task)
    }

    fn candidate(&self, task: TaskId, stats: &ToolStats) -> Candidate {
        let known = stats.written.get();
        let gain = signed(self.frees) - signed(known.unwrap_or(self.reads));
        let claims = known.unwrap_or_else(|| claim_of_guess(self.reads));
        Candidate { task, gain, since: self.since, claims }
    }
}

/// The space that is set aside for a task with this guessed output: a quarter more, because guesses
/// are wrong, files take whole pages and stripes grow by doubling.
fn claim_of_guess(bytes: u64) -> u64 {
    bytes + bytes / 4
}

/// Converts without overflow: pools are far below 2^62 bytes.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 2).min(i64::MAX / 2)
}
