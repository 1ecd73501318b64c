//! A map from tasks to values, for a part of all tasks.
//!
//! Task numbers are dense, so an index of 4 bytes for each task replaces hashing. The values stand
//! beside each other in about the order in which they were inserted, which is the order in which
//! ready tasks are used. So neighbours share cache lines, however many tasks there are.

use flow::TaskId;
use std::ops::Index;

/// The index that stands for no value.
const NONE: u32 = u32::MAX;

/// A map from tasks to values.
#[derive(Debug)]
pub struct TaskMap<T> {
    /// The position of each task's value in `values`.
    index: Vec<u32>,
    values: Vec<Option<(TaskId, T)>>,
    /// The positions without a value; the last one is used next.
    vacant: Vec<u32>,
}

impl<T> Default for TaskMap<T> {
    fn default() -> Self {
        Self { index: Vec::new(), values: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> TaskMap<T> {
    /// Sets the value of a task; returns the one before.
    pub fn insert(&mut self, task: TaskId, value: T) -> Option<T> {
        if let Some(present) = self.get_mut(task) {
            return Some(std::mem::replace(present, value));
        }
        let at = task.0 as usize;
        if at >= self.index.len() {
            self.index.resize(at + 1, NONE);
        }
        let position = self.vacant.pop().unwrap_or_else(|| {
            self.values.push(None);
            u32::try_from(self.values.len() - 1).expect("tasks are bounded far below 2^32")
        });
        self.values[position as usize] = Some((task, value));
        self.index[at] = position;
        None
    }

    /// Removes the value of a task and returns it.
    pub fn remove(&mut self, task: TaskId) -> Option<T> {
        let position = std::mem::replace(self.index.get_mut(task.0 as usize)?, NONE);
        let (_, value) = self.values.get_mut(position as usize)?.take()?;
        self.vacant.push(position);
        Some(value)
    }

    /// The value of a task.
    pub fn get(&self, task: TaskId) -> Option<&T> {
        let position = *self.index.get(task.0 as usize)?;
        self.values.get(position as usize)?.as_ref().map(|(_, value)| value)
    }

    /// The value of a task.
    pub fn get_mut(&mut self, task: TaskId) -> Option<&mut T> {
        let position = *self.index.get(task.0 as usize)?;
        self.values.get_mut(position as usize)?.as_mut().map(|(_, value)| value)
    }

    /// The number of tasks with a value.
    pub fn len(&self) -> usize {
        self.values.len() - self.vacant.len()
    }

    /// Returns whether no task has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tasks with their values, in no particular order, but the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> + '_ {
        self.values.iter().flatten().map(|(task, value)| (*task, value))
    }
}

impl<T> Index<TaskId> for TaskMap<T> {
    type Output = T;

    /// Panics if the task has no value.
    fn index(&self, task: TaskId) -> &T {
        self.get(task).expect("the task has a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_behaves_as_a_map() {
        let (mut map, mut model) = (TaskMap::default(), BTreeMap::new());
        let mut random = test_support::Random::new(3);
        for value in 0..5000_u32 {
            let task = TaskId(random.below(50_u32));
            if random.below(2_u32) == 0 {
                assert_eq!(map.insert(task, value), model.insert(task, value));
            } else {
                assert_eq!(map.remove(task), model.remove(&task));
            }
            assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(map.get(task), model.get(&task));
            let all: BTreeMap<TaskId, u32> = map.iter().map(|(task, value)| (task, *value)).collect();
            assert_eq!(all, model);
        }
    }
}
