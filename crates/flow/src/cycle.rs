//! Topological order of the tasks, or the cycle that prevents one.

use crate::model::{DataId, TaskId, Workflow};
use crate::tool::ParamKind;
use base::Problem;
use std::fmt::Write as _;

/// Tasks that wait for each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// The tasks of the cycle. Each waits for the one before it, and the first for the last.
    pub tasks: Vec<TaskId>,
    /// The member that each task writes for the next one; `None` if the next one is only declared
    /// to come after it.
    data: Vec<Option<DataId>>,
}

impl Cycle {
    /// A problem such as ``a cycle: task 0 (`A`) -- X -> task 1 (`B`) -- Y -> task 0``.
    pub fn problem(&self, workflow: &Workflow) -> Problem {
        /// The most links of the chain that a message shows; of a longer cycle it shows the ends.
        const SHOWN_MAX: usize = 12;
        let mut chain = String::new();
        for (at, (task, data)) in self.tasks.iter().zip(&self.data).enumerate() {
            if at >= SHOWN_MAX / 2 && at + SHOWN_MAX / 2 < self.tasks.len() {
                continue;
            }
            let tool = &workflow.tool_of(&workflow.tasks[task.0 as usize]).name;
            let link = data.map_or_else(|| "before".to_owned(), |id| workflow.data_name(id));
            let gap = if at + 1 == SHOWN_MAX / 2 && self.tasks.len() > SHOWN_MAX { "... -> " } else { "" };
            // Writing to a `String` cannot fail.
            let _ = write!(chain, "task {} (`{tool}`) -- {link} -> {gap}", task.0);
        }
        let first = self.tasks.first().map_or(0, |task| task.0);
        Problem::new(format!("tasks wait for each other in a cycle: {chain}task {first}"))
            .hint("a task cannot read what is made from its own outputs")
    }
}

/// All tasks, each after those it waits for, otherwise in the order of their numbers (breadth
/// first).
pub(crate) fn order(workflow: &Workflow, writer_of: &dyn Fn(DataId) -> Option<TaskId>) -> Result<Vec<TaskId>, Cycle> {
    let (starts, successors, mut waits) = successors(workflow, writer_of);
    let mut order: Vec<TaskId> =
        (0..).map(TaskId).take(waits.len()).filter(|task| waits[task.0 as usize] == 0).collect();
    let mut done = 0;
    while done < order.len() {
        let task = order[done].0 as usize;
        done += 1;
        for next in &successors[starts[task] as usize..starts[task + 1] as usize] {
            waits[next.0 as usize] -= 1;
            if waits[next.0 as usize] == 0 {
                order.push(*next);
            }
        }
    }
    if order.len() == workflow.tasks.len() { Ok(order) } else { Err(cycle(workflow, writer_of, &waits)) }
}

/// The tasks that `task` waits for, each with the member that it writes for `task`.
fn dependencies<'a>(
    workflow: &'a Workflow,
    writer_of: &'a dyn Fn(DataId) -> Option<TaskId>,
    task: usize,
) -> impl Iterator<Item = (TaskId, Option<DataId>)> + 'a {
    let task = &workflow.tasks[task];
    let params = &workflow.tool_of(task).params;
    let inputs = task.files.iter().filter(|b| matches!(params[usize::from(b.param)].kind, ParamKind::Input { .. }));
    let data = inputs.flat_map(|binding| binding.data.iter());
    data.filter_map(|id| Some((writer_of(id)?, Some(id)))).chain(task.after.iter().map(|other| (*other, None)))
}

/// The tasks that wait for each task, as one array with start indices, and the number of waits of
/// each task.
fn successors(workflow: &Workflow, writer_of: &dyn Fn(DataId) -> Option<TaskId>) -> (Vec<u32>, Vec<TaskId>, Vec<u32>) {
    let count = workflow.tasks.len();
    let (mut starts, mut waits) = (vec![0u32; count + 1], vec![0u32; count]);
    for (task, wait) in waits.iter_mut().enumerate() {
        for (before, _) in dependencies(workflow, writer_of, task) {
            starts[before.0 as usize + 1] += 1;
            *wait += 1;
        }
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut successors = vec![TaskId(0); starts[count] as usize];
    let mut next = starts.clone();
    for (task, number) in (0..count).zip((0..).map(TaskId)) {
        for (before, _) in dependencies(workflow, writer_of, task) {
            let at = &mut next[before.0 as usize];
            successors[*at as usize] = number;
            *at += 1;
        }
    }
    (starts, successors, waits)
}

/// Finds a cycle among the tasks that still wait. Each of them waits for another of them, so a walk
/// backwards must return to a task that it visited.
fn cycle(workflow: &Workflow, writer_of: &dyn Fn(DataId) -> Option<TaskId>, waits: &[u32]) -> Cycle {
    let mut at = waits.iter().position(|waits| *waits > 0).expect("some task waits, or there was an order");
    let mut place_of = vec![usize::MAX; waits.len()];
    let mut path: Vec<(usize, Option<DataId>)> = Vec::new();
    while place_of[at] == usize::MAX {
        place_of[at] = path.len();
        let (before, data) = dependencies(workflow, writer_of, at)
            .find(|(before, _)| waits[before.0 as usize] > 0)
            .expect("a task that waits in vain waits for another such task");
        path.push((at, data));
        at = before.0 as usize;
    }
    // `path` runs against the data flow: each task, with the member that it reads from the next one
    // in `path`.
    let around = &path[place_of[at]..];
    let tasks = (0..around.len()).map(|k| (around.len() - k) % around.len());
    let number = |at: usize| TaskId(u32::try_from(at).unwrap_or(u32::MAX));
    let data = around.iter().rev().map(|(_, data)| *data).collect();
    Cycle { tasks: tasks.map(|k| number(around[k].0)).collect(), data }
}
