//! `tidemill mount` and `tidemill umount`: a pool as a directory for any program.

use crate::args::{MountArgs, UmountArgs};
use crate::console;
use crate::{run_command, signals};
use base::Problem;
use client::{Client, RetryPolicy};
use mount::{Mount, MountError, MountOptions, PoolRegistration, Rollback, RuntimeDir, Unmounter};
use pool::{ConnectedPool, MetricsListener, MetricsServer};
use run::PoolSize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use vfs::Vfs;

/// The exit code if the pool ended before the mount.
const POOL_ENDED: u8 = 1;
/// Interval between checks that the pool still runs.
const POOL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Mounts a pool at all directories, and waits until it is unmounted everywhere or a signal comes.
pub fn mount(args: &MountArgs) -> Result<u8, Vec<Problem>> {
    let shutdown = MountShutdown::default();
    let (first, last) = (shutdown.clone(), shutdown.clone());
    // Install the handler before anything is mounted, so that no signal can leave a mount behind.
    let received = signals::watch(move || first.unmount_all(), move || last.run_rollback())
        .map_err(|error| cannot_start(&error))?;
    let registration = register(args).map_err(one)?;
    shutdown.set_rollback(registration.rollback());
    let io_runtime = pool_file(args).map(|_| pool::io_runtime()).transpose().map_err(one)?;
    let (pool, what, metrics) = open_pool(args, &shutdown).map_err(one)?;
    let mounts = mount_all((args, io_runtime), &pool, &registration, &shutdown)?;
    if !args.quiet {
        let dirs: Vec<String> = args.dirs.iter().map(|dir| dir.display().to_string()).collect();
        let (all, each) = (dirs.join(", "), dirs.join("`, `tidemill umount "));
        console::say(&format!("{what} is mounted at {all}; `tidemill umount {each}` or Ctrl-C ends it"));
    }
    mounts.iter().for_each(Mount::wait);
    drop(mounts);
    drop(metrics);
    drop(registration);
    Ok(received.exit_code().unwrap_or(if shutdown.state().pool_ended { POOL_ENDED } else { 0 }))
}

fn one(problem: Problem) -> Vec<Problem> {
    vec![problem]
}

fn mount_problems(error: MountError) -> Vec<Problem> {
    one(error.into())
}

fn cannot_start(error: &std::io::Error) -> Vec<Problem> {
    one(Problem::new(format!("cannot start: {error}")))
}

/// Removes what dead pools left, checks every directory, and registers the pool with all its mount
/// points.
fn register(args: &MountArgs) -> Result<PoolRegistration, Problem> {
    mount::availability().map_err(MountError::from)?;
    let runtime = RuntimeDir::of_user()?;
    run::remove_stale_runs(&runtime)?;
    mount::check_points(&args.dirs)?;
    let mut registration = runtime.register(&format!("mount-{}", std::process::id()))?;
    args.dirs.iter().try_for_each(|dir| registration.add_mount(dir))?;
    Ok(registration)
}

/// The pool file, unless an embedded pool is wanted.
fn pool_file(args: &MountArgs) -> Option<PathBuf> {
    let named = args
        .pool
        .clone()
        .map(PathBuf::into_os_string)
        .or_else(|| std::env::var_os("TIDEMILL_POOL").filter(|named| !named.is_empty()));
    named.filter(|path| !path.is_empty() && args.memory.is_none()).map(PathBuf::from)
}

/// The pool, its description for the user, and the server of its metrics.
fn open_pool(args: &MountArgs, shutdown: &MountShutdown) -> Result<(Vfs, String, Option<MetricsServer>), Problem> {
    if let Some(path) = pool_file(args) {
        if args.metrics.is_some() {
            return Err(Problem::new(format!(
                "--metrics is for an embedded pool, and this is the pool of {}",
                path.display()
            ))
            .hint(
                "`tidemill pool start --metrics` has its nodes serve their metrics; --memory mounts an embedded pool",
            ));
        }
        let connected = ConnectedPool::read(&path)?;
        let client = pool::runtime()?.block_on(pool::connect(&path, RetryPolicy::default()))?;
        end_with_pool(connected, client.clone(), shutdown.clone())?;
        return Ok((Vfs::new(client), format!("the pool of {}", path.display()), None));
    }
    let PoolSize { size, lowered } = run::MemoryBudget::read().pool(args.memory)?;
    if let Some(line) = lowered.filter(|_| !args.quiet) {
        console::warn(&line);
    }
    let listener = args.metrics.map(MetricsListener::bind).transpose()?;
    let node = pool::embedded_node(size, run_command::space_wait()?)?;
    let metrics = listener.map(|listener| MetricsServer::start(listener, &node)).transpose()?;
    Ok((Vfs::new(Client::embedded(node)), format!("a pool of {size}"), metrics))
}

