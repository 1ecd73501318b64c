//! Workspace: the pool as tasks see it, where they run.
//!
//! A workspace has a root directory for each storage mode. Below it, members lie where the order of
//! an attempt says:
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
//! ```
//!
//! The pool holds the authoritative files in both modes, so tasks of one run may use different
//! modes: those of tools that the preload library does not reach are staged. The run itself uses
//! the pool alone (`run_files`). In direct mode nothing here touches a mount: this process serves
//! it, and would wait for itself ([`exec::ToolPath`] prevents that).

mod background_remove;
pub(crate) mod copy;
mod error;
pub(crate) mod host_cleanup;
mod in_pool;
mod preloaded;
mod ram_disk_usage;
mod staged;

pub use background_remove::{BackgroundRemover, remove_from_pool};
pub use copy::PoolReader;
pub use error::WorkspaceError;
pub use in_pool::PoolStorage;
pub use preloaded::{PreloadSetup, TaskIo};
pub use staged::StagedStorage;

use crate::order::AttemptOrder;
use exec::ToolPath;
use flow::{DataId, TaskCommand, ToolId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::OpenLeaseId;

/// The pool as the tasks of one run see it.
#[derive(Debug)]
pub struct Workspace {
    base: WorkspaceBase,
    modes: StorageModes,
    remover: BackgroundRemover,
    /// True if tasks see inputs that are files of this host at the host's own paths.
    host_paths: bool,
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
    pub(crate) pool: Vfs,
    owner: wire::Owner,
    /// Fires when the run is cancelled: copies that wait for space give up.
    cancel: CancellationToken,
}

impl WorkspaceBase {
    pub(crate) fn new(pool: Vfs, cancel: CancellationToken) -> Self {
        Self { pool, owner: current_owner(), cancel }
    }
}

/// A member that a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Name of the member.
    pub name: String,
    /// The path where it was expected.
    pub path: ToolPath,
    /// Description of the thing at that path: nothing, a directory, a link.
    pub found: &'static str,
}

impl Workspace {
    /// Creates a workspace with the given modes. Must be called within a tokio runtime.
    pub fn new(pool: Vfs, modes: StorageModes, cancel: CancellationToken) -> Self {
        let remover = BackgroundRemover::new(pool.clone());
        Self { base: WorkspaceBase::new(pool, cancel), modes, remover, host_paths: false }
    }

    /// Makes tasks see inputs that are files of this host at the host's own paths. Otherwise they
    /// see them in the pool, where they are bound by the run.
    #[must_use]
    pub fn with_host_paths(self) -> Self {
        Self { host_paths: true, ..self }
    }

