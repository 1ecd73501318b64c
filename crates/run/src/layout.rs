//! Layout of members in the pool, as paths below its root.
//!
//! An attempt of a task has a directory: `<tool>.<number>` for the first one, `<tool>.<number>-<n>`
//! for attempt n. It is the task's working directory, and the task's outputs stay there. Tools that
//! write files beside each other, or look for them there, find them. Readers look in the directory
//! of the attempt that succeeded, so an attempt that goes on although it was given up changes
//! nothing. Inputs lie below `data` as they do in the data directory.

use crate::checked_workflow::CheckedWorkflow;
use flow::{DataId, TaskId};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Directory of inputs.
pub const INPUTS: &str = "data";

/// Layout of a run: which attempt of each task wrote its outputs.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The attempts that succeeded and are not the first one.
    later: HashMap<TaskId, u32>,
}

impl Layout {
    /// Records the attempt that wrote the outputs of a task.
    pub fn set_writer(&mut self, task: TaskId, attempt: u32) {
        if attempt > 1 {
            self.later.insert(task, attempt);
        } else {
            self.later.remove(&task);
        }
    }

    /// The attempt that wrote the outputs of a task; the first one while none did.
    fn attempt_of(&self, task: TaskId) -> u32 {
        self.later.get(&task).copied().unwrap_or(1)
    }

    /// Path of member `id` in the pool, whether or not it is written yet.
    pub fn member(&self, flow: &CheckedWorkflow, id: DataId) -> PathBuf {
        match flow.writer_of(id) {
            Some(task) => Path::new(&attempt_dir(flow, task, self.attempt_of(task))).join(flow.place_in_task(id)),
            None => input(host_path(flow, id).unwrap_or_default()),
        }
    }
}

/// Directory of the first attempt of a task.
pub fn task_dir(flow: &CheckedWorkflow, task: TaskId) -> String {
    format!("{}.{}", flow.tool_of(task).name, task.0)
}

/// Directory of an attempt of a task.
pub fn attempt_dir(flow: &CheckedWorkflow, task: TaskId, attempt: u32) -> String {
    let first = task_dir(flow, task);
    if attempt > 1 { format!("{first}-{attempt}") } else { first }
}

/// Path of member `id` in the pool if the first attempt of its writer succeeds.
pub fn member(flow: &CheckedWorkflow, id: DataId) -> PathBuf {
    Layout::default().member(flow, id)
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
