//! What is kept of a failed task with `--keep-failed`, so that it can be looked at and repeated when the run is over.
//!
//! ```text
//! FOLDER/<tool>.<number>/  left/     the task's folder as the failed attempt left it
//!                          inputs/   its inputs: copies of what tasks wrote, links to files of the data folder
//!                          start/    what an attempt begins with: lists and folders of arrays
//!                          run.sh    makes `again` of `start`, and repeats the command there
//! ```
//! Of a task that fails again the last attempt is kept; of one that succeeds in the end, nothing.

use crate::checked::Checked;
use crate::layout;
use crate::workspace::Workspace;
use flow::{Command, DataId, TaskId};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// More failed tasks than this are not kept: those to come fail alike, and a disk is not without an end.
const TASKS_KEPT_MAX: usize = 100;

/// The name of the script that repeats a command.
pub const SCRIPT: &str = "run.sh";

/// The folder that failed tasks are kept in.
#[derive(Debug, Clone)]
pub struct KeepFailed {
    /// Each has a folder of its own below it.
    pub folder: PathBuf,
    /// Where relative paths of inputs begin.
    pub data_dir: PathBuf,
}

/// A failed attempt, as its script tells and repeats it.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// The task.
    pub task: TaskId,
    /// Why it failed.
    pub why: String,
    /// Its program.
    pub program: PathBuf,
    /// Variables that the run set, before the tool's own.
    pub variables: Vec<(String, String)>,
}

impl KeepFailed {
    /// The folder of one task.
    fn folder_of(&self, flow: &Checked, task: TaskId) -> PathBuf {
        self.folder.join(layout::task_dir(flow, task))
    }

    /// Keeps an attempt that failed; its folder. None if many are kept already.
    pub async fn keep(
        &self,
        flow: &Checked,
        workspace: &Workspace,
        repeat: &Repeat,
    ) -> Result<Option<PathBuf>, String> {
        let task = repeat.task;
        self.forget(flow, task);
        if fs::read_dir(&self.folder).is_ok_and(|kept| kept.count() >= TASKS_KEPT_MAX) {
            return Ok(None);
        }
        let folder = self.folder_of(flow, task);
        let told = |error: io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(told)?;
        // Inputs and what tools write may be for this user alone, as the run's own folder is.
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(told)?;
        workspace.save_folder(task, &folder.join("left")).await.map_err(|trouble| trouble.to_string())?;
        let mut inputs: Vec<DataId> = flow.inputs(task).collect();
        inputs.sort_unstable();
        inputs.dedup();
        for id in inputs {
            let target = folder.join("inputs").join(layout::member(flow, id));
            workspace.save_input(id, &self.data_dir, &target).await.map_err(|trouble| trouble.to_string())?;
        }
        write_start(flow, task, &folder).map_err(told)?;
        let script = folder.join(SCRIPT);
        fs::write(&script, text(&command(flow, task, &folder, "again"), repeat, &folder)).map_err(told)?;
        fs::set_permissions(&script, Permissions::from_mode(0o700)).map_err(told)?;
        Ok(Some(folder))
    }

    /// Removes what was kept of an earlier attempt.
    pub fn forget(&self, flow: &Checked, task: TaskId) {
        let folder = self.folder_of(flow, task);
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", folder.display());
        }
    }
}

/// The command of a task whose folder is `name` in the kept folder.
fn command(flow: &Checked, task: TaskId, folder: &Path, name: &str) -> Command {
    let own = folder.join(name);
    let path_of = |id: DataId| {
        let path = match flow.writer_of(id) {
            Some(writer) if writer == task => own.join(flow.place_in_task(id)),
            _ => folder.join("inputs").join(layout::member(flow, id)),
        };
        path.display().to_string()
    };
    flow.command(task, &own.display().to_string(), &path_of)
}

/// Lists and folders of arrays, with the paths that they have in `again`.
fn write_start(flow: &Checked, task: TaskId, folder: &Path) -> io::Result<()> {
    let (start, again) = (folder.join("start"), folder.join("again"));
    let here = |path: &str| Path::new(path).strip_prefix(&again).map_or_else(|_| path.into(), |path| start.join(path));
    fs::create_dir_all(&start)?;
    let command = command(flow, task, folder, "again");
    for (path, text) in &command.lists {
        fs::write(here(path), text)?;
    }
    for dir in &command.dirs {
        fs::create_dir_all(here(&dir.path))?;
        dir.links.iter().try_for_each(|(name, target)| symlink(target, here(&dir.path).join(name)))?;
    }
    Ok(())
}

/// The script that repeats the command.
fn text(command: &Command, repeat: &Repeat, folder: &Path) -> String {
    let tool = folder.file_name().unwrap_or_default().to_string_lossy();
    let why: String = repeat.why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let of_tool = command.env.iter().cloned();
    let variables: Vec<String> = repeat
        .variables
        .iter()
        .cloned()
        .chain(of_tool)
        .map(|(name, value)| quoted(&format!("{name}={value}")))
        .collect();
    let words: Vec<String> = std::iter::once(repeat.program.display().to_string())
        .chain(command.args.iter().cloned())
        .map(|word| quoted(&word))
        .collect();
    let path = if command.path.is_empty() {
        String::new()
    } else {
        format!("PATH={}:$PATH\nexport PATH\n", quoted(&command.path.join(":")))
    };
    let input = quoted(command.stdin.as_deref().unwrap_or("/dev/null"));
    let output = command.stdout.as_ref().map_or(String::new(), |path| format!(" > {}", quoted(path)));
    format!(
        "#!/bin/sh\n# Repeats {tool} outside its run, in the folder `again` beside this script. It failed: {why}\n\
         # `left` is what it left in its folder, `inputs` is what it reads.\n\
         cd {folder} && rm -rf again && cp -R start again && cd again || exit\n\
         {path}exec env {variables} {words} < {input}{output}\n",
        folder = quoted(&folder.display().to_string()),
        variables = variables.join(" "),
        words = words.join(" "),
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
