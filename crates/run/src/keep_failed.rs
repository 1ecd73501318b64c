//! `--keep-failed`: keeps the files of failed tasks, so that a task can be inspected and repeated
//! after the run.
//!
//! ```text
//! DIRECTORY/<tool>.<number>/
//!     left/     the task's directory as the failed attempt left it
//!     inputs/   its inputs: copies of files that tasks wrote, links into the data directory
//!     start/    the directory's content before an attempt: lists and directories of arrays
//!     run.sh    copies `start` to `again`, and repeats the command there
//! ```
//! The last attempt of a failed task is kept. Nothing is kept of a task that succeeds in the end.

use crate::checked_workflow::CheckedWorkflow;
use crate::layout::{self, RunLayout};
use crate::run_files::PoolAccess;
use flow::{DataId, TaskCommand, TaskId};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Upper bound of the failed tasks that are kept: later ones tend to fail alike, and disk space is
/// limited.
const TASKS_KEPT_MAX: usize = 100;

/// Name of the script that repeats a command.
pub const SCRIPT: &str = "run.sh";

/// The directory that failed tasks are kept in.
#[derive(Debug, Clone)]
pub struct KeepFailed {
    /// Parent of the directories of the failed tasks.
    pub directory: PathBuf,
    /// Directory that relative input paths start from.
    pub data_dir: PathBuf,
}

/// A failed attempt, as its script describes and repeats it.
#[derive(Debug, Clone)]
pub struct RerunScript {
    /// Id of the task.
    pub task: TaskId,
    /// Directory of the attempt below the pool's root.
    pub left: PathBuf,
    /// Reason of the failure.
    pub why: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Variables that the run set; the tool's own variables follow them.
    pub variables: Vec<(String, String)>,
}

impl KeepFailed {
    /// The directory of one task.
    fn directory_of(&self, flow: &CheckedWorkflow, task: TaskId) -> PathBuf {
        self.directory.join(layout::task_dir(flow, task))
    }

    /// Keeps a failed attempt and returns its directory; `None` if the maximum is kept already.
    pub async fn keep(
        &self,
        flow: &CheckedWorkflow,
        (access, layout): (&PoolAccess, &RunLayout),
        repeat: &RerunScript,
    ) -> Result<Option<PathBuf>, String> {
        let task = repeat.task;
        self.forget(flow, task);
        if fs::read_dir(&self.directory).is_ok_and(|kept| kept.count() >= TASKS_KEPT_MAX) {
            return Ok(None);
        }
        let directory = self.directory_of(flow, task);
        let describe = |error: io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(describe)?;
        // Inputs and outputs may be private: permit this user only, as for the run's own directory.
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).map_err(describe)?;
        access.save_directory(&repeat.left, &directory.join("left")).await.map_err(|error| error.to_string())?;
        let mut inputs: Vec<DataId> = flow.inputs(task).collect();
        inputs.sort_unstable();
        inputs.dedup();
        for id in inputs {
            let target = directory.join("inputs").join(layout::member(flow, id));
            let bound = layout::host_path(flow, id).map(|path| self.data_dir.join(path));
            let place = layout.member(flow, id);
            let saved = access.save_input(&place, bound.as_deref(), &target).await;
            saved.map_err(|error| error.to_string())?;
        }
        write_start(flow, task, &directory).map_err(describe)?;
        let script = directory.join(SCRIPT);
        fs::write(&script, text(&command(flow, task, &directory, "again"), repeat, &directory)).map_err(describe)?;
        fs::set_permissions(&script, Permissions::from_mode(0o700)).map_err(describe)?;
        Ok(Some(directory))
    }

    /// Removes the files of an earlier attempt.
    pub fn forget(&self, flow: &CheckedWorkflow, task: TaskId) {
        let directory = self.directory_of(flow, task);
        if let Err(error) = fs::remove_dir_all(&directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", directory.display());
        }
    }
}

/// The command of a task whose working directory is `name` in the kept directory.
fn command(flow: &CheckedWorkflow, task: TaskId, directory: &Path, name: &str) -> TaskCommand {
    let own = directory.join(name);
    let path_of = |id: DataId| {
        let path = match flow.writer_of(id) {
            Some(writer) if writer == task => own.join(flow.place_in_task(id)),
            _ => directory.join("inputs").join(layout::member(flow, id)),
        };
        path.display().to_string()
    };
    flow.command(task, &own.display().to_string(), &path_of)
}

/// Writes lists and directories of arrays to `start`, with paths as they will be in `again`.
fn write_start(flow: &CheckedWorkflow, task: TaskId, directory: &Path) -> io::Result<()> {
    let (start, again) = (directory.join("start"), directory.join("again"));
    let relocate =
        |path: &str| Path::new(path).strip_prefix(&again).map_or_else(|_| path.into(), |path| start.join(path));
    fs::create_dir_all(&start)?;
    let command = command(flow, task, directory, "again");
    for (path, text) in &command.lists {
        fs::write(relocate(path), text)?;
    }
    for dir in &command.dirs {
        fs::create_dir_all(relocate(&dir.path))?;
        dir.links.iter().try_for_each(|(name, target)| symlink(target, relocate(&dir.path).join(name)))?;
    }
    Ok(())
}

/// Text of the script that repeats the command.
fn text(command: &TaskCommand, repeat: &RerunScript, directory: &Path) -> String {
    let tool = directory.file_name().unwrap_or_default().to_string_lossy();
    let why: String = repeat.why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let of_tool = command.env.iter().cloned();
    let variables: Vec<String> = repeat
        .variables
        .iter()
        .cloned()
        .chain(of_tool)
        .map(|(name, value)| quote(&format!("{name}={value}")))
        .collect();
    let words: Vec<String> = std::iter::once(repeat.program.display().to_string())
        .chain(command.args.iter().cloned())
        .map(|word| quote(&word))
        .collect();
    let path = if command.path.is_empty() {
        String::new()
    } else {
        format!("PATH={}:$PATH\nexport PATH\n", quote(&command.path.join(":")))
    };
    let input = quote(command.stdin.as_deref().unwrap_or("/dev/null"));
    let written = |mark: &str, path: &Option<String>| {
        path.as_ref().map_or(String::new(), |path| format!(" {mark} {}", quote(path)))
    };
    let output = written(">", &command.stdout) + &written("2>", &command.stderr);
    format!(
        "#!/bin/sh\n# Repeats {tool} outside its run, in the directory `again` beside this script. It failed: {why}\n\
         # `left` has the files that it left in its directory, `inputs` has its inputs.\n\
         cd {directory} && rm -rf again && cp -R start again && cd again || exit\n\
         {path}exec env {variables} {words} < {input}{output}\n",
        directory = quote(&directory.display().to_string()),
        variables = variables.join(" "),
        words = words.join(" "),
    )
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
