//! C streams (`FILE`) over placeholder descriptors: the C library buffers, and calls these
//! functions to move bytes.

use crate::call::{pointer, run};
use crate::classify::borrow;
use crate::signal_safe::{List, ListGuard};
use crate::symbols::{close, dup3, lseek, read, write};
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Streams of this library, and their descriptors.
static STREAMS_OF_LIBRARY: List<(usize, c_int)> = List::new();

/// `cookie_io_functions_t` (fopencookie(3)).
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Converts a mode of fopen(3) to flags of open(2); `None` for an invalid mode.
pub fn flags(mode: &[u8]) -> Option<c_int> {
    let (first, more) = mode.split_first()?;
    let both = more.contains(&b'+');
    let access = match (first, both) {
        (_, true) => libc::O_RDWR,
        (b'r', false) => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    let makes = match first {
        b'r' => 0,
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    // A comma is followed by the name of a character set.
    let letters = more.split(|byte| *byte == b',').next().unwrap_or(more);
    let close = if letters.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let new = if letters.contains(&b'x') { libc::O_EXCL } else { 0 };
    Some(access | makes | close | new)
}

/// Makes a stream over a placeholder descriptor, as fdopen(3). A stream that appends sets the
/// descriptor to append, and starts at the end.
///
/// # Safety
/// The mode is nul-terminated.
pub unsafe fn open_over(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: same contract as this function's.
    let mode = unsafe { CStr::from_ptr(mode) };
    match prepare(descriptor, mode.to_bytes()) {
        // SAFETY: the program's own descriptor.
        Ok(()) => unsafe { make_stream(descriptor, mode) },
        Err(errno) => pointer(Err(errno)),
    }
}

/// Prepares a descriptor for a stream of this mode.
fn prepare(descriptor: c_int, mode: &[u8]) -> Result<(), Errno> {
    let wanted = OFlags::from_bits_retain(flags(mode).ok_or(Errno::INVAL)?.cast_unsigned());
    let is = run(|process| process.flags(borrow(descriptor)))?;
    if is & OFlags::RWMODE != OFlags::RDWR && is & OFlags::RWMODE != wanted & OFlags::RWMODE {
        return Err(Errno::INVAL);
    }
    if wanted.contains(OFlags::APPEND) && !is.contains(OFlags::APPEND) {
        run(|process| process.set_flags(borrow(descriptor), is | OFlags::APPEND))?;
    }
    to_end(descriptor, wanted.bits().cast_signed());
    Ok(())
}

/// Moves the descriptor of a stream that only appends to the end.
pub fn to_end(descriptor: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // SAFETY: takes numbers only. A descriptor without an offset, such as a pipe, fails
        // harmlessly.
        unsafe { lseek(descriptor, 0, libc::SEEK_END) };
    }
}

/// # Safety
/// The program owns the descriptor.
unsafe fn make_stream(descriptor: c_int, mode: &CStr) -> *mut FILE {
    let functions = Functions { read: reads, write: writes, seek: seeks, close: closes };
    let cookie = with_exposed_provenance_mut(descriptor.cast_unsigned() as usize);
    // SAFETY: the callbacks take the descriptor number as their cookie.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), functions) };
    if stream.is_null() {
        return pointer(Err(Errno::NOMEM));
    }
    all().push((stream.addr(), descriptor));
    stream
}

/// Keeps a standard stream of the C library in line with its descriptor. Over a placeholder the C
/// library would read and write past this library, so the variable (`stdout`) is set to a stream of
/// this library, and set back when the descriptor is of another kind. The new stream takes over the
/// bytes that the old one has buffered. The stream of this library is never freed here, because a
/// program may have stored its address, and it works with any kind of descriptor.
pub fn sync_standard(descriptor: c_int) {
    let Some(standard) = standard(descriptor) else { return };
    let remote = crate::classify::is_remote(descriptor);
    let [original, replacement] = standard.streams.each_ref().map(|stream| stream.load(Ordering::Relaxed));
    // SAFETY: the C library's variable, and open streams.
    unsafe {
        let current = *standard.variable;
        let is_replaced = !replacement.is_null() && current == replacement;
        if remote && !is_replaced && !current.is_null() && libc::fileno(current) == descriptor {
            let replacement = if replacement.is_null() { make_stream(descriptor, standard.mode) } else { replacement };
            if !replacement.is_null() {
                standard.streams[0].store(current, Ordering::Relaxed);
                standard.streams[1].store(replacement, Ordering::Relaxed);
                transfer(current, replacement);
                *standard.variable = replacement;
            }
        } else if !remote && is_replaced {
            transfer(replacement, original);
            *standard.variable = original;
        }
    }
}

/// Flags in the first word of a `FILE`, which are part of the ABI: `_IO_UNBUFFERED`,
/// `_IO_LINE_BUF`; `_IO_NO_READS`, `_IO_NO_WRITES`, `_IO_IS_APPENDING`.
const UNBUFFERED: c_int = 0x2;
const BY_LINES: c_int = 0x200;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const APPENDS: c_int = 0x1000;
const ACCESS: c_int = NO_READS | NO_WRITES | APPENDS;
/// Index of the pointer to the buffered written bytes, `_IO_write_base`, in a `FILE`.
const WRITE_BASE: usize = 4;

/// Copies the buffering mode and access flags of a stream to another, and moves the written bytes
/// that it has buffered.
///
/// # Safety
/// Both streams are open.
unsafe fn transfer(from: *mut FILE, to: *mut FILE) {
    // SAFETY: guaranteed by the caller; `_IO_write_base` points to that many buffered bytes.
    unsafe {
        let word = *from.cast::<c_int>();
        let mode = match word {
            _ if word & UNBUFFERED != 0 => libc::_IONBF,
            _ if word & BY_LINES != 0 => libc::_IOLBF,
            _ => libc::_IOFBF,
        };
        libc::setvbuf(to, null_mut(), mode, 0);
        let first_word = to.cast::<c_int>();
        *first_word = *first_word & !ACCESS | word & ACCESS;
        // A wide-character stream has its buffer elsewhere.
        let buffered = if fwide(from, 0) > 0 { 0 } else { __fpending(from) };
        if buffered > 0 {
            libc::fwrite(*from.cast::<*const c_void>().add(WRITE_BASE), 1, buffered, to);
            __fpurge(from);
        }
    }
}

unsafe extern "C" {
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
}

/// Standard stream of the C library.
struct Standard {
    /// `stdin`, `stdout` or `stderr`.
    variable: *mut *mut FILE,
    mode: &'static CStr,
    /// The C library's stream, and the one of this library if it was made.
    streams: &'static [AtomicPtr<FILE>; 2],
}

static STREAMS: [[AtomicPtr<FILE>; 2]; 3] = [const { [const { AtomicPtr::new(null_mut()) }; 2] }; 3];

fn standard(descriptor: c_int) -> Option<Standard> {
    let (name, mode) = match descriptor {
        libc::STDIN_FILENO => (c"stdin", c"r"),
        libc::STDOUT_FILENO => (c"stdout", c"w"),
        libc::STDERR_FILENO => (c"stderr", c"w"),
        _ => return None,
    };
    // SAFETY: a nul-terminated name; the result is the C library's variable, or null.
    let variable = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<*mut FILE>();
    let streams = &STREAMS[usize::try_from(descriptor).ok()?];
    (!variable.is_null()).then_some(Standard { variable, mode, streams })
}

/// Reopens a stream of this library over `opened` (freopen(3)), which is closed. Returns the stream
/// that has its place then: for a standard stream it may be the C library's own.
///
/// # Safety
/// The stream is one of this library.
pub unsafe fn reopen(stream: *mut FILE, opened: c_int, flags: c_int) -> *mut FILE {
    let Some(descriptor) = descriptor(stream) else { return pointer(Err(Errno::BADF)) };
    // SAFETY: guaranteed by the caller.
    unsafe {
        __fpurge(stream);
        let access = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if flags & libc::O_APPEND == 0 { 0 } else { APPENDS };
        let first_word = stream.cast::<c_int>();
        *first_word = *first_word & !ACCESS | access | appends;
        let variable = variable(stream);
        if !move_descriptor(opened, descriptor, flags) {
            return null_mut();
        }
        let stream = variable.map_or(stream, |variable| *variable);
        // The offset that the stream has stored is of the old file.
        let only_appends = flags & libc::O_APPEND != 0 && access == NO_READS;
        libc::fseek(stream, 0, if only_appends { libc::SEEK_END } else { libc::SEEK_SET });
        libc::clearerr(stream);
        stream
    }
}

/// Moves a descriptor to the number of a stream's descriptor.
///
/// # Safety
/// The program owns both descriptors.
pub unsafe fn move_descriptor(opened: c_int, descriptor: c_int, flags: c_int) -> bool {
    to_end(opened, flags);
    // SAFETY: guaranteed by the caller.
    unsafe {
        if opened == descriptor {
            return true;
        }
        let moved = dup3(opened, descriptor, flags & libc::O_CLOEXEC) >= 0;
        close(opened);
        moved
    }
}

/// Returns the C library's variable that holds this stream, if it is a standard one. The variable
/// may change when the stream's descriptor changes.
///
/// # Safety
/// The stream is open.
pub unsafe fn variable(stream: *mut FILE) -> Option<*mut *mut FILE> {
    // SAFETY: guaranteed by the caller.
    let standard = standard(unsafe { libc::fileno(stream) })?;
    // SAFETY: the C library's variable.
    (unsafe { *standard.variable } == stream).then_some(standard.variable)
}

/// Returns the descriptor of a stream of this library.
pub fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if STREAMS_OF_LIBRARY.is_empty() {
        return None;
    }
    all().iter().find(|(known, _)| *known == stream.addr()).map(|(_, descriptor)| *descriptor)
}

