//! Where tasks run: the pool as they see it.
//!
//! A workspace has a root folder for each form, and below it every member lies where `layout` says:
//!
//! ```text
//!              direct                               staged
//! root         a mount of the pool, or what         a folder on a RAM disk
//!              the preload library takes for one
//! enter        folder made in the pool              folder made; inputs copied from the pool, once for all who read
//! give         files opened, where there is         paths
//!              no mount that a child can open
//! collect      outputs looked up, leftovers go      outputs copied into the pool, the folder removed
//! drop         removed in the pool, soon            likewise
//! ```
//!
//! The pool is the truth in both, so tasks of one run may work in either: those of tools that the library does not reach are staged. Exports and
//! checks read the pool. In the direct form nothing here touches a mount: this process serves it, and would wait for itself ([`exec::ToolPath`]
//! keeps that so).

mod copies;
mod direct;
mod host;
mod janitor;
mod kept;
mod preloaded;
mod staged;
mod transfer;
mod trouble;

pub use direct::Direct;
pub use preloaded::{Given, Preloaded};
pub use staged::Staged;
pub use transfer::PoolFile;
pub use trouble::Trouble;

use crate::checked::Checked;
use crate::layout;
use exec::ToolPath;
use flow::{Command, DataId, TaskId, ToolId};
use janitor::Janitor;
use placement::Policy;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::{Mark, PLACEMENT, XattrMode};

/// The pool as the tasks of one run see it.
#[derive(Debug)]
pub struct Workspace {
    base: Base,
    forms: Forms,
    janitor: Janitor,
}

/// In which forms; one at least.
#[derive(Debug, Default)]
pub struct Forms {
    /// Tasks work in the pool.
    pub direct: Option<Direct>,
    /// They work on copies.
    pub staged: Option<Staged>,
    /// The tools whose tasks do, where there are both.
    pub copied: BTreeSet<ToolId>,
}

