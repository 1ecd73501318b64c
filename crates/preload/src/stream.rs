//! Streams whose bytes are not the kernel's: the C library keeps the buffer, and asks these functions for the rest.

use crate::guard::pointer;
use crate::shared::{List, Listed};
use crate::symbols::{close, lseek, read, write};
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Streams of ours and their descriptors.
static OURS: List<(usize, c_int)> = List::new();

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

/// What open(2) is given for a mode of fopen(3); none for what is no mode.
pub fn flags(mode: &[u8]) -> Option<c_int> {
    let (first, more) = mode.split_first()?;
    let both = more.contains(&b'+');
    let way = match (first, both) {
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
    // Behind a comma comes the name of a character set.
    let letters = more.split(|byte| *byte == b',').next().unwrap_or(more);
    let close = if letters.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let new = if letters.contains(&b'x') { libc::O_EXCL } else { 0 };
    Some(way | makes | close | new)
}

/// A stream over a descriptor whose bytes are asked for.
///
/// # Safety
/// The mode ends with a nul.
pub unsafe fn over(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as here.
    unsafe { made(descriptor.cast_unsigned() as usize, descriptor, CStr::from_ptr(mode)) }
}

/// Cookies of standard streams: their descriptors are not closed with them.
const STANDARD: usize = 1 << 40;

/// # Safety
/// The descriptor is the program's.
unsafe fn made(cookie: usize, descriptor: c_int, mode: &CStr) -> *mut FILE {
    let functions = Functions { read: reads, write: writes, seek: seeks, close: closes };
    // SAFETY: the functions take the number that is given for a cookie.
    let stream = unsafe { fopencookie(with_exposed_provenance_mut(cookie), mode.as_ptr(), functions) };
    if stream.is_null() {
        return pointer(Err(Errno::NOMEM));
    }
    all().push((stream.addr(), descriptor));
    stream
}

/// Sees to it that the C library's standard streams move bytes as their descriptor wants it now: over one that only stands in for a file the library would
/// read and write past us, so the variable (`stdout`) gets a stream of ours, and its own back when the descriptor is another.
pub fn follow(descriptor: c_int) {
    let Some(standard) = standard(descriptor) else { return };
    let remote = crate::ours::is_remote(descriptor);
    // SAFETY: the library's variable, and streams that are open.
    unsafe {
        let current = *standard.variable;
        match (remote, is_ours(current)) {
            (true, false) => {
                let stream = made(STANDARD | descriptor.cast_unsigned() as usize, descriptor, standard.mode);
                if stream.is_null() {
                    return;
                }
                if descriptor == libc::STDERR_FILENO {
                    libc::setvbuf(stream, null_mut(), libc::_IONBF, 0);
                }
                standard.own.store(current, Ordering::Relaxed);
                *standard.variable = stream;
            }
            (false, true) => {
                *standard.variable = standard.own.load(Ordering::Relaxed);
                forget(current);
                libc::fclose(current);
            }
            _ => {}
        }
    }
}

/// Writes what a standard stream of ours has kept, before its descriptor is another.
pub fn flush(descriptor: c_int) {
    let Some(standard) = standard(descriptor) else { return };
    // SAFETY: the library's variable, and a stream that is open.
    unsafe {
        let current = *standard.variable;
        if is_ours(current) {
            libc::fflush(current);
        }
    }
}

/// One of the C library's standard streams.
struct Standard {
    /// `stdin`, `stdout` or `stderr`.
    variable: *mut *mut FILE,
    mode: &'static CStr,
    /// What the library made, while ours is in its place.
    own: &'static AtomicPtr<FILE>,
}

fn standard(descriptor: c_int) -> Option<Standard> {
    static OWN: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
    let (name, mode) = match descriptor {
        libc::STDIN_FILENO => (c"stdin", c"r"),
        libc::STDOUT_FILENO => (c"stdout", c"w"),
        libc::STDERR_FILENO => (c"stderr", c"w"),
        _ => return None,
    };
    // SAFETY: a name with its nul; what is found is the library's variable, or null.
    let variable = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<*mut FILE>();
    let own = &OWN[usize::try_from(descriptor).ok()?];
    (!variable.is_null()).then_some(Standard { variable, mode, own })
}

/// The descriptor of a stream of ours.
pub fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if OURS.is_empty() {
        return None;
    }
    all().iter().find(|(known, _)| *known == stream.addr()).map(|(_, descriptor)| *descriptor)
}

/// Whether it is a stream of ours.
pub fn is_ours(stream: *mut FILE) -> bool {
    descriptor(stream).is_some()
}

/// It is about to be closed.
pub fn forget(stream: *mut FILE) {
    all().retain(|(known, _)| *known != stream.addr());
}

/// The list itself: held over a fork.
pub fn all() -> Listed<'static, (usize, c_int)> {
    OURS.hold()
}

fn of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr() & !STANDARD).unwrap_or(-1)
}

unsafe extern "C" fn reads(cookie: *mut c_void, into: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the stream's buffer.
    unsafe { read(of(cookie), into.cast(), bytes) }
}

unsafe extern "C" fn writes(cookie: *mut c_void, from: *const c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the stream's buffer. A stream takes 0 for a failure, and never -1.
    unsafe { write(of(cookie), from.cast(), bytes) }.max(0)
}

unsafe extern "C" fn seeks(cookie: *mut c_void, at: *mut off_t, from: c_int) -> c_int {
    // SAFETY: the stream's number.
    unsafe {
        let found = lseek(of(cookie), *at, from);
        if found < 0 {
            return -1;
        }
        *at = found;
    }
    0
}

unsafe extern "C" fn closes(cookie: *mut c_void) -> c_int {
    if cookie.addr() & STANDARD != 0 {
        return 0;
    }
    // SAFETY: the stream's own descriptor.
    unsafe { close(of(cookie)) }
}