/// Returns whether a stream is one of this library.
pub fn is_library_stream(stream: *mut FILE) -> bool {
    descriptor(stream).is_some()
}

/// Forgets a stream that is about to be closed. For a standard stream the variable gets the C
/// library's own one.
pub fn forget(stream: *mut FILE) {
    let descriptor = descriptor(stream);
    all().retain(|(known, _)| *known != stream.addr());
    let Some(standard) = descriptor.and_then(standard) else { return };
    let [original, replacement] = standard.streams;
    if replacement.load(Ordering::Relaxed) != stream {
        return;
    }
    replacement.store(null_mut(), Ordering::Relaxed);
    // SAFETY: the C library's variable.
    unsafe {
        if *standard.variable == stream {
            *standard.variable = original.load(Ordering::Relaxed);
        }
    }
}

/// Locks the list of streams, also over a fork.
pub fn all() -> ListGuard<'static, (usize, c_int)> {
    STREAMS_OF_LIBRARY.lock()
}

fn descriptor_of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C" fn reads(cookie: *mut c_void, into: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the stream's buffer.
    unsafe { read(descriptor_of(cookie), into.cast(), bytes) }
}

unsafe extern "C" fn writes(cookie: *mut c_void, from: *const c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the stream's buffer. The C library expects 0 for a failed write, and never -1.
    unsafe { write(descriptor_of(cookie), from.cast(), bytes) }.max(0)
}

unsafe extern "C" fn seeks(cookie: *mut c_void, at: *mut off_t, from: c_int) -> c_int {
    // SAFETY: the C library's pointer to the offset.
    unsafe {
        let found = lseek(descriptor_of(cookie), *at, from);
        if found < 0 {
            return -1;
        }
        *at = found;
    }
    0
}

unsafe extern "C" fn closes(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's own descriptor.
    unsafe { close(descriptor_of(cookie)) }
}

#[cfg(test)]
#[path = "stream_test.rs"]
mod tests;
