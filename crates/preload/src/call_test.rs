//! Calls of this library inside a program: signals wait, panics become errors, `errno` is set.

use crate::call::{
    SignalMask, at, clear_errno, errno, is_interrupted, number, pointer, run, run_interruptible, set_errno, zero,
};
use crate::pool_test::{exclusive_test, start_pool};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Signals that have arrived at [`handler`].
static ARRIVED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: c_int) {
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

/// Action of a signal, reset when dropped.
struct Action {
    signal: c_int,
    before: libc::sigaction,
}

impl Action {
    /// Sets the action of a signal. The caller has its turn.
    fn set(signal: c_int, action: libc::sighandler_t, flags: c_int) -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: a structure for which zero is valid, and one that the call fills.
        unsafe {
            let mut wanted: libc::sigaction = std::mem::zeroed();
            (wanted.sa_sigaction, wanted.sa_flags) = (action, flags);
            assert_eq!(libc::sigaction(signal, &raw const wanted, before.as_mut_ptr()), 0);
            Self { signal, before: before.assume_init() }
        }
    }

    fn handled(signal: c_int, flags: c_int) -> Self {
        Self::set(signal, handler as extern "C" fn(c_int) as libc::sighandler_t, flags)
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        // SAFETY: the action from before.
        unsafe { libc::sigaction(self.signal, &raw const self.before, null_mut()) };
    }
}

/// Sends a signal to this thread.
fn send(signal: c_int) {
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), signal) }, 0);
}

/// Returns whether this thread blocks a signal.
fn is_blocked(signal: c_int) -> bool {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: the set is local, and filled by the call.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signal) == 1
    }
}

/// Blocks or unblocks a signal as a program does.
fn block(how: c_int, signal: c_int) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is local, and filled by the first call.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        assert_eq!(libc::pthread_sigmask(how, set.as_ptr(), null_mut()), 0);
    }
}

#[test]
fn signals_are_blocked_until_the_outermost_guard_is_dropped() {
    assert!(!is_blocked(libc::SIGUSR2));
    let outer = SignalMask::block_all();
    let inner = SignalMask::block_all();
    assert!([libc::SIGUSR2, libc::SIGINT, libc::SIGTERM, libc::SIGCHLD].into_iter().all(is_blocked));
    drop(inner);
    assert!(is_blocked(libc::SIGUSR2));
    drop(outer);
    assert!(!is_blocked(libc::SIGUSR2));
}

#[test]
fn what_the_program_blocks_itself_stays_blocked() {
    block(libc::SIG_BLOCK, libc::SIGUSR2);
    drop(SignalMask::block_all());
    assert!(is_blocked(libc::SIGUSR2) && !is_blocked(libc::SIGUSR1));
    block(libc::SIG_UNBLOCK, libc::SIGUSR2);
}

#[test]
fn a_signal_that_arrives_in_a_call_is_handled_after_it() {
    let _exclusive = exclusive_test();
    let _action = Action::handled(libc::SIGWINCH, 0);
    let before = ARRIVED.load(Ordering::Relaxed);
    let within = run(|_| {
        send(libc::SIGWINCH);
        Ok(ARRIVED.load(Ordering::Relaxed))
    });
    assert_eq!((within, ARRIVED.load(Ordering::Relaxed)), (Ok(before), before + 1));
}

#[test]
fn a_panic_is_an_error_of_the_call_and_leaves_no_signal_blocked() {
    let (hook, guard) = (std::panic::take_hook(), exclusive_test());
    std::panic::set_hook(Box::new(|_| {}));
    let outcomes = [run::<()>(|_| panic!("as planned")), run_interruptible::<()>(|_, _| panic!("as planned"))];
    std::panic::set_hook(hook);
    drop(guard);
    assert_eq!(outcomes, [Err(Errno::IO), Err(Errno::IO)]);
    assert!(!is_blocked(libc::SIGUSR2));
    assert_eq!(run(|_| Ok(1)), Ok(1), "later calls work");
}

#[test]
fn only_a_pending_signal_that_the_program_would_notice_interrupts_a_call() {
    let _exclusive = exclusive_test();
    let by_handler = handler as extern "C" fn(c_int) as libc::sighandler_t;
    for (signal, action, flags, interrupts) in [
        (libc::SIGURG, libc::SIG_DFL, 0, false),
        (libc::SIGCHLD, libc::SIG_DFL, 0, false),
        (libc::SIGCONT, libc::SIG_DFL, 0, false),
        (libc::SIGHUP, libc::SIG_IGN, 0, false),
        (libc::SIGHUP, by_handler, libc::SA_RESTART, false),
        (libc::SIGHUP, by_handler, 0, true),
        (libc::SIGRTMAX(), by_handler, 0, true),
        (libc::SIGCHLD, by_handler, 0, true),
    ] {
        let _action = Action::set(signal, action, flags);
        let interrupted = run(|_| {
            send(signal);
            Ok(is_interrupted())
        });
        assert_eq!(interrupted, Ok(interrupts), "signal {signal}, action {action:#x}, flags {flags:#x}");
    }
    assert!(!is_interrupted(), "outside a call");
}

