//! Shared libraries of the pool that a program loads at run time (dlopen(3)).
//!
//! The loader opens and maps files by itself, so it is given a path of a descriptor
//! (`/proc/self/fd/N`). It remembers every name that it has opened and does not open the same name
//! twice, so each load uses a differently spelled path. Afterwards the loader's record gets the
//! path in the pool, which `dladdr` and `dl_iterate_phdr` return.
//!
//! Dependencies of such libraries are not supported: the loader searches for them by itself.

use crate::call::{errno, open as open_in, run, set_errno};
use crate::classify::{self, FdKind, PoolPath};
use libc::{c_char, c_int};
use rustix::fd::IntoRawFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// Public part of the loader's record of a library (`link.h`).
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *mut c_char,
}

/// Bits of the counter that varies the spelling of a descriptor's path; it wraps around.
const SPELLING_BITS: u32 = 20;
/// Size of one copy step, bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Loads a library of the pool through a name that the loader can open.
pub fn load(arg: PoolPath<'_>, open: impl Fn(*const c_char) -> *mut c_void) -> *mut c_void {
    try_load(arg, open).unwrap_or_else(|errno| {
        set_errno(errno);
        null_mut()
    })
}

fn try_load(arg: PoolPath<'_>, open: impl Fn(*const c_char) -> *mut c_void) -> Result<*mut c_void, Errno> {
    let path = CString::new(run(|process| process.real_path(arg.into()))?).map_err(|_| Errno::INVAL)?;
    // The path may lead out of the pool by a symlink, or name a library that the loader already
    // has.
    if posix::strip_prefix(classify::prefix(), path.to_bytes()).is_none() || is_loaded(&path) {
        let known = open(path.as_ptr());
        if !known.is_null() {
            return Ok(known);
        }
    }
    let file = mappable(open_in(arg, libc::O_RDONLY | libc::O_CLOEXEC, 0)?, &path)?;
    let name = respell(file.0);
    let library = open(name.as_ptr());
    if !library.is_null() {
        rename(library, &name, &path);
    }
    Ok(library)
}

/// Descriptor in the program's table; closed in the same way as by the program.
struct OpenedFd(c_int);

impl Drop for OpenedFd {
    fn drop(&mut self) {
        let why = errno();
        // SAFETY: owned by this value; the loader has mapped the file.
        unsafe { crate::symbols::close(self.0) };
        if let Some(why) = why {
            set_errno(why);
        }
    }
}

/// Returns the file itself if its bytes are local, else a copy in memory.
fn mappable(descriptor: c_int, path: &CStr) -> Result<OpenedFd, Errno> {
    let file = OpenedFd(descriptor);
    match classify::kind(descriptor) {
        Some(FdKind::Remote) => {}
        _ => return Ok(file),
    }
    let copy = memfd_create(crate::launch::memory_name(path.to_bytes()).as_c_str(), MemfdFlags::CLOEXEC)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // SAFETY: a local buffer of the given size.
        let read = unsafe { crate::symbols::read(descriptor, piece.as_mut_ptr().cast(), piece.len()) };
        let mut rest = match usize::try_from(read) {
            Err(_) => return Err(errno().unwrap_or(Errno::IO)),
            Ok(0) => return Ok(OpenedFd(copy.into_raw_fd())),
            Ok(read) => &piece[..read],
        };
        while !rest.is_empty() {
            let written = rustix::io::write(&copy, rest)?;
            rest = &rest[written..];
        }
    }
}

/// Returns a new spelling of a descriptor's path, by inserting dots between slashes.
fn respell(descriptor: c_int) -> CString {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = b"/proc/self/fd".to_vec();
    for bit in 0..SPELLING_BITS {
        name.extend_from_slice(if number >> bit & 1 == 1 { b"/." } else { b"/" });
    }
    name.extend_from_slice(format!("/{descriptor}").as_bytes());
    CString::new(name).unwrap_or_default()
}

/// Returns whether the loader has a library of this name.
fn is_loaded(path: &CStr) -> bool {
    unsafe extern "C" fn matches_name(found: *mut libc::dl_phdr_info, _: usize, wanted: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, whose name is null or a string, and the argument that is
        // passed below.
        unsafe {
            let (name, wanted) = ((*found).dlpi_name, *wanted.cast::<&CStr>());
            c_int::from(!name.is_null() && CStr::from_ptr(name) == wanted)
        }
    }
    let mut wanted = path;
    // SAFETY: the callback takes the argument that is passed here.
    unsafe { libc::dl_iterate_phdr(Some(matches_name), (&raw mut wanted).cast()) != 0 }
}

/// Sets the name of a library in the loader's record. The old name is not freed, because a program
/// may have read it.
fn rename(library: *mut c_void, from: &CStr, path: &CStr) {
    let mut map: *mut LinkMap = null_mut();
    // SAFETY: a valid library handle, whose record lives as long as the library. The new name is
    // allocated by the C library, which frees it.
    unsafe {
        let known = libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0;
        // A library that was loaded before keeps its name.
        if known && !map.is_null() && CStr::from_ptr((*map).name) == from {
            let name = libc::strdup(path.as_ptr());
            if !name.is_null() {
                (*map).name = name;
            }
        }
    }
}
