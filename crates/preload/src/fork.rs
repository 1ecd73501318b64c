//! Forks: nothing of ours is in the middle of anything when the process is copied, and the copy knows that it is one.

use crate::shared::{Holding, Listed};
use crate::{actions, folder, inherited, settings, start, stream};
use posix::Paused;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::time::Instant;

/// What is held while the process is copied: our own lists, and what the process has of the pool. No signal comes meanwhile: each part gives back
/// the signals that it took, so what was taken last goes first.
struct Held {
    paused: Option<Paused<'static>>,
    _settings: Holding<'static, settings::Now>,
    _devices: Listed<'static, u64>,
    _opened: Listed<'static, (usize, actions::Noted)>,
    _streams: Listed<'static, (usize, i32)>,
    _folders: Listed<'static, usize>,
    _connecting: Holding<'static, Option<(Instant, Errno)>>,
}

/// Where it is kept meanwhile.
struct Place(UnsafeCell<Option<Held>>);

// SAFETY: the C library lets one thread fork at a time, and only that one comes here.
unsafe impl Sync for Place {}

static HELD: Place = Place(UnsafeCell::new(None));

/// Asks the C library to tell us of forks. To be called once.
pub fn prepare() {
    // SAFETY: once, before there are threads. What is asked for first is done last before a fork, and first behind it: so our own part below may take memory.
    unsafe { dlmalloc::enable_alloc_after_fork() };
    // SAFETY: the functions take nothing and are always there.
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
    // SAFETY: this thread forks, so no other is here.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn in_parent() {
    after(false);
}

unsafe extern "C" fn in_child() {
    after(true);
}

fn after(is_child: bool) {
    // SAFETY: the thread that was before, or its copy.
    let held = unsafe { (*HELD.0.get()).take() };
    let Some(mut held) = held else { return };
    if let Some(paused) = held.paused.take() {
        paused.end(is_child);
    }
}
