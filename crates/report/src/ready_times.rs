//! The time at which each task could have started. After it, the task waited for a slot or space,
//! not for data.
//!
//! It follows from the times at which members were written, so it is computed at the end, and
//! nothing has to record it during the run.

use crate::plan::{MemberIndex, member_index, member_range};
use crate::{RunReport, Seconds, Status, TaskRecord};

impl RunReport {
    /// Fills `ready_s` and `waited_s` of every task whose inputs all came to exist; inputs of the
    /// run exist from its start.
    pub(crate) fn fill_ready(&mut self) {
        let index = member_index(&self.data);
        let ready: Vec<Option<Seconds>> = self.tasks.iter().map(|task| self.ready(task, &index)).collect();
        for (task, ready) in self.tasks.iter_mut().zip(ready) {
            task.ready_s = ready;
            let waited = task.slot_taken().zip(ready).map(|(taken, ready)| (taken - ready.0).max(0.0));
            task.waited_s = waited.map(Seconds::rounded);
        }
    }

    fn ready(&self, task: &TaskRecord, index: &MemberIndex<'_>) -> Option<Seconds> {
        let inputs = task.inputs.iter().flat_map(|data| &self.data[member_range(index, data)]);
        let written = inputs.filter(|member| member.writer.is_some()).map(|member| member.written_s);
        let after = task.after.iter().filter_map(|id| self.tasks.get(*id as usize));
        let ended = after.map(|before| before.end_s.filter(|_| before.status == Status::Done));
        let added = task.ready_s.unwrap_or(Seconds(0.0));
        written.chain(ended).try_fold(added, |last, each| each.map(|each| Seconds(last.0.max(each.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataRef, Member};

    fn member(name: &str, writer: Option<u32>, written: Option<f64>) -> Member {
        Member { name: name.into(), writer, written_s: written.map(Seconds), ..Member::default() }
    }

    fn reads(names: &[&str], after: &[u32]) -> TaskRecord {
        let inputs = names.iter().map(|name| DataRef::One((*name).into())).collect();
        TaskRecord { inputs, after: after.to_vec(), ..TaskRecord::default() }
    }

    #[test]
    fn a_task_that_is_prepared_has_its_slot() {
        let [start_s, prepared_s] = [3.0, 0.5].map(|time| Some(Seconds(time)));
        let tasks = vec![TaskRecord { start_s, prepared_s, end_s: Some(Seconds(4.0)), ..reads(&["A"], &[]) }];
        let mut run = RunReport { data: vec![member("A", Some(0), Some(2.0))], tasks, ..RunReport::default() };
        run.fill_ready();
        assert_eq!(run.tasks[0].waited_s, Some(Seconds(0.5)));
    }

    #[test]
    fn a_task_is_ready_when_the_last_of_what_it_needs_is_there() {
        let first = TaskRecord { status: Status::Done, end_s: Some(Seconds(7.0)), ..reads(&["In"], &[]) };
        let tasks = vec![
            first,
            reads(&["A", "In", "B"], &[]),
            reads(&["A"], &[0]),
            reads(&["A", "Lost"], &[]),
            reads(&[], &[1]),
            TaskRecord { ready_s: Some(Seconds(2.5)), ..reads(&["A"], &[]) },
            TaskRecord { ready_s: Some(Seconds(2.5)), ..reads(&["B"], &[]) },
        ];
        let data = vec![
            member("In", None, None),
            member("A", Some(0), Some(2.0)),
            member("B", Some(0), Some(3.0)),
            member("Lost", Some(3), None),
        ];
        let mut run = RunReport { data, tasks, ..RunReport::default() };
        run.fill_ready();
        let ready: Vec<Option<f64>> = run.tasks.iter().map(|task| task.ready_s.map(|ready| ready.0)).collect();
        assert_eq!(ready, [Some(0.0), Some(3.0), Some(7.0), None, None, Some(2.5), Some(3.0)]);
    }
}
