//! Copies the files of a failed task to the host's disk: its directory as it left it, and inputs
//! that tasks wrote.

use super::{StorageMode, Workspace, WorkspaceBase, WorkspaceError, copy};
use crate::layout;
use flow::{DataId, TaskId};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use wire::Kind;

impl Workspace {
    /// Copies the directory of a failed task to `target`, which does not exist yet. Links, sockets
    /// and other special files are left out.
    pub async fn save_directory(&self, task: TaskId, target: &Path) -> Result<(), WorkspaceError> {
        let place = PathBuf::from(layout::task_dir(&self.base.flow, task));
        match self.mode(task) {
            StorageMode::Direct(_) => save_from_pool(&self.base, place, target).await,
            StorageMode::Staged(staged) => {
                let (directory, target) = (staged.root.join(place), target.to_path_buf());
                copy::blocking(move || save_from_host(directory, target)).await
            }
        }
    }

    /// Puts an input at `target`: a copy of a file that a task wrote, or a link into the data
    /// directory.
    pub async fn save_input(&self, id: DataId, data_dir: &Path, target: &Path) -> Result<(), WorkspaceError> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).map_err(WorkspaceError::host(directory))?;
        match layout::host_path(&self.base.flow, id) {
            Some(path) => symlink(data_dir.join(path), target).map_err(WorkspaceError::host(target)),
            None => copy::out_of_pool(&self.base, &layout::member(&self.base.flow, id), target.to_path_buf()).await,
        }
    }
}

async fn save_from_pool(base: &WorkspaceBase, top: PathBuf, target: &Path) -> Result<(), WorkspaceError> {
    let mut directories = vec![(top, target.to_path_buf())];
    while let Some((place, target)) = directories.pop() {
        fs::create_dir_all(&target).map_err(WorkspaceError::host(&target))?;
        if base.find(&place).await?.is_none() {
            continue;
        }
        for name in base.names_in(&place).await? {
            let (place, target) = (place.join(&name), target.join(&name));
            match base.find(&place).await?.map(|attributes| attributes.kind) {
                Some(Kind::Directory) => directories.push((place, target)),
                Some(Kind::File) => copy::out_of_pool(base, &place, target).await?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn save_from_host(top: PathBuf, target: PathBuf) -> Result<(), WorkspaceError> {
    let mut directories = vec![(top, target)];
    while let Some((directory, target)) = directories.pop() {
        fs::create_dir_all(&target).map_err(WorkspaceError::host(&target))?;
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let (path, target) = (entry.path(), target.join(entry.file_name()));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push((path, target)),
                Ok(kind) if kind.is_file() => fs::copy(&path, target).map(drop).map_err(WorkspaceError::host(path))?,
                _ => {}
            }
        }
    }
    Ok(())
}
