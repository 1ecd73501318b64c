//! Streams whose bytes are not the kernel's: the C library keeps the buffer, and asks these functions for the rest.

use crate::guard::{done, pointer};
use crate::ours::borrowed;
use crate::shared::{List, Listed};
use crate::symbols::{close, dup3, lseek, read, write};
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use rustix::fs::OFlags;
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

/// A stream over a descriptor whose bytes are asked for, as fdopen(3) makes it: one that appends does so from now on, and is at the end.
///
/// # Safety
/// The mode ends with a nul.
pub unsafe fn over(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as here.
    let mode = unsafe { CStr::from_ptr(mode) };
    match fitted(descriptor, mode.to_bytes()) {
        // SAFETY: the program's own descriptor.
        Ok(()) => unsafe { made(descriptor, mode) },
        Err(errno) => pointer(Err(errno)),
    }
}

/// Makes a descriptor ready for a stream of this mode.
fn fitted(descriptor: c_int, mode: &[u8]) -> Result<(), Errno> {
    let wanted = OFlags::from_bits_retain(flags(mode).ok_or(Errno::INVAL)?.cast_unsigned());
    let is = done(|process| process.flags(borrowed(descriptor)))?;
    if is & OFlags::RWMODE != OFlags::RDWR && is & OFlags::RWMODE != wanted & OFlags::RWMODE {
        return Err(Errno::INVAL);
    }
    if wanted.contains(OFlags::APPEND) && !is.contains(OFlags::APPEND) {
        done(|process| process.set_flags(borrowed(descriptor), is | OFlags::APPEND))?;
    }
    to_end(descriptor, wanted.bits().cast_signed());
    Ok(())
}

/// A stream that only appends begins at the end.
fn to_end(descriptor: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // SAFETY: a number. What cannot be sought in, as a pipe, has no end.
        unsafe { lseek(descriptor, 0, libc::SEEK_END) };
    }
}

/// # Safety
/// The descriptor is the program's.
unsafe fn made(descriptor: c_int, mode: &CStr) -> *mut FILE {
    let functions = Functions { read: reads, write: writes, seek: seeks, close: closes };
    let cookie = with_exposed_provenance_mut(descriptor.cast_unsigned() as usize);
    // SAFETY: the functions take the number that is given for a cookie.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), functions) };
    if stream.is_null() {
        return pointer(Err(Errno::NOMEM));
    }
    all().push((stream.addr(), descriptor));
    stream
}

/// Sees to it that the C library's standard streams move bytes as their descriptor wants it now: over one that only stands in for a file the library would
/// read and write past us, so the variable (`stdout`) gets a stream of ours, and its own back when the descriptor is another. Either goes on with what the
/// other has kept, as if they were one. Ours stays, for who has noted where it is, and reads and writes whatever its descriptor is.
pub fn follow(descriptor: c_int) {
    let Some(standard) = standard(descriptor) else { return };
    let remote = crate::ours::is_remote(descriptor);
    let [own, ours] = standard.streams.each_ref().map(|stream| stream.load(Ordering::Relaxed));
    // SAFETY: the library's variable, and streams that are open.
    unsafe {
        let current = *standard.variable;
        let is_ours = !ours.is_null() && current == ours;
        if remote && !is_ours && !current.is_null() && libc::fileno(current) == descriptor {
            let ours = if ours.is_null() { made(descriptor, standard.mode) } else { ours };
            if !ours.is_null() {
                standard.streams[0].store(current, Ordering::Relaxed);
                standard.streams[1].store(ours, Ordering::Relaxed);
                go_on(current, ours);
                *standard.variable = ours;
            }
        } else if !remote && is_ours {
            go_on(ours, own);
            *standard.variable = own;
        }
    }
}

/// Of the first word of a `FILE`, as programs are compiled with it: `_IO_UNBUFFERED`, `_IO_LINE_BUF`; `_IO_NO_READS`, `_IO_NO_WRITES`, `_IO_IS_APPENDING`.
const UNBUFFERED: c_int = 0x2;
const BY_LINES: c_int = 0x200;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const APPENDS: c_int = 0x1000;
const WAYS: c_int = NO_READS | NO_WRITES | APPENDS;
/// Of its pointers, the one to what was written and kept, `_IO_write_base`.
const KEPT: usize = 4;

