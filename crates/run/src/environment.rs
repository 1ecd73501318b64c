//! Environment of a run: a pool, which is embedded unless it grows by itself, and the tasks' access
//! to it, which is a mount, a local endpoint for programs with the preload library, or a RAM disk.
//!
//! The fields are dropped in their order, which leaves nothing behind: first the mount and the
//! endpoint, then the registration with its directories.

use crate::elastic_run::{ElasticLink, ElasticRun};
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::memory_limits;
use crate::spec::{RunSpec, StorageRequest};
use crate::storage_choice::{StorageChoice, ToolSupport};
use crate::usage_refresh::keep_usage;
use crate::workspace::{PoolStorage, PreloadSetup, StagedStorage, StorageModes, Workspace};
use base::{ByteSize, Problem};
use client::Client;
use exec::MemoryGroups;
use mount::{Mount, MountOptions, PoolRegistration, RuntimeDir};
use node::Node;
use pool::{LocalEndpoint, MetricsListener, MetricsServer};
use report::AccessMode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// The pool of a run and the tasks' access to it.
#[derive(Debug)]
pub struct RunEnvironment {
    /// The pool.
    pub pool: Vfs,
    /// Serves the pool's metrics, if that was asked for.
    _metrics: Option<MetricsServer>,
    /// The mount; `None` with staging or the preload library.
    mount: Option<Mount>,
    /// The endpoint by which programs with the preload library connect.
    endpoint: Option<LocalEndpoint>,
    /// Directory for staging's copies.
    ram_disk: Option<PathBuf>,
    /// What holds the pool; it ends after the mount.
    source: PoolSource,
    /// Control groups of tools that declare memory; `None` if they cannot be made, or no tool
    /// declares memory.
    pub memory_groups: Option<Arc<MemoryGroups>>,
    /// The run's registration and directory in the runtime directory.
    registration: PoolRegistration,
}

impl RunEnvironment {
    /// Removes what dead runs left, starts the pool, mounts it or opens an endpoint to it, and
    /// makes the RAM disk's directory if there will be copies.
    ///
    /// If a mount that looked possible fails, as in some containers, the next storage mode is used,
    /// unless the user asked for the mount; `choice` is updated then. `emergency_cleanup` is armed
    /// before anything is left outside of this process.
    pub fn prepare(
        spec: &RunSpec,
        (choice, tools): (&mut StorageChoice, &ToolSupport),
        memory: ByteSize,
        emergency_cleanup: &EmergencyCleanup,
    ) -> Result<Self, Problem> {
        let listener = spec.metrics.map(MetricsListener::bind).transpose()?;
        let runtime = RuntimeDir::of_user()?;
        remove_stale_runs(&runtime)?;
        let mut registration = runtime.register(&spec.run_id)?;
        emergency_cleanup.arm(Some(CleanupList::new(registration.rollback(), &spec.run_id)));
        // Make the groups first: after a crash the tools must end before their files are removed.
        let memory_groups = memory_limits::prepare(&spec.flow, &mut registration);
        let (source, pool) = PoolSource::start(spec, memory, &mut registration)?;
        let metrics = listener.zip(source.node()).map(|(listener, node)| MetricsServer::start(listener, node));
        let metrics = metrics.transpose()?;
        let (storage, passthrough) = (spec.storage, spec.passthrough);
        let mut setup = StorageSetup { storage, passthrough, choice, tools, registration: &mut registration };
        // The kernel of the only mount sees all locks of tools.
        let options = MountOptions { pool_locks: false, runtime: source.io_runtime(), ..MountOptions::default() };
        let mount = setup.mount(&pool, options)?;
        let endpoint = match source.node() {
            Some(node) => setup.endpoint(node)?,
            None => None,
        };
        let ram_disk = setup.ram_disk()?;
        Ok(Self { pool, _metrics: metrics, mount, endpoint, ram_disk, source, memory_groups, registration })
    }

    /// The pool as tasks see it.
    ///
    /// # Errors
    /// The directory for the preload library cannot be made.
    pub fn workspace(&self, choice: &StorageChoice, cancel: CancellationToken) -> Result<Workspace, Problem> {
        let pool_file = match (&self.endpoint, &self.source) {
            (Some(endpoint), _) => Some(endpoint.file().to_owned()),
            (None, PoolSource::Elastic(elastic, _)) => Some(elastic.file.clone()),
            (None, PoolSource::Embedded(_)) => None,
        };
        let roots = TaskRoots { is_mounted: self.mount.is_some(), pool_file, ram_disk: self.ram_disk.clone() };
        roots.workspace(&self.pool, &self.registration, choice, cancel)
    }

