//! Where tasks run: the pool as they see it.
//!
//! A workspace has a root folder, and below it every member lies where `layout` says, in both forms:
//!
//! ```text
//!              mounted                                staged
//! root         the mount of the pool                  a folder on a RAM disk
//! enter        folder made in the pool                folder made; inputs copied from the pool, once for all who read
//! collect      outputs looked up, leftovers removed   outputs copied into the pool, the folder removed
//! drop         removed in the pool, soon              removed in the pool
//! ```
//!
//! The pool is the truth in both: exports and checks read it. In the mounted form nothing here touches the mount: this process
//! serves it, and would wait for itself ([`exec::ToolPath`] keeps that so).

mod copies;
mod host;
mod janitor;
mod mounted;
mod staged;
mod transfer;
mod trouble;

pub use transfer::PoolFile;
pub use trouble::Trouble;

use crate::checked::Checked;
use crate::layout;
use exec::ToolPath;
use flow::{Command, DataId, TaskId};
use mounted::Mounted;
use staged::Staged;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// The pool as the tasks of one run see it.
#[derive(Debug)]
pub struct Workspace {
    base: Base,
    form: Form,
}

/// A writer that was refused leaves less than it wanted, which is rarely more.
const LEFT_BYTES_MAX: u64 = 1 << 20;

/// What both forms have.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pool: Vfs,
    flow: Arc<Checked>,
    owner: wire::Owner,
    /// Fires when the run is ended: copies that wait for space give up.
    cancel: CancellationToken,
}

#[derive(Debug)]
enum Form {
    Mounted(Mounted),
    Staged(Staged),
}

/// A member that a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The member.
    pub data: DataId,
    /// Its size.
    pub bytes: u64,
}

/// What `collect` found.
#[derive(Debug)]
pub enum Collected {
    /// Every output is there.
    All(Vec<Made>),
    /// These are not, or are no regular files; with where they were expected and what was there instead.
    Missing(Vec<Missing>),
}

/// An output that a task did not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The member.
    pub data: DataId,
    /// Where it was expected.
    pub path: ToolPath,
    /// What was found there: nothing, a directory, a link.
    pub found: &'static str,
}

impl Workspace {
    /// The form in which the mount at `root` shows the pool. Must be called within a tokio runtime.
    pub fn mounted(pool: Vfs, root: ToolPath, flow: Arc<Checked>, cancel: CancellationToken) -> Self {
        let form = Form::Mounted(Mounted::new(pool.clone(), root));
        Self { base: Base { pool, flow, owner: current_owner(), cancel }, form }
    }

    /// The form with copies in `root`, a folder on a RAM disk.
    pub fn staged(pool: Vfs, root: PathBuf, flow: Arc<Checked>, cancel: CancellationToken) -> Self {
        let form = Form::Staged(Staged::new(root));
        Self { base: Base { pool, flow, owner: current_owner(), cancel }, form }
    }

    /// The absolute path by which tasks know member `id`.
    pub fn path_of(&self, id: DataId) -> ToolPath {
        self.below_root(layout::member(&self.base.flow, id))
    }

    /// The absolute path of a task's folder.
    pub fn dir_of(&self, task: TaskId) -> ToolPath {
        self.below_root(layout::task_dir(&self.base.flow, task))
    }

    fn below_root(&self, place: impl AsRef<Path>) -> ToolPath {
        match &self.form {
            Form::Mounted(mounted) => mounted.root.join(place),
            Form::Staged(staged) => staged.root.join(place).into(),
        }
    }

    /// Shows the inputs below `data`: bound read-only, or copied into the pool with `stage_in`. Paths that are relative
    /// start at `data_dir`.
    pub async fn bring_inputs(&self, data_dir: &Path, stage_in: bool) -> Result<(), Trouble> {
        let workflow = self.base.flow.workflow();
        let mut seen = std::collections::HashSet::new();
        for id in (0..workflow.data_count()).map(DataId) {
            let Some(path) = layout::host_path(&self.base.flow, id) else { continue };
            let (host, place) = (data_dir.join(path), layout::member(&self.base.flow, id));
            if !seen.insert(place.clone()) {
                continue;
            }
            match &self.form {
                _ if stage_in => transfer::into_pool(&self.base, host, &place).await.map(drop)?,
                Form::Mounted(_) => self.base.bind(&host, &place).await?,
                Form::Staged(staged) => staged.link_input(&host, &place)?,
            }
        }
        Ok(())
    }

