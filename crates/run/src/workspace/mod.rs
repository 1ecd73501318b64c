//! Workspace: the pool as tasks see it, where they run.
//!
//! A workspace has a root directory for each storage mode. Below it, members lie where `layout`
//! says:
//!
//! ```text
//!              direct                            staged
//! root         a mount of the pool, or a path    a directory on a RAM disk
//!              that the preload library serves
//! prepare_task directory made in the pool        directory made; inputs copied from the pool,
//!                                                once for all readers
//! task_io      files opened, if there is         paths
//!              no mount that a child can open
//! collect      outputs looked up,                outputs copied into the pool,
//!              leftovers removed                 the directory removed
//! drop         removed in the pool, soon         likewise
//! ```
//!
//! The pool holds the authoritative files in both modes, so tasks of one run may use different
//! modes: those of tools that the preload library does not reach are staged. Exports and checks
//! read the pool. In direct mode nothing here touches a mount: this process serves it, and would
//! wait for itself ([`exec::ToolPath`] prevents that).

mod background_remove;
mod copy;
mod error;
mod host_cleanup;
mod in_pool;
mod preloaded;
mod ram_disk_usage;
mod save;
mod staged;

pub use copy::PoolReader;
pub use error::WorkspaceError;
pub use in_pool::PoolStorage;
pub use preloaded::{PreloadSetup, TaskIo};
pub use staged::StagedStorage;

use crate::checked_workflow::CheckedWorkflow;
use crate::layout;
use background_remove::BackgroundRemover;
use exec::ToolPath;
use flow::{DataId, TaskCommand, TaskId, ToolId};
use placement::Policy;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::{OpenLeaseId, PLACEMENT, XattrMode};

/// The pool as the tasks of one run see it.
#[derive(Debug)]
pub struct Workspace {
    base: WorkspaceBase,
    modes: StorageModes,
    remover: BackgroundRemover,
}

/// Storage modes of a workspace; at least one.
#[derive(Debug, Default)]
pub struct StorageModes {
    /// Direct mode: tasks work in the pool.
    pub direct: Option<PoolStorage>,
    /// Staged mode: tasks work on copies.
    pub staged: Option<StagedStorage>,
    /// Tools whose tasks are staged, where there are both modes.
    pub copied: BTreeSet<ToolId>,
}

/// Storage mode of one task.
enum StorageMode<'a> {
    Direct(&'a PoolStorage),
    Staged(&'a StagedStorage),
}

/// Free bytes below which the pool or the RAM disk counts as full. A refused write needed more than
/// was left, and few writes are larger than this.
const LEFT_BYTES_MAX: u64 = 1 << 20;

/// State that both modes need.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceBase {
    pool: Vfs,
    flow: Arc<CheckedWorkflow>,
    owner: wire::Owner,
    /// Fires when the run is cancelled: copies that wait for space give up.
    cancel: CancellationToken,
}

/// A member that a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFile {
    /// Id of the member.
    pub data: DataId,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that it takes in the pool: more than its size, or less if it has holes.
    pub takes: u64,
}

impl OutputFile {
    fn new(data: DataId, found: &wire::Attributes) -> Self {
        /// Approximate bytes of an inode and its name.
        const INODE: u64 = 512;
        const PAGE: u64 = 4096;
        const STRIPE: u64 = 1 << 20;
        let bytes = found.size;
        let takes = match (found.extent, bytes) {
            (Some(_), _) => found.allocated,
            // Inline, with the inode.
            (None, 0..=PAGE) => bytes,
            // In blocks, which are powers of two of pages. The last stripe of a long file may take
            // a whole block though it has fewer bytes.
            (None, 0..STRIPE) => bytes.next_power_of_two(),
            (None, _) => bytes.next_multiple_of(STRIPE),
        };
        Self { data, bytes, takes: INODE + takes }
    }
}

/// Result of [`Workspace::collect`].
#[derive(Debug)]
pub enum CollectResult {
    /// Every output exists.
    All(Vec<OutputFile>),
    /// These outputs do not exist, or are not regular files.
    Missing(Vec<MissingOutput>),
}

/// An output that a task did not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingOutput {
    /// Id of the member.
    pub data: DataId,
    /// The path where it was expected.
    pub path: ToolPath,
    /// Description of the thing at that path: nothing, a directory, a link.
    pub found: &'static str,
}