    fn mode(&self, order: &AttemptOrder) -> StorageMode<'_> {
        match (&self.modes.direct, &self.modes.staged) {
            (Some(_), Some(staged)) if self.modes.copied.contains(&order.tool) => StorageMode::Staged(staged),
            (Some(direct), _) => StorageMode::Direct(direct),
            (None, Some(staged)) => StorageMode::Staged(staged),
            (None, None) => panic!("a workspace has one form at least"),
        }
    }

    /// The absolute path of the attempt's directory.
    pub fn dir_of(&self, order: &AttemptOrder) -> ToolPath {
        self.below_root(order, &order.directory)
    }

    /// The attempt's command with the paths of this host.
    pub fn command(&self, order: &AttemptOrder) -> TaskCommand {
        let host_path = |data: DataId| {
            let input = order.inputs.iter().find(|input| input.data == data)?;
            Some(input.bound.as_ref().filter(|_| self.host_paths)?.to_string_lossy().into_owned())
        };
        let copy = |data: DataId| {
            let input = order.inputs.iter().find(|input| input.data == data);
            input.and_then(|input| input.copy.clone()).filter(|_| !self.is_staged(order))
        };
        let pool_path =
            |data: DataId| Some(self.below_root(order, copy(data).or_else(|| order.place_of(data))?).text());
        let path_of = |data: DataId| host_path(data).or_else(|| pool_path(data)).unwrap_or_default();
        order.command_at(&self.dir_of(order).text(), &path_of)
    }

    /// Returns whether the attempt works on copies on the RAM disk.
    pub fn is_staged(&self, order: &AttemptOrder) -> bool {
        matches!(self.mode(order), StorageMode::Staged(_))
    }

    /// The target of a link to a place in the pool, as the attempt's process follows it; `None` if
    /// that is staged, and reads no links of the pool.
    pub fn link_target(&self, order: &AttemptOrder, place: &Path) -> Option<String> {
        (!self.is_staged(order)).then(|| self.below_root(order, place).text())
    }

    fn below_root(&self, order: &AttemptOrder, place: impl AsRef<Path>) -> ToolPath {
        match self.mode(order) {
            StorageMode::Direct(direct) => direct.root.join(place),
            StorageMode::Staged(staged) => staged.root.join(place).into(),
        }
    }

    /// Makes the task's directory with its lists and links, and copies its inputs if it is staged.
    pub async fn prepare_task(&self, order: &AttemptOrder, command: &TaskCommand) -> Result<(), WorkspaceError> {
        match self.mode(order) {
            StorageMode::Direct(direct) => direct.prepare_task(&self.base, order, command).await,
            StorageMode::Staged(staged) => staged.prepare_task(&self.base, order, command).await,
        }
    }

    /// Files and environment for the process of a task after [`Self::prepare_task`]. Pass its open
    /// files to [`Self::release_opened`] when the process has ended.
    pub async fn task_io(&self, order: &AttemptOrder, command: &TaskCommand) -> Result<TaskIo, WorkspaceError> {
        match self.mode(order) {
            StorageMode::Direct(PoolStorage { root, preloaded: Some(preloaded) }) => {
                preloaded.task_io(&self.base, root, &self.dir_of(order), command).await
            }
            _ => Ok(TaskIo::paths(self.dir_of(order), command)),
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
    pub async fn collect(&self, order: &AttemptOrder, keep: bool) -> Result<CollectResult, WorkspaceError> {
        match self.mode(order) {
            StorageMode::Direct(direct) => direct.collect(&self.base, &self.remover, order, keep).await,
            StorageMode::Staged(staged) => staged.collect(&self.base, order).await,
        }
    }

    /// Removes everything of a failed attempt.
    pub async fn discard(&self, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        match self.mode(order) {
            StorageMode::Direct(_) => self.base.discard(&order.directory).await,
            StorageMode::Staged(staged) => staged.discard(&self.base, order).await,
        }
    }

    /// Leaves the directory of a failed attempt in the pool, and nothing else of it.
    pub async fn leave(&self, order: &AttemptOrder) -> Result<(), WorkspaceError> {
        match self.mode(order) {
            StorageMode::Direct(_) => Ok(()),
            StorageMode::Staged(staged) => staged.leave(&self.base, order).await,
        }
    }

    /// Bytes that all copies on the RAM disk take; 0 without staging.
    pub fn ram_disk_bytes(&self) -> u64 {
        self.modes.staged.as_ref().map_or(0, |staged| ram_disk_usage::bytes_below(&staged.root))
    }

    /// Bytes that an attempt's directory takes on the RAM disk; `None` if it is not staged.
    pub fn ram_disk_bytes_of(&self, order: &AttemptOrder) -> Option<u64> {
        match self.mode(order) {
            StorageMode::Direct(_) => None,
            StorageMode::Staged(staged) => Some(ram_disk_usage::bytes_below(&staged.root.join(&order.directory))),
        }
    }

    /// The fill level of the pool.
    pub fn usage(&self) -> wire::SpaceUsage {
        self.base.pool.usage()
    }

    /// Returns whether a node of the pool does not answer now, and how often one has ceased to.
    pub fn outages(&self) -> (bool, u64) {
        self.base.pool.client().outages()
    }

    /// Returns whether tools have filled up the pool. A refused write by passthrough is not
    /// reported to us, so the only sign of it is that no space is left.
    pub fn is_filled(&self) -> bool {
        let usage = self.usage();
        let left = usage.capacity.saturating_sub(usage.used).min(usage.extent_free.unwrap_or(u64::MAX));
        self.modes.direct.is_some() && left < LEFT_BYTES_MAX
    }

    /// The RAM disk's directory and its fill level, if the task is staged and the disk is full.
    pub fn full_ram_disk(&self, order: &AttemptOrder) -> Option<(&Path, wire::SpaceUsage)> {
        let StorageMode::Staged(staged) = self.mode(order) else { return None };
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
