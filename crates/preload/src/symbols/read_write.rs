//! Reads, writes and related calls. The kernel executes those on local files; those on placeholders
//! are executed here.

use super::{on_descriptor, on_placeholder, symbols};
use crate::call::{number, run, zero};
use crate::classify::{PoolPath, borrow, is_remote, kind};
use crate::fsize_limit::{allowed_bytes, check_size};
use crate::memory::{readable, writable};
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use posix::PosixProcess;
use rustix::fs::{AtFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Size of one step of a copy between descriptors, bytes.
const STEP_BYTES: usize = 1 << 20;
/// Limit of one read or write, bytes (`MAX_RW_COUNT`).
const ONCE_BYTES: usize = 0x7fff_f000;

/// Size from which on a change of a local file is left to its node, which handles holes and
/// preallocation and adapts the size of its pages.
const RESERVED_FIRST_BYTES: off_t = 64 << 10;

/// Returns whether the node, not the kernel, changes the size or space of a file up to this offset.
/// If the process has a file size limit (`RLIMIT_FSIZE`), the kernel changes local files, and
/// enforces it.
fn is_sized_by_node(descriptor: c_int, end: off_t) -> bool {
    let shapes =
        || end >= RESERVED_FIRST_BYTES && getrlimit(Resource::Fsize).current.is_none() && kind(descriptor).is_some();
    is_remote(descriptor) || shapes()
}

/// Checks the file size limit before the node changes the size of a file.
fn check_growth(process: &PosixProcess, descriptor: c_int, end: off_t) -> Result<(), Errno> {
    if (process.flags(borrow(descriptor))? & OFlags::RWMODE).is_empty() {
        return Ok(()); // refused by the node's check of the descriptor
    }
    check_size(process, PoolPath::At(descriptor, b"").into(), AtFlags::EMPTY_PATH, end)
}

/// fallocate(2) of a file that its node changes.
fn allocate(descriptor: c_int, mode: c_int, at: off_t, bytes: off_t) -> Result<(), Errno> {
    run(|process| {
        if mode == 0 && at >= 0 && bytes > 0 {
            check_growth(process, descriptor, at.saturating_add(bytes))?;
        }
        process.allocate(borrow(descriptor), mode.cast_unsigned(), at, bytes)
    })
}

fn length(outcome: Result<usize, Errno>) -> ssize_t {
    number(outcome.and_then(|bytes| ssize_t::try_from(bytes).map_err(|_| Errno::INVAL)))
}

/// pread(2), or read(2) if `at` is `None`.
///
/// # Safety
/// `into` has space for `bytes` bytes; it need not be writable.
pub(super) unsafe fn read_into(
    descriptor: c_int,
    into: *mut c_void,
    bytes: size_t,
    at: Option<off_t>,
) -> Result<usize, Errno> {
    run(|process| {
        // SAFETY: guaranteed by the caller.
        match unsafe { writable(into, bytes.min(ONCE_BYTES)) } {
            Ok(into) => process.read(borrow(descriptor), into, at),
            Err(errno) => read_error(process, descriptor, at, errno),
        }
    })
}

/// Returns the result of a read into an unwritable buffer: an error of the descriptor or offset
/// takes precedence, and the end of the file gives 0.
fn read_error(process: &PosixProcess, descriptor: c_int, at: Option<off_t>, errno: Errno) -> Result<usize, Errno> {
    let at = match at {
        Some(at) => at,
        None => off_t::try_from(process.seek(borrow(descriptor), SeekFrom::Current(0))?).unwrap_or(off_t::MAX),
    };
    match process.read(borrow(descriptor), &mut [0], Some(at))? {
        0 => Ok(0),
        _ => Err(errno),
    }
}

/// pwrite(2), or write(2) if `at` is `None`.
///
/// # Safety
/// `from` has `bytes` bytes; they need not be readable.
pub(super) unsafe fn write_from(
    descriptor: c_int,
    from: *const c_void,
    bytes: size_t,
    at: Option<off_t>,
) -> Result<usize, Errno> {
    run(|process| {
        // SAFETY: guaranteed by the caller.
        match unsafe { readable(from, bytes.min(ONCE_BYTES)) } {
            Ok(from) => {
                process.write(borrow(descriptor), &from[..allowed_bytes(process, descriptor, at, from.len())?], at)
            }
            Err(errno) => write_error(process, descriptor, at, errno),
        }
    })
}

/// Returns the error of a write from an unreadable buffer: an error of the descriptor or offset
/// takes precedence.
fn write_error(process: &PosixProcess, descriptor: c_int, at: Option<off_t>, errno: Errno) -> Result<usize, Errno> {
    process.write(borrow(descriptor), &[], at)?;
    Err(if at.is_some_and(|at| at < 0) { Errno::INVAL } else { errno })
}

/// # Safety
/// `pieces` has `count` entries.
unsafe fn pieces<'a>(pieces: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if count > 1024 {
        return Err(Errno::INVAL);
    }
    // SAFETY: guaranteed by the caller.
    let found = unsafe { readable(pieces.cast(), count * size_of::<iovec>()) }?.len();
    if found < count * size_of::<iovec>() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the entries are readable.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pieces, count) } })
}

