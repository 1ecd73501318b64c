//! Functions that open files by name.

use super::symbols;
use crate::call::{number, open as open_in, run};
use crate::classify::{self, PoolPath};
use libc::{AT_FDCWD, O_CREAT, O_TRUNC, O_WRONLY, c_char, c_int, mode_t};

/// Opens a file of the pool.
fn open_in_pool(arg: PoolPath<'_>, flags: c_int, mode: mode_t) -> c_int {
    number(open_in(arg, flags, mode))
}

symbols! {
    /// open(2). The mode is taken from the third argument's register even if the caller passes
    /// none; it counts only with flags that create a file.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int | open64 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            Some(arg) => open_in_pool(arg, flags, mode),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, flags, mode) },
        }
    }

    /// openat(2).
    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int | openat64 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path_at(dirfd, path) } {
            Some(arg) => open_in_pool(arg, flags, mode),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dirfd, path, flags, mode) },
        }
    }

    /// `open` with two arguments in programs built with `_FORTIFY_SOURCE`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int | __open64_2 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            Some(arg) => open_in_pool(arg, flags, 0),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, flags) },
        }
    }

    /// `openat` with three arguments in programs built with `_FORTIFY_SOURCE`.
    fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int | __openat64_2 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path_at(dirfd, path) } {
            Some(arg) => open_in_pool(arg, flags, 0),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dirfd, path, flags) },
        }
    }

    /// creat(2).
    fn creat(path: *const c_char, mode: mode_t) -> c_int | creat64 {
        // SAFETY: forwards the program's own arguments.
        unsafe { openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode) }
    }

    /// mkstemp(3): creates a file whose name ends with six letters that make it unique.
    fn mkstemp(template: *mut c_char) -> c_int | mkstemp64 {
        // SAFETY: forwards the program's own arguments.
        unsafe { mkostemps(template, 0, 0) }
    }

    /// mkostemp(3).
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int | mkostemp64 {
        // SAFETY: forwards the program's own arguments.
        unsafe { mkostemps(template, 0, flags) }
    }

    /// mkstemps(3).
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int | mkstemps64 {
        // SAFETY: forwards the program's own arguments.
        unsafe { mkostemps(template, suffix, 0) }
    }

    /// mkostemps(3). The C library's own version opens the file without calling this library.
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int | mkostemps64 {
        // SAFETY: the program's template.
        if unsafe { classify::path(template) }.is_none() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(template, suffix, flags) };
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | O_CREAT | libc::O_EXCL;
        // SAFETY: the program's template, which is filled in place.
        number(unsafe { crate::mkstemp::create_unique(template, suffix, |arg| open_in(arg, flags, 0o600)) })
    }

    /// mkdtemp(3).
    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        // SAFETY: the program's template.
        if unsafe { classify::path(template) }.is_none() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(template) };
        }
        // SAFETY: the program's template, which is filled in place.
        let made = unsafe { crate::mkstemp::create_unique(template, 0, |arg| run(|process| process.mkdir(arg.into(), 0o700))) };
        crate::call::pointer(made.map(|()| template))
    }
}

#[cfg(test)]
#[path = "open_test.rs"]
mod tests;
