//! A mounted pool, from mount to unmount.
//!
//! ```text
//!   new ---> mounted ---> unmounted     by unmount(), by drop (also during a panic), by `umount`
//!                 \-----> detached      as above, while files are in use: they work until they are
//!                                       closed or this process ends
//! ```
//!
//! A killed process leaves a dead mount behind; the stale cleanup of the runtime directory removes
//! it.

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use fuse_transport::{Config, Device, FuseSession};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use vfs::Vfs;

use crate::{
    attach::{self, UnmountOutcome},
    availability::{MountMethod, availability},
    cache_policy::{CachePolicy, Ttl},
    deferred::DeferredReplies,
    error::MountError,
    filesystem::FuseFs,
    kernel_state::{KernelState, OpenMode},
    metrics::{Counters, Traffic},
    mount_point,
    mountinfo::{self, KIND},
    passthrough::Passthrough,
    session::MountSession,
    shutdown::ShutdownSignal,
};

/// Lower limit of the threads that serve requests: reads of bound inputs may wait for a disk.
const THREADS_MIN: usize = 4;
/// Upper limit of the threads that serve requests: they wait for nothing but such disks, so more
/// threads than processors gain nothing.
const THREADS_MAX: usize = 16;
/// Size of the largest request, bytes: the kernel's own limit (256 pages) unless an administrator
/// raised it.
const REQUEST_BYTES: u32 = 1 << 20;
/// Number of background requests (read-ahead) that the kernel sends before it waits for replies:
/// enough to keep every thread busy.
const BACKGROUND_MAX: u16 = 64;
/// Read-ahead of the kernel, in requests.
const READ_AHEAD_REQUESTS: u32 = 4;
/// Time limit for the session's end after an unmount. The kernel ends it at once, unless another
/// mount namespace still has a copy of the mount.
const END_WAIT: Duration = Duration::from_secs(2);

/// Options of a mount.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own, named where it is made")]
pub struct MountOptions {
    /// Name of the pool, a part of the mount's source. The stale cleanup identifies the pool by it,
    /// so it must be the name of the [`PoolRegistration`](crate::PoolRegistration).
    pub name: String,
    /// Allows other users of the machine to enter; for ordinary users only if `/etc/fuse.conf` has
    /// `user_allow_other`.
    pub shared: bool,
    /// Number of threads that serve requests.
    pub threads: usize,
    /// Files opened only for writing bypass the page cache: no second copy in memory, and no copy
    /// into it. The first read afterwards comes from the pool.
    pub direct_writes: bool,
    /// Lets the kernel read and write extent files and bound inputs itself, where it can
    /// (passthrough; needs `CAP_SYS_ADMIN`).
    pub passthrough: bool,
    /// Holds programs' locks in the pool, so that locks of processes on all its mounts conflict;
    /// each close then sends a flush. Otherwise locks are local to the kernel, which is right for a
    /// pool with one mount.
    pub pool_locks: bool,
    /// Runtime on which requests wait for nodes in other processes. Best is the runtime of the
    /// connections to those nodes, so that an answer wakes no further thread. `None` for a thread
    /// of the mount's own.
    pub runtime: Option<Handle>,
}

impl Default for MountOptions {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            name: "tidemill".to_owned(),
            shared: false,
            threads: processors.clamp(THREADS_MIN, THREADS_MAX),
            direct_writes: true,
            passthrough: true,
            pool_locks: true,
            runtime: None,
        }
    }
}

impl MountOptions {
    /// Default options for the pool of this name.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// A mounted pool. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    unmounter: Unmounter,
    counters: Arc<Counters>,
}

/// Shared parts of a mount that is being made.
struct MountParts<'a> {
    pool_session: &'a MountSession,
    deferred: &'a Arc<DeferredReplies>,
    counters: &'a Arc<Counters>,
}