/// Has a stream keep its bytes as another does, and takes over what that one has kept.
///
/// # Safety
/// Both are open.
unsafe fn go_on(from: *mut FILE, to: *mut FILE) {
    // SAFETY: the caller says so; so many bytes are kept where the pointer says.
    unsafe {
        let word = *from.cast::<c_int>();
        let how = match word {
            _ if word & UNBUFFERED != 0 => libc::_IONBF,
            _ if word & BY_LINES != 0 => libc::_IOLBF,
            _ => libc::_IOFBF,
        };
        libc::setvbuf(to, null_mut(), how, 0);
        let ways = to.cast::<c_int>();
        *ways = *ways & !WAYS | word & WAYS;
        // One of wide characters has them elsewhere.
        let kept = if fwide(from, 0) > 0 { 0 } else { __fpending(from) };
        if kept > 0 {
            libc::fwrite(*from.cast::<*const c_void>().add(KEPT), 1, kept, to);
            __fpurge(from);
        }
    }
}

unsafe extern "C" {
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
}

/// One of the C library's standard streams.
struct Standard {
    /// `stdin`, `stdout` or `stderr`.
    variable: *mut *mut FILE,
    mode: &'static CStr,
    /// What the library made, and ours, once there was one.
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
    // SAFETY: a name with its nul; what is found is the library's variable, or null.
    let variable = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<*mut FILE>();
    let streams = &STREAMS[usize::try_from(descriptor).ok()?];
    (!variable.is_null()).then_some(Standard { variable, mode, streams })
}

/// Has a stream of ours go on with what was opened (freopen(3)), which is given up. The stream that has its place then: a standard one may be the C
/// library's own.
///
/// # Safety
/// The stream is ours.
pub unsafe fn again(stream: *mut FILE, opened: c_int, flags: c_int) -> *mut FILE {
    let Some(descriptor) = descriptor(stream) else { return pointer(Err(Errno::BADF)) };
    // SAFETY: the caller says so.
    unsafe {
        __fpurge(stream);
        let way = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if flags & libc::O_APPEND == 0 { 0 } else { APPENDS };
        let ways = stream.cast::<c_int>();
        *ways = *ways & !WAYS | way | appends;
        let variable = variable(stream);
        if !put(opened, descriptor, flags) {
            return null_mut();
        }
        let stream = variable.map_or(stream, |variable| *variable);
        // What it noted of its place was another file's.
        let only_appends = flags & libc::O_APPEND != 0 && way == NO_READS;
        libc::fseek(stream, 0, if only_appends { libc::SEEK_END } else { libc::SEEK_SET });
        libc::clearerr(stream);
        stream
    }
}

/// Puts what was opened in the place of a stream's descriptor.
///
/// # Safety
/// Both are the program's.
pub unsafe fn put(opened: c_int, descriptor: c_int, flags: c_int) -> bool {
    to_end(opened, flags);
    // SAFETY: the caller says so.
    unsafe {
        if opened == descriptor {
            return true;
        }
        let moved = dup3(opened, descriptor, flags & libc::O_CLOEXEC) >= 0;
        close(opened);
        moved
    }
}

/// The C library's variable that has this stream, if it is a standard one: what has its place may be another when its descriptor is.
///
/// # Safety
/// The stream is open.
pub unsafe fn variable(stream: *mut FILE) -> Option<*mut *mut FILE> {
    // SAFETY: the caller says so.
    let standard = standard(unsafe { libc::fileno(stream) })?;
    // SAFETY: the library's variable.
    (unsafe { *standard.variable } == stream).then_some(standard.variable)
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

/// It is about to be closed. A standard one gives its place back.
pub fn forget(stream: *mut FILE) {
    let descriptor = descriptor(stream);
    all().retain(|(known, _)| *known != stream.addr());
    let Some(standard) = descriptor.and_then(standard) else { return };
    let [own, ours] = standard.streams;
    if ours.load(Ordering::Relaxed) != stream {
        return;
    }
    ours.store(null_mut(), Ordering::Relaxed);
    // SAFETY: the library's variable.
    unsafe {
        if *standard.variable == stream {
            *standard.variable = own.load(Ordering::Relaxed);
        }
    }
}

/// The list itself: held over a fork.
pub fn all() -> Listed<'static, (usize, c_int)> {
    OURS.hold()
}

fn of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
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
    // SAFETY: the stream's own descriptor.
    unsafe { close(of(cookie)) }
}
