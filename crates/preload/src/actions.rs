//! What programs ask to be done in a new one before it runs (`posix_spawn_file_actions_t`), as far as it is of the pool.
//!
//! The C library does these things by itself, in a child that has no library of ours. So what is to be opened is opened here and now, and where the
//! new program is to begin is noted, for what it is told and for the paths behind that.

use crate::guard::{done, open as open_in};
use crate::ours::{self, Said};
use crate::shared::{List, Listed};
use crate::text::bytes;
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t};
use std::ffi::CString;

/// Of one list of actions, by where it lies.
static NOTED: List<(usize, Noted)> = List::new();

/// What is kept of an action.
#[derive(Debug)]
pub enum Noted {
    /// A descriptor that was opened for it.
    Opened(c_int),
    /// The path of the folder where what follows begins.
    Directory(Vec<u8>),
}

/// The list itself: held over a fork.
pub fn all() -> Listed<'static, (usize, Noted)> {
    NOTED.hold()
}

/// Opens now what a new program shall have as `descriptor`. Returns an error's number, or 0.
///
/// # Safety
/// The actions are those of `posix_spawn(3)`.
pub unsafe fn open_for(
    actions: *mut posix_spawn_file_actions_t,
    descriptor: c_int,
    said: Said<'_>,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    match open_in(said, flags | libc::O_CLOEXEC, mode) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), Noted::Opened(opened)));
            // SAFETY: the caller says so.
            unsafe { libc::posix_spawn_file_actions_adddup2(actions, opened, descriptor) }
        }
    }
}

/// Opens now the folder where a new program shall begin, and has `enter` put it among the actions. Returns an error's number, or 0.
pub fn enter(actions: *mut posix_spawn_file_actions_t, said: Said<'_>, enter: impl FnOnce(c_int) -> c_int) -> c_int {
    match open_in(said, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), Noted::Opened(opened)));
            enter(opened)
        }
    }
}

/// Notes that what follows begins in a folder that is open.
pub fn entered(actions: *const posix_spawn_file_actions_t, folder: c_int) {
    let path = match ours::kind(folder) {
        Some(_) => done(|process| process.real_path(Said::Magic(folder, b"").into())).ok(),
        None => system_path(&format!("/proc/self/fd/{folder}")),
    };
    note(actions, path);
}

/// Notes that what follows begins at a path of the host.
///
/// # Safety
/// The path is a text.
pub unsafe fn entered_host(actions: *const posix_spawn_file_actions_t, path: *const c_char) {
    // SAFETY: as here.
    let path = unsafe { bytes(path) };
    let from = if path.starts_with(b"/") {
        Some(Vec::new())
    } else {
        begins_in(actions).or_else(|| system_path("/proc/self/cwd"))
    };
    note(actions, from.map(|from| [from.as_slice(), b"/", path].concat()));
}

fn note(actions: *const posix_spawn_file_actions_t, path: Option<Vec<u8>>) {
    if let Some(path) = path {
        all().push((actions.addr(), Noted::Directory(path)));
    }
}

fn system_path(name: &str) -> Option<Vec<u8>> {
    rustix::fs::readlink(name, Vec::new()).ok().map(CString::into_bytes)
}

/// Where a new program begins after the actions, if they say it.
pub fn begins_in(actions: *const posix_spawn_file_actions_t) -> Option<Vec<u8>> {
    if NOTED.is_empty() {
        return None;
    }
    all().iter().rev().find_map(|(known, noted)| match noted {
        Noted::Directory(path) if *known == actions.addr() => Some(path.clone()),
        _ => None,
    })
}

/// A relative path, from where the actions lead; none where it is what it is.
///
/// # Safety
/// The path is null or a text.
pub unsafe fn from_there(actions: *const posix_spawn_file_actions_t, path: *const c_char) -> Option<CString> {
    // SAFETY: as here.
    let path = unsafe { bytes(path) };
    if path.is_empty() || path.starts_with(b"/") {
        return None;
    }
    CString::new([begins_in(actions)?.as_slice(), b"/", path].concat()).ok()
}

/// Forgets what was noted of these actions, and closes what was opened for them.
pub fn close_for(actions: *const posix_spawn_file_actions_t) {
    if NOTED.is_empty() {
        return;
    }
    let gone: Vec<_> = all().extract_if(.., |(known, _)| *known == actions.addr()).collect();
    for (_, noted) in gone {
        if let Noted::Opened(descriptor) = noted {
            // SAFETY: ours.
            unsafe { crate::symbols::close(descriptor) };
        }
    }
}
