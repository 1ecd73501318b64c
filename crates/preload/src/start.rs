//! Startup of the library in a program: it reads the environment, and connects only when the
//! program touches the pool.

use crate::guard::Quiet;
use crate::settings::{self, variable};
use crate::shared::{Holding, Shared};
use crate::{fork, inherited, ours};
use posix::Process;
use rustix::io::Errno;
use rustix::thread::gettid;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// View of the pool, once the program has touched it.
static CONNECTED: OnceLock<Process> = OnceLock::new();

/// Constructor, which the loader runs before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    fork::prepare();
    crate::memory::prepare();
    crate::launch::take_name();
    if let Some(prefix) = variable(settings::PREFIX).filter(|prefix| prefix.starts_with(b"/") && prefix.len() > 1) {
        ours::set_prefix(prefix);
    }
    if let Some(pool) = variable(settings::POOL) {
        settings::keep(pool);
    }
    if let Some(directory) = variable(settings::DIRECTORY) {
        ours::set_inside(true);
        settings::inherit_directory(directory);
    }
    if let Some(devices) = variable(settings::DEVICES) {
        inherited::look(devices);
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
pub fn process() -> Result<&'static Process, Errno> {
    if let Some(process) = CONNECTED.get() {
        return Ok(process);
    }
    let mut failed = connecting();
    if let Some(process) = CONNECTED.get() {
        return Ok(process);
    }
    if let Some((at, errno)) = *failed
        && at.elapsed() < TRIED_AGAIN_AFTER
    {
        return Err(errno);
    }
    match connected() {
        Ok(process) => Ok(CONNECTED.get_or_init(|| process)),
        Err((errno, why)) => {
            say(&why);
            *failed = Some((Instant::now(), errno));
            Err(errno)
        }
    }
}

/// Time and reason of the last failed connection; locked by the thread that connects.
static CONNECTING: Shared<Option<(Instant, Errno)>> = Shared::new(None);

/// Locks the connection state, also over a fork, so that a child does not inherit a lock of a
/// thread that it lacks.
pub fn connecting() -> Holding<'static, Option<(Instant, Errno)>> {
    CONNECTING.hold()
}

/// Returns whether the table entry of a descriptor is still valid.
pub fn knows(descriptor: BorrowedFd<'_>) -> bool {
    let _quiet = Quiet::begin();
    CONNECTED.get().is_some_and(|process| process.knows(descriptor))
}

/// Returns the view of the pool, if the program has touched it.
pub fn touched() -> Option<&'static Process> {
    CONNECTED.get()
}

fn connected() -> Result<Process, (Errno, String)> {
    let Some(pool) = variable(settings::POOL) else {
        return Err((Errno::NODEV, "no pool is named: set TIDEMILL_POOL to its file, or use `tidemill exec`".into()));
    };
    settings::keep(pool);
    let _here = Connecting::begin();
    let process = Process::connect(pool, ours::prefix(), variable(settings::DIRECTORY));
    let process = process.map_err(|(errno, problem)| (errno, problem.to_string()))?;
    process.set_umask(UMASK.load(Ordering::Relaxed));
    posix::when_lost(|refusal| say(&refusal.to_string()));
    posix::ended_by(crate::guard::ends);
    Ok(process)
}

/// Thread id of the thread that connects; 0 for none.
static CONNECTS: AtomicI32 = AtomicI32::new(0);

/// Guard under which this thread's calls all go to the system: the pool file itself may lie below
/// the prefix.
struct Connecting;

impl Connecting {
    fn begin() -> Self {
        CONNECTS.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        Self
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        CONNECTS.store(0, Ordering::Relaxed);
    }
}

/// Returns whether this thread is connecting to the pool.
pub fn connects() -> bool {
    let connects = CONNECTS.load(Ordering::Relaxed);
    connects != 0 && connects == gettid().as_raw_nonzero().get()
}

/// True after the reason for a missing pool was reported.
static SAID: AtomicBool = AtomicBool::new(false);

/// Reports why the pool is not available, once.
fn say(why: &str) {
    say_once(&SAID, why);
}

/// Writes one line to standard error, bypassing the program's buffers, unless `said` shows that it
/// was written before.
pub fn say_once(said: &AtomicBool, why: &str) {
    if said.swap(true, Ordering::Relaxed) {
        return;
    }
    let line = format!("tidemill: {}: {}\n", String::from_utf8_lossy(ours::prefix()), why.replace('\n', "; "));
    // A failure is ignored: standard error may have no reader.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Time after a failed connection in which no new attempt is made, so that a program that opens
/// many files fails fast.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Current umask(2). The system returns it only when it changes.
pub static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Records the umask, also in the view of the pool.
pub fn set_umask(umask: u32) {
    UMASK.store(umask & 0o777, Ordering::Relaxed);
    if let Some(process) = CONNECTED.get() {
        process.set_umask(umask);
    }
}
