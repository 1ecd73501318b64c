//! What a run stands on: an embedded pool, and the ways by which tasks see it: a mount, or a door for programs, and a RAM disk.
//!
//! The parts are dropped in the order of the fields, which is the order that leaves nothing behind: first the mount and the door, then the
//! claim with its folders.

use crate::checked::Checked;
use crate::choice::{Choice, Tools};
use crate::last_resort::{LastResort, Remains};
use crate::memory_limits;
use crate::order::{Order, Storage};
use crate::workspace::{Direct, Forms, Preloaded, Staged, Workspace};
use base::{ByteSize, Problem};
use client::Client;
use exec::MemoryGroups;
use fuse::{Claim, Mount, RuntimeDir};
use node::Node;
use pool::Door;
use report::Mode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// The pool and the ways to it.
#[derive(Debug)]
pub struct Ground {
    /// The pool.
    pub pool: Vfs,
    node: Arc<Node>,
    /// The mount; none with staging or the library.
    mount: Option<Mount>,
    /// By which programs with the library come in.
    door: Option<Door>,
    /// Where staging keeps its copies.
    ram_disk: Option<PathBuf>,
    /// The control groups of tools that declare memory; none where they cannot be made, or no tool
    /// does.
    pub memory_groups: Option<Arc<MemoryGroups>>,
    /// The run's folder in the runtime directory.
    claim: Claim,
}

impl Ground {
    /// Starts the pool and mounts it or opens a door to it, and makes the RAM disk's folder if there will be copies. What dead runs left is removed first.
    ///
    /// A mount that is refused although it looked possible (containers do that) becomes the next way if the form was ours to
    /// choose; `choice` then says so.
    /// From the first trace on that it leaves, `last_resort` knows what to remove.
    pub fn prepare(
        order: &Order,
        (choice, tools): (&mut Choice, &Tools),
        memory: ByteSize,
        last_resort: &LastResort,
    ) -> Result<Self, Problem> {
        let runtime = RuntimeDir::of_user()?;
        clear_the_dead(&runtime)?;
        let mut claim = runtime.claim(&order.run_id)?;
        last_resort.arm(Some(Remains { undo: claim.undo(), mark: mark(&order.run_id) }));
        // Noted first, so that after a crash the tools are ended before their files go.
        let memory_groups = memory_limits::prepare(&order.flow, &mut claim);
        let node = pool::embedded_node(memory, order.space_wait)?;
        let pool = Vfs::new(Client::embedded(node.clone()));
        let mut way = Way { order, choice, tools, claim: &mut claim };
        let mount = way.mount(&pool)?;
        let door = way.door(&node)?;
        let ram_disk = if choice.has_copies() { Some(ram_disk(&mut claim)?) } else { None };
        Ok(Self { pool, node, mount, door, ram_disk, memory_groups, claim })
    }

    /// The pool as tasks see it.
    ///
    /// # Errors
    /// Of the run's folder.
    pub fn workspace(
        &self,
        choice: &Choice,
        flow: Arc<Checked>,
        cancel: CancellationToken,
    ) -> Result<Workspace, Problem> {
        // With the library nothing is there, so nothing of the host is hidden; and paths are those of the mount.
        let root = self.claim.mount_point().into();
        let preloaded = match (&choice.library, &self.door) {
            (Some(library), Some(door)) => {
                let scratch = door.file().parent().unwrap_or(Path::new("/"));
                let failed = |error| Problem::new(format!("{}: {error}", scratch.display()));
                Some(Preloaded::new(library.clone(), door.file().to_owned(), scratch).map_err(failed)?)
            }
            _ => None,
        };
        let is_direct = self.mount.is_some() || preloaded.is_some();
        let forms = Forms {
            direct: is_direct.then_some(Direct { root, preloaded }),
            staged: self.ram_disk.clone().map(Staged::new),
            copied: choice.staged.clone(),
        };
        Ok(Workspace::new(self.pool.clone(), forms, flow, cancel))
    }

