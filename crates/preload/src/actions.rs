//! Spawn file actions (`posix_spawn_file_actions_t`) that refer to files of the pool.
//!
//! The C library executes the actions in a child that does not have this library. Therefore files
//! are opened when the action is added, and the directory in which the new program starts is
//! recorded, for its environment and for later relative paths.

use crate::guard::{done, open as open_in};
use crate::ours::{self, Said};
use crate::shared::{List, Listed};
use crate::text::bytes;
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t};
use std::ffi::CString;

/// Records by the address of the `posix_spawn_file_actions_t`.
static NOTED: List<(usize, Noted)> = List::new();

/// Record of an action.
#[derive(Debug)]
pub enum Noted {
    /// Descriptor that was opened for an action.
    Opened(c_int),
    /// Path of the directory in which later actions and the program start.
    Directory(Vec<u8>),
}

/// Locks the records, also over a fork.
pub fn all() -> Listed<'static, (usize, Noted)> {
    NOTED.hold()
}

/// Opens a file that a new program gets as `descriptor`. Returns an error number, or 0.
///
/// # Safety
/// `actions` is valid for `posix_spawn(3)`.
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
            // SAFETY: guaranteed by the caller.
            unsafe { libc::posix_spawn_file_actions_adddup2(actions, opened, descriptor) }
        }
    }
}

/// Opens the directory in which a new program starts, and calls `enter` to add the action. Returns
/// an error number, or 0.
pub fn enter(actions: *mut posix_spawn_file_actions_t, said: Said<'_>, enter: impl FnOnce(c_int) -> c_int) -> c_int {
    match open_in(said, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), Noted::Opened(opened)));
            enter(opened)
        }
    }
}

/// Records that later actions start in an open directory.
pub fn entered(actions: *const posix_spawn_file_actions_t, folder: c_int) {
    let path = match ours::kind(folder) {
        Some(_) => done(|process| process.real_path(Said::Magic(folder, b"").into())).ok(),
        None => system_path(&format!("/proc/self/fd/{folder}")),
    };
    note(actions, path);
}

/// Records that later actions start in a directory of the host.
///
/// # Safety
/// The path is a nul-terminated string.
pub unsafe fn entered_host(actions: *const posix_spawn_file_actions_t, path: *const c_char) {
    // SAFETY: same contract as this function's.
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

/// Returns the directory in which a new program starts, if the actions change it.
pub fn begins_in(actions: *const posix_spawn_file_actions_t) -> Option<Vec<u8>> {
    if NOTED.is_empty() {
        return None;
    }
    all().iter().rev().find_map(|(known, noted)| match noted {
        Noted::Directory(path) if *known == actions.addr() => Some(path.clone()),
        _ => None,
    })
}

/// Returns a relative path joined to the directory that the actions lead to; `None` if the path
/// needs no change.
///
/// # Safety
/// The path is null or a nul-terminated string.
pub unsafe fn from_there(actions: *const posix_spawn_file_actions_t, path: *const c_char) -> Option<CString> {
    // SAFETY: same contract as this function's.
    let path = unsafe { bytes(path) };
    if path.is_empty() || path.starts_with(b"/") {
        return None;
    }
    CString::new([begins_in(actions)?.as_slice(), b"/", path].concat()).ok()
}

/// Forgets the records of these actions, and closes the descriptors that were opened for them.
pub fn close_for(actions: *const posix_spawn_file_actions_t) {
    if NOTED.is_empty() {
        return;
    }
    let gone: Vec<_> = all().extract_if(.., |(known, _)| *known == actions.addr()).collect();
    for (_, noted) in gone {
        if let Noted::Opened(descriptor) = noted {
            // SAFETY: a descriptor that was opened for the actions.
            unsafe { crate::symbols::close(descriptor) };
        }
    }
}