    /// Peak of the bytes that the pool held, if it has recorded that itself.
    pub fn peak(&self) -> Option<u64> {
        self.source.node().map(|node| node.peak())
    }

    /// Takes the link to a pool that grows by itself, and keeps its usage known from now on.
    pub async fn take_elastic_link(&mut self) -> Option<ElasticLink> {
        let PoolSource::Elastic(_, link) = &mut self.source else { return None };
        let mut link = link.take()?;
        link.refresh = Some(keep_usage(self.pool.clone(), true).await.1);
        Some(link)
    }

    /// Unmounts, closes the endpoint and removes the run's directories. The error says why the
    /// unmount failed.
    pub async fn close(self) -> Result<(), String> {
        let unmounted = self.mount.map_or(Ok(()), |mount| mount.unmount().map(drop).map_err(|error| error.to_string()));
        if let Some(endpoint) = self.endpoint {
            endpoint.close().await;
        }
        drop(self.source);
        drop(self.registration);
        unmounted
    }
}

/// What holds the pool of a run.
#[derive(Debug)]
enum PoolSource {
    /// A node in this process.
    Embedded(Arc<Node>),
    /// Nodes that come and go.
    Elastic(ElasticRun, Option<ElasticLink>),
}

impl PoolSource {
    /// Starts the pool, and connects to it.
    fn start(spec: &RunSpec, memory: ByteSize, registration: &mut PoolRegistration) -> Result<(Self, Vfs), Problem> {
        let Some(elastic) = &spec.elastic else {
            let node = pool::embedded_node(memory, spec.space_wait)?;
            let pool = Vfs::new(Client::embedded(node.clone()));
            return Ok((Self::Embedded(node), pool));
        };
        let (elastic, link) = ElasticRun::start(elastic, &door(registration)?, memory, spec.space_wait)?;
        let pool = Vfs::new(elastic.client.clone());
        Ok((Self::Elastic(elastic, Some(link)), pool))
    }

    /// The node in this process, if there is one.
    fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Embedded(node) => Some(node),
            Self::Elastic(..) => None,
        }
    }

    /// The runtime on which requests wait for other processes.
    fn io_runtime(&self) -> Option<Handle> {
        match self {
            Self::Embedded(_) => None,
            Self::Elastic(elastic, _) => Some(elastic.io.clone()),
        }
    }
}

/// Where tasks of this host find the pool.
#[derive(Debug, Clone)]
pub struct TaskRoots {
    /// True if the pool is mounted at the registration's mount point.
    pub is_mounted: bool,
    /// The pool file for programs with the preload library.
    pub pool_file: Option<PathBuf>,
    /// Directory for staging's copies.
    pub ram_disk: Option<PathBuf>,
}

impl TaskRoots {
    /// The pool as tasks see it.
    ///
    /// # Errors
    /// The directory for the preload library cannot be made.
    pub fn workspace(
        self,
        pool: &Vfs,
        registration: &PoolRegistration,
        choice: &StorageChoice,
        cancel: CancellationToken,
    ) -> Result<Workspace, Problem> {
        // With the preload library nothing exists at this path, so no file of the host is hidden,
        // and paths equal those of the mount.
        let root = registration.mount_point().into();
        let preloaded = match (&choice.library, &self.pool_file) {
            (Some(library), Some(file)) => {
                let scratch = file.parent().unwrap_or(Path::new("/"));
                let failed = |error| Problem::new(format!("{}: {error}", scratch.display()));
                Some(PreloadSetup::new(library.clone(), file.clone(), scratch).map_err(failed)?)
            }
            _ => None,
        };
        let is_direct = self.is_mounted || preloaded.is_some();
        let modes = StorageModes {
            direct: is_direct.then_some(PoolStorage { root, preloaded }),
            staged: self.ram_disk.map(StagedStorage::new),
            copied: choice.staged.clone(),
        };
        Ok(Workspace::new(pool.clone(), modes, cancel))
    }
}

/// Sets up the access to the pool. If a storage mode fails and the user did not ask for it, the
/// next one is used.
pub struct StorageSetup<'a> {
    /// The mode that the user asked for.
    pub storage: StorageRequest,
    /// Enables passthrough of the mount.
    pub passthrough: bool,
    /// The mode that was chosen; updated if it fails.
    pub choice: &'a mut StorageChoice,
    /// Facts about the tools.
    pub tools: &'a ToolSupport,
    /// The registration that owns mount and directories.
    pub registration: &'a mut PoolRegistration,
}

