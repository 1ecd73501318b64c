//! What a run stands on: an embedded pool, and the mount or RAM disk through which tasks see it.
//!
//! The parts are dropped in the order of the fields, which is the order that leaves nothing behind: first the mount, then the
//! claim with its folder.

use crate::checked::Checked;
use crate::last_resort::{LastResort, Remains};
use crate::order::{Order, Storage};
use crate::workspace::Workspace;
use base::{ByteSize, Problem};
use fuse::{Claim, Mount, RuntimeDir};
use report::Mode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// How tasks will see the pool, and the line that says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The form.
    pub mode: Mode,
    /// One line for the user.
    pub line: String,
}

/// Chooses the form. Staging needs no permission at all, so only a demand for the mount can be refused.
pub fn choose(wanted: Storage, needs_pool: bool) -> Result<Choice, Problem> {
    if !needs_pool {
        return Ok(Choice { mode: Mode::None, line: "no pool, since no task reads or writes data".into() });
    }
    let staged = |why: String| Choice { mode: Mode::Staging, line: format!("RAM-disk staging, since {why}") };
    let available = fuse::availability();
    match (wanted, available) {
        (Storage::Staging, _) => Ok(staged("--storage staging was asked for".into())),
        (_, Ok(_)) => Ok(Choice { mode: Mode::Mount, line: "the pool is mounted".into() }),
        (Storage::Auto, Err(why)) => Ok(staged(why.to_string())),
        (Storage::Mount, Err(why)) => Err(Problem::new(format!("the pool cannot be mounted: {why}"))
            .hint("leave --storage mount out to use RAM-disk staging")),
    }
}

/// The pool and the way to it.
#[derive(Debug)]
pub struct Ground {
    /// The pool.
    pub pool: Vfs,
    /// The mount; none with staging.
    mount: Option<Mount>,
    /// Where staging keeps its copies.
    ram_disk: Option<PathBuf>,
    /// The run's folder in the runtime directory.
    claim: Claim,
}

impl Ground {
    /// Starts the pool and mounts it, or makes the RAM disk's folder. What dead runs left is removed first.
    ///
    /// A mount that is refused although it looked possible (containers do that) becomes staging if the form was ours to
    /// choose; `choice` then says so.
    /// From the first trace on that it leaves, `last_resort` knows what to remove.
    pub fn prepare(
        order: &Order,
        choice: &mut Choice,
        memory: ByteSize,
        last_resort: &LastResort,
    ) -> Result<Self, Problem> {
        let runtime = RuntimeDir::of_user()?;
        clear_the_dead(&runtime)?;
        let mut claim = runtime.claim(&order.run_id)?;
        last_resort.arm(Some(Remains { undo: claim.undo(), mark: mark(&order.run_id) }));
        let pool = pool::embedded(memory, order.space_wait)?;
        let mount = match choice.mode {
            Mode::Mount => mount(&pool, &claim, order, choice)?,
            _ => None,
        };
        let ram_disk = if mount.is_some() { None } else { Some(make_ram_disk(&mut claim)?) };
        Ok(Self { pool, mount, ram_disk, claim })
    }

    /// The pool as tasks see it.
    pub fn workspace(&self, flow: Arc<Checked>, cancel: CancellationToken) -> Workspace {
        let pool = self.pool.clone();
        match &self.ram_disk {
            Some(ram_disk) => Workspace::staged(pool, ram_disk.clone(), flow, cancel),
            None => Workspace::mounted(pool, self.claim.mount_point().into(), flow, cancel),
        }
    }

    /// Unmounts and removes; the error says what could not be.
    pub fn close(self) -> Result<(), String> {
        let unmounted = self.mount.map_or(Ok(()), |mount| mount.unmount().map(drop).map_err(|error| error.to_string()));
        drop(self.claim);
        unmounted
    }
}

/// Mounts the pool; none if the mount was refused and the form was ours to choose.
fn mount(pool: &Vfs, claim: &Claim, order: &Order, choice: &mut Choice) -> Result<Option<Mount>, Problem> {
    let options = fuse::Options {
        passthrough: order.passthrough,
        // The one mount's kernel sees all locks of tools.
        pool_locks: false,
        ..fuse::Options::named(claim.name())
    };
    match Mount::new(pool, claim.mount_point(), &options) {
        Err(error) if order.storage == Storage::Auto => {
            *choice = Choice { mode: Mode::Staging, line: format!("RAM-disk staging, since {error}") };
            Ok(None)
        }
        mounted => Ok(Some(mounted?)),
    }
}

/// Removes what killed runs left: mounts, folders, and processes that left their group.
fn clear_the_dead(runtime: &RuntimeDir) -> Result<(), Problem> {
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

/// A folder on a RAM disk: /dev/shm where there is one, else the folder for temporary files.
fn make_ram_disk(claim: &mut Claim) -> Result<PathBuf, Problem> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let uid = rustix::process::geteuid().as_raw();
    let folder = parent.join(format!("tidemill-{uid}-{}", claim.name()));
    claim.also_removes(&folder)?;
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder).map_err(|error| {
        Problem::new(format!("{}: {error}", folder.display())).hint("staging needs a RAM disk it may write to")
    })?;
    Ok(folder)
}
