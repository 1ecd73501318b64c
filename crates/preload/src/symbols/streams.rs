//! C streams (`FILE`). A stream of a local file is the C library's own over a descriptor of the
//! pool; a stream over a placeholder moves its bytes through functions of this library
//! (`fopencookie`).

use super::descriptors::close;
use super::symbols;
use crate::call::{open, pointer};
use crate::classify::{self, PoolPath, is_remote, kind};
use crate::stream;
use libc::{FILE, c_char, c_int};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

/// Opens a file of the pool as a stream.
///
/// # Safety
/// The mode is nul-terminated.
unsafe fn open_stream(arg: PoolPath<'_>, mode: *const c_char) -> *mut FILE {
    // SAFETY: guaranteed by the caller.
    let Some(flags) = stream::flags(unsafe { crate::cstr::bytes(mode) }) else { return pointer(Err(Errno::INVAL)) };
    match open(arg, flags, 0o666) {
        Ok(descriptor) => {
            // fdopen(3) leaves the offset, but fopen(3) starts at the end.
            stream::to_end(descriptor, flags);
            // SAFETY: guaranteed by the caller.
            let stream = unsafe { fdopen(descriptor, mode) };
            if stream.is_null() {
                // SAFETY: a descriptor that was just opened here.
                unsafe { close(descriptor) };
            }
            stream
        }
        Err(errno) => pointer(Err(errno)),
    }
}

/// Reopens an existing stream over a file of the pool, or a stream of this library over any file.
///
/// # Safety
/// The path and the mode are nul-terminated, and the stream is open. `next` is the C library's
/// freopen(3) of it.
unsafe fn reopen_stream(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    next: impl FnOnce(*const c_char, *const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(flags) = stream::flags(crate::cstr::bytes(mode)) else { return pointer(Err(Errno::INVAL)) };
        // Flush first: the buffered bytes are of the old file, which may be the same file and is
        // truncated now.
        libc::fflush(stream);
        let open_stream = super::open::open(path, flags, 0o666);
        if open_stream < 0 {
            return null_mut();
        }
        if stream::is_library_stream(stream) {
            return stream::reopen(stream, open_stream, flags);
        }
        let variable = stream::variable(stream);
        if is_remote(open_stream) && variable.is_none() {
            close(open_stream);
            return pointer(Err(Errno::OPNOTSUPP));
        }
        let again = super::descriptors::close_recorded_with(fileno(stream), || {
            next(c"/dev/null".as_ptr(), plain(flags).as_ptr()) as usize
        });
        if again == 0 || !stream::move_descriptor(open_stream, fileno(stream), flags) {
            return null_mut();
        }
        variable.map_or(stream, |variable| *variable)
    }
}

/// Returns a mode that opens an existing file with this access.
fn plain(flags: c_int) -> &'static CStr {
    match (flags & libc::O_ACCMODE, flags & libc::O_APPEND != 0) {
        (libc::O_RDONLY, _) => c"r",
        (libc::O_WRONLY, false) => c"w",
        (libc::O_WRONLY, true) => c"a",
        (_, false) => c"r+",
        (_, true) => c"a+",
    }
}

symbols! {
    /// fopen(3).
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE | fopen64 {
        // SAFETY: the program's path and mode.
        unsafe { match classify::path(path) { Some(arg) => open_stream(arg, mode), None => next(path, mode) } }
    }

    /// fdopen(3).
    fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
        // SAFETY: forwards the program's own arguments.
        unsafe { if is_remote(descriptor) { stream::open_over(descriptor, mode) } else { next(descriptor, mode) } }
    }

    /// freopen(3): the stream keeps its descriptor number. A null path reopens the same file, by
    /// the system's name of the descriptor.
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE | freopen64 {
        // SAFETY: the program's path, mode and stream.
        unsafe {
            let before = fileno(stream);
            let (owns_lock, known) = (stream::is_library_stream(stream), kind(before).is_some());
            let same = if path.is_null() && (owns_lock || known) { CString::new(format!("/proc/self/fd/{before}")).ok() } else { None };
            let path = same.as_deref().map_or(path, CStr::as_ptr);
            match classify::path(path) {
                None if !owns_lock && !known => next(path, mode, stream),
                None if !owns_lock => if super::descriptors::close_recorded_with(before, || next(path, mode, stream) as usize) == 0 { null_mut() } else { stream },
                _ => reopen_stream(path, mode, stream, |path, mode| next(path, mode, stream)),
            }
        }
    }

    /// fclose(3).
    fn fclose(stream: *mut FILE) -> c_int {
        // SAFETY: the program's stream, which it closes.
        unsafe {
            if stream::is_library_stream(stream) { stream::forget(stream); return next(stream) }
            let descriptor = libc::fileno(stream);
            match kind(descriptor) {
                Some(_) => super::descriptors::close_recorded(descriptor, || next(stream)),
                None => next(stream),
            }
        }
    }

    /// fileno(3).
    fn fileno(stream: *mut FILE) -> c_int | fileno_unlocked {
        match stream::descriptor(stream) {
            Some(descriptor) => descriptor,
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(stream) },
        }
    }

    /// tmpfile(3): creates the file in the system's temporary directory, never in the pool.
    fn tmpfile() -> *mut FILE | tmpfile64 {
        // SAFETY: takes no arguments.
        unsafe { next() }
    }
}
