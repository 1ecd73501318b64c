//! Layout of members in the pool, as paths below its root.
//!
//! An attempt of a task has a directory: `<tool>.<number>` for the first one, `<tool>.<number>-<n>`
//! for attempt n. It is the task's working directory, and the task's outputs stay there. Tools that
//! write files beside each other, or look for them there, find them. Readers look in the directory
//! of the attempt that succeeded, so an attempt that goes on although it was given up changes
//! nothing. In a pool of several nodes these directories lie in `n<node>`, one for each node, whose
//! content lies at that node. Inputs lie below `data` as they do in the data directory.

use crate::checked_workflow::CheckedWorkflow;
use flow::{DataId, TaskId};
use placement::NodeId;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// Directory of copies of inputs at a node, in that of the node.
pub const COPIES: &str = "cache";
/// Directory of inputs.
pub const INPUTS: &str = "data";

/// Layout of a run: which attempt of each task wrote its outputs, and at which node.
#[derive(Debug, Clone, Default)]
pub struct RunLayout {
    /// The attempts that succeeded, if they were not the first one or lie at a certain node.
    writers: HashMap<TaskId, AttemptPlace>,
    /// Members for which files of the host stand in, wherever their writers' directories are.
    bound: HashSet<DataId>,
}

/// An attempt of a task, and the node at which its directory is made; `None` on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptPlace {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The node.
    pub node: Option<NodeId>,
}

impl AttemptPlace {
    const FIRST: Self = Self { attempt: 1, node: None };
}

impl RunLayout {
    /// Records the attempt that wrote the outputs of a task.
    pub fn set_writer(&mut self, task: TaskId, place: AttemptPlace) {
        if place == AttemptPlace::FIRST {
            self.writers.remove(&task);
        } else {
            self.writers.insert(task, place);
        }
    }

    /// The attempt that wrote the outputs of a task; the first one while none did.
    pub fn writer(&self, task: TaskId) -> AttemptPlace {
        self.writers.get(&task).copied().unwrap_or(AttemptPlace::FIRST)
    }

    /// Records that a file of the host stands in for a member.
    pub fn set_bound(&mut self, id: DataId) {
        self.bound.insert(id);
    }

    /// Path of member `id` in the pool, whether or not it is written yet.
    pub fn member(&self, flow: &CheckedWorkflow, id: DataId) -> PathBuf {
        match flow.writer_of(id) {
            Some(task) if self.bound.contains(&id) => {
                attempt_dir(flow, task, AttemptPlace::FIRST).join(flow.place_in_task(id))
            }
            Some(task) => attempt_dir(flow, task, self.writer(task)).join(flow.place_in_task(id)),
            None => input(host_path(flow, id).unwrap_or_default()),
        }
    }
}

/// Directory whose content lies at a node.
pub fn node_dir(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// Directory of the first attempt of a task.
pub fn task_dir(flow: &CheckedWorkflow, task: TaskId) -> String {
    format!("{}.{}", flow.tool_of(task).name, task.0)
}

/// Directory of an attempt of a task.
pub fn attempt_dir(flow: &CheckedWorkflow, task: TaskId, place: AttemptPlace) -> PathBuf {
    let first = task_dir(flow, task);
    let name = if place.attempt > 1 { format!("{first}-{}", place.attempt) } else { first };
    place.node.map_or_else(PathBuf::new, |node| node_dir(node).into()).join(name)
}

/// Path of member `id` in the pool if the first attempt of its writer succeeds.
pub fn member(flow: &CheckedWorkflow, id: DataId) -> PathBuf {
    RunLayout::default().member(flow, id)
}

/// Path of an input as the workflow has it: relative to the data directory, or absolute. `None` for
/// members that tasks write.
pub fn host_path(flow: &CheckedWorkflow, id: DataId) -> Option<&str> {
    flow.workflow().input_path(id)
}

/// Path of an input below `data`; it never leads out of that directory.
fn input(path: &str) -> PathBuf {
    let parts = Path::new(path).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("up".into()),
        _ => None,
    });
    std::iter::once(INPUTS.into()).chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_never_leaves_its_directory() {
        for (path, place) in [("Train.csv", "data/Train.csv"), ("../x/y", "data/up/x/y"), ("/abs/z", "data/abs/z")] {
            assert_eq!(input(path), PathBuf::from(place));
        }
    }
}