impl Mount {
    /// Mounts the pool of `vfs` at `point`, an empty directory. The mount works when this returns.
    /// The mount has its own session, so changes made through `vfs` reach it like changes by
    /// another mount.
    pub fn new(vfs: &Vfs, point: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let method = availability()?;
        let real = mount_point::check(point)?;
        let counters = Arc::new(Counters::default());
        let deferred = DeferredReplies::new(Arc::clone(&counters), options.runtime.as_ref());
        let deferred = Arc::new(deferred.map_err(MountError::io("starting threads for", point))?);
        let pool_session = MountSession::open(vfs, &deferred).map_err(|refusal| refused(point, &refusal))?;
        let started = Self::start(
            &method,
            real,
            options,
            &MountParts { pool_session: &pool_session, deferred: &deferred, counters: &counters },
        );
        if started.is_err() {
            deferred.run("end", pool_session.vfs.end_session());
        }
        started
    }

    fn start(
        method: &MountMethod,
        real: PathBuf,
        options: &MountOptions,
        parts: &MountParts<'_>,
    ) -> Result<Self, MountError> {
        let shutdown = Arc::new(ShutdownSignal::default());
        let source = mountinfo::mount_source(&options.name);
        let request = attach::MountRequest { point: &real, source: &source, shared: options.shared };
        let device = attach::attach(method, &request)?;
        // From here on no failure may leave the mount behind.
        let attached = DetachOnDrop(&real);
        let config = config(options, parts.pool_session.ttl);
        let session = FuseSession::start(Device::from(device), &config, |granted, notifier, backings| {
            let passthrough = Passthrough::new(granted.passthrough.then_some(backings));
            let open_mode = OpenMode { direct_writes: options.direct_writes, flush: options.pool_locks };
            let sessions = (parts.pool_session.vfs.clone(), parts.pool_session.uncached_vfs.clone());
            Arc::new(FuseFs {
                vfs: parts.pool_session.vfs.clone(),
                cache_policy: CachePolicy { ttl: parts.pool_session.ttl, pool_locks: options.pool_locks },
                kernel: parts.pool_session.route_invalidations(
                    KernelState::new(open_mode, passthrough, notifier, sessions, Arc::clone(parts.deferred)),
                    granted.pruning,
                ),
                deferred: Arc::clone(parts.deferred),
                counters: Arc::clone(parts.counters),
                shutdown: Arc::clone(&shutdown),
            })
        });
        let session = session.map_err(|error| refused(&real, &error))?;
        let device = device_number(&real)?;
        std::mem::forget(attached);
        widen_read_ahead(&device);
        let state = MountState { point: real, device, shutdown, session: Mutex::new(Some(session)) };
        Ok(Self { unmounter: Unmounter(Arc::new(state)), counters: Arc::clone(parts.counters) })
    }

    /// Mount point, absolute and without links.
    pub fn point(&self) -> &Path {
        &self.unmounter.0.point
    }

    /// Returns a handle that unmounts from any thread, for signal handlers.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Unmounts; lazily if files are still in use, as the result says. A second call does nothing.
    pub fn unmount(&self) -> Result<UnmountOutcome, MountError> {
        self.unmounter.unmount()
    }

    /// Waits until the mount has ended: unmounted here or from outside, and none of its files in
    /// use.
    pub fn wait(&self) {
        self.unmounter.0.shutdown.wait();
    }

    /// True if the mount has ended.
    pub fn has_ended(&self) -> bool {
        self.unmounter.0.shutdown.is_set()
    }

    /// Traffic through the mount so far.
    pub fn traffic(&self) -> Traffic {
        self.counters.now()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        match self.unmount() {
            Ok(UnmountOutcome::Clean | UnmountOutcome::NotMounted) => {}
            Ok(UnmountOutcome::Detached) => {
                tracing::warn!("{} was still in use and has been detached", self.point().display());
            }
            Err(error) => tracing::error!("{error}"),
        }
    }
}

/// Handle that unmounts one mount, from any thread.
#[derive(Debug, Clone)]
pub struct Unmounter(Arc<MountState>);

#[derive(Debug)]
struct MountState {
    point: PathBuf,
    /// Device number, which tells this mount from a later one at the same mount point.
    device: String,
    shutdown: Arc<ShutdownSignal>,
    /// Taken by the first thread that unmounts; other threads wait for the lock until the unmount
    /// is complete.
    session: Mutex<Option<FuseSession>>,
}

