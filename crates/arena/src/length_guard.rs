//! Protection against SIGBUS for mapped files of fixed length that other processes have descriptors
//! of. If another process truncates a guarded file, a signal handler restores its length when this
//! process touches the missing part. The part that was cut off reads as zeros.
//!
//! Files of a tmpfs cannot be sealed against truncation, as memfds can. Memfds have no huge pages
//! unless the whole machine is configured for them, and fresh memory is written four times as fast
//! in our own tmpfs.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Maximum number of guarded files: a node has 16, and one for each of at most 256 writers.
const GUARDED_MAX: usize = 1024;
/// Descriptor of an unused place.
const NONE: RawFd = -1;
/// Descriptor of a place that is being filled.
const BEGUN: RawFd = -2;

/// The guarded files. The handler may run at any moment, so there is no lock.
static PLACES: [Place; GUARDED_MAX] = [const { Place::empty() }; GUARDED_MAX];
/// The previous action for SIGBUS, or the error code if our handler could not be installed.
static BEFORE: OnceLock<Result<Action, i32>> = OnceLock::new();

/// A guarded file.
struct Place {
    descriptor: AtomicI32,
    /// Device and inode detect a descriptor that was closed and reused for another file.
    device: AtomicU64,
    inode: AtomicU64,
    length: AtomicU64,
}

struct Action(libc::sigaction);

// SAFETY: the action is a plain value and is only read.
unsafe impl Send for Action {}
// SAFETY: the action is a plain value and is only read.
unsafe impl Sync for Action {}

/// Keeps the length of a file while the value lives. To be dropped before the file is closed.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Guards the present length of the file.
    pub fn of(file: &File) -> io::Result<Self> {
        if let Err(code) = BEFORE.get_or_init(install) {
            return Err(io::Error::from_raw_os_error(*code));
        }
        let about = file.metadata()?;
        let take = |place: &Place| {
            place.descriptor.compare_exchange(NONE, BEGUN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let full = || io::Error::new(io::ErrorKind::StorageFull, "there are as many guarded files as there may be");
        let at = PLACES.iter().position(take).ok_or_else(full)?;
        PLACES[at].device.store(about.dev(), Ordering::Relaxed);
        PLACES[at].inode.store(about.ino(), Ordering::Relaxed);
        PLACES[at].length.store(about.len(), Ordering::Relaxed);
        PLACES[at].descriptor.store(file.as_raw_fd(), Ordering::Release);
        Ok(Self(at))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        PLACES[self.0].descriptor.store(NONE, Ordering::Release);
    }
}

impl Place {
    const fn empty() -> Self {
        let (device, inode, length) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { descriptor: AtomicI32::new(NONE), device, inode, length }
    }

    /// Restores the length of the file. Returns true if it was shorter. Async-signal-safe.
    fn restore(&self) -> bool {
        let descriptor = self.descriptor.load(Ordering::Acquire);
        if descriptor < 0 {
            return false;
        }
        let mut about = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the structure is a local of ours and is filled if the call succeeds.
        let about = unsafe {
            if libc::fstat(descriptor, about.as_mut_ptr()) != 0 {
                return false;
            }
            about.assume_init()
        };
        let is_ours =
            about.st_dev == self.device.load(Ordering::Relaxed) && about.st_ino == self.inode.load(Ordering::Relaxed);
        let Ok(length) = libc::off_t::try_from(self.length.load(Ordering::Relaxed)) else { return false };
        // SAFETY: the call touches no memory of ours.
        is_ours && about.st_size < length && unsafe { libc::ftruncate(descriptor, length) } == 0
    }
}

fn install() -> Result<Action, i32> {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_bus;
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: all zeros is a valid `sigaction`. The handler makes only async-signal-safe calls.
    // `before` is filled if the call succeeds.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        }
        Ok(Action(before.assume_init()))
    }
}

/// Handles SIGBUS. The access is retried afterwards: it succeeds if a file was restored, and
/// otherwise faults again and reaches the previous handler.
extern "C" fn on_bus(_: c_int, about: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the system passes a valid structure; `errno` belongs to this thread and is restored.
    unsafe {
        let (code, errno) = ((*about).si_code, *libc::__errno_location());
        let mut restored = false;
        if code == libc::BUS_ADRERR {
            for place in &PLACES {
                restored |= place.restore();
            }
        }
        *libc::__errno_location() = errno;
        if restored {
            return;
        }
        if let Some(Ok(before)) = BEFORE.get() {
            libc::sigaction(libc::SIGBUS, &raw const before.0, ptr::null_mut());
        } else {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
        // A signal that a process sent (`si_code <= 0`) does not recur by itself.
        if code <= 0 {
            libc::raise(libc::SIGBUS);
        }
    }
}
