//! Time by cause: how long tasks waited for data and for slots, how long their inputs moved, and
//! how long they computed.
//!
//! Only runs on a cluster have it. On one host nothing moves, and `ready_s`, `waited_s` and the
//! times of attempts tell the rest.

use crate::{RunReport, Seconds, TaskRecord};
use serde::{Deserialize, Serialize};

/// Time by what it was spent on, of one task or as a sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeByCause {
    /// The time before the last input or task that it waited for was complete.
    pub data_s: Seconds,
    /// The time in which it had all inputs and waited for a slot, for space, or for another
    /// attempt.
    pub slot_s: Seconds,
    /// The time in which its directory and inputs were prepared.
    pub moving_s: Seconds,
    /// The time of its processes, in all attempts.
    pub computing_s: Seconds,
}

impl TimeByCause {
    /// The time of `task` from `from` to the end of its last attempt that ended by `until`. The
    /// parts add up to this time.
    pub(crate) fn of(task: &TaskRecord, from: f64, until: f64) -> Self {
        let ready = task.ready_s.map_or(0.0, |ready| ready.0);
        let mut time = Self::default();
        let mut at = from;
        for ((start, end), prepared) in task.spans().zip(task.prepared()).take_while(|((_, end), _)| *end <= until) {
            // Clocks of hosts differ a little; no part may be negative.
            let start = start.max(at);
            let ordered = (start - prepared).max(at);
            let ready = ready.clamp(at, ordered);
            time.data_s.0 += ready - at;
            time.slot_s.0 += ordered - ready;
            time.moving_s.0 += start - ordered;
            time.computing_s.0 += (end - start).max(0.0);
            at = end.max(start);
        }
        time.rounded()
    }

    /// The sum of `parts`; none if there are none.
    pub(crate) fn sum(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        let add = |one: Seconds, other: Seconds| Seconds(one.0 + other.0);
        let sum = parts.into_iter().reduce(|sum, part| Self {
            data_s: add(sum.data_s, part.data_s),
            slot_s: add(sum.slot_s, part.slot_s),
            moving_s: add(sum.moving_s, part.moving_s),
            computing_s: add(sum.computing_s, part.computing_s),
        });
        sum.map(Self::rounded)
    }

    fn rounded(self) -> Self {
        Self {
            data_s: Seconds::rounded(self.data_s.0),
            slot_s: Seconds::rounded(self.slot_s.0),
            moving_s: Seconds::rounded(self.moving_s.0),
            computing_s: Seconds::rounded(self.computing_s.0),
        }
    }
}

impl RunReport {
    /// Fills `causes` of every task that ran on a node; needs `TaskRecord::ready_s`.
    pub(crate) fn fill_causes(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        for task in &mut self.tasks {
            let ran = task.spans().next().is_some();
            task.causes = ran.then(|| TimeByCause::of(task, 0.0, f64::INFINITY));
        }
    }
}

#[cfg(test)]
impl From<[f64; 4]> for TimeByCause {
    fn from(parts: [f64; 4]) -> Self {
        let [data_s, slot_s, moving_s, computing_s] = parts.map(Seconds);
        Self { data_s, slot_s, moving_s, computing_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, NodeRecord};

    fn task(ready: f64, prepared: f64, (start, end): (f64, f64)) -> TaskRecord {
        let some = |time| Some(Seconds(time));
        TaskRecord {
            ready_s: some(ready),
            prepared_s: some(prepared),
            start_s: some(start),
            end_s: some(end),
            ..TaskRecord::default()
        }
    }

    #[test]
    fn the_time_of_a_task_is_divided_by_what_it_waited_for() {
        let time = TimeByCause::of(&task(2.0, 0.5, (4.0, 9.0)), 0.0, f64::INFINITY);
        assert_eq!(time, [2.0, 1.5, 0.5, 5.0].into());
        let unknown = TaskRecord { prepared_s: None, ready_s: None, ..task(2.0, 0.5, (4.0, 9.0)) };
        assert_eq!(TimeByCause::of(&unknown, 0.0, f64::INFINITY), [0.0, 4.0, 0.0, 5.0].into());
    }

    #[test]
    fn the_time_between_attempts_is_a_wait_for_a_slot() {
        let lost = Attempt {
            start_s: Seconds(2.25),
            end_s: Seconds(3.0),
            prepared_s: Some(Seconds(0.25)),
            ..Attempt::default()
        };
        let task = TaskRecord { earlier: vec![lost], ..task(1.0, 0.5, (4.0, 6.0)) };
        assert_eq!(TimeByCause::of(&task, 0.0, f64::INFINITY), [1.0, 1.5, 0.75, 2.75].into());
        assert_eq!(TimeByCause::of(&task, 1.5, 3.0), [0.0, 0.5, 0.25, 0.75].into(), "of its first attempt");
    }

    #[test]
    fn clocks_that_differ_take_no_time_away() {
        let time = TimeByCause::of(&task(5.0, 9.0, (4.0, 3.5)), 0.0, f64::INFINITY);
        assert_eq!(time, [0.0, 0.0, 4.0, 0.0].into());
    }

    #[test]
    fn a_run_on_one_host_has_no_causes() {
        let never = TaskRecord::default();
        let mut run = RunReport { tasks: vec![task(0.0, 0.0, (0.0, 1.0)), never], ..RunReport::default() };
        run.seal(Seconds(1.0));
        assert_eq!((run.tasks[0].causes, run.totals.causes, run.critical_path.causes), (None, None, None));
        run.nodes.push(NodeRecord { slots: 1, ..NodeRecord::default() });
        run.seal(Seconds(1.0));
        let computing = Some([0.0, 0.0, 0.0, 1.0].into());
        assert_eq!((run.tasks[0].causes, run.tasks[1].causes), (computing, None));
        assert_eq!(
            (run.totals.causes, run.by_tool[0].causes, run.critical_path.causes),
            (computing, computing, computing)
        );
    }
}
