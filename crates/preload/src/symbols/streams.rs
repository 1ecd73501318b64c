//! C's streams. One of a local file is the C library's own over our descriptor; of others the bytes come by functions of ours (`fopencookie`).

use super::descriptors::{close, dup3};
use super::symbols;
use crate::guard::{number, open, pointer};
use crate::ours::{self, Said, is_remote, kind};
use crate::stream;
use libc::{FILE, c_char, c_int};
use rustix::io::Errno;
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

    /// freopen(3): the stream keeps its descriptor's number.
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE | freopen64 {
        // SAFETY: the program's path, mode and stream.
        unsafe {
            let before = fileno(stream);
            let Some(said) = ours::path(path) else {
                if kind(before).is_none() { return next(path, mode, stream) }
                return if super::descriptors::forgotten(before, || next(path, mode, stream) as usize) == 0 { null_mut() } else { stream };
            };
            let Some(flags) = stream::flags(crate::text::bytes(mode)) else { return pointer(Err(Errno::INVAL)) };
            let opened = number(open(said, flags, 0o666));
            if opened < 0 { return null_mut() }
            if is_remote(opened) || stream::is_ours(stream) {
                close(opened);
                return pointer(Err(Errno::OPNOTSUPP));
            }
            let again = super::descriptors::forgotten(before, || next(c"/dev/null".as_ptr(), mode, stream) as usize);
            let moved = again != 0 && dup3(opened, fileno(stream), flags & libc::O_CLOEXEC) >= 0;
            close(opened);
            if moved { stream } else { null_mut() }
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
