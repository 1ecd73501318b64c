//! The direct form: tasks work in the pool itself, through a mount or by the preload library.
//!
//! Tasks come through the mount; we ourselves never do. What is made and removed for them is made and removed in the pool, by a
//! session of our own, and the kernel is told.

use super::janitor::Janitor;
use super::preloaded::Preloaded;
use super::{Base, Collected, Made, Missing, Trouble};
use crate::layout;
use exec::ToolPath;
use flow::{Command, DataId, TaskId};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use wire::Kind;

/// Where tasks see the pool.
#[derive(Debug)]
pub struct Direct {
    /// What its root is called.
    pub root: ToolPath,
    /// How, if there is no mount there.
    pub preloaded: Option<Preloaded>,
}

impl Direct {
    pub async fn collect(
        &self,
        base: &Base,
        janitor: &Janitor,
        task: TaskId,
        keep: bool,
    ) -> Result<Collected, Trouble> {
        let collected = self.look_up(base, task).await?;
        if let (Collected::All(_), false) = (&collected, keep) {
            sweep(base, janitor, task).await?;
        }
        Ok(collected)
    }

    /// Sizes of the task's outputs, or what is wrong with them.
    async fn look_up(&self, base: &Base, task: TaskId) -> Result<Collected, Trouble> {
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for data in base.outputs(task) {
            let place = layout::member(&base.flow, data);
            let found = match base.find(&place).await? {
                None => "nothing is there",
                Some(attributes) => match attributes.kind {
                    Kind::File => {
                        made.push(Made::of(data, &attributes));
                        continue;
                    }
                    Kind::Directory => "a directory is there",
                    Kind::Symlink => "a symbolic link is there, and the pool keeps files",
                    _ => "something is there that is no regular file",
                },
            };
            missing.push(Missing { data, path: self.root.join(place), found });
        }
        Ok(if missing.is_empty() { Collected::All(made) } else { Collected::Missing(missing) })
    }

    pub async fn enter(&self, base: &Base, task: TaskId, command: &Command) -> Result<(), Trouble> {
        base.make_dir(Path::new(&layout::task_dir(&base.flow, task))).await?;
        for (path, text) in &command.lists {
            base.write(self.place_of(path), text.as_bytes()).await?;
        }
        for dir in &command.dirs {
            let place = self.place_of(&dir.path);
            base.make_dir(place).await?;
            for (name, target) in &dir.links {
                base.link(&place.join(name), Path::new(target)).await?;
            }
        }
        Ok(())
    }

    /// The place in the pool of a path that the command has.
    fn place_of<'a>(&self, path: &'a str) -> &'a Path {
        self.root.below(OsStr::new(path)).unwrap_or(Path::new(path))
    }
}

/// Removes what the task left beside its outputs.
async fn sweep(base: &Base, janitor: &Janitor, task: TaskId) -> Result<(), Trouble> {
    let dir = PathBuf::from(layout::task_dir(&base.flow, task));
    let places = base.outputs(task).map(|id| base.flow.place_in_task(id));
    let kept: HashSet<OsString> = places.filter_map(|place| first_part(Path::new(&place))).collect();
    for name in base.names_in(&dir).await? {
        if !kept.contains(&name) {
            janitor.remove(dir.join(name));
        }
    }
    Ok(())
}

fn first_part(path: &Path) -> Option<OsString> {
    path.components().next().map(|part| part.as_os_str().to_owned())
}

pub async fn discard(base: &Base, task: TaskId) -> Result<(), Trouble> {
    let dir = layout::task_dir(&base.flow, task);
    match base.find(Path::new(&dir)).await? {
        Some(_) => base.remove(Path::new(&dir)).await,
        None => Ok(()),
    }
}

impl Base {
    /// The members that a task writes.
    pub(crate) fn outputs(&self, task: TaskId) -> impl Iterator<Item = DataId> + '_ {
        self.flow.outputs(task)
    }
}
