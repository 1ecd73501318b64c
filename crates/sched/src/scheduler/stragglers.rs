//! Second attempts of tasks that run much longer than others of their tool (stragglers).
//!
//! A second attempt starts at another place while processors are idle (a backup task: Dean and
//! Ghemawat, 2004, section 3.6). The first of two attempts that succeeds counts, and the other is
//! stopped. If one fails or is lost, the other goes on. An attempt of a task is
//! the *first* one, which the table knows, or the *second*; the two change places where that makes
//! their ends alike.

use super::{EventContext, Scheduler};
use crate::messages::{AttemptId, LocationTarget, SchedulerCommand};
use crate::policy::StartReason;
use crate::resources::{PlaceId, SlotId, WorkerId};
use crate::table::{RunningAttempt, TaskState};
use flow::{TaskId, ToolId};
use std::collections::{BTreeSet, HashMap};

/// The number of tasks of a tool that must have succeeded before its median counts.
const ENDED_MIN: usize = 3;
/// A task is slow if it runs longer than this many times the median of its tool,
const MEDIANS: u64 = 2;
/// and longer than the median by this time in ms: what a start costs would not pay sooner.
const LONGER_MS: u64 = 1000;
/// The number of tasks of a tool, and of places for each, that are tried. It bounds the work for
/// each event.
const LOOK_AHEAD: usize = 8;

/// The second attempt of a task.
#[derive(Debug, Clone, Copy)]
struct SecondAttempt {
    attempt: RunningAttempt,
    since_ms: u64,
}

/// Tasks that may be slow, second attempts, and attempts that were stopped.
#[derive(Debug, Default)]
pub struct Stragglers {
    /// The start and number of each running task without a second attempt, by tool.
    watched: Vec<BTreeSet<(u64, TaskId)>>,
    /// The running tasks that have or had a second attempt; `None` if one of the two has failed.
    seconds: HashMap<TaskId, Option<SecondAttempt>>,
    /// Attempts that still run although another one of their task has succeeded, and their lanes.
    stopped: HashMap<AttemptId, (WorkerId, SlotId)>,
}

impl Stragglers {
    /// Returns whether the attempt runs although another one has succeeded.
    pub fn is_stopped(&self, attempt: AttemptId) -> bool {
        self.stopped.contains_key(&attempt)
    }

    /// The second attempt of a running task, if it has one.
    pub fn second_of(&self, task: TaskId) -> Option<AttemptId> {
        let second = self.attempt_beside(task)?;
        Some(AttemptId { task, attempt: second.number })
    }

    fn attempt_beside(&self, task: TaskId) -> Option<RunningAttempt> {
        let second = (*self.seconds.get(&task)?)?;
        Some(second.attempt)
    }

    fn watched(&mut self, tool: ToolId) -> &mut BTreeSet<(u64, TaskId)> {
        let at = tool.0 as usize;
        if at >= self.watched.len() {
            self.watched.resize_with(at + 1, BTreeSet::new);
        }
        &mut self.watched[at]
    }
}

impl Scheduler {
    /// Notes when a task has started.
    pub(super) fn watch_straggler(&mut self, task: TaskId) {
        if self.options.stragglers {
            let row = self.table.row_mut(task);
            self.stragglers.watched(row.tool).insert((row.since_ms, task));
        }
    }

    /// Forgets a task whose last attempt ends.
    pub(super) fn forget_straggler(&mut self, task: TaskId) {
        if self.options.stragglers {
            let row = self.table.row_mut(task);
            self.stragglers.watched(row.tool).remove(&(row.since_ms, task));
            self.stragglers.seconds.remove(&task);
        }
    }

    /// An attempt succeeded: the other one of its task, if there is one, is stopped.
    pub(super) fn on_attempt_done(&mut self, attempt: AttemptId, context: &mut EventContext) {
        if self.ends_stopped(attempt) {
            return;
        }
        self.make_first(attempt);
        let task = attempt.task;
        if let Some(RunningAttempt { number: attempt, worker, slot, .. }) = self.stragglers.attempt_beside(task) {
            self.stragglers.stopped.insert(AttemptId { task, attempt }, (worker, slot));
            if self.stopped.is_none() {
                context.commands.push(SchedulerCommand::Stop { task, attempt });
            }
        }
        self.on_done(task, context);
    }

    /// Ends an attempt that failed or was lost, if another one of its task runs or has succeeded.
    /// Returns whether that is so.
    pub(super) fn ends_beside_another(&mut self, attempt: AttemptId) -> bool {
        if self.ends_stopped(attempt) {
            return true;
        }
        self.make_first(attempt);
        let Some(second) = self.stragglers.second_of(attempt.task) else { return false };
        self.make_first(second);
        let ended = self.stragglers.seconds.insert(attempt.task, None).flatten().expect("it runs");
        self.release_lane(ended.attempt.worker, ended.attempt.slot);
        self.space.end_beside(attempt);
        true
    }

