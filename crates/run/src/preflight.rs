//! What must be true before anything starts: programs are installed, inputs are there, outputs have a place to go.

use crate::checked::Checked;
use crate::layout;
use base::Problem;
use flow::{DataId, TaskId, ToolId};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// More problems of one kind are counted, not listed.
const LISTED_MAX: usize = 10;

/// The programs of the tools that the workflow calls.
pub fn programs(flow: &Checked) -> Result<HashMap<ToolId, PathBuf>, Vec<Problem>> {
    let workflow = flow.workflow();
    // The first task of each tool stands for all: the program may not depend on parameters.
    let mut called: HashMap<ToolId, TaskId> = HashMap::new();
    for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
        called.entry(task.tool).or_insert(id);
    }
    let path = std::env::var_os("PATH");
    let (mut found, mut problems) = (HashMap::new(), Vec::new());
    for (id, tool) in (0..).map(ToolId).zip(&workflow.tools) {
        let Some(first) = called.get(&id) else { continue };
        let program = flow.command(*first, Path::new(""), &|_| String::new()).program;
        let here = Path::new(&tool.here);
        let dirs = exec::search_dirs(&tool.path, here, path.as_deref());
        match exec::which(OsStr::new(&program), &dirs, here) {
            Ok(program) => drop(found.insert(id, program)),
            Err(why) => problems.push(
                Problem::new(format!("tool {}: {why}", tool.name))
                    .hint("install it, or name its folder in the tool's `path`"),
            ),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Inputs that are not readable files.
pub fn inputs(flow: &Checked, data_dir: &Path) -> Vec<Problem> {
    let workflow = flow.workflow();
    let mut problems = Vec::new();
    for id in (0..workflow.data_count()).map(DataId) {
        let Some(path) = layout::host_path(flow, id) else { continue };
        let path = data_dir.join(path);
        let why = match std::fs::File::open(&path).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => continue,
            Ok(_) => "not a regular file".to_owned(),
            Err(error) => error.to_string(),
        };
        if problems.len() == LISTED_MAX {
            problems.push(Problem::new("and more inputs that cannot be read"));
            break;
        }
        problems.push(Problem::new(format!("input {}: {}: {why}", workflow.data_name(id), path.display())));
    }
    problems
}

/// Whether outputs can go to `out_dir`: it is a directory, or can become one.
pub fn out_dir(out_dir: &Path) -> Option<Problem> {
    let existing = out_dir.ancestors().find(|folder| folder.exists())?;
    if !existing.is_dir() {
        return Some(Problem::new(format!("--out {}: {} is not a directory", out_dir.display(), existing.display())));
    }
    let writable = rustix::fs::access(existing, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    writable.err().map(|error| {
        Problem::new(format!("--out {}: {} cannot be written to: {error}", out_dir.display(), existing.display()))
    })
}
