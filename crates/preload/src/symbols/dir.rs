//! Directory streams: `DIR` and its functions. Streams of the pool are objects of this library,
//! recognized by their address.

use super::symbols;
use crate::call::{number, pointer, run, set_errno};
use crate::classify::{self, borrow, kind};
use crate::dirstream::{self, DirStream, NewDirStream, OpenedDirectory};
use crate::memory::store;
use libc::{DIR, c_char, c_int, c_long, c_void, dirent, off_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ptr::null_mut;

type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

symbols! {
    /// opendir(3).
    fn opendir(path: *const c_char) -> *mut DIR {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            Some(arg) => pointer(dirstream::open_by_name(arg).map(|found| match found {
                OpenedDirectory::Pool(opened) => opened.into_dir(),
                // SAFETY: just opened, and owned by the stream from now on.
                OpenedDirectory::Host(descriptor) => unsafe { fdopendir(descriptor) },
            })),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path) },
        }
    }

    /// fdopendir(3): the stream owns the descriptor.
    fn fdopendir(descriptor: c_int) -> *mut DIR {
        match kind(descriptor) {
            Some(classify::FdKind::Directory) => pointer(dirstream::from_descriptor(descriptor).map(NewDirStream::into_dir)),
            Some(_) => pointer(run(|process| process.listing(borrow(descriptor))).and(Err(Errno::NOTDIR))),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(descriptor) },
        }
    }

    /// readdir(3). Null is the end, and leaves `errno` unchanged.
    fn readdir(dir: *mut DIR) -> *mut dirent | readdir64 {
        // SAFETY: the program's directory stream.
        match unsafe { dirstream::find(dir) } {
            Some(stream) => match stream.next() {
                Ok(entry) => entry,
                Err(errno) => pointer(Err(errno)),
            },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir) },
        }
    }

    /// `readdir_r(3)`.
    fn readdir_r(dir: *mut DIR, into: *mut dirent, result: *mut *mut dirent) -> c_int | readdir64_r {
        // SAFETY: the program's directory stream and buffer.
        unsafe {
            let Some(stream) = dirstream::find(dir) else { return next(dir, into, result) };
            match stream.next() {
                Ok(entry) if entry.is_null() => result.write(null_mut()),
                Ok(entry) => {
                    entry.cast::<u8>().copy_to(into.cast(), usize::from((*entry).d_reclen));
                    result.write(into);
                }
                Err(errno) => return errno.raw_os_error(),
            }
            0
        }
    }

    /// getdents64(2): the descriptor's offset is the position in the listing.
    fn getdents64(descriptor: c_int, into: *mut c_void, room: size_t) -> ssize_t {
        match kind(descriptor) {
            // SAFETY: the program's buffer.
            Some(classify::FdKind::Directory | classify::FdKind::Path) => unsafe { number(dirstream::entries_into(descriptor, into, room)) },
            // SAFETY: forwards the program's own arguments.
            _ => unsafe { next(descriptor, into, room) },
        }
    }

    /// getdirentries(3), which also returns the position before the read.
    fn getdirentries(descriptor: c_int, into: *mut c_char, room: size_t, began: *mut off_t) -> ssize_t | getdirentries64 {
        match kind(descriptor) {
            Some(classify::FdKind::Directory | classify::FdKind::Path) => {
                // SAFETY: takes numbers only.
                let at = unsafe { super::lseek(descriptor, 0, libc::SEEK_CUR) };
                // SAFETY: the program's buffer.
                number(unsafe {
                    dirstream::entries_into(descriptor, into.cast(), room).and_then(|length| store(at, began).map(|()| length))
                })
            }
            // SAFETY: forwards the program's own arguments.
            _ => unsafe { next(descriptor, into, room, began) },
        }
    }

    /// closedir(3).
    fn closedir(dir: *mut DIR) -> c_int {
        // SAFETY: the program's directory stream, which it closes.
        match unsafe { dirstream::remove(dir) } {
            // SAFETY: the stream's own descriptor.
            Some(descriptor) => unsafe { super::descriptors::close(descriptor) },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir) },
        }
    }

    /// rewinddir(3).
    fn rewinddir(dir: *mut DIR) -> () {
        // SAFETY: the program's directory stream.
        match unsafe { dirstream::find(dir) } {
            Some(stream) => stream.seek(0),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir) },
        }
    }

    /// seekdir(3).
    fn seekdir(dir: *mut DIR, place: c_long) -> () {
        // SAFETY: the program's directory stream.
        match unsafe { dirstream::find(dir) } {
            Some(stream) => stream.seek(place),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir, place) },
        }
    }

    /// telldir(3).
    fn telldir(dir: *mut DIR) -> c_long {
        // SAFETY: the program's directory stream.
        match unsafe { dirstream::find(dir) } {
            Some(stream) => stream.position(),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir) },
        }
    }

    /// dirfd(3).
    fn dirfd(dir: *mut DIR) -> c_int {
        // SAFETY: the program's directory stream.
        match unsafe { dirstream::find(dir) } {
            Some(stream) => stream.descriptor(),
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(dir) },
        }
    }

    /// scandir(3): the selected entries, sorted, in memory from malloc(3).
    fn scandir(path: *const c_char, into: *mut *mut *mut dirent, chosen: Filter, order: Compare) -> c_int | scandir64 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            // SAFETY: the program's result pointer and functions.
            Some(arg) => unsafe { scan(dirstream::open_by_name(arg), into, chosen, order) },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, into, chosen, order) },
        }
    }

    /// scandirat(3).
    fn scandirat(at: c_int, path: *const c_char, into: *mut *mut *mut dirent, chosen: Filter, order: Compare) -> c_int | scandirat64 {
        // SAFETY: the program's path argument.
        match unsafe { classify::path_at(at, path) } {
            // SAFETY: the program's result pointer and functions.
            Some(arg) => unsafe { scan(dirstream::open_by_name(arg), into, chosen, order) },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(at, path, into, chosen, order) },
        }
    }
}

