//! Fork handlers: no operation of the library is under way while the process forks, and the child
//! knows that it is one.

use crate::shared::{Holding, Listed};
use crate::{actions, folder, inherited, settings, start, stream};
use posix::Paused;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::time::Instant;

/// Locks held over a fork: those of the library's own lists, and those of the process's view of the
/// pool. No signal arrives meanwhile. Each guard restores the signal mask that it changed, so the
/// guards drop in reverse order of their creation.
struct Held {
    paused: Option<Paused<'static>>,
    _settings: Holding<'static, settings::Now>,
    _devices: Listed<'static, u64>,
    _opened: Listed<'static, (usize, actions::Noted)>,
    _streams: Listed<'static, (usize, i32)>,
    _folders: Listed<'static, usize>,
    _connecting: Holding<'static, Option<(Instant, Errno)>>,
}

/// Storage of the locks between the fork handlers.
struct Place(UnsafeCell<Option<Held>>);

// SAFETY: the C library lets one thread fork at a time, and only that thread gets here.
unsafe impl Sync for Place {}

static HELD: Place = Place(UnsafeCell::new(None));

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
    let held = Held {
        _connecting: start::connecting(),
        _folders: folder::all(),
        _streams: stream::all(),
        _opened: actions::all(),
        _devices: inherited::known(),
        _settings: settings::now(),
        paused: start::touched().map(posix::Process::pause),
    };
    // SAFETY: this thread forks, so no other thread is here.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn in_parent() {
    after(false);
}

unsafe extern "C" fn in_child() {
    after(true);
}

fn after(is_child: bool) {
    // SAFETY: the thread that ran `before`, or its copy.
    let held = unsafe { (*HELD.0.get()).take() };
    let Some(mut held) = held else { return };
    if let Some(paused) = held.paused.take() {
        paused.end(is_child);
    }
}
