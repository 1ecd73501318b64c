//! Memory of the program, looked at before it is used: what cannot be read or written is `EFAULT`, as the kernel has it, and not the program's end.
//!
//! The heap and the stack of the first thread are there, where most of what programs give lies. Of all else the kernel is asked, by calls that read or write one
//! word and do nothing else. Of a long range the first and the last page are asked for, and whether all between
//! them is mapped; a page amid a range that is mapped and may not be used is not seen. A range may also be unmapped by another thread meanwhile.

use crate::guard::{errno, set_errno};
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least page of any processor, bytes.
const PAGE_BYTES: usize = 4096;
/// What `rt_sigprocmask` has no use for: it reads a set of signals, and then refuses.
const NO_WAY: c_int = -1;
/// Of a set of signals as the kernel has it, bytes.
const SIGNALS_BYTES: usize = 8;
/// Of a futex, bytes.
const WORD_BYTES: usize = 4;
/// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)`: writes a word as it is.
const OR_NOTHING: c_long = 2 << 28;

/// Where the heap begins that grows by brk(2), or a little behind that.
static HEAP: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The stack of the first thread is less; those of others are farther from it.
const STACK_BYTES_MAX: usize = 64 << 20;

unsafe extern "C" {
    /// Where the stack of the first thread begins, as the loader notes it.
    static __libc_stack_end: *const c_void;
}

/// Notes where memory of the program is, before it runs.
pub fn prepare() {
    // SAFETY: it is given back at once.
    unsafe {
        let first = libc::malloc(1);
        HEAP.store(first.addr(), Ordering::Relaxed);
        libc::free(first);
    }
}

/// Whether a range is of the heap, or of the stack that this thread runs on: both are there, and may be written.
fn is_own(first: usize, last: usize) -> bool {
    let here = (&raw const first).addr();
    // SAFETY: the loader has written it, and nobody writes it again.
    let end = unsafe { __libc_stack_end }.addr();
    if here <= first && last < end {
        return end - here < STACK_BYTES_MAX;
    }
    // SAFETY: it tells where the heap ends.
    HEAP.load(Ordering::Relaxed) <= first && last < unsafe { libc::sbrk(0) }.addr()
}

/// Where the page of an address begins that is behind it.
fn next_page(at: usize) -> usize {
    (at & !(PAGE_BYTES - 1)).saturating_add(PAGE_BYTES)
}

/// Asks the system, and keeps `errno` as it was.
fn asked(ask: impl FnOnce() -> c_long) -> Result<(), Errno> {
    let before = errno();
    let outcome = ask();
    let why = errno();
    match before {
        Some(before) => set_errno(before),
        None => crate::guard::clear_errno(),
    }
    if outcome < 0 { Err(why.unwrap_or(Errno::FAULT)) } else { Ok(()) }
}

/// Whether the page of an address can be read.
pub fn is_readable(at: usize) -> bool {
    // Nothing is in the first page, and a null is no set for the kernel.
    if at < PAGE_BYTES {
        return false;
    }
    let word: *mut c_void = without_provenance_mut(at & !(SIGNALS_BYTES - 1));
    let none: *mut c_void = null_mut();
    // SAFETY: the kernel reads eight bytes of that page, and does nothing with them.
    let outcome = asked(|| unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_WAY, word, none, SIGNALS_BYTES) });
    outcome != Err(Errno::FAULT)
}

/// Whether the page of an address can be written.
pub fn is_writable(at: usize) -> bool {
    let word: *mut c_void = without_provenance_mut(at & !(WORD_BYTES - 1));
    let wake_op = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel writes four bytes of that page with what they are, at once, and wakes nobody who has not to look anyway.
    let outcome = asked(|| unsafe { libc::syscall(libc::SYS_futex, word, wake_op, 0, 0, word, OR_NOTHING) });
    outcome != Err(Errno::FAULT)
}