/// # Safety
/// `into` is writable; the functions take directory entries.
unsafe fn scan(
    found: Result<OpenedDirectory, Errno>,
    into: *mut *mut *mut dirent,
    chosen: Filter,
    order: Compare,
) -> c_int {
    if let Ok(OpenedDirectory::Host(descriptor)) = found {
        // SAFETY: guaranteed by the caller; the descriptor was opened for this call.
        return unsafe {
            let count = scandirat(descriptor, c".".as_ptr(), into, chosen, order);
            super::close(descriptor);
            count
        };
    }
    let listed = found.and_then(|found| match found {
        // SAFETY: the caller's function.
        OpenedDirectory::Pool(opened) => unsafe { entries(opened, chosen) },
        OpenedDirectory::Host(_) => Err(Errno::BADF),
    });
    let entries = match listed {
        Ok(entries) => entries,
        Err(errno) => {
            set_errno(errno);
            return -1;
        }
    };
    // SAFETY: a new block for that many pointers, which the program frees.
    unsafe {
        let list = libc::malloc((entries.len().max(1)) * size_of::<*mut dirent>()).cast::<*mut dirent>();
        if list.is_null() {
            for entry in entries {
                libc::free(entry.cast());
            }
            set_errno(Errno::NOMEM);
            return -1;
        }
        entries.as_ptr().copy_to(list, entries.len());
        if let Some(order) = order {
            let order: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int = std::mem::transmute(order);
            libc::qsort(list.cast(), entries.len(), size_of::<*mut dirent>(), Some(order));
        }
        into.write(list);
    }
    c_int::try_from(entries.len()).unwrap_or(c_int::MAX)
}

/// Returns copies of the selected entries, in memory that the program frees.
///
/// # Safety
/// The function takes a directory entry.
unsafe fn entries(opened: NewDirStream, chosen: Filter) -> Result<Vec<*mut dirent>, Errno> {
    let dir = opened.into_dir();
    let mut entries = Vec::new();
    // SAFETY: the stream that was just opened.
    let outcome = unsafe { dirstream::find(dir) }.ok_or(Errno::BADF).and_then(|stream: &DirStream| {
        loop {
            let entry = stream.next()?;
            if entry.is_null() {
                return Ok(());
            }
            // SAFETY: an entry that is valid until the next call; the caller's function; a new
            // block of the entry's length.
            unsafe {
                if chosen.is_none_or(|chosen| chosen(entry) != 0) {
                    let length = usize::from((*entry).d_reclen);
                    let copy = libc::malloc(length);
                    if copy.is_null() {
                        return Err(Errno::NOMEM);
                    }
                    entry.cast::<u8>().copy_to(copy.cast(), length);
                    entries.push(copy.cast());
                }
            }
        }
    });
    // SAFETY: the stream that was opened above, which has no other user.
    unsafe { closedir(dir) };
    outcome.inspect_err(|_| {
        for entry in &entries {
            let entry: *mut dirent = *entry;
            // SAFETY: a copy that was allocated above.
            unsafe { libc::free(entry.cast()) };
        }
    })?;
    Ok(entries)
}

#[cfg(test)]
#[path = "dir_test.rs"]
mod tests;