/// Starts a thread that ends the mount when the pool ends.
fn end_with_pool(pool: ConnectedPool, client: Client, shutdown: MountShutdown) -> Result<(), Problem> {
    let waits = pool::runtime()?;
    let watch = move || {
        while !waits.block_on(pool.has_ended(&client)) {
            thread::sleep(POOL_CHECK_INTERVAL);
        }
        shutdown.pool_ended(pool.path());
    };
    let started = thread::Builder::new().name("pool".into()).spawn(watch);
    started.map(drop).map_err(|error| Problem::new(format!("no thread to watch the pool: {error}")))
}

/// Mounts every directory, each with its own session. `io_runtime` is the runtime of the
/// connections, if the pool is in other processes.
fn mount_all(
    (args, io_runtime): (&MountArgs, Option<Handle>),
    pool: &Vfs,
    registration: &PoolRegistration,
    shutdown: &MountShutdown,
) -> Result<Vec<Mount>, Vec<Problem>> {
    let options = MountOptions {
        shared: args.shared,
        passthrough: !args.no_passthrough,
        // With a single mount, its kernel handles all locks of programs.
        pool_locks: args.dirs.len() > 1 || io_runtime.is_some(),
        runtime: io_runtime,
        ..MountOptions::named(registration.name())
    };
    let mut mounts = Vec::new();
    for dir in &args.dirs {
        let mount = Mount::new(pool, dir, &options).map_err(mount_problems)?;
        shutdown.add_unmounter(mount.unmounter());
        mounts.push(mount);
    }
    Ok(mounts)
}

/// Shutdown of the mounts on a signal, at any moment of their start.
#[derive(Debug, Clone, Default)]
struct MountShutdown(Arc<Mutex<ShutdownState>>);

/// State of the shutdown.
#[derive(Debug, Default)]
struct ShutdownState {
    begun: bool,
    pool_ended: bool,
    unmounters: Vec<Unmounter>,
    rollback: Option<Rollback>,
}

impl MountShutdown {
    fn state(&self) -> std::sync::MutexGuard<'_, ShutdownState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the cleanup for an immediate exit.
    fn set_rollback(&self, rollback: Rollback) {
        self.state().rollback = Some(rollback);
    }

    /// Adds a mount to unmount; it is unmounted immediately if the shutdown has begun.
    fn add_unmounter(&self, unmounter: Unmounter) {
        let mut state = self.state();
        if state.begun {
            drop(state);
            unmount(&unmounter);
        } else {
            state.unmounters.push(unmounter);
        }
    }

    /// Unmounts everything, which ends the waits of `mount`.
    fn unmount_all(&self) {
        self.begin().iter().for_each(unmount);
    }

    /// Unmounts without waiting for users of the mounts: the pool can serve nothing any more.
    fn pool_ended(&self, path: &Path) {
        self.state().pool_ended = true;
        let unmounters = self.begin();
        if !unmounters.is_empty() {
            console::say(&format!("error: the pool of {} has ended, and its mount ends with it", path.display()));
        }
        for unmounter in unmounters {
            if let Err(error) = unmounter.abandon() {
                tracing::error!("{error}");
            }
        }
    }

    /// Begins the shutdown; returns the mounts so far.
    fn begin(&self) -> Vec<Unmounter> {
        let mut state = self.state();
        state.begun = true;
        std::mem::take(&mut state.unmounters)
    }

    fn run_rollback(&self) {
        let rollback = self.state().rollback.clone();
        rollback.iter().for_each(Rollback::run);
    }
}

fn unmount(unmounter: &Unmounter) {
    match unmounter.unmount() {
        Ok(mount::UnmountOutcome::Detached) => {
            console::say("the pool is in use: it is detached, and ends when nobody uses it any more");
        }
        Ok(_) => {}
        Err(error) => tracing::error!("{error}"),
    }
}

/// Unmounts a directory that `mount` mounted.
pub fn umount(args: &UmountArgs) -> Result<u8, Vec<Problem>> {
    let unmounted = mount::unmount_path(&args.dir).map_err(mount_problems)?;
    if unmounted == mount::UnmountOutcome::Detached {
        console::say(&format!(
            "{} is in use: it is detached, and is gone when nobody uses it any more",
            args.dir.display()
        ));
    }
    Ok(0)
}