/// Whether all of a range is mapped.
fn is_mapped(start: usize, end: usize) -> bool {
    let start = start & !(PAGE_BYTES - 1);
    // SAFETY: asks for nothing to be done.
    asked(|| unsafe { libc::msync(without_provenance_mut(start), end - start, libc::MS_ASYNC) }.into()).is_ok()
}

/// How many bytes from an address on can be used.
fn usable(at: usize, bytes: usize, can_be: fn(usize) -> bool) -> usize {
    if bytes == 0 {
        return 0;
    }
    let last = at.saturating_add(bytes - 1);
    if is_own(at, last) {
        return bytes;
    }
    if !can_be(at) {
        return 0;
    }
    let second = next_page(at);
    if last < second || (can_be(last) && (last < next_page(second) || is_mapped(second, last))) {
        return bytes;
    }
    (second..=last).step_by(PAGE_BYTES).find(|page| !can_be(*page)).map_or(bytes, |page| page - at)
}

/// What of so many bytes can be read.
///
/// # Errors
/// `EFAULT` where none can.
///
/// # Safety
/// Nobody writes or unmaps it as long as it is used.
pub unsafe fn value<'a>(from: *const c_void, bytes: usize) -> Result<&'a [u8], Errno> {
    match usable(from.addr(), bytes, is_readable) {
        0 if bytes == 0 => Ok(&[]),
        0 => Err(Errno::FAULT),
        // SAFETY: readable, and the caller says the rest.
        usable => Ok(unsafe { std::slice::from_raw_parts(from.cast(), usable) }),
    }
}

/// Where of so many bytes can be written.
///
/// # Errors
/// `EFAULT` where none can.
///
/// # Safety
/// It is for us alone as long as it is used.
pub unsafe fn room<'a>(into: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Errno> {
    match usable(into.addr(), bytes, is_writable) {
        0 if bytes == 0 => Ok(&mut []),
        0 => Err(Errno::FAULT),
        // SAFETY: writable, and the caller says the rest.
        usable => Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), usable) }),
    }
}

/// Reads something of the program's.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// A structure of numbers is there, if anything is.
pub unsafe fn fetched<T: Copy>(from: *const T) -> Result<T, Errno> {
    if usable(from.addr(), size_of::<T>(), is_readable) < size_of::<T>() {
        return Err(Errno::FAULT);
    }
    // SAFETY: readable, and the caller says the rest.
    Ok(unsafe { from.read_unaligned() })
}

/// Gives something to the program.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// There is room for it, if there is any.
pub unsafe fn given<T: Copy>(value: T, into: *mut T) -> Result<(), Errno> {
    if usable(into.addr(), size_of::<T>(), is_writable) < size_of::<T>() {
        return Err(Errno::FAULT);
    }
    // SAFETY: writable, and the caller says the rest.
    unsafe { into.write_unaligned(value) };
    Ok(())
}

/// How much of a text is read: no path is longer (`PATH_MAX`).
const TEXT_BYTES_MAX: usize = 4096;

/// How long a text is without its nul.
///
/// # Errors
/// `EFAULT` where it cannot be read, `ENAMETOOLONG` where no nul is where one must be.
pub fn length(text: *const c_char) -> Result<usize, Errno> {
    let start = text.addr();
    let mut at = start;
    while at - start < TEXT_BYTES_MAX {
        if !is_own(at, at) && !is_readable(at) {
            return Err(Errno::FAULT);
        }
        let end = next_page(at).min(start.saturating_add(TEXT_BYTES_MAX));
        // SAFETY: in one page, which can be read.
        let piece = unsafe { std::slice::from_raw_parts(text.add(at - start).cast::<u8>(), end - at) };
        // SAFETY: likewise.
        let found = unsafe { libc::memchr(piece.as_ptr().cast(), 0, piece.len()) };
        if !found.is_null() {
            return Ok(found.addr() - start);
        }
        at = end;
    }
    Err(Errno::NAMETOOLONG)
}
