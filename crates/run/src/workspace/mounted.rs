//! The mounted form: tasks work in the pool itself.

use super::janitor::{Janitor, remove_any};
use super::{Base, Collected, Made, Missing, Trouble};
use crate::layout;
use flow::{Command, DataId, TaskId};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use wire::Kind;

/// What the mounted form keeps.
#[derive(Debug)]
pub struct Mounted {
    janitor: Janitor,
}

impl Mounted {
    pub fn new() -> Self {
        Self { janitor: Janitor::new() }
    }

    pub fn remove(&self, path: PathBuf) {
        self.janitor.remove(path);
    }

    pub fn close(&mut self) {
        self.janitor.close();
    }

    pub async fn collect(&self, base: &Base, task: TaskId, keep: bool) -> Result<Collected, Trouble> {
        let collected = look_up(base, task).await?;
        if let (Collected::All(_), false) = (&collected, keep) {
            self.sweep(base, task).await?;
        }
        Ok(collected)
    }

    /// Removes what the task left beside its outputs.
    async fn sweep(&self, base: &Base, task: TaskId) -> Result<(), Trouble> {
        let dir = PathBuf::from(layout::task_dir(&base.flow, task));
        let places = base.outputs(task).map(|id| base.flow.place_in_task(id));
        let kept: HashSet<OsString> = places.filter_map(|place| first_part(Path::new(&place))).collect();
        for name in base.names_in(&dir).await? {
            if !kept.contains(&name) {
                self.janitor.remove(base.root.join(&dir).join(name));
            }
        }
        Ok(())
    }
}

fn first_part(path: &Path) -> Option<OsString> {
    path.components().next().map(|part| part.as_os_str().to_owned())
}

/// Sizes of the task's outputs, or what is wrong with them.
async fn look_up(base: &Base, task: TaskId) -> Result<Collected, Trouble> {
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for data in base.outputs(task) {
        let place = layout::member(&base.flow, data);
        let found = match base.find(&place).await? {
            None => "nothing is there",
            Some(attributes) => match attributes.kind {
                Kind::File => {
                    made.push(Made { data, bytes: attributes.size });
                    continue;
                }
                Kind::Directory => "a directory is there",
                Kind::Symlink => "a symbolic link is there, and the pool keeps files",
                _ => "something is there that is no regular file",
            },
        };
        missing.push(Missing { data, path: base.root.join(place), found });
    }
    Ok(if missing.is_empty() { Collected::All(made) } else { Collected::Missing(missing) })
}

pub async fn enter(base: &Base, task: TaskId, command: &Command) -> Result<(), Trouble> {
    base.make_dir(Path::new(&layout::task_dir(&base.flow, task))).await?;
    for (path, text) in &command.lists {
        base.write(base.below_root(Path::new(path)), text.as_bytes()).await?;
    }
    for dir in &command.dirs {
        let place = base.below_root(Path::new(&dir.path));
        base.make_dir(place).await?;
        for (name, target) in &dir.links {
            base.link(&place.join(name), Path::new(target)).await?;
        }
    }
    Ok(())
}

pub async fn discard(base: &Base, task: TaskId) -> Result<(), Trouble> {
    let dir = base.root.join(layout::task_dir(&base.flow, task));
    let removed = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || remove_any(&dir)
    });
    match removed.await.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::Host { path: dir, error }),
        _ => Ok(()),
    }
}

impl Base {
    /// The members that a task writes.
    pub(crate) fn outputs(&self, task: TaskId) -> impl Iterator<Item = DataId> + '_ {
        self.flow.outputs(task)
    }
}
