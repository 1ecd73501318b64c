//! Spawn file actions (`posix_spawn_file_actions_t`) that refer to files of the pool.
//!
//! The C library executes the actions in a child that does not have this library. Therefore files
//! are opened when the action is added, and the directory in which the new program starts is
//! recorded, for its environment and for later relative paths.

use crate::call::{open as open_in, run};
use crate::classify::{self, PoolPath};
use crate::cstr::bytes;
use crate::signal_safe::{List, ListGuard};
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t};
use std::ffi::CString;

/// Records by the address of the `posix_spawn_file_actions_t`.
static RECORDS: List<(usize, SpawnRecord)> = List::new();

/// Record of an action.
#[derive(Debug)]
pub enum SpawnRecord {
    /// Descriptor that was opened for an action.
    Opened(c_int),
    /// Path of the directory in which later actions and the program start.
    Directory(Vec<u8>),
}

/// Locks the records, also over a fork.
pub fn all() -> ListGuard<'static, (usize, SpawnRecord)> {
    RECORDS.lock()
}

/// Opens a file that a new program gets as `descriptor`. Returns an error number, or 0.
///
/// # Safety
/// `actions` is valid for `posix_spawn(3)`.
pub unsafe fn add_open(
    actions: *mut posix_spawn_file_actions_t,
    descriptor: c_int,
    arg: PoolPath<'_>,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    match open_in(arg, flags | libc::O_CLOEXEC, mode) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), SpawnRecord::Opened(opened)));
            // SAFETY: guaranteed by the caller.
            unsafe { libc::posix_spawn_file_actions_adddup2(actions, opened, descriptor) }
        }
    }
}

/// Opens the directory in which a new program starts, and calls `add` to add the action. Returns
/// an error number, or 0.
pub fn add_chdir(
    actions: *mut posix_spawn_file_actions_t,
    arg: PoolPath<'_>,
    add: impl FnOnce(c_int) -> c_int,
) -> c_int {
    match open_in(arg, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), SpawnRecord::Opened(opened)));
            add(opened)
        }
    }
}

/// Records that later actions start in an open directory.
pub fn record_fchdir(actions: *const posix_spawn_file_actions_t, dirfd: c_int) {
    let path = match classify::kind(dirfd) {
        Some(_) => run(|process| process.real_path(PoolPath::Magic(dirfd, b"").into())).ok(),
        None => system_path(&format!("/proc/self/fd/{dirfd}")),
    };
    record(actions, path);
}

/// Records that later actions start in a directory of the host.
///
/// # Safety
/// The path is a nul-terminated string.
pub unsafe fn record_chdir(actions: *const posix_spawn_file_actions_t, path: *const c_char) {
    // SAFETY: same contract as this function's.
    let path = unsafe { bytes(path) };
    let from = if path.starts_with(b"/") {
        Some(Vec::new())
    } else {
        start_directory(actions).or_else(|| system_path("/proc/self/cwd"))
    };
    record(actions, from.map(|from| [from.as_slice(), b"/", path].concat()));
}

fn record(actions: *const posix_spawn_file_actions_t, path: Option<Vec<u8>>) {
    if let Some(path) = path {
        all().push((actions.addr(), SpawnRecord::Directory(path)));
    }
}

fn system_path(name: &str) -> Option<Vec<u8>> {
    rustix::fs::readlink(name, Vec::new()).ok().map(CString::into_bytes)
}

/// Returns the directory in which a new program starts, if the actions change it.
pub fn start_directory(actions: *const posix_spawn_file_actions_t) -> Option<Vec<u8>> {
    if RECORDS.is_empty() {
        return None;
    }
    all().iter().rev().find_map(|(known, record)| match record {
        SpawnRecord::Directory(path) if *known == actions.addr() => Some(path.clone()),
        _ => None,
    })
}

/// Returns a relative path joined to the directory that the actions lead to; `None` if the path
/// needs no change.
///
/// # Safety
/// The path is null or a nul-terminated string.
pub unsafe fn relative_to_start(actions: *const posix_spawn_file_actions_t, path: *const c_char) -> Option<CString> {
    // SAFETY: same contract as this function's.
    let path = unsafe { bytes(path) };
    if path.is_empty() || path.starts_with(b"/") {
        return None;
    }
    CString::new([start_directory(actions)?.as_slice(), b"/", path].concat()).ok()
}

/// Forgets the records of these actions, and closes the descriptors that were opened for them.
pub fn release(actions: *const posix_spawn_file_actions_t) {
    if RECORDS.is_empty() {
        return;
    }
    let removed: Vec<_> = all().extract_if(.., |(known, _)| *known == actions.addr()).collect();
    for (_, record) in removed {
        if let SpawnRecord::Opened(descriptor) = record {
            // SAFETY: a descriptor that was opened for the actions.
            unsafe { crate::symbols::close(descriptor) };
        }
    }
}
