//! Wrapper of every operation that runs in place of a C function. Signals are blocked while it
//! runs, a panic becomes an error of the call instead of ending the program, and errors are stored
//! in `errno`.

use crate::classify::PoolPath;
use libc::mode_t;
use posix::{OpenOutcome, PosixProcess};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an operation with signals blocked. A signal handler that calls into the library runs after
/// the interrupted call.
///
/// # Errors
/// Those of the operation, and of the connection to the pool.
pub fn run<T>(operation: impl FnOnce(&PosixProcess) -> Result<T, Errno>) -> Result<T, Errno> {
    let _signal_mask = SignalMask::block_all();
    let _errno_guard = ErrnoGuard::new();
    catch_unwind(AssertUnwindSafe(|| operation(crate::start::process()?))).unwrap_or(Err(Errno::IO))
}

/// Runs an operation that may block for long. The operation polls the given function, which returns
/// whether a signal is pending, and then gives up with `EINTR`, so that the signal is delivered. If
/// the signal's handler has `SA_RESTART`, the operation starts again.
///
/// # Errors
/// Those of the operation, and of the connection to the pool.
pub fn run_interruptible<T>(
    operation: impl Fn(&PosixProcess, &dyn Fn() -> bool) -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        let signal_mask = SignalMask::block_all();
        let _errno_guard = ErrnoGuard::new();
        let interrupted = || signal_outcome().is_some();
        let outcome = catch_unwind(AssertUnwindSafe(|| operation(crate::start::process()?, &interrupted)));
        let outcome = outcome.unwrap_or(Err(Errno::IO));
        let continues = matches!(outcome, Err(Errno::INTR)) && signal_outcome() == Some(SignalOutcome::Continues);
        drop(signal_mask);
        if !continues {
            return outcome;
        }
    }
}

/// Effect of a signal on the call that it interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalOutcome {
    /// The call continues.
    Continues,
    /// The call ends with `EINTR`, or the process ends.
    Ends,
}

/// Opens a file of the pool; the caller owns the descriptor. A fifo, or a path that a symlink leads
/// out of the pool to, is opened by the kernel with signals enabled, and may block.
///
/// # Errors
/// As open(2).
pub fn open(arg: PoolPath<'_>, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
    let signal_mask = SignalMask::block_all();
    let opening = run(|process| process.open(arg.into(), OFlags::from_bits_retain(flags.cast_unsigned()), mode))?;
    match opening {
        OpenOutcome::Pool(descriptor, kind) => {
            crate::inherited_fds::record_device(descriptor.as_fd());
            crate::classify::record(descriptor.as_raw_fd(), Some(kind));
            crate::stream::sync_standard(descriptor.as_raw_fd());
            Ok(descriptor.into_raw_fd())
        }
        OpenOutcome::Host(path) => {
            drop(signal_mask);
            // SAFETY: a nul-terminated string, which is not a path of the pool.
            let opened = unsafe { crate::symbols::open(path.as_ptr(), flags, mode) };
            if opened < 0 { Err(errno().unwrap_or(Errno::IO)) } else { Ok(opened) }
        }
    }
}

/// Converts the `AT_` flags of a call.
pub fn at(flags: c_int) -> AtFlags {
    AtFlags::from_bits_retain(flags.cast_unsigned())
}

/// Returns the C result: 0, or -1 with `errno` set.
pub fn zero(outcome: Result<(), Errno>) -> c_int {
    number(outcome.map(|()| 0))
}

/// Returns the C result: the number, or -1 with `errno` set.
pub fn number<N: From<i8>>(outcome: Result<N, Errno>) -> N {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno);
        N::from(-1)
    })
}

/// Returns the C result: the pointer, or null with `errno` set.
pub fn pointer<T>(outcome: Result<*mut T, Errno>) -> *mut T {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// Sets the thread's `errno`.
pub fn set_errno(errno: Errno) {
    // SAFETY: the C library's own `errno` of this thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}

/// Sets the thread's `errno` to 0.
pub fn clear_errno() {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = 0 };
}

/// Returns the thread's `errno`, unless it is 0.
pub fn errno() -> Option<Errno> {
    // SAFETY: as above.
    let number = unsafe { *libc::__errno_location() };
    (number > 0).then(|| Errno::from_raw_os_error(number))
}

/// Guard that restores the thread's `errno`. The library's own system calls and locks change it,
/// and a call that succeeds must not: readdir(3) and pathconf(3) tell an error from no result by
/// it.
#[derive(Debug)]
pub struct ErrnoGuard(c_int);

impl ErrnoGuard {
    /// Keeps the current `errno` until the guard is dropped.
    pub fn new() -> Self {
        // SAFETY: the C library's own `errno` of this thread.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Guard that blocks all signals of this thread, because a signal handler that entered the library
/// would need locks that its own thread holds. A nested guard does nothing.
pub struct SignalMask {
    /// Signal mask before the guard; `None` for a nested guard.
    before: Option<libc::sigset_t>,
}

thread_local! {
    /// Signal mask of this thread before its outermost [`SignalMask`]; `None` without one. It needs
    /// no destructor, so it exists as long as the thread.
    static OUTERMOST_MASK: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// Returns whether a pending signal, not blocked by the program, ends the current call with `EINTR`
/// or ends the process.
pub fn is_interrupted() -> bool {
    signal_outcome() == Some(SignalOutcome::Ends)
}

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Quiet").finish_non_exhaustive()
    }
}

impl SignalMask {
    /// Blocks all signals until the guard is dropped.
    pub fn block_all() -> Self {
        if OUTERMOST_MASK.get().is_some() {
            return Self { before: None };
        }
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both sets are local; `sigfillset` initializes the first before it is read, and
        // the call fills the second.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        OUTERMOST_MASK.set(Some(before));
        Self { before: Some(before) }
    }
}

/// Returns the effect of the pending signals on this thread's call; `None` if they have no effect.
fn signal_outcome() -> Option<SignalOutcome> {
    pending_outcome(&OUTERMOST_MASK.get()?)
}

/// Returns the effect of the pending signals that the program itself does not block.
fn pending_outcome(mask: &libc::sigset_t) -> Option<SignalOutcome> {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the set is local, and filled if the call succeeds.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return None;
    }
    let mut found = None;
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: both sets are initialized.
        let waits = unsafe { libc::sigismember(pending.as_ptr(), signal) == 1 && libc::sigismember(mask, signal) == 0 };
        match if waits { outcome_of(signal) } else { None } {
            Some(SignalOutcome::Ends) => return Some(SignalOutcome::Ends),
            Some(SignalOutcome::Continues) => found = Some(SignalOutcome::Continues),
            None => {}
        }
    }
    found
}

/// Returns the effect of a signal on a call (signal(7)); `None` if it has none.
fn outcome_of(signal: c_int) -> Option<SignalOutcome> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call only queries; it fills the structure if it succeeds.
    let action = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_IGN => None,
        libc::SIG_DFL if [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH].contains(&signal) => None,
        libc::SIG_DFL => Some(SignalOutcome::Ends),
        _ if action.sa_flags & libc::SA_RESTART != 0 => Some(SignalOutcome::Continues),
        _ => Some(SignalOutcome::Ends),
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        OUTERMOST_MASK.set(None);
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
}
