//! Memory maps. The kernel maps local files. A private or read-only map of a file whose bytes are
//! elsewhere is a copy, made by mmap(2). A shared writable map of one is refused (`ENODEV`),
//! because stores would not reach the file.

use crate::call::{run, set_errno};
use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE, PROT_READ, PROT_WRITE,
};
use libc::{c_int, c_void, off_t, size_t};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use std::os::fd::BorrowedFd;

/// Calls mmap(2) in the kernel directly. The C library's function may not be resolved yet when the
/// first memory is mapped.
///
/// # Safety
/// As mmap(2).
pub unsafe fn kernel_mmap(
    place: *mut c_void,
    bytes: size_t,
    may: c_int,
    flags: c_int,
    descriptor: c_int,
    at: off_t,
) -> *mut c_void {
    let (may, flags) =
        (ProtFlags::from_bits_retain(may.cast_unsigned()), MapFlags::from_bits_retain(flags.cast_unsigned()));
    let mapped = if flags.bits() & MAP_ANONYMOUS.cast_unsigned() != 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { mmap_anonymous(place, bytes, may, flags) }
    } else if descriptor < 0 {
        Err(Errno::BADF)
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { mmap(place, bytes, may, flags, BorrowedFd::borrow_raw(descriptor), at.cast_unsigned()) }
    };
    mapped.unwrap_or_else(|errno| {
        set_errno(errno);
        MAP_FAILED
    })
}

/// Maps a copy of a file that has only a placeholder descriptor.
///
/// # Safety
/// As mmap(2).
pub unsafe fn map_copy(
    place: *mut c_void,
    bytes: size_t,
    may: c_int,
    flags: c_int,
    descriptor: c_int,
    at: off_t,
) -> *mut c_void {
    let written = matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE) && may & PROT_WRITE != 0;
    let end = off_t::try_from(bytes).ok().and_then(|bytes| at.checked_add(bytes));
    let refused = if at % 4096 != 0 || bytes == 0 {
        Some(Errno::INVAL)
    } else if at < 0 || end.is_none() {
        Some(Errno::OVERFLOW)
    } else {
        let may = run(|process| process.check_map(crate::classify::borrow(descriptor), written));
        may.err().or(written.then_some(Errno::NODEV))
    };
    if let Some(errno) = refused {
        set_errno(errno);
        return MAP_FAILED;
    }
    let flags = flags & MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: guaranteed by the caller. Bytes after the end of the file stay zero.
    let mapped = unsafe { kernel_mmap(place, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) };
    if mapped == MAP_FAILED {
        return MAP_FAILED;
    }
    // SAFETY: just mapped, and exclusive until it is returned.
    let buffer = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), bytes) };
    let outcome = run(|process| {
        let mut filled = 0;
        while filled < buffer.len() {
            match process.read(
                crate::classify::borrow(descriptor),
                &mut buffer[filled..],
                Some(at + off_t::try_from(filled).unwrap_or(0)),
            )? {
                0 => break,
                more => filled += more,
            }
        }
        Ok(())
    });
    if let Err(errno) = outcome {
        // SAFETY: the new map, which has no other user.
        unsafe { libc::munmap(mapped, bytes) };
        set_errno(errno);
        return MAP_FAILED;
    }
    if may != PROT_READ | PROT_WRITE {
        // SAFETY: the new map.
        unsafe { libc::mprotect(mapped, bytes, may) };
    }
    mapped
}
