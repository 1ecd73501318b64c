//! Functions that open files by name.

use super::symbols;
use crate::guard::{done, number, open as open_in};
use crate::ours::{self, Said};
use libc::{AT_FDCWD, O_CREAT, O_TRUNC, O_WRONLY, c_char, c_int, mode_t};

/// Opens a file of the pool.
fn opened(said: Said<'_>, flags: c_int, mode: mode_t) -> c_int {
    number(open_in(said, flags, mode))
}

symbols! {
    /// open(2). The mode is taken from the third argument's register even if the caller passes
    /// none; it counts only with flags that create a file.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int | open64 {
        // SAFETY: the program's path argument.
        match unsafe { ours::path(path) } {
            Some(said) => opened(said, flags, mode),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, flags, mode) },
        }
    }

    /// openat(2).
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int | openat64 {
        // SAFETY: the program's path argument.
        match unsafe { ours::path_at(folder, path) } {
            Some(said) => opened(said, flags, mode),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(folder, path, flags, mode) },
        }
    }

    /// `open` with two arguments in programs built with `_FORTIFY_SOURCE`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int | __open64_2 {
        // SAFETY: the program's path argument.
        match unsafe { ours::path(path) } {
            Some(said) => opened(said, flags, 0),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, flags) },
        }
    }

    /// `openat` with three arguments in programs built with `_FORTIFY_SOURCE`.
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int | __openat64_2 {
        // SAFETY: the program's path argument.
        match unsafe { ours::path_at(folder, path) } {
            Some(said) => opened(said, flags, 0),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(folder, path, flags) },
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
        if unsafe { ours::path(template) }.is_none() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(template, suffix, flags) };
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | O_CREAT | libc::O_EXCL;
        // SAFETY: the program's template, which is filled in place.
        number(unsafe { crate::temporary::named(template, suffix, |said| open_in(said, flags, 0o600)) })
    }

    /// mkdtemp(3).
    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        // SAFETY: the program's template.
        if unsafe { ours::path(template) }.is_none() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(template) };
        }
        // SAFETY: the program's template, which is filled in place.
        let made = unsafe { crate::temporary::named(template, 0, |said| done(|process| process.mkdir(said.into(), 0o700))) };
        crate::guard::pointer(made.map(|()| template))
    }
}
