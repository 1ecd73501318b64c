//! What is around each verb that we do in a program's place: no signal interrupts it half done, a panic of ours is an error of the
//! call and not the program's end, and errors become `errno`.

use crate::ours::Said;
use libc::mode_t;
use posix::{Opening, Process};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does a verb. A signal handler that calls one itself waits until the program's own call has ended, for signals come after it.
///
/// # Errors
/// Those of the verb, and of the way to the pool.
pub fn done<T>(verb: impl FnOnce(&Process) -> Result<T, Errno>) -> Result<T, Errno> {
    let _quiet = Quiet::begin();
    catch_unwind(AssertUnwindSafe(|| verb(crate::start::process()?))).unwrap_or(Err(Errno::IO))
}

/// Does a verb that may wait for long, and is told by what it is given whether a signal wants to be seen to. That is seen to when the verb has given up with
/// `EINTR`; where the program wants calls to go on after it (`SA_RESTART`), the verb is done again.
///
/// # Errors
/// Those of the verb, and of the way to the pool.
pub fn waited<T>(verb: impl Fn(&Process, &dyn Fn() -> bool) -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        let quiet = Quiet::begin();
        let interrupted = || waiting().is_some();
        let outcome = catch_unwind(AssertUnwindSafe(|| verb(crate::start::process()?, &interrupted)));
        let outcome = outcome.unwrap_or(Err(Errno::IO));
        let goes_on = matches!(outcome, Err(Errno::INTR)) && waiting() == Some(After::GoesOn);
        drop(quiet);
        if !goes_on {
            return outcome;
        }
    }
}

/// What becomes of a call that a signal has come into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// It goes on.
    GoesOn,
    /// It ends, with `EINTR`, or with the process.
    Ends,
}

/// Opens what is ours; the number is the program's from now on. What the system opens, a fifo or where a link led out of the pool, may make it wait.
///
/// # Errors
/// As open(2).
pub fn open(said: Said<'_>, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
    let quiet = Quiet::begin();
    let opening = done(|process| process.open(said.into(), OFlags::from_bits_retain(flags.cast_unsigned()), mode))?;
    match opening {
        Opening::Pool(descriptor, kind) => {
            crate::inherited::tell_device(descriptor.as_fd());
            crate::ours::note(descriptor.as_raw_fd(), Some(kind));
            crate::stream::follow(descriptor.as_raw_fd());
            Ok(descriptor.into_raw_fd())
        }
        Opening::Host(path) => {
            drop(quiet);
            // SAFETY: a text with its nul, which is not of the pool.
            let opened = unsafe { crate::symbols::open(path.as_ptr(), flags, mode) };
            if opened < 0 { Err(errno().unwrap_or(Errno::IO)) } else { Ok(opened) }
        }
    }
}

/// Flags of calls that take a folder.
pub fn at(flags: c_int) -> AtFlags {
    AtFlags::from_bits_retain(flags.cast_unsigned())
}

/// What C's functions return for it: 0, or -1 and `errno`.
pub fn zero(outcome: Result<(), Errno>) -> c_int {
    number(outcome.map(|()| 0))
}

/// What C's functions return for it: the number, or -1 and `errno`.
pub fn number<N: From<i8>>(outcome: Result<N, Errno>) -> N {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno);
        N::from(-1)
    })
}

/// What C's functions return for it: where it is, or null and `errno`.
pub fn pointer<T>(outcome: Result<*mut T, Errno>) -> *mut T {
    outcome.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// Sets the thread's `errno`.
pub fn set_errno(errno: Errno) {
    // SAFETY: the C library's own place for it, of this thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}

/// Sets the thread's `errno` to what no error is.
pub fn clear_errno() {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = 0 };
}

/// The thread's `errno`, if it is one.
pub fn errno() -> Option<Errno> {
    // SAFETY: as above.
    let number = unsafe { *libc::__errno_location() };
    (number > 0).then(|| Errno::from_raw_os_error(number))
}

/// All signals of this thread wait while it lives: a handler that comes to us would find what its own thread holds. One within another does nothing.
pub struct Quiet {
    /// What the thread kept from itself before; none within another.
    before: Option<libc::sigset_t>,
}

thread_local! {
    /// What this thread kept from itself when its outermost [`Quiet`] began; none outside of one. In no need of a destructor, so it is there as long as the thread.
    static KEPT: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// Whether a signal waits, of those that this thread would see, that ends what it does: with `EINTR`, or with the process.
pub fn ends() -> bool {
    waiting() == Some(After::Ends)
}

impl std::fmt::Debug for Quiet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Quiet").finish_non_exhaustive()
    }
}

impl Quiet {
    /// From now on.
    pub fn begin() -> Self {
        if KEPT.get().is_some() {
            return Self { before: None };
        }
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both sets are ours; `sigfillset` makes the first one whole before it is read, and the call fills the second.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        KEPT.set(Some(before));
        Self { before: Some(before) }
    }
}

/// What becomes of the call of this thread when the signals come that wait; none where none does that anybody would notice.
fn waiting() -> Option<After> {
    pending(&KEPT.get()?)
}

/// What becomes of a call when the signals come that wait, but for those that the program keeps from itself.
fn pending(kept: &libc::sigset_t) -> Option<After> {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the set is ours, and filled where the call succeeds.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return None;
    }
    let mut found = None;
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: both sets are filled.
        let waits = unsafe { libc::sigismember(pending.as_ptr(), signal) == 1 && libc::sigismember(kept, signal) == 0 };
        match if waits { after(signal) } else { None } {
            Some(After::Ends) => return Some(After::Ends),
            Some(After::GoesOn) => found = Some(After::GoesOn),
            None => {}
        }
    }
    found
}

/// What a signal does to a call (signal(7)); none where it does nothing.
fn after(signal: c_int) -> Option<After> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asked; the structure is filled where the call succeeds.
    let action = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_IGN => None,
        libc::SIG_DFL if [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH].contains(&signal) => None,
        libc::SIG_DFL => Some(After::Ends),
        _ if action.sa_flags & libc::SA_RESTART != 0 => Some(After::GoesOn),
        _ => Some(After::Ends),
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        KEPT.set(None);
        // SAFETY: the set is ours.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
}