impl Workspace {
    /// Creates a workspace with the given modes. Must be called within a tokio runtime.
    pub fn new(pool: Vfs, modes: StorageModes, flow: Arc<CheckedWorkflow>, cancel: CancellationToken) -> Self {
        let remover = BackgroundRemover::new(pool.clone());
        Self { base: WorkspaceBase { pool, flow, owner: current_owner(), cancel }, modes, remover }
    }

    fn mode(&self, task: TaskId) -> StorageMode<'_> {
        let is_copied = || self.modes.copied.contains(&self.base.flow.task(task).tool);
        match (&self.modes.direct, &self.modes.staged) {
            (Some(_), Some(staged)) if is_copied() => StorageMode::Staged(staged),
            (Some(direct), _) => StorageMode::Direct(direct),
            (None, Some(staged)) => StorageMode::Staged(staged),
            (None, None) => panic!("a workspace has one form at least"),
        }
    }

    /// The absolute path by which a task knows member `id`.
    pub fn path_of(&self, task: TaskId, id: DataId) -> ToolPath {
        self.below_root(task, layout::member(&self.base.flow, id))
    }

    /// The absolute path of a task's directory.
    pub fn dir_of(&self, task: TaskId) -> ToolPath {
        self.below_root(task, layout::task_dir(&self.base.flow, task))
    }

    fn below_root(&self, task: TaskId, place: impl AsRef<Path>) -> ToolPath {
        match self.mode(task) {
            StorageMode::Direct(direct) => direct.root.join(place),
            StorageMode::Staged(staged) => staged.root.join(place).into(),
        }
    }

    /// Sets the placement policy so that files made from now on lie at the run's node. A kernel can
    /// then use passthrough for them, however many nodes the pool has.
    pub async fn set_local_placement(&self) -> Result<(), WorkspaceError> {
        let here = Policy::Here.to_string();
        let set = self.base.pool.set_xattr(Vfs::root(), PLACEMENT, here.into(), XattrMode::Set, false);
        set.await.map_err(WorkspaceError::pool(Path::new("/")))
    }

    /// Makes the inputs visible below `data`: bound read-only, or copied into the pool with
    /// `stage_in`. Relative paths start at `data_dir`.
    pub async fn provide_inputs(&self, data_dir: &Path, stage_in: bool) -> Result<(), WorkspaceError> {
        let workflow = self.base.flow.workflow();
        let mut seen = std::collections::HashSet::new();
        for id in (0..workflow.data_count()).map(DataId) {
            let Some(path) = layout::host_path(&self.base.flow, id) else { continue };
            let (host, place) = (data_dir.join(path), layout::member(&self.base.flow, id));
            if !seen.insert(place.clone()) {
                continue;
            }
            if stage_in {
                copy::into_pool(&self.base, host, &place).await?;
                continue;
            }
            if self.modes.direct.is_some() {
                self.base.bind(&host, &place).await?;
            }
            if let Some(staged) = &self.modes.staged {
                staged.link_input(&host, &place)?;
            }
        }
        Ok(())
    }

    /// Makes the task's directory with its lists and links, and copies its inputs if it is staged.
    pub async fn prepare_task(&self, task: TaskId, command: &TaskCommand) -> Result<(), WorkspaceError> {
        match self.mode(task) {
            StorageMode::Direct(direct) => direct.prepare_task(&self.base, task, command).await,
            StorageMode::Staged(staged) => staged.prepare_task(&self.base, task, command).await,
        }
    }

    /// Files and environment for the process of a task after [`Self::prepare_task`]. Pass its open
    /// files to [`Self::release_opened`] when the process has ended.
    pub async fn task_io(&self, task: TaskId, command: &TaskCommand) -> Result<TaskIo, WorkspaceError> {
        match self.mode(task) {
            StorageMode::Direct(PoolStorage { root, preloaded: Some(preloaded) }) => {
                preloaded.task_io(&self.base, root, &self.dir_of(task), command).await
            }
            _ => Ok(TaskIo::paths(self.dir_of(task), command)),
        }
    }

    /// Closes in the pool the files that were opened for a process, unless another process still
    /// has them open.
    pub async fn release_opened(&self, opened: &[OpenLeaseId]) {
        for lease in opened {
            // An error is harmless: the node probes its program opens every second.
            let _ = self.base.pool.probe_lease(*lease).await;
        }
    }

    /// Takes over the task's outputs, and removes all else from its directory unless `keep`.
    pub async fn collect(&self, task: TaskId, keep: bool) -> Result<CollectResult, WorkspaceError> {
        match self.mode(task) {
            StorageMode::Direct(direct) => direct.collect(&self.base, &self.remover, task, keep).await,
            StorageMode::Staged(staged) => staged.collect(&self.base, task).await,
        }
    }

    /// Removes everything of a failed attempt, so that the next one starts as the first did.
    pub async fn discard(&self, task: TaskId) -> Result<(), WorkspaceError> {
        match self.mode(task) {
            StorageMode::Direct(_) => in_pool::discard(&self.base, task).await,
            StorageMode::Staged(staged) => staged.discard(&self.base, task).await,
        }
    }

    /// Announces that a member of `bytes` bytes will be dropped: now, or once it is exported.
    pub fn announce_removal(&self, bytes: u64) {
        self.remover.announce_removal(bytes);
    }

    /// Removes a member soon that was announced by [`Self::announce_removal`] and has no more
    /// readers. Inputs stay: bound ones take no memory.
    pub fn drop_member(&self, id: DataId, bytes: u64) {
        self.remover.remove_leaving(layout::member(&self.base.flow, id), bytes);
    }

    /// The fill level of the pool, for the scheduler.
    pub fn pool_state(&self) -> sched::PoolState {
        // Read `leaving` before `used`: bytes that are removed between the two reads then never
        // count as used by data that stays.
        let leaving = self.remover.leaving();
        let wire::SpaceUsage { capacity, used, waiting, .. } = self.usage();
        sched::PoolState { capacity, used, leaving: leaving.min(used), waiting }
    }

    /// Waits for the next removal.
    pub async fn removed(&self) {
        self.remover.removed().await;
    }

    /// Opens a member for its export.
    pub async fn open(&self, id: DataId) -> Result<PoolReader, WorkspaceError> {
        PoolReader::open(&self.base.pool, &layout::member(&self.base.flow, id)).await
    }

    /// Bytes that all copies on the RAM disk take; 0 without staging.
    pub fn ram_disk_bytes(&self) -> u64 {
        self.modes.staged.as_ref().map_or(0, |staged| ram_disk_usage::bytes_below(&staged.root))
    }

    /// The one of `running` with the largest directory on the RAM disk.
    pub fn largest(&self, running: impl Iterator<Item = TaskId>) -> Option<TaskId> {
        let bytes = |task: &TaskId| match self.mode(*task) {
            StorageMode::Direct(_) => None,
            StorageMode::Staged(staged) => {
                Some(ram_disk_usage::bytes_below(&staged.root.join(layout::task_dir(&self.base.flow, *task))))
            }
        };
        running.filter_map(|task| Some((bytes(&task)?, task))).max().map(|(_, task)| task)
    }

    /// The fill level of the pool.
    pub fn usage(&self) -> wire::SpaceUsage {
        self.base.pool.usage()
    }

    /// Returns whether tools have filled up the pool. A refused write by passthrough is not
    /// reported to us, so the only sign of it is that no space is left.
    pub fn is_filled(&self) -> bool {
        let usage = self.usage();
        let left = usage.capacity.saturating_sub(usage.used).min(usage.extent_free.unwrap_or(u64::MAX));
        self.modes.direct.is_some() && left < LEFT_BYTES_MAX
    }

    /// The RAM disk's directory and its fill level, if the task is staged and the disk is full.
    pub fn full_ram_disk(&self, task: TaskId) -> Option<(&Path, wire::SpaceUsage)> {
        let StorageMode::Staged(staged) = self.mode(task) else { return None };
        let disk = rustix::fs::statvfs(&staged.root).ok()?;
        let (left, capacity) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let usage = wire::SpaceUsage { used: capacity.saturating_sub(left), capacity, ..wire::SpaceUsage::default() };
        (left < LEFT_BYTES_MAX).then_some((staged.root.as_path(), usage))
    }

    /// Waits for pending removals.
    pub fn close(&mut self) {
        self.remover.close();
    }
}

/// The owner of all files: the user who runs the tasks.
fn current_owner() -> wire::Owner {
    wire::Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}
