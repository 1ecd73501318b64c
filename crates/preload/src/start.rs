//! Startup of the library in a program: it reads the environment, and connects only when the
//! program touches the pool.

use crate::call::{ErrnoGuard, SignalMask};
use crate::environment::{self, variable};
use crate::signal_safe::{SignalSafe, SignalSafeGuard};
use crate::{classify, fork, inherited_fds};
use posix::PosixProcess;
use rustix::io::Errno;
use rustix::thread::gettid;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// View of the pool, once the program has touched it.
static CONNECTED: OnceLock<PosixProcess> = OnceLock::new();

/// Constructor, which the loader runs before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    fork::prepare();
    crate::memory::prepare();
    crate::launch::set_process_name();
    if let Some(prefix) = variable(environment::PREFIX).filter(|prefix| prefix.starts_with(b"/") && prefix.len() > 1) {
        classify::set_prefix(prefix);
    }
    if let Some(pool) = variable(environment::POOL) {
        environment::set_start_env(pool);
    }
    if let Some(directory) = variable(environment::DIRECTORY) {
        classify::set_cwd_in_pool(true);
        environment::inherit_directory(directory);
    }
    if let Some(devices) = variable(environment::DEVICES) {
        inherited_fds::find(devices);
    }
    // No other thread runs yet, so none sees the changed umask.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    UMASK.store(umask.bits(), Ordering::Relaxed);
}

/// Returns the program's view of the pool, and connects on first use.
///
/// # Errors
/// Those of the connection to the pool, reported on standard error the first time: `ENODEV` if no
/// pool is named or the named one does not exist, `EACCES` if its token is unreadable or wrong,
/// `EINVAL` if the file is no pool file, `EPROTO` if the versions are incompatible, `ENOTCONN` if
/// no node answers.
pub fn process() -> Result<&'static PosixProcess, Errno> {
    if let Some(process) = CONNECTED.get() {
        return Ok(process);
    }
    let mut failed = connecting();
    if let Some(process) = CONNECTED.get() {
        return Ok(process);
    }
    if let Some((at, errno)) = *failed
        && at.elapsed() < RETRY_AFTER
    {
        return Err(errno);
    }
    match connect() {
        Ok(process) => Ok(CONNECTED.get_or_init(|| process)),
        Err((errno, why)) => {
            report(&why);
            *failed = Some((Instant::now(), errno));
            Err(errno)
        }
    }
}

/// Time and reason of the last failed connection; locked by the thread that connects.
static CONNECTING: SignalSafe<Option<(Instant, Errno)>> = SignalSafe::new(None);

/// Locks the connection state, also over a fork, so that a child does not inherit a lock of a
/// thread that it lacks.
pub fn connecting() -> SignalSafeGuard<'static, Option<(Instant, Errno)>> {
    CONNECTING.lock()
}

/// Returns whether the table entry of a descriptor is still valid.
pub fn is_recorded(descriptor: BorrowedFd<'_>) -> bool {
    let _signal_mask = SignalMask::block_all();
    let _errno_guard = ErrnoGuard::new();
    CONNECTED.get().is_some_and(|process| process.is_recorded(descriptor))
}

/// Returns the view of the pool, if the program has touched it.
pub fn connected() -> Option<&'static PosixProcess> {
    CONNECTED.get()
}

fn connect() -> Result<PosixProcess, (Errno, String)> {
    let Some(pool) = variable(environment::POOL) else {
        return Err((Errno::NODEV, "no pool is named: set TIDEMILL_POOL to its file, or use `tidemill exec`".into()));
    };
    environment::set_start_env(pool);
    let _bypass = BypassGuard::begin();
    let process = PosixProcess::connect(pool, classify::prefix(), variable(environment::DIRECTORY));
    let process = process.map_err(|(errno, problem)| (errno, problem.to_string()))?;
    process.set_umask(UMASK.load(Ordering::Relaxed));
    posix::on_connection_lost(|refusal| report(&refusal.to_string()));
    posix::set_cancel_check(crate::call::is_interrupted);
    Ok(process)
}

/// Thread id of the thread that connects; 0 for none.
static BYPASS_THREAD: AtomicI32 = AtomicI32::new(0);

/// Guard under which this thread's calls all go to the system: the pool file itself may lie below
/// the prefix.
struct BypassGuard;

impl BypassGuard {
    fn begin() -> Self {
        BYPASS_THREAD.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        Self
    }
}

impl Drop for BypassGuard {
    fn drop(&mut self) {
        BYPASS_THREAD.store(0, Ordering::Relaxed);
    }
}

/// Returns whether this thread is connecting to the pool.
pub fn is_bypassed() -> bool {
    let thread = BYPASS_THREAD.load(Ordering::Relaxed);
    thread != 0 && thread == gettid().as_raw_nonzero().get()
}

/// True after the reason for a missing pool was reported.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports why the pool is not available, once.
fn report(why: &str) {
    report_once(&REPORTED, why);
}

/// Writes one line to standard error, bypassing the program's buffers, unless `reported` shows that
/// it was written before.
pub fn report_once(reported: &AtomicBool, why: &str) {
    if reported.swap(true, Ordering::Relaxed) {
        return;
    }
    let line = format!("tidemill: {}: {}\n", String::from_utf8_lossy(classify::prefix()), why.replace('\n', "; "));
    // A failure is ignored: standard error may have no reader.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Time after a failed connection in which no new attempt is made, so that a program that opens
/// many files fails fast.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Current umask(2). The system returns it only when it changes.
pub static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Records the umask, also in the view of the pool.
pub fn set_umask(umask: u32) {
    UMASK.store(umask & 0o777, Ordering::Relaxed);
    if let Some(process) = CONNECTED.get() {
        process.set_umask(umask);
    }
}