impl Unmounter {
    /// Unmounts a pool that has ended, without waiting for files in use: they fail once this
    /// process ends.
    pub fn abandon(&self) -> Result<UnmountOutcome, MountError> {
        let outcome =
            self.0.detach(&mut self.0.session.lock()).map(|detached| detached.unwrap_or(UnmountOutcome::NotMounted));
        self.0.shutdown.set();
        outcome
    }

    /// Like [`Mount::unmount`].
    pub fn unmount(&self) -> Result<UnmountOutcome, MountError> {
        let state = &*self.0;
        let mut session = state.session.lock();
        let Some(outcome) = state.detach(&mut session)? else { return Ok(UnmountOutcome::NotMounted) };
        if outcome == UnmountOutcome::Clean && !state.shutdown.wait_for(END_WAIT) {
            let point = state.point.display();
            tracing::warn!("{point} is unmounted, and the kernel still has it: it may be mounted in another namespace");
        }
        Ok(outcome)
    }
}

impl MountState {
    /// Unmounts, and takes the session; `None` if another thread has already.
    fn detach(&self, session: &mut Option<FuseSession>) -> Result<Option<UnmountOutcome>, MountError> {
        if session.is_none() {
            return Ok(None);
        }
        let outcome = self.detach_if_current()?;
        // The session's threads end when the last open file is closed; after a lazy unmount nothing
        // waits for them.
        drop(session.take());
        Ok(Some(outcome))
    }

    /// Unmounts if this mount is still at its mount point. Its device number identifies it while
    /// the session lives; afterwards another mount may have that number.
    fn detach_if_current(&self) -> Result<UnmountOutcome, MountError> {
        if self.shutdown.is_set() {
            return Ok(UnmountOutcome::NotMounted);
        }
        let mounted = mountinfo::topmost_at(&self.point).map_err(MountError::io("reading", "/proc/self/mountinfo"))?;
        if !mounted.is_some_and(|entry| entry.kind == KIND && entry.device == self.device) {
            return Ok(UnmountOutcome::NotMounted);
        }
        let stuck =
            |error: std::io::Error| MountError::UnmountFailed { point: self.point.clone(), reason: error.to_string() };
        attach::detach(&self.point).map_err(stuck)
    }
}

/// Guard that unmounts when [`Mount::new`] fails.
struct DetachOnDrop<'a>(&'a Path);

impl Drop for DetachOnDrop<'_> {
    fn drop(&mut self) {
        attach::detach(self.0).ok();
    }
}

fn refused(point: &Path, reason: &dyn std::fmt::Display) -> MountError {
    MountError::Refused { point: point.to_owned(), reason: reason.to_string() }
}

fn config(options: &MountOptions, ttl: Ttl) -> Config {
    Config {
        threads: options.threads.max(1),
        request_bytes_max: REQUEST_BYTES,
        background_max: BACKGROUND_MAX,
        read_ahead_bytes: READ_AHEAD_REQUESTS * REQUEST_BYTES,
        passthrough: options.passthrough,
        locks: options.pool_locks,
        // Without invalidations the kernel detects changes of a file by its times.
        explicit_invalidation: ttl == Ttl::UntilInvalidated,
        ..Config::default()
    }
}

fn device_number(point: &Path) -> Result<String, MountError> {
    let mounted = mountinfo::topmost_at(point).map_err(MountError::io("reading", "/proc/self/mountinfo"))?;
    let mounted = mounted.filter(|entry| entry.kind == KIND);
    let lost = || MountError::Refused { point: point.to_owned(), reason: "the mount vanished at once".to_owned() };
    mounted.map(|entry| entry.device).ok_or_else(lost)
}

/// Lets the kernel read several whole requests ahead, which are filled while a program still works
/// on the previous one. The kernel gives FUSE 128 KiB and only root may set more; otherwise cached
/// reads come in smaller requests.
fn widen_read_ahead(device: &str) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&setting, (READ_AHEAD_REQUESTS * REQUEST_BYTES / 1024).to_string()) {
        tracing::debug!("{setting} stays as it is: {error}");
    }
}
