//! Texts and buffers of C programs.

use rustix::io::Errno;
use std::ffi::{CStr, c_char};

/// A text without its nul; empty for null.
///
/// # Safety
/// Null or ends with a nul, and outlives what is returned.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: not null, and the caller says the rest.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// A text without its nul.
///
/// # Errors
/// `EFAULT` where none can be read, `ENAMETOOLONG` where it is longer than any path.
///
/// # Safety
/// It outlives what is returned.
pub unsafe fn told<'a>(text: *const c_char) -> Result<&'a [u8], Errno> {
    let length = crate::memory::length(text)?;
    // SAFETY: it was read so far, and the caller says the rest.
    Ok(unsafe { std::slice::from_raw_parts(text.cast(), length) })
}

/// Copies as much as there is room for, and says how much that was.
///
/// # Safety
/// `into` has room for `room` bytes.
pub unsafe fn copy_out(from: &[u8], into: *mut c_char, room: usize) -> usize {
    let length = from.len().min(room);
    // SAFETY: the caller says so, and it is not more.
    unsafe { from.as_ptr().copy_to(into.cast(), length) };
    length
}

/// Copies a text with its nul into a buffer, or into memory of the C library's where there is no buffer: then `room` is how much of it, or 0
/// for what is needed.
///
/// # Errors
/// `ERANGE` where it does not fit, `EINVAL` for a buffer of no bytes, `ENOMEM`.
///
/// # Safety
/// `into` is null or has room for `room` bytes.
pub unsafe fn given_or_new(text: &[u8], into: *mut c_char, room: usize) -> Result<*mut c_char, Errno> {
    let needed = text.len() + 1;
    if room != 0 && room < needed {
        return Err(Errno::RANGE);
    }
    let place = match (into.is_null(), room) {
        // SAFETY: any size will do.
        (true, room) => unsafe { libc::malloc(needed.max(room)) }.cast(),
        (false, 0) => return Err(Errno::INVAL),
        // SAFETY: only looked at.
        (false, _) if unsafe { crate::memory::room(into.cast(), needed)? }.len() < needed => return Err(Errno::FAULT),
        (false, _) => into,
    };
    if place.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: it is as long as is needed, its own memory or the caller's.
    unsafe {
        copy_out(text, place, needed);
        place.add(text.len()).write(0);
    }
    Ok(place)
}
