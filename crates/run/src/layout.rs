//! Where members lie in the pool, as paths below its root.
//!
//! A task has one folder, `<tool>.<number>`, where it runs and where its outputs stay: tools that write files beside each
//! other, or look for them there, find them. Inputs lie below `data` as they do in the data folder.

use crate::checked::Checked;
use flow::{DataId, TaskId};
use std::path::{Component, Path, PathBuf};

/// The folder of inputs.
pub const INPUTS: &str = "data";

/// The folder of a task.
pub fn task_dir(flow: &Checked, task: TaskId) -> String {
    format!("{}.{}", flow.tool_of(task).name, task.0)
}

/// Where member `id` lies, or will lie.
pub fn member(flow: &Checked, id: DataId) -> PathBuf {
    match flow.writer_of(id) {
        Some(task) => Path::new(&task_dir(flow, task)).join(flow.place_in_task(id)),
        None => input(host_path(flow, id).unwrap_or_default()),
    }
}

/// The path of an input as the workflow has it: relative to the data folder, or absolute. None for what tasks write.
pub fn host_path(flow: &Checked, id: DataId) -> Option<&str> {
    flow.workflow().input_path(id)
}

/// Below `data`, without anything that would lead out of it.
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
    fn an_input_never_leaves_its_folder() {
        for (path, place) in [("Train.csv", "data/Train.csv"), ("../x/y", "data/up/x/y"), ("/abs/z", "data/abs/z")] {
            assert_eq!(input(path), PathBuf::from(place));
        }
    }
}
