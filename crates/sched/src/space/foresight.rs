//! Foresight: the bytes that a workflow will use, from its graph. The next tasks are simulated in
//! the order in which they became ready, in as many slots as there are: all tasks of a round write,
//! then they end, and what nobody reads any more is freed.
//!
//! A task writes as much as tasks of its tool have written (the median), or, while none has ended,
//! as much as its largest input has, if that exists already.

use super::{SpaceRules, safety::SpaceSimulation};
use crate::table::TaskTable;
use flow::TaskId;

/// Rounds of tasks that are about to run.
const ROUNDS_SOON: u32 = 4;
/// The most tasks that are simulated: some milliseconds.
const TASKS_MAX: u32 = 4000;

/// The bytes that a workflow will use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForeseenBytes {
    /// The most at a time while the next few tasks of each slot run.
    pub soon: u64,
    /// The most at a time until the end, or while the next thousands of tasks run.
    pub ever: u64,
}

/// The bytes that a running task is expected to write, and some more; 0 if it does not run.
pub fn expected_bytes(space: &SpaceRules, task: TaskId) -> u64 {
    space.running.get(task).copied().unwrap_or(0)
}

/// Foresees what the tasks of a workflow will use in this number of slots, from now on.
pub fn foresee(table: &TaskTable, space: &SpaceRules, slots: u32) -> ForeseenBytes {
    let staying = space.pool.used.saturating_sub(space.pool.leaving) + space.yet_to_write();
    let mut foreseen = ForeseenBytes { soon: staying, ever: staying };
    let (mut simulation, mut tasks, mut round) = (SpaceSimulation::new(table, space), 0, 0);
    while tasks < TASKS_MAX && simulation.has_edges_left() {
        let mut started = Vec::new();
        let mut free = slots.max(1);
        while free > 0
            && let Some((task, writes)) = simulation.start_oldest()
        {
            free = free.saturating_sub(table.row(task).map_or(1, |row| row.demand.cpus.max(1)));
            started.push((task, writes));
        }
        if started.is_empty() {
            break;
        }
        round += 1;
        tasks += u32::try_from(started.len()).unwrap_or(u32::MAX);
        foreseen.ever = foreseen.ever.max(simulation.used());
        if round <= ROUNDS_SOON {
            foreseen.soon = foreseen.ever;
        }
        for (task, writes) in started {
            simulation.end(task, writes);
        }
    }
    foreseen
}
