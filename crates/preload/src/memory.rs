//! Checks of the program's memory before it is used: an invalid pointer gives `EFAULT`, as in the
//! kernel, and does not crash the program.
//!
//! The heap and the first thread's stack, where most arguments lie, are known to be valid. For
//! other addresses the kernel is asked, by calls that read or write one word without effect. Of a
//! long range the first and last page are tested, and that everything between them is mapped. Not
//! detected are an inaccessible page inside a mapped range, and a range that another thread unmaps
//! meanwhile.

use crate::call::{errno, set_errno};
use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smallest page size of any processor, bytes.
const PAGE_BYTES: usize = 4096;
/// Invalid `how` of `rt_sigprocmask`, which reads the signal set and then fails.
const INVALID_HOW: c_int = -1;
/// Size of a kernel signal set, bytes.
const SIGNALS_BYTES: usize = 8;
/// Size of a futex, bytes.
const WORD_BYTES: usize = 4;
/// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)`: rewrites a word unchanged.
const OR_NOTHING: c_long = 2 << 28;

/// Start of the heap that brk(2) extends, or an address shortly after it.
static HEAP: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Upper bound of the first thread's stack, bytes. Other threads' stacks are farther away.
const STACK_BYTES_MAX: usize = 64 << 20;

unsafe extern "C" {
    /// Start of the first thread's stack, set by the loader.
    static __libc_stack_end: *const c_void;
}

/// Finds the heap, before the program runs.
pub fn prepare() {
    // SAFETY: the block is freed at once.
    unsafe {
        let first = libc::malloc(1);
        HEAP.store(first.addr(), Ordering::Relaxed);
        libc::free(first);
    }
}

/// Returns whether a range lies on the heap, or on the first thread's stack if this thread runs on
/// it. Both are mapped and writable.
fn is_heap_or_stack(first: usize, last: usize) -> bool {
    let stack_pointer = (&raw const first).addr();
    // SAFETY: the loader has set it, and nothing writes it again.
    let end = unsafe { __libc_stack_end }.addr();
    if stack_pointer <= first && last < end {
        return end - stack_pointer < STACK_BYTES_MAX;
    }
    // SAFETY: `sbrk(0)` only returns the end of the heap.
    HEAP.load(Ordering::Relaxed) <= first && last < unsafe { libc::sbrk(0) }.addr()
}

/// Returns the start of the page after an address.
fn next_page(at: usize) -> usize {
    (at & !(PAGE_BYTES - 1)).saturating_add(PAGE_BYTES)
}

/// Makes a system call, and preserves `errno`.
fn probe(call: impl FnOnce() -> c_long) -> Result<(), Errno> {
    let before = errno();
    let outcome = call();
    let why = errno();
    match before {
        Some(before) => set_errno(before),
        None => crate::call::clear_errno(),
    }
    if outcome < 0 { Err(why.unwrap_or(Errno::FAULT)) } else { Ok(()) }
}

/// Returns whether the page of an address is readable.
pub fn is_readable(at: usize) -> bool {
    // Nothing is mapped in the first page, and the kernel takes a null pointer for no set.
    if at < PAGE_BYTES {
        return false;
    }
    let word: *mut c_void = without_provenance_mut(at & !(SIGNALS_BYTES - 1));
    let none: *mut c_void = null_mut();
    // SAFETY: the kernel reads eight bytes of that page, and does nothing with them.
    let outcome = probe(|| unsafe { libc::syscall(libc::SYS_rt_sigprocmask, INVALID_HOW, word, none, SIGNALS_BYTES) });
    outcome != Err(Errno::FAULT)
}

/// Returns whether the page of an address is writable.
pub fn is_writable(at: usize) -> bool {
    let word: *mut c_void = without_provenance_mut(at & !(WORD_BYTES - 1));
    let wake_op = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel atomically rewrites four bytes of that page unchanged. It wakes only futex
    // waiters, which must tolerate spurious wakeups anyway.
    let outcome = probe(|| unsafe { libc::syscall(libc::SYS_futex, word, wake_op, 0, 0, word, OR_NOTHING) });
    outcome != Err(Errno::FAULT)
}