impl StorageSetup<'_> {
    fn is_free(&self) -> bool {
        self.storage == StorageRequest::Auto
    }

    /// Mounts the pool, if that was chosen.
    pub fn mount(&mut self, pool: &Vfs, options: MountOptions) -> Result<Option<Mount>, Problem> {
        if self.choice.mode != AccessMode::Mount {
            return Ok(None);
        }
        let (name, passthrough) = (self.registration.name().to_owned(), self.passthrough);
        let options = MountOptions { name, passthrough, ..options };
        match Mount::new(pool, self.registration.mount_point(), &options) {
            Err(error) if self.is_free() => {
                *self.choice = self.tools.without_mount(&error.to_string());
                Ok(None)
            }
            mounted => Ok(Some(mounted?)),
        }
    }

    /// Makes the directory for copies, if there will be some.
    pub fn ram_disk(&mut self) -> Result<Option<PathBuf>, Problem> {
        if self.choice.has_copies() { ram_disk(self.registration).map(Some) } else { Ok(None) }
    }

    /// Opens an endpoint for programs of this host, if tasks use the preload library.
    fn endpoint(&mut self, node: &Arc<Node>) -> Result<Option<LocalEndpoint>, Problem> {
        if self.choice.mode != AccessMode::Preload {
            return Ok(None);
        }
        match self.open_endpoint(node) {
            Err(problem) if self.is_free() => {
                *self.choice = ToolSupport::staged(&problem.message);
                Ok(None)
            }
            endpoint => endpoint.map(Some),
        }
    }

    fn open_endpoint(&mut self, node: &Arc<Node>) -> Result<LocalEndpoint, Problem> {
        LocalEndpoint::open(node, &door(self.registration)?)
    }
}

/// Makes a directory for sockets and pool files in the run's directory, or on the RAM disk if that
/// path is too long for a socket. It is removed with the registration.
pub fn door(registration: &mut PoolRegistration) -> Result<PathBuf, Problem> {
    let beside_mount = registration.mount_point().with_file_name("door");
    let directory = if LocalEndpoint::fits(&beside_mount) { beside_mount } else { in_memory(registration, "-door") };
    private_directory(registration, &directory)?;
    Ok(directory)
}

/// A directory for copies of tools' files, which does not exist yet. It is removed with the
/// registration. It is no RAM disk on most hosts: `TMPDIR` says where it is.
pub fn tools_directory(registration: &mut PoolRegistration, number: usize) -> Result<PathBuf, Problem> {
    let uid = rustix::process::geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("tidemill-{uid}-{}-tools{number}", registration.name()));
    registration.add_directory(&directory)?;
    Ok(directory)
}

/// Removes what killed runs, mounts and nodes left: mounts, directories, control groups, and
/// daemons of tools. Every command that cleans up calls this, since a daemon is found only together
/// with the directory of its run.
pub fn remove_stale_runs(runtime: &RuntimeDir) -> Result<(), Problem> {
    let swept = runtime.remove_stale()?;
    for name in &swept.removed {
        exec::kill_by_env_var(&run_env_var(name));
    }
    for (path, why) in &swept.failed {
        tracing::warn!("{} is left of a dead run and could not be removed: {why}", path.display());
    }
    Ok(())
}

/// The environment variable that every process of a run has, as `NAME=value`.
pub fn run_env_var(run_id: &str) -> String {
    format!("{RUN_VARIABLE}={run_id}")
}

/// Name of the environment variable that tells a task its run.
pub const RUN_VARIABLE: &str = "TIDEMILL_RUN";

/// Creates a directory for copies on a RAM disk.
fn ram_disk(registration: &mut PoolRegistration) -> Result<PathBuf, Problem> {
    let directory = in_memory(registration, "");
    private_directory(registration, &directory)
        .map_err(|problem| problem.hint("staging needs a RAM disk it may write to"))?;
    Ok(directory)
}

/// A path on a RAM disk: below /dev/shm if that exists, else in the directory for temporary files.
fn in_memory(registration: &PoolRegistration, what: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let uid = rustix::process::geteuid().as_raw();
    parent.join(format!("tidemill-{uid}-{}{what}", registration.name()))
}

/// Creates a directory that only this user may enter; it is removed with the registration.
fn private_directory(registration: &mut PoolRegistration, directory: &Path) -> Result<(), Problem> {
    registration.add_directory(directory)?;
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory).map_err(|error| Problem::new(format!("{}: {error}", directory.display())))
}
