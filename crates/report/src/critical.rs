//! The critical path: the chain of tasks that determined the end of the run.
//!
//! From the task that ended last it goes back to the event that let each task start. That is the
//! end of the task that wrote the last of its inputs, or of a task that it had to come after. If
//! the task had all of that and still waited, it is the end that freed a slot or space for it.

use crate::plan::{MemberIndex, member_index, member_range};
use crate::{RunReport, Seconds, TaskRecord, TimeByCause};
use serde::{Deserialize, Serialize};

/// The most steps that are kept: those nearest to the end of the run.
pub const CRITICAL_STEPS_MAX: usize = 1_000;

/// The chain of tasks that determined the end of the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CriticalPath {
    /// The time during which tasks of the path ran, over all steps.
    pub ran_s: Seconds,
    /// The length of the longest chain of dependent tasks, by the times they took: the time of the
    /// run if there were slots for all.
    pub chain_s: Seconds,
    /// The time of all steps by cause; none on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<TimeByCause>,
    /// The steps in the order of time, at most `CRITICAL_STEPS_MAX`.
    pub steps: Vec<CriticalStep>,
    /// The number of earlier steps that are left out.
    #[serde(default)]
    pub steps_cut: u32,
    /// The lengths of all steps, for the totals by tool.
    #[serde(skip)]
    pub(crate) lengths: Vec<(u32, f64)>,
}

/// A task of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CriticalStep {
    /// The number of the task.
    pub task: u32,
    /// The start of the task's first attempt.
    pub start_s: Seconds,
    /// The end of the attempt that the next step waited for.
    pub end_s: Seconds,
    /// The last condition that the task waited for. The step before names the task that met it.
    pub waited_for: StartCondition,
    /// The time from the end of the step before, or the start of the run, to `end_s` by cause; none
    /// on a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<TimeByCause>,
}

/// The condition that let a task start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartCondition {
    /// The start of the run.
    Start,
    /// An input that the step before wrote.
    Data,
    /// The end of the step before, although no data passes.
    After,
    /// A slot, or space in memory, that the end of the step before freed.
    Slot,
}

/// The end of an attempt.
#[derive(Clone, Copy)]
struct AttemptEnd {
    time: f64,
    task: u32,
    slot: u32,
}

/// A finished run, with indices for the walk back through it.
struct CriticalPathSearch<'a> {
    run: &'a RunReport,
    index: MemberIndex<'a>,
    /// The ends of all attempts, in the order of time.
    ends: Vec<AttemptEnd>,
}

/// The most ends before a start that are searched for the one that freed the slot: more attempts
/// than end in a millisecond.
const ENDS_SEARCHED: usize = 1_000;

impl RunReport {
    /// The path of this run; needs `TaskRecord::ready_s`.
    pub(crate) fn critical_path(&self) -> CriticalPath {
        let walk = CriticalPathSearch { run: self, index: member_index(&self.data), ends: ends(&self.tasks) };
        let steps = walk.trace_back();
        let lengths: Vec<(u32, f64)> = steps.iter().map(|step| (step.task, step.end_s.0 - step.start_s.0)).collect();
        let cut = steps.len().saturating_sub(CRITICAL_STEPS_MAX);
        CriticalPath {
            ran_s: Seconds::rounded(lengths.iter().map(|(_, length)| length).sum()),
            chain_s: Seconds::rounded(walk.longest_chain()),
            causes: TimeByCause::sum(steps.iter().filter_map(|step| step.causes)),
            steps: steps[cut..].to_vec(),
            steps_cut: u32::try_from(cut).unwrap_or(u32::MAX),
            lengths,
        }
    }
}