    /// The most that the pool held at any moment, bytes.
    pub fn peak(&self) -> u64 {
        self.node.peak()
    }

    /// Unmounts, closes the door and removes; the error says what could not be.
    pub async fn close(self) -> Result<(), String> {
        let unmounted = self.mount.map_or(Ok(()), |mount| mount.unmount().map(drop).map_err(|error| error.to_string()));
        if let Some(door) = self.door {
            door.close().await;
        }
        drop(self.claim);
        unmounted
    }
}

/// The way to the pool, as it is made: what cannot be had gives way to the next, if the form was ours to choose.
struct Way<'a> {
    order: &'a Order,
    choice: &'a mut Choice,
    tools: &'a Tools,
    claim: &'a mut Claim,
}

impl Way<'_> {
    fn is_free(&self) -> bool {
        self.order.storage == Storage::Auto
    }

    /// Mounts the pool, if that was chosen.
    fn mount(&mut self, pool: &Vfs) -> Result<Option<Mount>, Problem> {
        if self.choice.mode != Mode::Mount {
            return Ok(None);
        }
        let options = fuse::Options {
            passthrough: self.order.passthrough,
            // The one mount's kernel sees all locks of tools.
            pool_locks: false,
            ..fuse::Options::named(self.claim.name())
        };
        match Mount::new(pool, self.claim.mount_point(), &options) {
            Err(error) if self.is_free() => {
                *self.choice = self.tools.without_mount(&error.to_string());
                Ok(None)
            }
            mounted => Ok(Some(mounted?)),
        }
    }

    /// Lets programs of this host into the pool, if they will see it by the library.
    fn door(&mut self, node: &Arc<Node>) -> Result<Option<Door>, Problem> {
        if self.choice.mode != Mode::Preload {
            return Ok(None);
        }
        match self.open_door(node) {
            Err(problem) if self.is_free() => {
                *self.choice = Tools::staged(&problem.message);
                Ok(None)
            }
            door => door.map(Some),
        }
    }

    /// In the run's folder, or where there is room for a socket's name.
    fn open_door(&mut self, node: &Arc<Node>) -> Result<Door, Problem> {
        let near = self.claim.mount_point().with_file_name("door");
        let folder = if Door::fits(&near) { near } else { in_memory(self.claim, "-door") };
        private_folder(self.claim, &folder)?;
        Door::open(node, &folder)
    }
}

/// Removes what killed runs left: mounts, folders, and processes that left their group.
pub fn clear_the_dead(runtime: &RuntimeDir) -> Result<(), Problem> {
    let swept = runtime.sweep()?;
    for name in &swept.removed {
        exec::sweep(&mark(name));
    }
    for (path, why) in &swept.kept {
        tracing::warn!("{} is left of a dead run and could not be removed: {why}", path.display());
    }
    Ok(())
}

/// What every process of a run has in its environment.
pub fn mark(run_id: &str) -> String {
    format!("{RUN_VARIABLE}={run_id}")
}

/// The variable that tells a task its run.
pub const RUN_VARIABLE: &str = "TIDEMILL_RUN";

/// A folder for copies on a RAM disk.
fn ram_disk(claim: &mut Claim) -> Result<PathBuf, Problem> {
    let folder = in_memory(claim, "");
    private_folder(claim, &folder).map_err(|problem| problem.hint("staging needs a RAM disk it may write to"))?;
    Ok(folder)
}

/// A path on a RAM disk: below /dev/shm where there is one, else in the folder for temporary files.
fn in_memory(claim: &Claim, what: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let uid = rustix::process::geteuid().as_raw();
    parent.join(format!("tidemill-{uid}-{}{what}", claim.name()))
}

/// A folder of this user alone, that goes with the claim.
fn private_folder(claim: &mut Claim, folder: &Path) -> Result<(), Problem> {
    claim.also_removes(folder)?;
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| Problem::new(format!("{}: {error}", folder.display())))
}
