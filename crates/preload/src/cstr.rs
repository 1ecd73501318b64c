//! Strings and buffers of C programs.

use rustix::io::Errno;
use std::ffi::{CStr, c_char};

/// Returns a string without its nul; empty for null.
///
/// # Safety
/// Null or a nul-terminated string that outlives the result.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: not null; the rest is guaranteed by the caller.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Returns a string without its nul, after checking that it is readable.
///
/// # Errors
/// `EFAULT` if it is unreadable, `ENAMETOOLONG` if it is longer than any path.
///
/// # Safety
/// The string outlives the result.
pub unsafe fn checked<'a>(text: *const c_char) -> Result<&'a [u8], Errno> {
    let length = crate::memory::length(text)?;
    // SAFETY: that many bytes are readable; the rest is guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(text.cast(), length) })
}

/// Copies as many bytes as fit, and returns their number.
///
/// # Safety
/// `into` has space for `room` bytes.
pub unsafe fn copy_out(from: &[u8], into: *mut c_char, room: usize) -> usize {
    let length = from.len().min(room);
    // SAFETY: guaranteed by the caller; `length` is at most `room`.
    unsafe { from.as_ptr().copy_to(into.cast(), length) };
    length
}

/// Copies a string with its nul into a buffer. Without a buffer, allocates one with malloc(3) of
/// `room` bytes, or of the needed size if `room` is 0.
///
/// # Errors
/// `ERANGE` if it does not fit, `EINVAL` for a buffer of 0 bytes, `EFAULT` if the buffer is not
/// writable, `ENOMEM`.
///
/// # Safety
/// `into` is null or has space for `room` bytes.
pub unsafe fn copy_or_allocate(text: &[u8], into: *mut c_char, room: usize) -> Result<*mut c_char, Errno> {
    let needed = text.len() + 1;
    if room != 0 && room < needed {
        return Err(Errno::RANGE);
    }
    let place = match (into.is_null(), room) {
        // SAFETY: malloc(3) takes any size.
        (true, room) => unsafe { libc::malloc(needed.max(room)) }.cast(),
        (false, 0) => return Err(Errno::INVAL),
        // SAFETY: only checked for access.
        (false, _) if unsafe { crate::memory::writable(into.cast(), needed)? }.len() < needed => {
            return Err(Errno::FAULT);
        }
        (false, _) => into,
    };
    if place.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: a new block or the caller's buffer, with at least the needed size.
    unsafe {
        copy_out(text, place, needed);
        place.add(text.len()).write(0);
    }
    Ok(place)
}
