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
/// Descriptor of an unused slot.
const NONE: RawFd = -1;
/// Descriptor of a slot that is being filled.
const CLAIMED: RawFd = -2;

/// The guarded files. The handler may run at any moment, so there is no lock.
static GUARDED_FILES: [GuardedFile; GUARDED_MAX] = [const { GuardedFile::empty() }; GUARDED_MAX];
/// The previous action for SIGBUS, or the error code if our handler could not be installed.
static PREVIOUS_ACTION: OnceLock<Result<SignalAction, i32>> = OnceLock::new();

/// A guarded file.
struct GuardedFile {
    descriptor: AtomicI32,
    /// Device and inode detect a descriptor that was closed and reused for another file.
    device: AtomicU64,
    inode: AtomicU64,
    length: AtomicU64,
}

struct SignalAction(libc::sigaction);

// SAFETY: the action is a plain value and is only read.
unsafe impl Send for SignalAction {}
// SAFETY: the action is a plain value and is only read.
unsafe impl Sync for SignalAction {}

/// Keeps the length of a file while the value lives. To be dropped before the file is closed.
#[derive(Debug)]
pub struct LengthGuard(usize);

impl LengthGuard {
    /// Guards the present length of the file.
    pub fn new(file: &File) -> io::Result<Self> {
        if let Err(code) = PREVIOUS_ACTION.get_or_init(install) {
            return Err(io::Error::from_raw_os_error(*code));
        }
        let status = file.metadata()?;
        let claim = |file_slot: &GuardedFile| {
            file_slot.descriptor.compare_exchange(NONE, CLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let full = || io::Error::new(io::ErrorKind::StorageFull, "there are as many guarded files as there may be");
        let at = GUARDED_FILES.iter().position(claim).ok_or_else(full)?;
        GUARDED_FILES[at].device.store(status.dev(), Ordering::Relaxed);
        GUARDED_FILES[at].inode.store(status.ino(), Ordering::Relaxed);
        GUARDED_FILES[at].length.store(status.len(), Ordering::Relaxed);
        GUARDED_FILES[at].descriptor.store(file.as_raw_fd(), Ordering::Release);
        Ok(Self(at))
    }
}

impl Drop for LengthGuard {
    fn drop(&mut self) {
        GUARDED_FILES[self.0].descriptor.store(NONE, Ordering::Release);
    }
}

impl GuardedFile {
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
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the structure is a local of ours and is filled if the call succeeds.
        let status = unsafe {
            if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
                return false;
            }
            status.assume_init()
        };
        let is_ours =
            status.st_dev == self.device.load(Ordering::Relaxed) && status.st_ino == self.inode.load(Ordering::Relaxed);
        let Ok(length) = libc::off_t::try_from(self.length.load(Ordering::Relaxed)) else { return false };
        // SAFETY: the call touches no memory of ours.
        is_ours && status.st_size < length && unsafe { libc::ftruncate(descriptor, length) } == 0
    }
}

fn install() -> Result<SignalAction, i32> {
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
        Ok(SignalAction(before.assume_init()))
    }
}

/// Handles SIGBUS. The access is retried afterwards: it succeeds if a file was restored, and
/// otherwise faults again and reaches the previous handler.
extern "C" fn on_bus(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the system passes a valid structure; `errno` belongs to this thread and is restored.
    unsafe {
        let (code, errno) = ((*info).si_code, *libc::__errno_location());
        let mut restored = false;
        if code == libc::BUS_ADRERR {
            for file_slot in &GUARDED_FILES {
                restored |= file_slot.restore();
            }
        }
        *libc::__errno_location() = errno;
        if restored {
            return;
        }
        if let Some(Ok(before)) = PREVIOUS_ACTION.get() {
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