#[test]
fn a_signal_that_the_program_blocks_does_not_interrupt_a_call() {
    let _exclusive = exclusive_test();
    let _action = Action::handled(libc::SIGHUP, 0);
    block(libc::SIG_BLOCK, libc::SIGHUP);
    let interrupted = run(|_| {
        send(libc::SIGHUP);
        Ok(is_interrupted())
    });
    block(libc::SIG_UNBLOCK, libc::SIGHUP);
    assert_eq!(interrupted, Ok(false));
}

#[test]
fn a_long_call_ends_with_eintr_or_starts_again_as_the_handler_asks() {
    let _exclusive = exclusive_test();
    for (flags, outcome, starts) in [(0, Err(Errno::INTR), 1), (libc::SA_RESTART, Ok("locked"), 2)] {
        let _action = Action::handled(libc::SIGHUP, flags);
        let (started, before) = (AtomicU32::new(0), ARRIVED.load(Ordering::Relaxed));
        let ended = run_interruptible(|_, interrupted| {
            if started.fetch_add(1, Ordering::Relaxed) == 0 {
                assert!(!interrupted());
                send(libc::SIGHUP);
            }
            if interrupted() { Err(Errno::INTR) } else { Ok("locked") }
        });
        assert_eq!((ended, started.into_inner()), (outcome, starts), "flags {flags:#x}");
        assert_eq!(ARRIVED.load(Ordering::Relaxed), before + 1, "the signal was handled once");
    }
}

#[test]
fn an_error_of_a_long_call_that_is_not_of_a_signal_is_final() {
    start_pool();
    let starts = AtomicU32::new(0);
    let ended: Result<(), _> = run_interruptible(|_, _| {
        starts.fetch_add(1, Ordering::Relaxed);
        Err(Errno::DEADLK)
    });
    assert_eq!((ended, starts.into_inner()), (Err(Errno::DEADLK), 1));
}

#[test]
fn results_have_the_form_of_c_and_success_leaves_errno_alone() {
    clear_errno();
    assert_eq!((zero(Ok(())), number(Ok(7_i64)), errno()), (0, 7, None));
    assert_eq!((zero(Err(Errno::NOENT)), errno()), (-1, Some(Errno::NOENT)));
    assert_eq!((zero(Ok(())), errno()), (0, Some(Errno::NOENT)));
    assert_eq!((number::<isize>(Err(Errno::BADF)), errno()), (-1, Some(Errno::BADF)));
    assert_eq!((number::<i64>(Err(Errno::IO)), errno()), (-1, Some(Errno::IO)));
    let mut value = 1_u8;
    assert_eq!(pointer(Ok(&raw mut value)), &raw mut value);
    assert_eq!((pointer::<u8>(Err(Errno::NOMEM)), errno()), (null_mut(), Some(Errno::NOMEM)));
}

#[test]
fn an_operation_leaves_errno_as_it_was_whatever_its_own_system_calls_set() {
    start_pool();
    let sets = || {
        set_errno(Errno::AGAIN);
        Ok(())
    };
    for before in [None, Some(Errno::DOM)] {
        before.map_or_else(clear_errno, set_errno);
        assert_eq!((run(|_| sets()), errno()), (Ok(()), before));
        assert_eq!((run_interruptible(|_, _| sets()), errno()), (Ok(()), before));
        assert_eq!((run::<()>(|_| sets().and(Err(Errno::IO))), errno()), (Err(Errno::IO), before));
    }
    clear_errno();
}

#[test]
fn errno_is_of_one_thread() {
    set_errno(Errno::DOM);
    std::thread::spawn(|| set_errno(Errno::BUSY)).join().unwrap();
    assert_eq!(errno(), Some(Errno::DOM));
    clear_errno();
}

#[test]
fn flags_that_are_unknown_are_kept_so_that_the_call_can_refuse_them() {
    assert_eq!(at(libc::AT_SYMLINK_NOFOLLOW), AtFlags::SYMLINK_NOFOLLOW);
    assert_eq!(at(0x4000_0000).bits(), 0x4000_0000);
    assert_eq!(at(-1).bits(), u32::MAX);
}
