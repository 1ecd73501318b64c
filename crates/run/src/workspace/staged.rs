//! Staged mode: copies on a RAM disk around each task (paper 001, section 4.2.3, "RAM disk as
//! generic storage buffer").

use super::host_cleanup::remove_any;
use super::{CollectResult, MissingOutput, OutputFile, WorkspaceBase, WorkspaceError, copy};
use crate::order::{AttemptOrder, InputPlace};
use flow::{DataId, TaskCommand};
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
        order: &AttemptOrder,
        command: &TaskCommand,
    ) -> Result<(), WorkspaceError> {
        self.provide_inputs(base, order).await?;
        if let Err(error) = self.make_directory(order, command) {
            self.release(order).await?;
            return Err(error);
        }
        Ok(())
    }

    pub async fn collect(&self, base: &WorkspaceBase, order: &AttemptOrder) -> Result<CollectResult, WorkspaceError> {
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for output in &order.outputs {
            let place = order.directory.join(&output.place);
            let path = self.root.join(&place);
            match not_a_file(&self.root, &place) {
                Some(found) => missing.push(MissingOutput { name: output.name.clone(), path: path.into(), found }),
                None if missing.is_empty() => {
                    copy::into_pool(base, path, &place).await?;
                    let found = base.find(&place).await?;
                    made.extend(found.map(|found| OutputFile::new(output.data, &found)));
                }
                None => {}
            }
        }
        if missing.is_empty() {
            self.release(order).await?;
            return Ok(CollectResult::All(made));
        }
        Ok(CollectResult::Missing(missing))
    }

    /// Removes the files of the attempt on the RAM disk, and outputs that it already copied into
    /// the pool.
    pub async fn discard(&self, base: &WorkspaceBase, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        let left = self.release(order).await;
        left.and(base.discard(&order.directory).await)
    }

    /// Copies the directory of a failed attempt into the pool and removes it here.
    pub async fn leave(&self, base: &WorkspaceBase, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        let copied = copy::directory_into_pool(base, &self.root.join(&order.directory), &order.directory).await;
        copied.and(self.release(order).await)
    }

    /// Releases the inputs and removes the task's directory.
    async fn release(&self, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        // Release the inputs even if the directory cannot be removed.
        let removed = remove(&self.root.join(&order.directory));
        let mut resident = self.resident.lock().await;
        order.inputs.iter().map(|input| self.release_input(&mut resident, input)).fold(removed, Result::and)
    }

    /// Copies the inputs that are not on the RAM disk yet, and makes links to those of the host.
    async fn provide_inputs(&self, base: &WorkspaceBase, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        let mut resident = self.resident.lock().await;
        for (number, input) in order.inputs.iter().enumerate() {
            if !resident.contains_key(&input.data)
                && let Err(error) = self.provide_input(base, input).await
            {
                order.inputs[..number].iter().try_for_each(|input| self.release_input(&mut resident, input))?;
                return Err(error);
            }
            *resident.entry(input.data).or_default() += 1;
        }
        Ok(())
    }

    async fn provide_input(&self, base: &WorkspaceBase, input: &InputPlace) -> Result<(), WorkspaceError> {
        let target = self.root.join(&input.place);
        match &input.bound {
            None => copy::out_of_pool(base, input.copy.as_ref().unwrap_or(&input.place), target).await,
            Some(host) => {
                let directory = target.parent().map(Path::to_path_buf).unwrap_or_default();
                fs::create_dir_all(&directory).map_err(WorkspaceError::host(directory))?;
                // Two members may name one file of the data directory.
                match symlink(host, &target) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked.map_err(WorkspaceError::host(target)),
                }
            }
        }
    }

    /// Removes one reader of a member; the copy is removed with the last. Links to the host's files
    /// stay until the end.
    fn release_input(&self, resident: &mut HashMap<DataId, u32>, input: &InputPlace) -> Result<(), WorkspaceError> {
        let readers = resident.get_mut(&input.data).expect("a task gives back only what it was brought");
        *readers -= 1;
        if *readers > 0 {
            return Ok(());
        }
        resident.remove(&input.data);
        if input.bound.is_some() { Ok(()) } else { remove(&self.root.join(&input.place)) }
    }

    /// Makes the task's directory with its lists and links.
    fn make_directory(&self, order: &AttemptOrder, command: &TaskCommand) -> Result<(), WorkspaceError> {
        let dir = self.root.join(&order.directory);
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
