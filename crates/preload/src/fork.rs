//! Fork handlers: no operation of the library is under way while the process forks, and the child
//! knows that it is one.

use crate::signal_safe::{ListGuard, SignalSafeGuard};
use crate::{dirstream, environment, inherited_fds, spawn_actions, start, stream};
use posix::PausedProcess;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::time::Instant;

/// Locks held over a fork: those of the library's own lists, and those of the process's view of the
/// pool. No signal arrives meanwhile. Each guard restores the signal mask that it changed, so the
/// guards drop in reverse order of their creation.
struct ForkLocks {
    paused: Option<PausedProcess<'static>>,
    _environment: SignalSafeGuard<'static, environment::CurrentEnv>,
    _devices: ListGuard<'static, u64>,
    _opened: ListGuard<'static, (usize, spawn_actions::SpawnRecord)>,
    _streams: ListGuard<'static, (usize, i32)>,
    _dirstreams: ListGuard<'static, usize>,
    _connecting: SignalSafeGuard<'static, Option<(Instant, Errno)>>,
}

/// Storage of the locks between the fork handlers.
struct LockStorage(UnsafeCell<Option<ForkLocks>>);

// SAFETY: the C library lets one thread fork at a time, and only that thread gets here.
unsafe impl Sync for LockStorage {}

static LOCKS: LockStorage = LockStorage(UnsafeCell::new(None));

/// Registers the fork handlers. Called once.
pub fn prepare() {
    // SAFETY: called once, before there are threads. The handlers registered first run last before
    // a fork and first after it, so the handlers below may allocate.
    unsafe { dlmalloc::enable_alloc_after_fork() };
    // SAFETY: the handlers take no arguments and are never unloaded.
    unsafe { pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

unsafe extern "C" fn before() {
    let locks = ForkLocks {
        _connecting: start::connecting(),
        _dirstreams: dirstream::all(),
        _streams: stream::all(),
        _opened: spawn_actions::all(),
        _devices: inherited_fds::known(),
        _environment: environment::lock_current(),
        paused: start::connected().map(posix::PosixProcess::pause),
    };
    // SAFETY: this thread forks, so no other thread is here.
    unsafe { *LOCKS.0.get() = Some(locks) };
}

unsafe extern "C" fn in_parent() {
    release(false);
}

unsafe extern "C" fn in_child() {
    release(true);
}

fn release(is_child: bool) {
    // SAFETY: the thread that ran `before`, or its copy.
    let locks = unsafe { (*LOCKS.0.get()).take() };
    let Some(mut locks) = locks else { return };
    if let Some(paused) = locks.paused.take() {
        paused.resume(is_child);
    }
}