impl CriticalPathSearch<'_> {
    /// The steps from the first to the last.
    fn trace_back(&self) -> Vec<CriticalStep> {
        let mut steps = Vec::new();
        let mut at = self.ends.last().copied();
        // Every step begins before the next one, unless clocks are wrong; then the count ends the
        // loop.
        while let Some(end) = at.filter(|_| steps.len() < self.ends.len()) {
            let task = &self.run.tasks[end.task as usize];
            let Some((start, _)) = task.spans().next() else { break };
            let (waited_for, before) = self.start_condition(task, task.slot_taken().unwrap_or(start));
            let (start_s, end_s) = (Seconds(start), Seconds(end.time));
            let from = before.map_or(0.0, |before| before.time);
            let causes = task.causes.map(|_| TimeByCause::of(task, from, end.time));
            steps.push(CriticalStep { task: end.task, start_s, end_s, waited_for, causes });
            at = before;
        }
        steps.reverse();
        steps
    }

    /// The condition that let `task` be prepared and started from `start` on, and the end that met
    /// it.
    fn start_condition(&self, task: &TaskRecord, start: f64) -> (StartCondition, Option<AttemptEnd>) {
        let needed = self.last_dependency(task);
        let ready = needed.map_or(0.0, |(_, end)| end.time);
        let before = &self.ends[..self.ends.partition_point(|end| end.time <= start)];
        let freed = || {
            let near = before.iter().rev().take(ENDS_SEARCHED).take_while(|end| end.time > ready);
            near.filter(|end| end.task != task.id)
        };
        // A task of one slot starts when that slot is free. Other tasks, and those that wait for
        // space, start when any slot or space is.
        let own = freed().find(|end| task.cpus <= 1 && Some(end.slot) == task.slot);
        match (own.or_else(|| freed().next()), needed) {
            (Some(end), _) => (StartCondition::Slot, Some(*end)),
            (None, Some((waited_for, end))) => (waited_for, Some(end)),
            (None, None) => (StartCondition::Start, None),
        }
    }

    /// The last of the inputs and tasks that `task` needs.
    fn last_dependency(&self, task: &TaskRecord) -> Option<(StartCondition, AttemptEnd)> {
        let end = |(time, task): (f64, u32)| AttemptEnd { time, task, slot: 0 };
        let later = |first: &(f64, u32), second: &(f64, u32)| first.0.total_cmp(&second.0);
        let data = self.writers(task).max_by(later).map(|data| (StartCondition::Data, end(data)));
        let ended = |id: &u32| Some((self.run.tasks.get(*id as usize)?.end_s?.0, *id));
        let after = task.after.iter().filter_map(ended).max_by(later).map(|after| (StartCondition::After, end(after)));
        match (data, after) {
            (Some(data), Some(after)) => Some(if after.1.time > data.1.time { after } else { data }),
            (data, after) => data.or(after),
        }
    }

    /// The time at which each input was written, and the task that wrote it.
    fn writers(&self, task: &TaskRecord) -> impl Iterator<Item = (f64, u32)> {
        let members = task.inputs.iter().flat_map(|data| &self.run.data[member_range(&self.index, data)]);
        members.filter_map(|member| Some((member.written_s?.0, member.writer?)))
    }

    /// The length of the longest chain of dependent tasks.
    fn longest_chain(&self) -> f64 {
        // A task begins after all tasks that it needs.
        let mut order: Vec<(f64, usize)> = Vec::new();
        for (id, task) in self.run.tasks.iter().enumerate() {
            order.extend(task.spans().next().map(|(start, _)| (start, id)));
        }
        order.sort_by(|first, second| first.0.total_cmp(&second.0));
        let mut chains = vec![0.0_f64; self.run.tasks.len()];
        for (start, id) in order {
            let task = &self.run.tasks[id];
            let before = self.writers(task).map(|(_, writer)| writer).chain(task.after.iter().copied());
            let longest = before.filter_map(|id| chains.get(id as usize)).copied().fold(0.0, f64::max);
            chains[id] = longest + task.end_s.map_or(0.0, |end| end.0 - start);
        }
        chains.into_iter().fold(0.0, f64::max)
    }
}

