//! How the library begins in a program: it notes what the environment says, and does nothing else until the program touches the pool.

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

/// The process, once it touched the pool.
static CONNECTED: OnceLock<Process> = OnceLock::new();

/// Run by the loader before the program's own code.
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
    // Nobody else runs yet, so nobody misses it meanwhile.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    UMASK.store(umask.bits(), Ordering::Relaxed);
}

/// The process as the pool knows it, connected at first use.
///
/// # Errors
/// Those of the way to the pool, said on standard error the first time: `ENODEV` where no pool is named or none is there, `EACCES` where its token
/// may not be read or is wrong, `EINVAL` where the file is none of a pool, `EPROTO` where versions do not meet, `ENOTCONN` where no node answers.
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

/// When the pool could not be reached, and why; held by who connects.
static CONNECTING: Shared<Option<(Instant, Errno)>> = Shared::new(None);

/// What it is, held: over a fork, so that no copy finds somebody connecting who is not there.
pub fn connecting() -> Holding<'static, Option<(Instant, Errno)>> {
    CONNECTING.hold()
}

/// Whether a descriptor is still what we know of it.
pub fn knows(descriptor: BorrowedFd<'_>) -> bool {
    let _quiet = Quiet::begin();
    CONNECTED.get().is_some_and(|process| process.knows(descriptor))
}

/// The process, if it has touched the pool.
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

/// The thread that connects, as the system numbers it; 0 is none.
static CONNECTS: AtomicI32 = AtomicI32::new(0);

/// While this lives, what its thread asks of the system is the system's: the pool's own file may lie below the prefix.
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

/// Whether this thread is about to find the pool.
pub fn connects() -> bool {
    let connects = CONNECTS.load(Ordering::Relaxed);
    connects != 0 && connects == gettid().as_raw_nonzero().get()
}

/// It was said why the pool is not there.
static SAID: AtomicBool = AtomicBool::new(false);

/// Says why the pool is not there.
fn say(why: &str) {
    say_once(&SAID, why);
}

/// One line on standard error, past all that a program may have buffered; once.
pub fn say_once(said: &AtomicBool, why: &str) {
    if said.swap(true, Ordering::Relaxed) {
        return;
    }
    let line = format!("tidemill: {}: {}\n", String::from_utf8_lossy(ours::prefix()), why.replace('\n', "; "));
    // Nothing is done if nobody reads.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// After a failure nothing is tried for so long: a program that asks for many files is told at once.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What umask(2) is now: the system tells it only by changing it.
pub static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Notes it, also for the pool.
pub fn set_umask(umask: u32) {
    UMASK.store(umask & 0o777, Ordering::Relaxed);
    if let Some(process) = CONNECTED.get() {
        process.set_umask(umask);
    }
}
