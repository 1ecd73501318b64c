//! Tree walks that the C library makes without calling this library: glob(3), nftw(3), ftw(3).

use super::attributes::{lstat, stat};
use super::dir::{closedir, opendir, readdir};
use super::{on_path, symbols};
use crate::call::pointer;
use crate::classify;
use crate::nftw::{self, FtwInfo};
use libc::{c_char, c_int, c_void, dirent, size_t};
use rustix::io::Errno;

/// `glob_t`, with the functions that it can call instead of its own (`GLOB_ALTDIRFUNC`).
#[repr(C)]
#[derive(Debug)]
pub struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    read: Option<unsafe extern "C" fn(*mut c_void) -> *mut dirent>,
    open: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}

type ErrorCallback = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// `GLOB_ALTDIRFUNC`.
const BY_FUNCTIONS: c_int = 1 << 9;

symbols! {
    /// glob(3).
    fn glob(pattern: *const c_char, flags: c_int, failed: ErrorCallback, found: *mut Glob) -> c_int | glob64 {
        // SAFETY: the program's pattern.
        if flags & BY_FUNCTIONS != 0 || unsafe { classify::path(pattern) }.is_none() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(pattern, flags, failed, found) };
        }
        // SAFETY: the program's structure. For every path these functions do what the replaced ones
        // do.
        unsafe {
            (*found).close = Some(closes);
            (*found).read = Some(reads);
            (*found).open = Some(opens);
            (*found).lstat = Some(lstat);
            (*found).stat = Some(stat);
            let outcome = next(pattern, flags | BY_FUNCTIONS, failed, found);
            (*found).flags &= !BY_FUNCTIONS;
            outcome
        }
    }
}

symbols! {
    /// `fts_open(3)`: refused for a path of the pool. The C library would walk without calling this
    /// library, and find nothing.
    fn fts_open(paths: *const *mut c_char, options: c_int, order: *mut c_void) -> *mut c_void | fts64_open {
        // SAFETY: the program's null-terminated list of paths.
        unsafe {
            let mut at = paths;
            while !at.is_null() && !(*at).is_null() {
                if classify::path(*at).is_some() {
                    return pointer(Err(Errno::OPNOTSUPP));
                }
                at = at.add(1);
            }
            next(paths, options, order)
        }
    }
}

unsafe extern "C" fn opens(path: *const c_char) -> *mut c_void {
    // SAFETY: glob(3) passes a valid path.
    unsafe { opendir(path) }.cast()
}

unsafe extern "C" fn reads(dir: *mut c_void) -> *mut dirent {
    // SAFETY: glob(3) passes an open directory stream.
    unsafe { readdir(dir.cast()) }
}

unsafe extern "C" fn closes(dir: *mut c_void) {
    // SAFETY: glob(3) passes an open directory stream.
    unsafe { closedir(dir.cast()) };
}

/// Callback of nftw(3).
type NftwCallback = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut FtwInfo) -> c_int;
/// Callback of ftw(3).
type FtwCallback = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;

on_path! {
    /// nftw(3).
    fn nftw(path: *const c_char, callback: NftwCallback, open: c_int, flags: c_int) -> c_int | nftw64, _arg = path(path):
        nftw::walk(path, flags, &mut |path, found, kind, info| callback(path, found, kind, info));
    /// ftw(3).
    fn ftw(path: *const c_char, callback: FtwCallback, open: c_int) -> c_int | ftw64, _arg = path(path):
        nftw::walk(path, 0, &mut |path, found, kind, _| callback(path, found, if kind == nftw::DANGLING { nftw::UNKNOWN } else { kind }));
}

#[cfg(test)]
#[path = "glob_ftw_test.rs"]
mod tests;
