//! C's streams. One of a local file is the C library's own over our descriptor; of others the bytes come by functions of ours (`fopencookie`).

use super::descriptors::close;
use super::symbols;
use crate::guard::{open, pointer};
use crate::ours::{self, Said, is_remote, kind};
use crate::stream;
use libc::{FILE, c_char, c_int};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

/// Opens what is ours as a stream.
///
/// # Safety
/// The mode ends with a nul.
unsafe fn opened(said: Said<'_>, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller says so.
    let Some(flags) = stream::flags(unsafe { crate::text::bytes(mode) }) else { return pointer(Err(Errno::INVAL)) };
    match open(said, flags, 0o666) {
        Ok(descriptor) => {
            // SAFETY: the caller says so.
            let stream = unsafe { fdopen(descriptor, mode) };
            if stream.is_null() {
                // SAFETY: ours, and nobody else has it.
                unsafe { close(descriptor) };
            }
            stream
        }
        Err(errno) => pointer(Err(errno)),
    }
}

/// Opens a file for a stream that is there: of the pool, or any for a stream of ours.
///
/// # Safety
/// The path and the mode end with a nul, and the stream is open; `next` is freopen(3) of it as the C library does it.
unsafe fn reopened(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    next: impl FnOnce(*const c_char, *const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller says so.
    unsafe {
        let Some(flags) = stream::flags(crate::text::bytes(mode)) else { return pointer(Err(Errno::INVAL)) };
        // What it has kept is of the file before, which may be the same, and is cut now.
        libc::fflush(stream);
        let opened = super::opens::open(path, flags, 0o666);
        if opened < 0 {
            return null_mut();
        }
        if stream::is_ours(stream) {
            return stream::again(stream, opened, flags);
        }
        let variable = stream::variable(stream);
        if is_remote(opened) && variable.is_none() {
            close(opened);
            return pointer(Err(Errno::OPNOTSUPP));
        }
        let again = super::descriptors::forgotten(fileno(stream), || {
            next(c"/dev/null".as_ptr(), plain(flags).as_ptr()) as usize
        });
        if again == 0 || !stream::put(opened, fileno(stream), flags) {
            return null_mut();
        }
        variable.map_or(stream, |variable| *variable)
    }
}

/// A mode for what is there.
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
        unsafe { match ours::path(path) { Some(said) => opened(said, mode), None => next(path, mode) } }
    }

    /// fdopen(3).
    fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the program called us.
        unsafe { if is_remote(descriptor) { stream::over(descriptor, mode) } else { next(descriptor, mode) } }
    }

    /// freopen(3): the stream keeps its descriptor's number. Without a path it is of the same file, by the system's name of that number.
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE | freopen64 {
        // SAFETY: the program's path, mode and stream.
        unsafe {
            let before = fileno(stream);
            let (ours, known) = (stream::is_ours(stream), kind(before).is_some());
            let same = if path.is_null() && (ours || known) { CString::new(format!("/proc/self/fd/{before}")).ok() } else { None };
            let path = same.as_deref().map_or(path, CStr::as_ptr);
            match ours::path(path) {
                None if !ours && !known => next(path, mode, stream),
                None if !ours => if super::descriptors::forgotten(before, || next(path, mode, stream) as usize) == 0 { null_mut() } else { stream },
                _ => reopened(path, mode, stream, |path, mode| next(path, mode, stream)),
            }
        }
    }

    /// fclose(3).
    fn fclose(stream: *mut FILE) -> c_int {
        // SAFETY: the program's stream, which it gives up.
        unsafe {
            if stream::is_ours(stream) { stream::forget(stream); return next(stream) }
            let descriptor = libc::fileno(stream);
            match kind(descriptor) {
                Some(_) => super::descriptors::closed(descriptor, || next(stream)),
                None => next(stream),
            }
        }
    }

    /// fileno(3).
    fn fileno(stream: *mut FILE) -> c_int | fileno_unlocked {
        match stream::descriptor(stream) {
            Some(descriptor) => descriptor,
            // SAFETY: as the program called us.
            None => unsafe { next(stream) },
        }
    }

    /// tmpfile(3) makes its file where the system has such, never in the pool.
    fn tmpfile() -> *mut FILE | tmpfile64 {
        // SAFETY: it takes nothing.
        unsafe { next() }
    }
}