/// The ends of all attempts, in the order of time.
fn ends(tasks: &[TaskRecord]) -> Vec<AttemptEnd> {
    let mut ends: Vec<AttemptEnd> = Vec::new();
    for task in tasks {
        let id = task.id;
        ends.extend(task.earlier.iter().map(|attempt| AttemptEnd {
            time: attempt.end_s.0,
            task: id,
            slot: attempt.slot,
        }));
        ends.extend(task.end_s.map(|end| AttemptEnd { time: end.0, task: id, slot: task.slot.unwrap_or(0) }));
    }
    ends.sort_by(|first, second| first.time.total_cmp(&second.time));
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, DataRef, Member, Status};

    fn task(id: u32, slot: u32, (start, end): (f64, f64)) -> TaskRecord {
        let at = |time| Some(Seconds(time));
        let status = Status::Done;
        TaskRecord {
            id,
            status,
            attempts: 1,
            cpus: 1,
            slot: Some(slot),
            start_s: at(start),
            end_s: at(end),
            ..TaskRecord::default()
        }
    }

    fn reads(name: &str, task: TaskRecord) -> TaskRecord {
        TaskRecord { inputs: vec![DataRef::One(name.into())], ..task }
    }

    fn written(name: &str, writer: u32, time: f64) -> Member {
        Member { name: name.into(), writer: Some(writer), written_s: Some(Seconds(time)), ..Member::default() }
    }

    fn path(run: &RunReport) -> Vec<(u32, StartCondition)> {
        run.critical_path().steps.iter().map(|step| (step.task, step.waited_for)).collect()
    }

    #[test]
    fn the_path_goes_back_through_slots_data_and_order() {
        let tasks = vec![
            task(0, 0, (0.0, 2.0)),
            task(1, 1, (0.0, 1.0)),
            // Has its input at 2 and a free slot.
            reads("A", task(2, 1, (2.01, 5.0))),
            // Ready at 1, but both slots are taken until 2, and its own until 5.
            reads("B", task(3, 1, (5.01, 6.0))),
            TaskRecord { after: vec![3], ..task(4, 0, (6.01, 9.0)) },
            task(5, 1, (6.02, 7.0)),
        ];
        let data = vec![written("A", 0, 2.0), written("B", 1, 1.0)];
        let run = RunReport { data, tasks, ..RunReport::default() };
        let expected = [
            (0, StartCondition::Start),
            (2, StartCondition::Data),
            (3, StartCondition::Slot),
            (4, StartCondition::After),
        ];
        assert_eq!(path(&run), expected);
        let path = run.critical_path();
        assert_eq!(path.ran_s, Seconds(2.0 + 2.99 + 0.99 + 2.99));
        assert_eq!(path.chain_s, Seconds(4.99), "with slots for all, A and its reader take longest");
    }

    #[test]
    fn a_retried_task_is_one_step_from_its_first_start() {
        let attempt = Attempt { end_s: Seconds(1.0), ..Attempt::default() };
        let retried = TaskRecord { earlier: vec![attempt], attempts: 2, ..task(0, 1, (2.0, 4.0)) };
        // Took the slot that the first attempt left.
        let run = RunReport { tasks: vec![retried, task(1, 0, (1.0, 9.0))], ..RunReport::default() };
        let steps = run.critical_path().steps;
        assert_eq!(steps.iter().map(|step| (step.task, step.end_s.0)).collect::<Vec<_>>(), [(0, 1.0), (1, 9.0)]);
    }

    #[test]
    fn the_steps_divide_the_run_by_cause() {
        let moved = |task| TaskRecord { prepared_s: Some(Seconds(0.25)), causes: Some(TimeByCause::default()), ..task };
        let tasks = vec![
            moved(task(0, 0, (0.5, 2.0))),
            moved(reads("A", task(1, 0, (3.0, 4.0)))),
            // Took the slot of the task before.
            moved(TaskRecord { ready_s: Some(Seconds(1.0)), ..task(2, 0, (4.5, 6.0)) }),
        ];
        let ready = Some(Seconds(2.0));
        let tasks =
            tasks.into_iter().map(|task| if task.id == 1 { TaskRecord { ready_s: ready, ..task } } else { task });
        let data = vec![written("A", 0, 2.0)];
        let path = RunReport { data, tasks: tasks.collect(), ..RunReport::default() }.critical_path();
        let steps: Vec<TimeByCause> = path.steps.iter().filter_map(|step| step.causes).collect();
        let expected = [[0.0, 0.25, 0.25, 1.5], [0.0, 0.75, 0.25, 1.0], [0.0, 0.25, 0.25, 1.5]];
        assert_eq!(steps, expected.map(TimeByCause::from));
        assert_eq!(path.causes, Some([0.0, 1.25, 0.75, 4.0].into()), "six seconds in all");
    }

    #[test]
    fn what_ended_while_a_task_was_prepared_did_not_let_it_start() {
        let late = TaskRecord { prepared_s: Some(Seconds(1.0)), ..reads("A", task(2, 2, (3.01, 4.0))) };
        let tasks = vec![task(0, 0, (0.0, 2.0)), task(1, 1, (0.0, 2.5)), late];
        let run = RunReport { data: vec![written("A", 0, 2.0)], tasks, ..RunReport::default() };
        assert_eq!(path(&run), [(0, StartCondition::Start), (2, StartCondition::Data)]);
    }

    #[test]
    fn ten_thousand_steps_keep_the_last_and_the_sum_of_all() {
        let tasks = (0..10_000).map(|id| task(id, 0, (f64::from(id), f64::from(id) + 0.5))).collect();
        let path = RunReport { tasks, ..RunReport::default() }.critical_path();
        assert_eq!((path.steps.len(), path.steps_cut, path.ran_s), (CRITICAL_STEPS_MAX, 9_000, Seconds(5_000.0)));
        assert_eq!(path.steps.last().map(|step| step.task), Some(9_999));
    }

    #[test]
    fn a_run_in_which_nothing_ran_has_no_path() {
        let run = RunReport { tasks: vec![TaskRecord::default()], ..RunReport::default() };
        assert_eq!(run.critical_path(), CriticalPath::default());
    }
}
