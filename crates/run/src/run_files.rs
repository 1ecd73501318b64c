//! The files of a run in its pool, as the run itself uses them: inputs, removals, exports, and
//! directories of failed attempts. Hosts that run tasks have a workspace of their own.

use crate::checked_workflow::CheckedWorkflow;
use crate::layout::{self, AttemptPlace, RunLayout};
use crate::workspace::{BackgroundRemover, PoolReader, WorkspaceBase, WorkspaceError, copy};
use flow::{DataId, TaskId};
use placement::{NodeId, Policy};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::{Kind, PLACEMENT, XattrMode};

/// Files of one run in its pool.
#[derive(Debug)]
pub struct RunFiles {
    base: WorkspaceBase,
    flow: Arc<CheckedWorkflow>,
    layout: RunLayout,
    remover: BackgroundRemover,
    /// Directory that relative input paths start from.
    data_dir: PathBuf,
    /// True if inputs were copied into the pool instead of being bound.
    stage_in: bool,
    /// Places of the inputs that were provided.
    provided: HashSet<PathBuf>,
    /// Members that an earlier process of the run has written: files of the host that are bound.
    exported: HashMap<DataId, PathBuf>,
}

impl RunFiles {
    /// The files of a run that has none yet. Must be called within a tokio runtime.
    pub fn new(
        pool: Vfs,
        flow: Arc<CheckedWorkflow>,
        (data_dir, stage_in): (PathBuf, bool),
        cancel: CancellationToken,
    ) -> Self {
        let remover = BackgroundRemover::new(pool.clone());
        let base = WorkspaceBase::new(pool, cancel);
        let (layout, provided, exported) = (RunLayout::default(), HashSet::new(), HashMap::new());
        Self { base, flow, layout, remover, data_dir, stage_in, provided, exported }
    }

    /// Sets the placement policy so that files made from now on lie at the node of the host that
    /// makes them. A kernel can then use passthrough for them, however many nodes the pool has.
    pub async fn set_local_placement(&self) -> Result<(), WorkspaceError> {
        self.set_placement(Path::new(""), Policy::Here).await
    }

    /// Lets the run's bytes be at all nodes of a pool that grows, also while it has one node: what
    /// a kernel reads and writes itself would stay there.
    pub async fn set_spread_placement(&self) -> Result<(), WorkspaceError> {
        self.set_placement(Path::new(""), Policy::Striped).await
    }

    async fn set_placement(&self, directory: &Path, policy: Policy) -> Result<(), WorkspaceError> {
        set_placement(&self.base.pool, directory, policy).await
    }

    /// Like [`Self::provide_inputs`] in a pool of several nodes: inputs are shown by `first`, which
    /// is on this host. It also holds the directories in which attempts at each of `nodes` work.
    pub async fn provide_inputs_at(&mut self, first: NodeId, nodes: &[NodeId]) -> Result<(), WorkspaceError> {
        self.set_placement(Path::new(""), Policy::At(first)).await?;
        self.base.make_dir(Path::new(layout::INPUTS)).await?;
        for node in nodes {
            make_node_dir(&self.base.pool, *node).await?;
        }
        self.provide_inputs().await
    }

    /// Takes the workflow after it has grown.
    pub fn set_flow(&mut self, flow: Arc<CheckedWorkflow>) {
        self.flow = flow;
    }

    /// Makes the inputs visible in the pool below `data`: bound read-only, or copied.
    pub async fn provide_inputs(&mut self) -> Result<(), WorkspaceError> {
        let all: Vec<DataId> = (0..self.flow.workflow().data_count()).map(DataId).collect();
        self.provide(&all).await
    }

    /// Like [`Self::provide_inputs`], for these members as far as they are inputs.
    pub async fn provide(&mut self, inputs: &[DataId]) -> Result<(), WorkspaceError> {
        for id in inputs.iter().copied() {
            let (Some(host), place) = (self.host_path(id), self.place_of(id)) else { continue };
            if !self.provided.insert(place.clone()) {
                continue;
            }
            if self.stage_in {
                copy::into_pool(&self.base, host, &place).await?;
            } else {
                self.base.bind(&host, &place).await?;
            }
        }
        Ok(())
    }

    /// Binds members that an earlier process of the run has exported, so that tasks read them as if
    /// their writers had run. They stay until the end of the run, as inputs do.
    pub async fn bind_exported(
        &mut self,
        exported: impl Iterator<Item = (DataId, PathBuf)>,
    ) -> Result<(), WorkspaceError> {
        for (data, file) in exported {
            self.layout.set_bound(data);
            let place = self.place_of(data);
            self.base.make_dir(place.parent().unwrap_or(Path::new("/"))).await?;
            // A pool that outlived an earlier process may have it.
            if self.base.find(&place).await?.is_none() {
                self.base.bind(&file, &place).await?;
            }
            self.exported.insert(data, file);
        }
        Ok(())
    }

    /// True for a member of [`Self::bind_exported`].
    pub fn is_bound_output(&self, id: DataId) -> bool {
        self.exported.contains_key(&id)
    }

    fn host_path(&self, id: DataId) -> Option<PathBuf> {
        layout::host_path(&self.flow, id).map(|path| self.data_dir.join(path))
    }

