//! Directory streams of the pool: the objects behind the `DIR` pointers that this library returns.
//!
//! Programs keep only the pointer, so all streams are in one list. A pointer that is not in the
//! list is the C library's.

use crate::call::{open, run};
use crate::classify::{self, FdKind, PoolPath, borrow};
use crate::signal_safe::{List, ListGuard, SignalSafe};
use libc::{DIR, c_int, c_long, c_void, dirent, ssize_t};
use posix::DirectoryListing;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::mem::offset_of;
use std::ptr::null_mut;

/// Open streams, by address.
static OPEN: List<usize> = List::new();

/// Directory stream. readdir(3) permits one thread at a time; the lock protects against programs
/// that do not comply.
#[derive(Debug)]
pub struct DirStream {
    descriptor: c_int,
    cursor: SignalSafe<Cursor>,
}

#[derive(Debug)]
struct Cursor {
    listing: DirectoryListing,
    /// Entry that was returned last; readdir(3) reuses it for every entry.
    entry: Box<dirent>,
}

/// New stream that the program does not have yet.
#[derive(Debug)]
pub struct NewDirStream(Box<DirStream>);

impl NewDirStream {
    /// Returns the stream as a C pointer.
    pub fn into_dir(self) -> *mut DIR {
        let stream = Box::into_raw(self.0);
        all().push(stream.expose_provenance());
        stream.cast()
    }
}

/// Result of opening a directory by name.
#[derive(Debug)]
pub enum OpenedDirectory {
    /// Directory of the pool.
    Pool(NewDirStream),
    /// Descriptor of a directory of the host, which a symlink led to.
    Host(c_int),
}

/// Opens a directory by name.
///
/// # Errors
/// As opendir(3).
pub fn open_by_name(arg: PoolPath<'_>) -> Result<OpenedDirectory, Errno> {
    let descriptor = open(arg, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
    if classify::kind(descriptor).is_none() {
        return Ok(OpenedDirectory::Host(descriptor));
    }
    let stream = from_descriptor(descriptor);
    if stream.is_err() {
        // SAFETY: a descriptor that was just opened here.
        unsafe { crate::symbols::close(descriptor) };
    }
    stream.map(OpenedDirectory::Pool)
}

/// Opens a stream of a descriptor, which the stream owns.
///
/// # Errors
/// As fdopendir(3).
pub fn from_descriptor(descriptor: c_int) -> Result<NewDirStream, Errno> {
    classify::record(descriptor, Some(FdKind::Directory));
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let entry = Box::new(unsafe { std::mem::zeroed::<dirent>() });
    let listing = run(|process| process.listing(borrow(descriptor)))?;
    Ok(NewDirStream(Box::new(DirStream { descriptor, cursor: SignalSafe::new(Cursor { listing, entry }) })))
}

/// Fills a buffer with entries from the descriptor's offset on, as getdents64(2) does, and advances
/// the offset.
///
/// # Errors
/// As getdents64(2).
///
/// # Safety
/// `into` has space for `room` bytes; it need not be writable.
pub unsafe fn entries_into(descriptor: c_int, into: *mut c_void, room: usize) -> Result<ssize_t, Errno> {
    run(|process| {
        process.check_not_path_only(borrow(descriptor))?;
        let mut listing = process.listing(borrow(descriptor))?;
        let position = seek(borrow(descriptor), SeekFrom::Current(0))?;
        listing.seek(i64::try_from(position).map_err(|_| Errno::INVAL)?);
        let (mut bytes, mut position) = (Vec::new(), None);
        while let Some(entry) = process.next_entry(&mut listing)? {
            let name = offset_of!(dirent, d_name);
            let length = (name + entry.name.len() + 1).next_multiple_of(8);
            if bytes.len() + length > room {
                if position.is_none() {
                    return Err(Errno::INVAL);
                }
                break;
            }
            let end = bytes.len() + length;
            bytes.extend(entry.inode.to_ne_bytes());
            bytes.extend(entry.next.to_ne_bytes());
            bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
            bytes.push(entry.kind);
            bytes.extend(&entry.name);
            bytes.resize(end, 0);
            position = Some(entry.next.unsigned_abs());
        }
        // SAFETY: guaranteed by the caller.
        let into = unsafe { crate::memory::writable(into, bytes.len()) }?;
        if into.len() < bytes.len() {
            return Err(Errno::FAULT);
        }
        into.copy_from_slice(&bytes);
        if let Some(position) = position {
            seek(borrow(descriptor), SeekFrom::Start(position))?;
        }
        ssize_t::try_from(bytes.len()).map_err(|_| Errno::INVAL)
    })
}

/// Returns the stream behind a `DIR` pointer, if it is of the pool.
///
/// # Safety
/// The stream is open, and no other thread closes it meanwhile.
pub unsafe fn find<'a>(dir: *mut DIR) -> Option<&'a DirStream> {
    let is_known = !OPEN.is_empty() && all().contains(&dir.addr());
    // SAFETY: it is in the list, so it is a stream of this library and not closed.
    is_known.then(|| unsafe { &*dir.cast::<DirStream>() })
}

/// Closes a stream of the pool, and returns its descriptor.
///
/// # Safety
/// The program does not use the stream any more.
pub unsafe fn remove(dir: *mut DIR) -> Option<c_int> {
    if OPEN.is_empty() {
        return None;
    }
    let mut all = all();
    let index = all.iter().position(|known| *known == dir.addr())?;
    all.swap_remove(index);
    // SAFETY: it was in the list, so it is a box of this library that has no other user.
    Some(unsafe { Box::from_raw(dir.cast::<DirStream>()) }.descriptor)
}

/// Locks the list of streams, also over a fork.
pub fn all() -> ListGuard<'static, usize> {
    OPEN.lock()
}

impl DirStream {
    /// Returns the next entry, which is valid until the next call; null at the end.
    ///
    /// # Errors
    /// As readdir(3).
    pub fn next(&self) -> Result<*mut dirent, Errno> {
        let mut cursor = self.cursor.lock();
        let Cursor { listing, entry } = &mut *cursor;
        let Some(found) = run(|process| process.next_entry(listing))? else { return Ok(null_mut()) };
        entry.d_ino = found.inode;
        entry.d_off = found.next;
        entry.d_type = found.kind;
        let room = entry.d_name.len() - 1;
        for (letter, byte) in entry.d_name.iter_mut().zip(found.name.iter().take(room).chain(&[0])) {
            *letter = byte.cast_signed();
        }
        let length = offset_of!(dirent, d_name) + found.name.len().min(room) + 1;
        entry.d_reclen = u16::try_from(length.next_multiple_of(8)).unwrap_or(u16::MAX);
        Ok(&raw mut **entry)
    }

    /// Continues at a position that [`DirStream::position`] returned.
    pub fn seek(&self, position: c_long) {
        self.cursor.lock().listing.seek(position);
    }

    /// Returns the position of the next entry.
    pub fn position(&self) -> c_long {
        self.cursor.lock().listing.position()
    }

    /// Returns the descriptor.
    pub fn descriptor(&self) -> c_int {
        self.descriptor
    }
}