/// Returns whether a whole range is mapped.
fn is_mapped(start: usize, end: usize) -> bool {
    let start = start & !(PAGE_BYTES - 1);
    // SAFETY: `MS_ASYNC` has no effect.
    probe(|| unsafe { libc::msync(without_provenance_mut(start), end - start, libc::MS_ASYNC) }.into()).is_ok()
}

/// Returns how many bytes from an address on are accessible.
fn usable(at: usize, bytes: usize, is_accessible: fn(usize) -> bool) -> usize {
    if bytes == 0 {
        return 0;
    }
    let last = at.saturating_add(bytes - 1);
    if is_heap_or_stack(at, last) {
        return bytes;
    }
    if !is_accessible(at) {
        return 0;
    }
    let second = next_page(at);
    if last < second || (is_accessible(last) && (last < next_page(second) || is_mapped(second, last))) {
        return bytes;
    }
    (second..=last).step_by(PAGE_BYTES).find(|page| !is_accessible(*page)).map_or(bytes, |page| page - at)
}

/// Borrows the readable part of a range of the program's memory.
///
/// # Errors
/// `EFAULT` if no byte is readable.
///
/// # Safety
/// No thread writes or unmaps the range while it is borrowed.
pub unsafe fn readable<'a>(from: *const c_void, bytes: usize) -> Result<&'a [u8], Errno> {
    match usable(from.addr(), bytes, is_readable) {
        0 if bytes == 0 => Ok(&[]),
        0 => Err(Errno::FAULT),
        // SAFETY: readable; the rest is guaranteed by the caller.
        usable => Ok(unsafe { std::slice::from_raw_parts(from.cast(), usable) }),
    }
}

/// Borrows the writable part of a range of the program's memory.
///
/// # Errors
/// `EFAULT` if no byte is writable.
///
/// # Safety
/// The range is exclusively the library's while it is borrowed.
pub unsafe fn writable<'a>(into: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Errno> {
    match usable(into.addr(), bytes, is_writable) {
        0 if bytes == 0 => Ok(&mut []),
        0 => Err(Errno::FAULT),
        // SAFETY: writable; the rest is guaranteed by the caller.
        usable => Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), usable) }),
    }
}

/// Reads a value from the program's memory.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// If the address is readable, it holds a valid `T`, a structure of plain numbers.
pub unsafe fn load<T: Copy>(from: *const T) -> Result<T, Errno> {
    if usable(from.addr(), size_of::<T>(), is_readable) < size_of::<T>() {
        return Err(Errno::FAULT);
    }
    // SAFETY: readable; the rest is guaranteed by the caller.
    Ok(unsafe { from.read_unaligned() })
}

/// Writes a value to the program's memory.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// If the address is writable, it has space for a `T`.
pub unsafe fn store<T: Copy>(value: T, into: *mut T) -> Result<(), Errno> {
    if usable(into.addr(), size_of::<T>(), is_writable) < size_of::<T>() {
        return Err(Errno::FAULT);
    }
    // SAFETY: writable; the rest is guaranteed by the caller.
    unsafe { into.write_unaligned(value) };
    Ok(())
}

/// Limit of a string's length: no path is longer (`PATH_MAX`).
const TEXT_BYTES_MAX: usize = 4096;

/// Returns the length of a string without its nul.
///
/// # Errors
/// `EFAULT` if it is unreadable, `ENAMETOOLONG` if it has no nul within the limit.
pub fn length(text: *const c_char) -> Result<usize, Errno> {
    let start = text.addr();
    let mut at = start;
    while at - start < TEXT_BYTES_MAX {
        if !is_heap_or_stack(at, at) && !is_readable(at) {
            return Err(Errno::FAULT);
        }
        let end = next_page(at).min(start.saturating_add(TEXT_BYTES_MAX));
        // SAFETY: within one readable page.
        let piece = unsafe { std::slice::from_raw_parts(text.add(at - start).cast::<u8>(), end - at) };
        // SAFETY: within one readable page.
        let found = unsafe { libc::memchr(piece.as_ptr().cast(), 0, piece.len()) };
        if !found.is_null() {
            return Ok(found.addr() - start);
        }
        at = end;
    }
    Err(Errno::NAMETOOLONG)
}
