//! Layout of members in the pool, as paths below its root.
//!
//! A task has one directory, `<tool>.<number>`: it is the task's working directory, and the task's
//! outputs stay there. Tools that write files beside each other, or look for them there, find them.
//! Inputs lie below `data` as they do in the data directory.

use crate::checked_workflow::CheckedWorkflow;
use flow::{DataId, TaskId};
use std::path::{Component, Path, PathBuf};

/// Directory of inputs.
pub const INPUTS: &str = "data";

/// Directory of a task.
pub fn task_dir(flow: &CheckedWorkflow, task: TaskId) -> String {
    format!("{}.{}", flow.tool_of(task).name, task.0)
}

/// Path of member `id` in the pool, whether or not it is written yet.
pub fn member(flow: &CheckedWorkflow, id: DataId) -> PathBuf {
    match flow.writer_of(id) {
        Some(task) => Path::new(&task_dir(flow, task)).join(flow.place_in_task(id)),
        None => input(host_path(flow, id).unwrap_or_default()),
    }
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
