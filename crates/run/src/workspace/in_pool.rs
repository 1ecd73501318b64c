//! Direct mode: tasks work in the pool itself, through a mount or by the preload library.
//!
//! This process never uses the mount. It creates and removes files for tasks in the pool by its own
//! session, and the kernel's caches are invalidated.

use super::background_remove::BackgroundRemover;
use super::preloaded::PreloadSetup;
use super::{CollectResult, MissingOutput, OutputFile, WorkspaceBase, WorkspaceError};
use crate::order::AttemptOrder;
use exec::ToolPath;
use flow::TaskCommand;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wire::Kind;

/// Tasks' access to the pool in direct mode.
#[derive(Debug)]
pub struct PoolStorage {
    /// Path of the pool's root.
    pub root: ToolPath,
    /// Setup of the preload library, if there is no mount.
    pub preloaded: Option<PreloadSetup>,
}

impl PoolStorage {
    pub async fn collect(
        &self,
        base: &WorkspaceBase,
        remover: &BackgroundRemover,
        order: &AttemptOrder,
        keep: bool,
    ) -> Result<CollectResult, WorkspaceError> {
        let collected = self.look_up(base, order).await?;
        if let (CollectResult::All(_), false) = (&collected, keep) {
            remove_leftovers(base, remover, order).await?;
        }
        Ok(collected)
    }

    /// Looks up the task's outputs: their sizes, or what is wrong with them.
    async fn look_up(&self, base: &WorkspaceBase, order: &AttemptOrder) -> Result<CollectResult, WorkspaceError> {
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for output in &order.outputs {
            let place = order.directory.join(&output.place);
            let found = match base.find(&place).await? {
                None => "nothing is there",
                Some(attributes) => match attributes.kind {
                    Kind::File => {
                        made.push(OutputFile::new(output.data, &attributes));
                        continue;
                    }
                    Kind::Directory => "a directory is there",
                    Kind::Symlink => "a symbolic link is there, and the pool keeps files",
                    _ => "what is there is not a regular file",
                },
            };
            missing.push(MissingOutput { name: output.name.clone(), path: self.root.join(place), found });
        }
        Ok(if missing.is_empty() { CollectResult::All(made) } else { CollectResult::Missing(missing) })
    }

    pub async fn prepare_task(
        &self,
        base: &WorkspaceBase,
        order: &AttemptOrder,
        command: &TaskCommand,
    ) -> Result<(), WorkspaceError> {
        base.make_dir(&order.directory).await?;
        for (path, text) in &command.lists {
            base.write(self.pool_path(path), text.as_bytes()).await?;
        }
        for dir in &command.dirs {
            let place = self.pool_path(&dir.path);
            base.make_dir(place).await?;
            for (name, target) in &dir.links {
                base.link(&place.join(name), Path::new(target)).await?;
            }
        }
        Ok(())
    }

    /// The place in the pool of a path in the command.
    fn pool_path<'a>(&self, path: &'a str) -> &'a Path {
        self.root.below(OsStr::new(path)).unwrap_or(Path::new(path))
    }
}

/// Removes everything in the task's directory beside its outputs.
async fn remove_leftovers(
    base: &WorkspaceBase,
    remover: &BackgroundRemover,
    order: &AttemptOrder,
) -> Result<(), WorkspaceError> {
    let kept: HashSet<OsString> = order.outputs.iter().filter_map(|output| first_part(&output.place)).collect();
    for name in base.names_in(&order.directory).await? {
        if !kept.contains(&name) {
            remover.remove(order.directory.join(name));
        }
    }
    Ok(())
}

fn first_part(path: &Path) -> Option<OsString> {
    path.components().next().map(|part| part.as_os_str().to_owned())
}

impl WorkspaceBase {
    /// Removes the directory of an attempt from the pool, if it is there.
    pub(crate) async fn discard(&self, directory: &Path) -> Result<(), WorkspaceError> {
        match self.find(directory).await? {
            Some(_) => self.remove(directory).await,
            None => Ok(()),
        }
    }
}