/// Reads into all buffers by one read, which therefore sees one state of the file, and distributes
/// the bytes.
///
/// # Safety
/// `into` has `count` entries, each with space for its length.
unsafe fn read_pieces(descriptor: c_int, into: *const iovec, count: c_int, at: Option<off_t>) -> ssize_t {
    length(run(|process| {
        // SAFETY: guaranteed by the caller.
        let into = unsafe { pieces(into, count)? };
        let (mut rooms, mut left) = (Vec::with_capacity(into.len()), total(into));
        for piece in into {
            let wanted = piece.iov_len.min(left);
            // SAFETY: guaranteed by the caller.
            match unsafe { writable(piece.iov_base, wanted) } {
                Err(errno) if rooms.iter().all(|room: &&mut [u8]| room.is_empty()) => {
                    return read_error(process, descriptor, at, errno);
                }
                Err(_) => break,
                Ok(room) => rooms.push(room),
            }
            left -= wanted;
            if rooms.last().is_some_and(|room| room.len() < wanted) {
                break;
            }
        }
        let mut together = vec![0; rooms.iter().map(|room| room.len()).sum()];
        let read = process.read(borrow(descriptor), &mut together, at)?;
        let mut rest = &together[..read];
        for room in rooms {
            let (now, later) = rest.split_at(room.len().min(rest.len()));
            room[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(read)
    }))
}

/// Writes all buffers by one write, so that an appending write is contiguous in the file.
///
/// # Safety
/// `from` has `count` entries, each with bytes of its length.
unsafe fn write_pieces(descriptor: c_int, from: *const iovec, count: c_int, at: Option<off_t>) -> ssize_t {
    length(run(|process| {
        // SAFETY: guaranteed by the caller.
        let from = unsafe { pieces(from, count)? };
        let mut together = Vec::with_capacity(total(from));
        for piece in from {
            let wanted = piece.iov_len.min(ONCE_BYTES - together.len());
            // SAFETY: guaranteed by the caller.
            match unsafe { readable(piece.iov_base, wanted) } {
                Err(errno) if together.is_empty() => return write_error(process, descriptor, at, errno),
                Err(_) => break,
                Ok(found) => {
                    together.extend_from_slice(found);
                    if found.len() < wanted {
                        break;
                    }
                }
            }
        }
        process.write(borrow(descriptor), &together[..allowed_bytes(process, descriptor, at, together.len())?], at)
    }))
}

/// Returns the offset that a call starts at and advances, if the program passes one.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The offset is the program's, and exclusive to this call.
unsafe fn place<'a>(at: *mut off_t) -> Result<Option<&'a mut off_t>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    if unsafe { writable(at.cast(), size_of::<off_t>()) }?.len() < size_of::<off_t>() || !at.is_aligned() {
        return Err(Errno::FAULT);
    }
    // SAFETY: writable.
    Ok(unsafe { at.as_mut() })
}

fn total(pieces: &[iovec]) -> usize {
    pieces.iter().fold(0, |sum, piece| piece.iov_len.saturating_add(sum)).min(ONCE_BYTES)
}

/// Copies between two descriptors, at least one of them a placeholder, until all is copied or the
/// source ends.
fn copy_bytes(
    process: &PosixProcess,
    from: (c_int, Option<&mut off_t>),
    to: (c_int, Option<&mut off_t>),
    bytes: usize,
) -> Result<usize, Errno> {
    let (mut from_at, mut to_at) = (from.1, to.1);
    let (mut step, mut done) = (vec![0; STEP_BYTES.min(bytes)], 0);
    while done < bytes {
        let wanted = step.len().min(bytes - done);
        let read = process.read_any(borrow(from.0), &mut step[..wanted], from_at.as_deref().copied())?;
        let mut written = 0;
        while written < read {
            match process.write_any(
                borrow(to.0),
                &step[written..read],
                to_at.as_deref().copied().map(|at| at + offset(written)),
            ) {
                Ok(more) => written += more,
                // A partial copy succeeds; the next call reports the error.
                Err(_) if done + written > 0 => break,
                Err(errno) => {
                    // Nothing was copied, so the source's offset stays. A pipe has none.
                    if from_at.is_none() {
                        let _ = process.seek_any(borrow(from.0), -offset(read));
                    }
                    return Err(errno);
                }
            }
        }
        done += written;
        advance(&mut from_at, written);
        advance(&mut to_at, written);
        if written < wanted {
            // The source's offset has advanced past the bytes that were written.
            if from_at.is_none() && written < read {
                process.seek_any(borrow(from.0), -offset(read - written))?;
            }
            break;
        }
    }
    Ok(done)
}

/// Converts the arguments of lseek(2).
fn seek_target(from: c_int, at: off_t) -> Result<SeekFrom, Errno> {
    let unsigned = || u64::try_from(at);
    match from {
        libc::SEEK_SET => unsigned().map(SeekFrom::Start).map_err(|_| Errno::INVAL),
        libc::SEEK_CUR => Ok(SeekFrom::Current(at)),
        libc::SEEK_END => Ok(SeekFrom::End(at)),
        libc::SEEK_DATA => unsigned().map(SeekFrom::Data).map_err(|_| Errno::NXIO),
        libc::SEEK_HOLE => unsigned().map(SeekFrom::Hole).map_err(|_| Errno::NXIO),
        _ => Err(Errno::INVAL),
    }
}

/// Refuses a descriptor that was opened with `O_PATH`.
fn check_descriptor(descriptor: c_int) -> Result<(), Errno> {
    run(|process| process.check_not_path_only(borrow(descriptor)))
}

fn offset(bytes: usize) -> off_t {
    off_t::try_from(bytes).unwrap_or(off_t::MAX)
}

fn advance(at: &mut Option<&mut off_t>, bytes: usize) {
    if let Some(at) = at {
        **at += offset(bytes);
    }
}

symbols! {
    /// ftruncate(2).
    fn ftruncate(descriptor: c_int, bytes: off_t) -> c_int | ftruncate64 {
        if !is_sized_by_node(descriptor, bytes) {
            // SAFETY: takes numbers only.
            return unsafe { next(descriptor, bytes) };
        }
        zero(run(|process| {
            check_growth(process, descriptor, bytes)?;
            process.set_size(borrow(descriptor), bytes)
        }))
    }
    /// fallocate(2).
    fn fallocate(descriptor: c_int, mode: c_int, at: off_t, bytes: off_t) -> c_int | fallocate64 {
        if !is_sized_by_node(descriptor, at.saturating_add(bytes)) {
            // SAFETY: takes numbers only.
            return unsafe { next(descriptor, mode, at, bytes) };
        }
        zero(allocate(descriptor, mode, at, bytes))
    }
    /// `posix_fallocate(3)`, which returns the error number.
    fn posix_fallocate(descriptor: c_int, at: off_t, bytes: off_t) -> c_int | posix_fallocate64 {
        if !is_sized_by_node(descriptor, at.saturating_add(bytes)) {
            // SAFETY: takes numbers only.
            return unsafe { next(descriptor, at, bytes) };
        }
        allocate(descriptor, 0, at, bytes).map_or_else(Errno::raw_os_error, |()| 0)
    }
}

on_placeholder! {
    /// read(2).
    fn read(descriptor: c_int, into: *mut c_void, bytes: size_t) -> ssize_t, descriptor => length(read_into(descriptor, into, bytes, None));
    /// read(2) in programs built with `_FORTIFY_SOURCE`; `most` is the size of their buffer.
    fn __read_chk(descriptor: c_int, into: *mut c_void, bytes: size_t, most: size_t) -> ssize_t, descriptor =>
        length(read_into(descriptor, into, bytes.min(most), None));
    /// write(2).
    fn write(descriptor: c_int, from: *const c_void, bytes: size_t) -> ssize_t, descriptor => length(write_from(descriptor, from, bytes, None));
    /// pread(2).
    fn pread(descriptor: c_int, into: *mut c_void, bytes: size_t, at: off_t) -> ssize_t | pread64, descriptor =>
        length(read_into(descriptor, into, bytes, Some(at)));
    /// pread(2) in programs built with `_FORTIFY_SOURCE`.
    fn __pread_chk(descriptor: c_int, into: *mut c_void, bytes: size_t, at: off_t, most: size_t) -> ssize_t | __pread64_chk, descriptor =>
        length(read_into(descriptor, into, bytes.min(most), Some(at)));
    /// pwrite(2).
    fn pwrite(descriptor: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t | pwrite64, descriptor =>
        length(write_from(descriptor, from, bytes, Some(at)));
    /// readv(2).
    fn readv(descriptor: c_int, into: *const iovec, count: c_int) -> ssize_t, descriptor => read_pieces(descriptor, into, count, None);
    /// writev(2).
    fn writev(descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t, descriptor => write_pieces(descriptor, from, count, None);
    /// preadv(2).
    fn preadv(descriptor: c_int, into: *const iovec, count: c_int, at: off_t) -> ssize_t | preadv64, descriptor =>
        read_pieces(descriptor, into, count, Some(at));
    /// pwritev(2).
    fn pwritev(descriptor: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t | pwritev64, descriptor =>
        write_pieces(descriptor, from, count, Some(at));
    /// preadv2(2): offset -1 means the descriptor's own offset; the flags are hints.
    fn preadv2(descriptor: c_int, into: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t | preadv64v2, descriptor =>
        read_pieces(descriptor, into, count, (at != -1).then_some(at));
    /// pwritev2(2): offset -1 means the descriptor's own offset; the flags are hints.
    fn pwritev2(descriptor: c_int, from: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t | pwritev64v2, descriptor =>
        write_pieces(descriptor, from, count, (at != -1).then_some(at));
}

on_placeholder! {
    /// lseek(2).
    fn lseek(descriptor: c_int, at: off_t, from: c_int) -> off_t | lseek64, descriptor =>
        number(seek_target(from, at).and_then(|to| run(|process| process.seek(borrow(descriptor), to))).and_then(|at| off_t::try_from(at).map_err(|_| Errno::OVERFLOW)));
    /// `posix_fadvise(2)`: the advice is ignored.
    fn posix_fadvise(descriptor: c_int, at: off_t, bytes: off_t, advice: c_int) -> c_int | posix_fadvise64, descriptor =>
        check_descriptor(descriptor).map_or_else(Errno::raw_os_error, |()| 0);
    /// readahead(2): ignored.
    fn readahead(descriptor: c_int, at: off_t, bytes: size_t) -> ssize_t, descriptor => length(check_descriptor(descriptor).map(|()| 0));
    /// `sync_file_range(2)`: nothing to do, because the bytes stay in memory.
    fn sync_file_range(descriptor: c_int, at: off_t, bytes: off_t, flags: c_uint) -> c_int, descriptor => zero(check_descriptor(descriptor));
    /// sendfile(2).
    fn sendfile(to: c_int, from: c_int, from_at: *mut off_t, bytes: size_t) -> ssize_t | sendfile64, to, from =>
        length(run(|process| {
            process.check_sendfile(borrow(from), borrow(to), bytes)?;
            copy_bytes(process, (from, place(from_at)?), (to, None), bytes.min(ONCE_BYTES))
        }));
    /// `copy_file_range(2)`.
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t, from, to =>
        length(run(|process| {
            let (from_at, to_at) = (place(from_at)?, place(to_at)?);
            let ends = [(borrow(from), from_at.as_deref().copied()), (borrow(to), to_at.as_deref().copied())];
            process.check_copy(ends[0], ends[1], bytes, flags)?;
            copy_bytes(process, (from, from_at), (to, to_at), bytes.min(ONCE_BYTES))
        }));
    /// splice(2), where one side is a pipe.
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t, from, to =>
        length(run(|process| copy_bytes(process, (from, place(from_at)?), (to, place(to_at)?), bytes.min(STEP_BYTES))));
}

on_descriptor! {
    /// fsync(2): nothing to do, because written bytes are visible to all when write(2) returns.
    fn fsync(descriptor: c_int) -> c_int, descriptor => zero(check_descriptor(descriptor));
    /// fdatasync(2): nothing to do, as for fsync(2).
    fn fdatasync(descriptor: c_int) -> c_int, descriptor => zero(check_descriptor(descriptor));
    /// syncfs(2): nothing to do, as for fsync(2).
    fn syncfs(descriptor: c_int) -> c_int, descriptor => zero(check_descriptor(descriptor));
}

symbols! {
    /// mmap(2). For a map that is not of the pool it resolves no symbol and allocates nothing,
    /// because allocators call it.
    fn mmap(place: *mut c_void, bytes: size_t, may: c_int, flags: c_int, descriptor: c_int, at: off_t) -> *mut c_void | mmap64 {
        if flags & libc::MAP_ANONYMOUS == 0 && is_remote(descriptor) {
            // SAFETY: forwards the program's own arguments.
            return unsafe { crate::mmap::map_copy(place, bytes, may, flags, descriptor, at) };
        }
        // SAFETY: forwards the program's own arguments.
        unsafe { crate::mmap::kernel_mmap(place, bytes, may, flags, descriptor, at) }
    }
}

#[cfg(test)]
#[path = "read_write_test.rs"]
mod tests;
