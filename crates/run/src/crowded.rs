//! Tasks that found the pool full while others ran.
//!
//! Two writers that each hold half of the pool wait for each other until both are refused, and neither is at fault. So each is
//! tried once more, when nothing else runs.

use flow::TaskId;
use std::collections::{HashSet, VecDeque};

/// Who waits for another chance, and who had it.
#[derive(Debug, Default)]
pub struct Crowded {
    /// Those that wait, in the order of their failures.
    pub waiting: VecDeque<TaskId>,
    admitted: HashSet<TaskId>,
}

impl Crowded {
    /// Whether the task gets another chance; it gets one only.
    pub fn admit(&mut self, task: TaskId) -> bool {
        let first = self.admitted.insert(task);
        if first {
            self.waiting.push_back(task);
        }
        first
    }

    /// Whether the task was admitted before.
    pub fn had_another_chance(&self, task: TaskId) -> bool {
        self.admitted.contains(&task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_gets_one_other_chance_in_turn() {
        let mut crowded = Crowded::default();
        assert!(crowded.admit(TaskId(7)) && crowded.admit(TaskId(3)));
        assert_eq!(crowded.waiting.pop_front(), Some(TaskId(7)));
        assert!(!crowded.admit(TaskId(7)), "there is no third");
        assert!(crowded.had_another_chance(TaskId(7)) && !crowded.had_another_chance(TaskId(4)));
    }
}
