//! Staged mode: copies on a RAM disk around each task (paper 001, section 4.2.3, "RAM disk as
//! generic storage buffer").

use super::host_cleanup::remove_any;
use super::{CollectResult, MissingOutput, OutputFile, WorkspaceBase, WorkspaceError, copy, in_pool};
use crate::layout;
use flow::{DataId, TaskCommand, TaskId};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The RAM disk's directory, and the members that are copied there now.
#[derive(Debug)]
pub struct StagedStorage {
    /// Root directory of tasks. Its files are the host's, so this process may use them.
    pub root: PathBuf,
    /// Number of running tasks that read each member. One lock covers all: while a member is
    /// copied, a second task that reads it waits for the copy instead of making another.
    resident: tokio::sync::Mutex<HashMap<DataId, u32>>,
}

impl StagedStorage {
    /// Creates an empty stage in a directory on a RAM disk.
    pub fn new(root: PathBuf) -> Self {
        Self { root, resident: tokio::sync::Mutex::default() }
    }

    /// All or nothing: if this fails, the task holds no input and has no directory.
    pub async fn prepare_task(
        &self,
        base: &WorkspaceBase,
        task: TaskId,
        command: &TaskCommand,
    ) -> Result<(), WorkspaceError> {
        self.copy_inputs(base, task).await?;
        if let Err(error) = self.make_directory(base, task, command) {
            self.release(base, task).await?;
            return Err(error);
        }
        Ok(())
    }

    pub async fn collect(&self, base: &WorkspaceBase, task: TaskId) -> Result<CollectResult, WorkspaceError> {
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for data in base.outputs(task) {
            let place = layout::member(&base.flow, data);
            let path = self.root.join(&place);
            match not_a_file(&self.root, &place) {
                Some(found) => missing.push(MissingOutput { data, path: path.into(), found }),
                None if missing.is_empty() => {
                    copy::into_pool(base, path, &place).await?;
                    let found = base.find(&place).await?;
                    made.extend(found.map(|found| OutputFile::new(data, &found)));
                }
                None => {}
            }
        }
        if missing.is_empty() {
            self.release(base, task).await?;
            return Ok(CollectResult::All(made));
        }
        Ok(CollectResult::Missing(missing))
    }

    /// Removes the files of the attempt on the RAM disk, and outputs that it already copied into
    /// the pool.
    pub async fn discard(&self, base: &WorkspaceBase, task: TaskId) -> Result<(), WorkspaceError> {
        let left = self.release(base, task).await;
        left.and(in_pool::discard(base, task).await)
    }

    /// Releases the inputs and removes the task's directory.
    pub async fn release(&self, base: &WorkspaceBase, task: TaskId) -> Result<(), WorkspaceError> {
        // Release the inputs even if the directory cannot be removed.
        let removed = remove(&self.root.join(layout::task_dir(&base.flow, task)));
        let mut resident = self.resident.lock().await;
        let given_back =
            self.copied_inputs(base, task).into_iter().map(|data| self.release_input(base, &mut resident, data));
        given_back.fold(removed, Result::and)
    }

    /// Copies the inputs that are not on the RAM disk yet.
    async fn copy_inputs(&self, base: &WorkspaceBase, task: TaskId) -> Result<(), WorkspaceError> {
        let mut resident = self.resident.lock().await;
        let mut brought = Vec::new();
        for data in self.copied_inputs(base, task) {
            let place = layout::member(&base.flow, data);
            if !resident.contains_key(&data)
                && let Err(error) = copy::out_of_pool(base, &place, self.root.join(&place)).await
            {
                brought.into_iter().try_for_each(|data| self.release_input(base, &mut resident, data))?;
                return Err(error);
            }
            *resident.entry(data).or_default() += 1;
            brought.push(data);
        }
        Ok(())
    }

    /// Removes one reader of a member; the copy is removed with the last.
    fn release_input(
        &self,
        base: &WorkspaceBase,
        resident: &mut HashMap<DataId, u32>,
        data: DataId,
    ) -> Result<(), WorkspaceError> {
        let readers = resident.get_mut(&data).expect("a task gives back only what it was brought");
        *readers -= 1;
        if *readers > 0 {
            return Ok(());
        }
        resident.remove(&data);
        remove(&self.root.join(layout::member(&base.flow, data)))
    }

    /// Makes the task's directory with its lists and links.
    fn make_directory(&self, base: &WorkspaceBase, task: TaskId, command: &TaskCommand) -> Result<(), WorkspaceError> {
        let dir = self.root.join(layout::task_dir(&base.flow, task));
        fs::create_dir_all(&dir).map_err(WorkspaceError::host(dir))?;
        for (path, text) in &command.lists {
            fs::write(path, text).map_err(WorkspaceError::host(path))?;
        }
        for dir in &command.dirs {
            fs::create_dir_all(&dir.path).map_err(WorkspaceError::host(&dir.path))?;
            for (name, target) in &dir.links {
                symlink(target, Path::new(&dir.path).join(name)).map_err(WorkspaceError::host(&dir.path))?;
            }
        }
        Ok(())
    }

    /// Makes a link to an input, which stays on the host's disk.
    pub fn link_input(&self, host: &Path, place: &Path) -> Result<(), WorkspaceError> {
        let link = self.root.join(place);
        let directory = link.parent().map(Path::to_path_buf).unwrap_or_default();
        fs::create_dir_all(&directory).map_err(WorkspaceError::host(directory))?;
        symlink(host, &link).map_err(WorkspaceError::host(link))
    }

    /// The inputs of a task that lie in the pool, each once; bound ones are links that were made at
    /// the start.
    fn copied_inputs(&self, base: &WorkspaceBase, task: TaskId) -> Vec<DataId> {
        let mut inputs: Vec<DataId> = base.flow.inputs(task).collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs.retain(|id| !self.root.join(layout::member(&base.flow, *id)).is_symlink());
        inputs
    }
}

/// Describes the thing at the path of an output, if it is not a regular file in directories of its
/// task. A directory that the tool replaced by a link would lead to files of others.
fn not_a_file(root: &Path, place: &Path) -> Option<&'static str> {
    let directories = place.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty());
    if directories.into_iter().any(|directory| root.join(directory).is_symlink()) {
        return Some("its directory is a symbolic link, and the pool keeps files");
    }
    match fs::symlink_metadata(root.join(place)) {
        Err(_) => Some("nothing is there"),
        Ok(metadata) if metadata.is_file() => None,
        Ok(metadata) if metadata.is_dir() => Some("a directory is there"),
        Ok(metadata) if metadata.is_symlink() => Some("a symbolic link is there, and the pool keeps files"),
        Ok(_) => Some("what is there is not a regular file"),
    }
}

fn remove(path: &Path) -> Result<(), WorkspaceError> {
    match remove_any(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(WorkspaceError::host(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "staged_test.rs"]
mod tests;