    /// As `ends_beside_another`, for an attempt that was lost with its worker: the task may have
    /// another second attempt.
    pub(super) fn loses_beside_another(&mut self, attempt: AttemptId) -> bool {
        if self.ends_stopped(attempt) {
            return true;
        }
        let is_beside = self.ends_beside_another(attempt);
        if is_beside {
            self.stragglers.seconds.remove(&attempt.task);
            self.watch_straggler(attempt.task);
        }
        is_beside
    }

    /// Ends an attempt that was stopped; returns whether it was.
    fn ends_stopped(&mut self, attempt: AttemptId) -> bool {
        if self.stragglers.stopped.is_empty() {
            return false;
        }
        let Some((worker, slot)) = self.stragglers.stopped.remove(&attempt) else { return false };
        self.release_lane(worker, slot);
        self.space.end_beside(attempt);
        true
    }

    /// Makes a running attempt the first one of its task.
    fn make_first(&mut self, attempt: AttemptId) {
        let AttemptId { task, attempt: number } = attempt;
        let first = self.running_attempt(task).expect("only a running task reports its end");
        if first == attempt {
            return;
        }
        let second = self.stragglers.seconds.get_mut(&task).and_then(Option::as_mut);
        let second = second.filter(|second| second.attempt.number == number);
        let second = second.expect("only a running attempt reports its end");
        let row = self.table.row_mut(task);
        if let TaskState::Running(running) = &mut row.state {
            std::mem::swap(running, &mut second.attempt);
            std::mem::swap(&mut row.since_ms, &mut second.since_ms);
        }
        self.space.swap_beside(first, attempt);
    }

    /// Starts second attempts of slow tasks on processors that no ready task could take.
    pub(super) fn start_seconds(&mut self, context: &mut EventContext) {
        if !self.begun || self.stopped.is_some() {
            return;
        }
        for tool in 0..self.stragglers.watched.len() {
            let tool = ToolId(u32::try_from(tool).expect("tools are few"));
            while let Some((task, worker)) = self.find_second(tool, context.now_ms) {
                self.start_second(task, worker, context);
            }
        }
    }

    /// A slow task of a tool, and a worker at another place with room.
    fn find_second(&self, tool: ToolId, now_ms: u64) -> Option<(TaskId, WorkerId)> {
        let watched = self.stragglers.watched.get(tool.0 as usize).filter(|watched| !watched.is_empty())?;
        let is_known = self.durations.count(tool) >= ENDED_MIN;
        let median = self.durations.median_ms(tool).filter(|_| is_known && self.workers.has_free())?;
        let limit = median.saturating_mul(MEDIANS).max(median.saturating_add(LONGER_MS));
        let slow = watched.iter().take(LOOK_AHEAD).take_while(|(since, _)| now_ms.saturating_sub(*since) > limit);
        let mut slow = slow.filter(|_| self.space.has_room_beside(tool));
        slow.find_map(|(_, task)| Some((*task, self.find_elsewhere(*task)?)))
    }

    /// A worker with room at another place than the task's, of those with most of its inputs first.
    fn find_elsewhere(&self, task: TaskId) -> Option<WorkerId> {
        let row = self.table.row(task)?;
        let TaskState::Running(running) = row.state else { return None };
        let (here, demand) = (self.workers.place(running.worker)?, row.demand);
        if self.location(task).is_some_and(|location| location.hard) {
            return None; // It was bound to one place.
        }
        let writes = self.space.claims_beside(row.tool);
        let is_other = |place: &PlaceId| *place != here && !self.workers.is_short_for(*place, || writes);
        let (local, _) = self.local_inputs(task);
        let best = local.iter().map(|local| local.place).take(LOOK_AHEAD);
        let others = self.workers.free_places(PlaceId(0)).take(LOOK_AHEAD);
        let mut places = best.chain(others).filter(is_other);
        places.find_map(|place| {
            let allowed = |worker: WorkerId| !self.policy.is_reserved(worker);
            self.workers.find(demand, Some(LocationTarget::Place(place)), &allowed)
        })
    }

    fn start_second(&mut self, task: TaskId, worker: WorkerId, context: &mut EventContext) {
        let row = self.table.row_mut(task);
        // Two attempts count as one.
        row.attempts += 1;
        row.attempts_max = row.attempts_max.saturating_add(1);
        let (number, demand, tool, watched) = (row.attempts, row.demand, row.tool, (row.since_ms, task));
        self.stragglers.watched(tool).remove(&watched);
        let slot = self.workers.resources(worker).expect("it was added").first_lane();
        let id = AttemptId { task, attempt: number };
        let expected = self.durations.median_ms(tool);
        self.workers.start(id, (worker, Some(slot)), demand, (context.now_ms, expected));
        self.space.start_beside(id, tool);
        let attempt = RunningAttempt { number, worker, slot, reason: StartReason::Straggler };
        self.stragglers.seconds.insert(task, Some(SecondAttempt { attempt, since_ms: context.now_ms }));
        self.command_start(id, (worker, slot), false, context);
    }
}
