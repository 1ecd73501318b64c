//! The readers of each member, in a form that grows with the workflow.

use crate::model::{DataId, TaskId};

/// The number of a read that there is not.
const NONE: u32 = u32::MAX;

/// The tasks that read each member, each in the order in which they were added.
///
/// All reads are in one list. Those of one member are linked in a ring, so that a read is added,
/// and the first one is found, in constant time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Readers {
    /// For each member, the number of its last read, or `NONE`.
    last: Vec<u32>,
    /// The reads: the task, and the number of the member's next read; after the last one comes the
    /// first.
    reads: Vec<(TaskId, u32)>,
}

impl Readers {
    /// Makes room for members below `members` and for this many more reads.
    pub fn reserve(&mut self, members: usize, reads: usize) {
        self.last.resize(members, NONE);
        self.reads.reserve_exact(reads);
    }

    /// The number of reads in all.
    pub fn count(&self) -> usize {
        self.reads.len()
    }

    /// Adds a task that reads a member.
    pub fn add(&mut self, data: DataId, task: TaskId) {
        let number = u32::try_from(self.reads.len()).expect("the check limits the number of reads");
        let last = &mut self.last[data.0 as usize];
        let first = match self.reads.get_mut(*last as usize) {
            Some((_, next)) => std::mem::replace(next, number),
            None => number,
        };
        *last = number;
        self.reads.push((task, first));
    }

    /// The tasks that read a member; a task that was added twice occurs twice.
    pub fn of(&self, data: DataId) -> impl Iterator<Item = TaskId> + '_ {
        let last = self.last[data.0 as usize];
        let mut next = self.reads.get(last as usize).map(|(_, first)| *first);
        std::iter::from_fn(move || {
            let number = next?;
            let (task, after) = self.reads[number as usize];
            next = (number != last).then_some(after);
            Some(task)
        })
    }

    /// Returns whether no task reads a member.
    pub fn is_unread(&self, data: DataId) -> bool {
        self.last[data.0 as usize] == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_each_member_are_listed_in_order_while_more_come() {
        let mut readers = Readers::default();
        readers.reserve(2, 3);
        for (data, task) in [(1, 7), (0, 8), (1, 7)] {
            readers.add(DataId(data), TaskId(task));
        }
        readers.reserve(3, 1);
        readers.add(DataId(1), TaskId(9));
        let of = |data| readers.of(DataId(data)).map(|task| task.0).collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2)], [vec![8], vec![7, 7, 9], vec![]]);
        assert!(readers.is_unread(DataId(2)) && !readers.is_unread(DataId(0)));
        assert_eq!(readers.count(), 4);
    }
}