    /// Makes the task's folder with its lists and links, and brings its inputs where they are looked for.
    pub async fn enter(&self, task: TaskId, command: &Command) -> Result<(), Trouble> {
        match &self.form {
            Form::Mounted(mounted) => mounted.enter(&self.base, task, command).await,
            Form::Staged(staged) => staged.enter(&self.base, task, command).await,
        }
    }

    /// Takes over what the task wrote, and removes what else it left in its folder unless `keep`.
    pub async fn collect(&self, task: TaskId, keep: bool) -> Result<Collected, Trouble> {
        match &self.form {
            Form::Mounted(mounted) => mounted.collect(&self.base, task, keep).await,
            Form::Staged(staged) => staged.collect(&self.base, task).await,
        }
    }

    /// Removes everything of a failed attempt, so that the next one starts as the first did.
    pub async fn discard(&self, task: TaskId) -> Result<(), Trouble> {
        match &self.form {
            Form::Mounted(_) => mounted::discard(&self.base, task).await,
            Form::Staged(staged) => staged.discard(&self.base, task).await,
        }
    }

    /// Removes a member that nobody reads any more. Inputs stay: they cost nothing while they are bound.
    pub async fn drop_member(&self, id: DataId) -> Result<(), Trouble> {
        let place = layout::member(&self.base.flow, id);
        match &self.form {
            Form::Mounted(mounted) => mounted.remove(place),
            Form::Staged(_) => self.base.remove(&place).await?,
        }
        Ok(())
    }

    /// A member's bytes, for its export.
    pub async fn open(&self, id: DataId) -> Result<PoolFile, Trouble> {
        PoolFile::open(&self.base.pool, &layout::member(&self.base.flow, id)).await
    }

    /// What all copies on the RAM disk take, in bytes; 0 with the mount, where everything is in the pool.
    pub fn copies_bytes(&self) -> u64 {
        match &self.form {
            Form::Mounted(_) => 0,
            Form::Staged(staged) => copies::bytes_below(&staged.root),
        }
    }

    /// Who of `running` has the largest folder on the RAM disk.
    pub fn largest(&self, running: impl Iterator<Item = TaskId>) -> Option<TaskId> {
        let Form::Staged(staged) = &self.form else { return None };
        let folder = |task| staged.root.join(layout::task_dir(&self.base.flow, task));
        running.max_by_key(|task| copies::bytes_below(&folder(*task)))
    }

    /// How full the pool is.
    pub fn usage(&self) -> wire::Usage {
        self.base.pool.usage()
    }

    /// Whether tools have filled up the pool. Where the kernel writes to the memory of a large file past us, nobody tells us of
    /// a refusal: that nothing is left is all there is to see.
    pub fn is_filled(&self) -> bool {
        let usage = self.usage();
        let left = usage.capacity.saturating_sub(usage.used).min(usage.own_room.unwrap_or(u64::MAX));
        matches!(self.form, Form::Mounted(_)) && left < LEFT_BYTES_MAX
    }

    /// The RAM disk's folder and how full it is, if staging has filled it up.
    pub fn full_ram_disk(&self) -> Option<(&Path, wire::Usage)> {
        let Form::Staged(staged) = &self.form else { return None };
        let disk = rustix::fs::statvfs(&staged.root).ok()?;
        let (left, capacity) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let usage = wire::Usage { used: capacity.saturating_sub(left), capacity, ..wire::Usage::default() };
        (left < LEFT_BYTES_MAX).then_some((staged.root.as_path(), usage))
    }

    /// Waits for what is still being removed.
    pub fn close(&mut self) {
        if let Form::Mounted(mounted) = &mut self.form {
            mounted.close();
        }
    }
}

/// Files belong to whoever runs the tasks.
fn current_owner() -> wire::Owner {
    wire::Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}