/// That of one task.
enum Form<'a> {
    Direct(&'a Direct),
    Staged(&'a Staged),
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

/// A member that a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The member.
    pub data: DataId,
    /// Its size.
    pub bytes: u64,
    /// What it takes of the pool: more than its size, or less if it has holes.
    pub takes: u64,
}

impl Made {
    fn of(data: DataId, found: &wire::Attributes) -> Self {
        /// About what an inode and its name take.
        const INODE: u64 = 512;
        const PAGE: u64 = 4096;
        const STRIPE: u64 = 1 << 20;
        let bytes = found.size;
        let takes = match (found.whole, bytes) {
            (Some(_), _) => found.allocated,
            // Beside the inode.
            (None, 0..=PAGE) => bytes,
            // In blocks: powers of two of pages, of which the last may be whole though its bytes are fewer.
            (None, 0..STRIPE) => bytes.next_power_of_two(),
            (None, _) => bytes.next_multiple_of(STRIPE),
        };
        Self { data, bytes, takes: INODE + takes }
    }
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
    /// The pool in these forms. Must be called within a tokio runtime.
    pub fn new(pool: Vfs, forms: Forms, flow: Arc<Checked>, cancel: CancellationToken) -> Self {
        let janitor = Janitor::new(pool.clone());
        Self { base: Base { pool, flow, owner: current_owner(), cancel }, forms, janitor }
    }

    fn form(&self, task: TaskId) -> Form<'_> {
        let is_copied = || self.forms.copied.contains(&self.base.flow.task(task).tool);
        match (&self.forms.direct, &self.forms.staged) {
            (Some(_), Some(staged)) if is_copied() => Form::Staged(staged),
            (Some(direct), _) => Form::Direct(direct),
            (None, Some(staged)) => Form::Staged(staged),
            (None, None) => panic!("a workspace has one form at least"),
        }
    }

    /// The absolute path by which a task knows member `id`.
    pub fn path_of(&self, task: TaskId, id: DataId) -> ToolPath {
        self.below_root(task, layout::member(&self.base.flow, id))
    }

    /// The absolute path of a task's folder.
    pub fn dir_of(&self, task: TaskId) -> ToolPath {
        self.below_root(task, layout::task_dir(&self.base.flow, task))
    }

    fn below_root(&self, task: TaskId, place: impl AsRef<Path>) -> ToolPath {
        match self.form(task) {
            Form::Direct(direct) => direct.root.join(place),
            Form::Staged(staged) => staged.root.join(place).into(),
        }
    }

    /// From now on what is made in the pool lies at one node, that of the run: so a kernel may write it past us, however many nodes
    /// the pool has.
    pub async fn lie_here(&self) -> Result<(), Trouble> {
        let here = Policy::Here.to_string();
        let set = self.base.pool.set_xattr(Vfs::root(), PLACEMENT, here.into(), XattrMode::Set, false);
        set.await.map_err(Trouble::pool(Path::new("/")))
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
            if stage_in {
                transfer::into_pool(&self.base, host, &place).await?;
                continue;
            }
            if self.forms.direct.is_some() {
                self.base.bind(&host, &place).await?;
            }
            if let Some(staged) = &self.forms.staged {
                staged.link_input(&host, &place)?;
            }
        }
        Ok(())
    }

    /// Makes the task's folder with its lists and links, and brings its inputs where they are looked for.
    pub async fn enter(&self, task: TaskId, command: &Command) -> Result<(), Trouble> {
        match self.form(task) {
            Form::Direct(direct) => direct.enter(&self.base, task, command).await,
            Form::Staged(staged) => staged.enter(&self.base, task, command).await,
        }
    }

    /// What the process of a task that has entered is started with; to be [taken back](Self::take_back) when it has ended.
    pub async fn give(&self, task: TaskId, command: &Command) -> Result<Given, Trouble> {
        match self.form(task) {
            Form::Direct(Direct { root, preloaded: Some(preloaded) }) => {
                preloaded.give(&self.base, root, &self.dir_of(task), command).await
            }
            _ => Ok(Given::paths(self.dir_of(task), command)),
        }
    }

    /// Closes in the pool what was opened for a process, unless somebody has it still.
    pub async fn take_back(&self, opened: &[Mark]) {
        for mark in opened {
            // Nothing is lost: it is looked at each second.
            let _ = self.base.pool.look(*mark).await;
        }
    }

    /// Takes over what the task wrote, and removes what else it left in its folder unless `keep`.
    pub async fn collect(&self, task: TaskId, keep: bool) -> Result<Collected, Trouble> {
        match self.form(task) {
            Form::Direct(direct) => direct.collect(&self.base, &self.janitor, task, keep).await,
            Form::Staged(staged) => staged.collect(&self.base, task).await,
        }
    }

    /// Removes everything of a failed attempt, so that the next one starts as the first did.
    pub async fn discard(&self, task: TaskId) -> Result<(), Trouble> {
        match self.form(task) {
            Form::Direct(_) => direct::discard(&self.base, task).await,
            Form::Staged(staged) => staged.discard(&self.base, task).await,
        }
    }

    /// Says that a member of so many bytes will be dropped: now, or when it is exported.
    pub fn leaves(&self, bytes: u64) {
        self.janitor.leaves(bytes);
    }

    /// Removes a member that nobody reads any more, and that was said to leave, soon. Inputs stay: they cost nothing while they are bound.
    pub fn drop_member(&self, id: DataId, bytes: u64) {
        self.janitor.remove_leaving(layout::member(&self.base.flow, id), bytes);
    }

    /// How full the pool is, as the scheduler wants to know it.
    pub fn pool_state(&self) -> sched::PoolState {
        // What is leaving first: should it go in between, it is counted as used no more than it is.
        let leaving = self.janitor.leaving();
        let wire::Usage { capacity, used, waiting, .. } = self.usage();
        sched::PoolState { capacity, used, leaving: leaving.min(used), waiting }
    }

    /// Waits until something was removed.
    pub async fn removed(&self) {
        self.janitor.removed().await;
    }

    /// A member's bytes, for its export.
    pub async fn open(&self, id: DataId) -> Result<PoolFile, Trouble> {
        PoolFile::open(&self.base.pool, &layout::member(&self.base.flow, id)).await
    }

    /// What all copies on the RAM disk take, in bytes; 0 without staging, where everything is in the pool.
    pub fn copies_bytes(&self) -> u64 {
        self.forms.staged.as_ref().map_or(0, |staged| copies::bytes_below(&staged.root))
    }

    /// Who of `running` has the largest folder on the RAM disk.
    pub fn largest(&self, running: impl Iterator<Item = TaskId>) -> Option<TaskId> {
        let bytes = |task: &TaskId| match self.form(*task) {
            Form::Direct(_) => None,
            Form::Staged(staged) => {
                Some(copies::bytes_below(&staged.root.join(layout::task_dir(&self.base.flow, *task))))
            }
        };
        running.filter_map(|task| Some((bytes(&task)?, task))).max().map(|(_, task)| task)
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
        self.forms.direct.is_some() && left < LEFT_BYTES_MAX
    }

    /// The RAM disk's folder and how full it is, if staging has filled it up around this task.
    pub fn full_ram_disk(&self, task: TaskId) -> Option<(&Path, wire::Usage)> {
        let Form::Staged(staged) = self.form(task) else { return None };
        let disk = rustix::fs::statvfs(&staged.root).ok()?;
        let (left, capacity) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let usage = wire::Usage { used: capacity.saturating_sub(left), capacity, ..wire::Usage::default() };
        (left < LEFT_BYTES_MAX).then_some((staged.root.as_path(), usage))
    }

    /// Waits for what is still being removed.
    pub fn close(&mut self) {
        self.janitor.close();
    }
}

/// Files belong to whoever runs the tasks.
fn current_owner() -> wire::Owner {
    wire::Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}
