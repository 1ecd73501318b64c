//! Libraries of the pool that a program opens while it runs (dlopen(3)).
//!
//! The loader opens and maps files by itself, so it is given a descriptor's name. It never forgets a name that a library was opened by, and opens no file for a name that
//! it knows: so each is said in a way of its own. What it tells of the library afterwards (`dladdr`, `dl_iterate_phdr`) is its path in the pool.
//! It does not do: libraries that those need, which the loader searches for by itself.

use crate::guard::{done, errno, open as open_in, set_errno};
use crate::ours::{self, Kind, Said};
use libc::{c_char, c_int};
use rustix::fd::IntoRawFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the loader keeps of a library, as far as it is told (`link.h`).
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *mut c_char,
}

/// So many ways are there to say one descriptor's name: a bit each, of a counter that begins anew behind them.
const WAYS_BITS: u32 = 20;
/// How much is copied at a time, bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Opens a library of the pool by a name that the loader can open.
pub fn library(said: Said<'_>, open: impl Fn(*const c_char) -> *mut c_void) -> *mut c_void {
    opened(said, open).unwrap_or_else(|errno| {
        set_errno(errno);
        null_mut()
    })
}

fn opened(said: Said<'_>, open: impl Fn(*const c_char) -> *mut c_void) -> Result<*mut c_void, Errno> {
    let path = CString::new(done(|process| process.real_path(said.into()))?).map_err(|_| Errno::INVAL)?;
    // Where a link led out of the pool; and as the loader does with any name that it knows.
    if posix::below(ours::prefix(), path.to_bytes()).is_none() || is_loaded(&path) {
        let known = open(path.as_ptr());
        if !known.is_null() {
            return Ok(known);
        }
    }
    let file = mappable(open_in(said, libc::O_RDONLY | libc::O_CLOEXEC, 0)?, &path)?;
    let name = name_of(file.0);
    let library = open(name.as_ptr());
    if !library.is_null() {
        rename(library, &name, &path);
    }
    Ok(library)
}

/// A descriptor of the program's table, which is closed as the program would close it.
struct Opened(c_int);

impl Drop for Opened {
    fn drop(&mut self) {
        let why = errno();
        // SAFETY: ours; the loader has mapped it.
        unsafe { crate::symbols::close(self.0) };
        if let Some(why) = why {
            set_errno(why);
        }
    }
}

/// Itself where it is the file's own memory, else a copy.
fn mappable(descriptor: c_int, path: &CStr) -> Result<Opened, Errno> {
    let file = Opened(descriptor);
    match ours::kind(descriptor) {
        Some(Kind::Remote) => {}
        _ => return Ok(file),
    }
    let copy = memfd_create(crate::launch::memory_name(path.to_bytes()).as_c_str(), MemfdFlags::CLOEXEC)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // SAFETY: the room is ours, and as large as is said.
        let read = unsafe { crate::symbols::read(descriptor, piece.as_mut_ptr().cast(), piece.len()) };
        let mut rest = match usize::try_from(read) {
            Err(_) => return Err(errno().unwrap_or(Errno::IO)),
            Ok(0) => return Ok(Opened(copy.into_raw_fd())),
            Ok(read) => &piece[..read],
        };
        while !rest.is_empty() {
            let written = rustix::io::write(&copy, rest)?;
            rest = &rest[written..];
        }
    }
}

/// A name of a descriptor that was not said before: dots between slashes mean nothing.
fn name_of(descriptor: c_int) -> CString {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = b"/proc/self/fd".to_vec();
    for bit in 0..WAYS_BITS {
        name.extend_from_slice(if number >> bit & 1 == 1 { b"/." } else { b"/" });
    }
    name.extend_from_slice(format!("/{descriptor}").as_bytes());
    CString::new(name).unwrap_or_default()
}

/// Whether the loader has a library of this name.
fn is_loaded(path: &CStr) -> bool {
    unsafe extern "C" fn look(found: *mut libc::dl_phdr_info, _: usize, wanted: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, whose name is null or a text, and what is given below.
        unsafe {
            let (name, wanted) = ((*found).dlpi_name, *wanted.cast::<&CStr>());
            c_int::from(!name.is_null() && CStr::from_ptr(name) == wanted)
        }
    }
    let mut wanted = path;
    // SAFETY: the function takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) != 0 }
}

/// Has the loader tell of a library by its path. The name that it had before stays: somebody may have asked for it meanwhile.
fn rename(library: *mut c_void, from: &CStr, path: &CStr) {
    let mut map: *mut LinkMap = null_mut();
    // SAFETY: a library's handle; the loader's structure is there as long as the library. The new name is of the C library's memory, which the loader gives back.
    unsafe {
        let known = libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0;
        // One that was there already keeps its name.
        if known && !map.is_null() && CStr::from_ptr((*map).name) == from {
            let name = libc::strdup(path.as_ptr());
            if !name.is_null() {
                (*map).name = name;
            }
        }
    }
}