    /// The host's file that is bound as an input; `None` if its bytes are in the pool.
    pub fn bound(&self, id: DataId) -> Option<PathBuf> {
        let exported = || self.exported.get(&id).cloned();
        let input = if self.stage_in { None } else { self.host_path(id) };
        input.or_else(exported)
    }

    /// Which attempt of each task wrote its outputs.
    pub fn layout(&self) -> &RunLayout {
        &self.layout
    }

    /// Records the attempt that wrote the outputs of a task.
    pub fn set_writer(&mut self, task: TaskId, place: AttemptPlace) {
        self.layout.set_writer(task, place);
    }

    /// Path of a member below the pool's root.
    pub fn place_of(&self, id: DataId) -> PathBuf {
        self.layout.member(&self.flow, id)
    }

    /// Announces that a member of `bytes` bytes will be dropped: now, or once it is exported.
    pub fn announce_removal(&self, bytes: u64) {
        self.remover.announce_removal(bytes);
    }

    /// Takes an announcement back: the member is lost with its node.
    pub fn retract_removal(&self, bytes: u64) {
        self.remover.retract_removal(bytes);
    }

    /// Removes a member soon that was announced by [`Self::announce_removal`] and has no more
    /// readers. Inputs stay: bound ones take no memory.
    pub fn drop_member(&self, id: DataId, bytes: u64) {
        self.remover.remove_leaving(self.place_of(id), bytes);
    }

    /// Removes the copies of inputs soon that were made for the tasks of a node's host.
    pub fn remove_copies_at(&self, node: NodeId) {
        self.remover.remove(Path::new(&layout::node_dir(node)).join(layout::COPIES));
    }

    /// Removes the directory of an attempt soon.
    pub fn remove_attempt(&self, task: TaskId, place: AttemptPlace) {
        self.remover.remove(layout::attempt_dir(&self.flow, task, place));
    }

    /// The fill level of the pool, for the scheduler.
    pub fn pool_state(&self) -> sched::PoolState {
        // Read `leaving` before `used`: bytes that are removed between the two reads then never
        // count as used by data that stays.
        let leaving = self.remover.leaving();
        let wire::SpaceUsage { capacity, used, waiting, .. } = self.usage();
        sched::PoolState { capacity, used, leaving: leaving.min(used), waiting }
    }

    /// The fill level of the pool.
    pub fn usage(&self) -> wire::SpaceUsage {
        self.base.pool.usage()
    }

    /// Waits for the next removal.
    pub async fn removed(&self) {
        self.remover.removed().await;
    }

    /// Access to the pool for work that goes on beside the run.
    pub fn reader(&self) -> PoolAccess {
        PoolAccess(self.base.clone())
    }

    /// Removes nothing more: the pool is lost.
    pub fn give_up(&self) {
        self.remover.give_up();
    }

    /// Waits for pending removals.
    pub fn close(&mut self) {
        self.remover.close();
    }
}

/// Makes the directory in which attempts at a node work.
pub async fn make_node_dir(pool: &Vfs, node: NodeId) -> Result<(), WorkspaceError> {
    set_placement(pool, Path::new(&layout::node_dir(node)), Policy::At(node)).await
}

async fn set_placement(pool: &Vfs, directory: &Path, policy: Policy) -> Result<(), WorkspaceError> {
    let made = pool.make_directories(directory.as_os_str().as_bytes()).await;
    let file = made.map_err(WorkspaceError::pool(directory))?.file;
    let set = pool.set_xattr(file, PLACEMENT, policy.to_string().into(), XattrMode::Set, false);
    set.await.map_err(WorkspaceError::pool(directory))
}

/// Access to the pool for work that goes on beside the run: exports, and files of failed tasks.
#[derive(Debug, Clone)]
pub struct PoolAccess(WorkspaceBase);

impl PoolAccess {
    /// Opens a file for its export.
    pub async fn open(&self, place: &Path) -> Result<PoolReader, WorkspaceError> {
        PoolReader::open(&self.0.pool, place).await
    }

    /// Copies a directory of the pool to `target`, which does not exist yet. Links, sockets and
    /// other special files are left out.
    pub async fn save_directory(&self, place: &Path, target: &Path) -> Result<(), WorkspaceError> {
        let mut directories = vec![(place.to_path_buf(), target.to_path_buf())];
        while let Some((place, target)) = directories.pop() {
            fs::create_dir_all(&target).map_err(WorkspaceError::host(&target))?;
            if self.0.find(&place).await?.is_none() {
                continue;
            }
            for name in self.0.names_in(&place).await? {
                let (place, target) = (place.join(&name), target.join(&name));
                match self.0.find(&place).await?.map(|attributes| attributes.kind) {
                    Some(Kind::Directory) => directories.push((place, target)),
                    Some(Kind::File) => copy::out_of_pool(&self.0, &place, target).await?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Puts an input at `target`: a copy of the file at `place`, or a link to the host's file that
    /// is bound there.
    pub async fn save_input(&self, place: &Path, bound: Option<&Path>, target: &Path) -> Result<(), WorkspaceError> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).map_err(WorkspaceError::host(directory))?;
        match bound {
            Some(host) => symlink(host, target).map_err(WorkspaceError::host(target)),
            None => copy::out_of_pool(&self.0, place, target.to_path_buf()).await,
        }
    }

    /// Removes the directory of an attempt, if it is there.
    pub async fn discard(&self, directory: &Path) -> Result<(), WorkspaceError> {
        self.0.discard(directory).await
    }
}
