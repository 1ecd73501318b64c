//! Functions that read and change attributes: the families of stat, access, chmod, chown, utime and
//! truncate, and extended attributes.

use super::{held, named, symbols};
use crate::guard::{at, done, number, set_errno, zero};
use crate::memory::{fetched, given, room as room_of, value as value_of};
use crate::ours::{self, Said, borrowed, kind};
use crate::text::{copy_out, told as name_of};
use libc::{
    AT_EACCESS, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, c_uint, c_void, gid_t, mode_t, off_t, size_t, ssize_t,
    timespec, timeval, uid_t, utimbuf,
};
use posix::{Stat, Times, Whose};
use rustix::fs::{Access, XattrFlags};
use rustix::io::Errno;

/// Stores the attributes of a file of the pool.
///
/// # Safety
/// `into` has space for the structure; it need not be writable.
unsafe fn told(said: Said<'_>, flags: c_int, into: *mut libc::stat) -> c_int {
    zero(done(|process| {
        let found = process.stat(said.into(), at(flags))?;
        // SAFETY: guaranteed by the caller.
        unsafe { given(as_stat(&found), into) }
    }))
}

/// Converts to C's `struct stat`.
fn as_stat(found: &Stat) -> libc::stat {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = libc::makedev(found.device.0, found.device.1);
    stat.st_ino = found.inode;
    stat.st_mode = found.mode;
    stat.st_nlink = found.links.into();
    stat.st_uid = found.uid;
    stat.st_gid = found.gid;
    stat.st_rdev = libc::makedev(found.special.0, found.special.1);
    stat.st_size = found.size;
    stat.st_blksize = found.block_bytes.into();
    stat.st_blocks = found.blocks;
    (stat.st_atime, stat.st_atime_nsec) = found.accessed;
    (stat.st_mtime, stat.st_mtime_nsec) = found.modified;
    (stat.st_ctime, stat.st_ctime_nsec) = found.changed;
    stat
}

/// Converts to `struct statx`, with all fields set.
fn as_statx(found: &Stat) -> libc::statx {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    let time = |(seconds, nanoseconds): (i64, i64)| {
        // SAFETY: as above.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        time.tv_sec = seconds;
        time.tv_nsec = u32::try_from(nanoseconds).unwrap_or(0);
        time
    };
    statx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    statx.stx_blksize = found.block_bytes;
    statx.stx_nlink = found.links;
    (statx.stx_uid, statx.stx_gid) = (found.uid, found.gid);
    statx.stx_mode = u16::try_from(found.mode).unwrap_or(0);
    statx.stx_ino = found.inode;
    statx.stx_size = found.size.unsigned_abs();
    statx.stx_blocks = found.blocks.unsigned_abs();
    statx.stx_atime = time(found.accessed);
    statx.stx_mtime = time(found.modified);
    statx.stx_ctime = time(found.changed);
    statx.stx_btime = time(found.born);
    (statx.stx_dev_major, statx.stx_dev_minor) = found.device;
    (statx.stx_rdev_major, statx.stx_rdev_minor) = found.special;
    statx
}

/// Converts the mode of access(2).
fn access_mode(mode: c_int) -> Access {
    Access::from_bits_retain(mode.cast_unsigned())
}

/// Returns the target of an extended-attribute call on a path.
fn path_of(said: Said<'_>, follow: bool) -> Whose<'_> {
    Whose::Path { said: said.into(), follow }
}

/// # Safety
/// `times` is null or points to two times.
unsafe fn times_of(times: *const timespec) -> Result<Times, Errno> {
    if times.is_null() {
        return Ok(Times::NOW);
    }
    // SAFETY: guaranteed by the caller.
    let [accessed, modified] = unsafe { fetched(times.cast::<[timespec; 2]>()) }?;
    Ok(Times { accessed: (accessed.tv_sec, accessed.tv_nsec), modified: (modified.tv_sec, modified.tv_nsec) })
}

/// # Safety
/// `times` is null or points to two times.
unsafe fn microseconds_of(times: *const timeval) -> Result<Times, Errno> {
    if times.is_null() {
        return Ok(Times::NOW);
    }
    // SAFETY: guaranteed by the caller.
    let [accessed, modified] = unsafe { fetched(times.cast::<[timeval; 2]>()) }?;
    let (accessed, modified) = ((accessed.tv_sec, accessed.tv_usec * 1000), (modified.tv_sec, modified.tv_usec * 1000));
    Ok(Times { accessed, modified })
}

/// Stores the result of an extended-attribute call in a buffer. Returns its length, also if the
/// buffer is empty.
///
/// # Safety
/// `into` has space for `room` bytes.
unsafe fn filled(outcome: Result<Vec<u8>, Errno>, into: *mut c_void, room: size_t) -> ssize_t {
    let outcome = outcome.and_then(|value| {
        let length = ssize_t::try_from(value.len()).map_err(|_| Errno::RANGE)?;
        if room != 0 && value.len() > room {
            return Err(Errno::RANGE);
        }
        // SAFETY: guaranteed by the caller.
        if unsafe { room_of(into, room.min(value.len())) }?.len() < room.min(value.len()) {
            return Err(Errno::FAULT);
        }
        // SAFETY: that many bytes are writable.
        unsafe { copy_out(&value, into.cast(), room) };
        Ok(length)
    });
    number(outcome)
}

/// Longest value of an attribute, bytes (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Borrows a value of exactly `length` bytes.
///
/// # Errors
/// `E2BIG` if it is longer than any attribute, `EFAULT` if it is not readable.
///
/// # Safety
/// No thread writes or unmaps it meanwhile.
unsafe fn whole<'a>(value: *const c_void, length: size_t) -> Result<&'a [u8], Errno> {
    if length > VALUE_BYTES_MAX {
        return Err(Errno::TOOBIG);
    }
    // SAFETY: guaranteed by the caller.
    let found = unsafe { value_of(value, length) }?;
    if found.len() < length { Err(Errno::FAULT) } else { Ok(found) }
}

named! {
    /// stat(2).
    fn stat(path: *const c_char, into: *mut libc::stat) -> c_int | stat64, said = path(path): told(said, 0, into);
    /// lstat(2).
    fn lstat(path: *const c_char, into: *mut libc::stat) -> c_int | lstat64, said = path(path): told(said, AT_SYMLINK_NOFOLLOW, into);
}

held! {
    /// fstat(2).
    fn fstat(descriptor: c_int, into: *mut libc::stat) -> c_int | fstat64, descriptor => told(Said::From(descriptor, b""), libc::AT_EMPTY_PATH, into);
}

named! {
    /// fstatat(2).
    fn fstatat(folder: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int | fstatat64, said = path_at(folder, path): told(said, flags, into);
    /// stat(2) in programs built with a C library before 2.33. The version names the structure;
    /// there has been only one.
    fn __xstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int | __xstat64, said = path(path): told(said, 0, into);
    /// lstat(2) in programs built with a C library before 2.33.
    fn __lxstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int | __lxstat64, said = path(path): told(said, AT_SYMLINK_NOFOLLOW, into);
}

held! {
    /// fstat(2) in programs built with a C library before 2.33.
    fn __fxstat(version: c_int, descriptor: c_int, into: *mut libc::stat) -> c_int | __fxstat64, descriptor => fstat(descriptor, into);
}

named! {
    /// fstatat(2) in programs built with a C library before 2.33.
    fn __fxstatat(version: c_int, folder: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int | __fxstatat64, said = path_at(folder, path): told(said, flags, into);
}

symbols! {
    /// statx(2).
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx) -> c_int {
        // SAFETY: the program's path argument.
        let Some(said) = (unsafe { ours::path_at(folder, path) }) else {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(folder, path, flags, mask, into) };
        };
        zero(done(|process| {
            let found = process.stat(said.into(), at(flags))?;
            // SAFETY: the program's structure.
            unsafe { given(as_statx(&found), into) }
        }))
    }
}

named! {
    /// statfs(2).
    fn statfs(path: *const c_char, into: *mut libc::statfs) -> c_int | statfs64, said = path(path): zero(done(|process| process.usage(said.into()).and_then(|found| given(crate::usage::as_statfs(&found), into))));
}

held! {
    /// fstatfs(2).
    fn fstatfs(descriptor: c_int, into: *mut libc::statfs) -> c_int | fstatfs64, descriptor => zero(done(|process| process.usage_of(borrowed(descriptor)).and_then(|found| given(crate::usage::as_statfs(&found), into))));
}

named! {
    /// statvfs(3).
    fn statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int | statvfs64, said = path(path): zero(done(|process| process.usage(said.into()).and_then(|found| given(crate::usage::as_statvfs(&found), into))));
}

held! {
    /// fstatvfs(3).
    fn fstatvfs(descriptor: c_int, into: *mut libc::statvfs) -> c_int | fstatvfs64, descriptor => zero(done(|process| process.usage_of(borrowed(descriptor)).and_then(|found| given(crate::usage::as_statvfs(&found), into))));
}

named! {
    /// access(2).
    fn access(path: *const c_char, mode: c_int) -> c_int, said = path(path): zero(done(|process| process.access(said.into(), access_mode(mode), at(0))));
    /// faccessat(2).
    fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, said = path_at(folder, path): zero(done(|process| process.access(said.into(), access_mode(mode), at(flags))));
    /// eaccess(3).
    fn eaccess(path: *const c_char, mode: c_int) -> c_int | euidaccess, said = path(path): zero(done(|process| process.access(said.into(), access_mode(mode), at(AT_EACCESS))));
    /// chmod(2).
    fn chmod(path: *const c_char, mode: mode_t) -> c_int, said = path(path): zero(done(|process| process.chmod(said.into(), mode, at(0))));
    /// lchmod(3).
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int, said = path(path): zero(done(|process| process.chmod(said.into(), mode, at(AT_SYMLINK_NOFOLLOW))));
}

held! {
    /// fchmod(2).
    fn fchmod(descriptor: c_int, mode: mode_t) -> c_int, descriptor => zero(done(|process| process.reaches(borrowed(descriptor)).and_then(|()| process.chmod(Said::From(descriptor, b"").into(), mode, at(libc::AT_EMPTY_PATH)))));
}

named! {
    /// fchmodat(2).
    fn fchmodat(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, said = path_at(folder, path): zero(done(|process| process.chmod(said.into(), mode, at(flags))));
    /// chown(2).
    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int, said = path(path): zero(done(|process| process.chown(said.into(), uid, gid, at(0))));
    /// lchown(2).
    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int, said = path(path): zero(done(|process| process.chown(said.into(), uid, gid, at(AT_SYMLINK_NOFOLLOW))));
}

held! {
    /// fchown(2).
    fn fchown(descriptor: c_int, uid: uid_t, gid: gid_t) -> c_int, descriptor => zero(done(|process| process.reaches(borrowed(descriptor)).and_then(|()| process.chown(Said::From(descriptor, b"").into(), uid, gid, at(libc::AT_EMPTY_PATH)))));
}

named! {
    /// fchownat(2).
    fn fchownat(folder: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int, said = path_at(folder, path): zero(done(|process| process.chown(said.into(), uid, gid, at(flags))));
}

symbols! {
    /// utimensat(2). A null path means the descriptor's file.
    fn utimensat(folder: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        if path.is_null() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { match kind(folder) { Some(_) => futimens(folder, times), None => next(folder, path, times, flags) } };
        }
        // SAFETY: the program's path and times.
        unsafe { match ours::path_at(folder, path) { Some(said) => zero(done(|process| process.set_times(said.into(), times_of(times)?, at(flags)))), None => next(folder, path, times, flags) } }
    }
}

held! {
    /// futimens(3).
    fn futimens(descriptor: c_int, times: *const timespec) -> c_int, descriptor => zero(done(|process| {
        process.reaches(borrowed(descriptor))?;
        process.set_times(Said::From(descriptor, b"").into(), times_of(times)?, at(libc::AT_EMPTY_PATH))
    }));
}

named! {
    /// utimes(2).
    fn utimes(path: *const c_char, times: *const timeval) -> c_int, said = path(path): zero(done(|process| process.set_times(said.into(), microseconds_of(times)?, at(0))));
    /// lutimes(3).
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int, said = path(path): zero(done(|process| process.set_times(said.into(), microseconds_of(times)?, at(AT_SYMLINK_NOFOLLOW))));
}

held! {
    /// futimes(3).
    fn futimes(descriptor: c_int, times: *const timeval) -> c_int, descriptor => zero(done(|process| {
        process.reaches(borrowed(descriptor))?;
        process.set_times(Said::From(descriptor, b"").into(), microseconds_of(times)?, at(libc::AT_EMPTY_PATH))
    }));
}

symbols! {
    /// futimesat(2).
    fn futimesat(folder: c_int, path: *const c_char, times: *const timeval) -> c_int {
        if path.is_null() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { futimes(folder, times) };
        }
        // SAFETY: the program's path and times.
        unsafe { match ours::path_at(folder, path) { Some(said) => zero(done(|process| process.set_times(said.into(), microseconds_of(times)?, at(0)))), None => next(folder, path, times) } }
    }
    /// utime(2).
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
        // SAFETY: the program's path argument.
        let Some(said) = (unsafe { ours::path(path) }) else {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(path, times) };
        };
        zero(done(|process| {
            let mut both = Times::NOW;
            if !times.is_null() {
                // SAFETY: the program's times.
                let times = unsafe { fetched(times) }?;
                both = Times { accessed: (times.actime, 0), modified: (times.modtime, 0) };
            }
            process.set_times(said.into(), both, at(0))
        }))
    }
}

named! {
    /// truncate(2).
    fn truncate(path: *const c_char, bytes: off_t) -> c_int | truncate64, said = path(path): zero(done(|process| process.truncate(said.into(), bytes)));
    /// getxattr(2).
    fn getxattr(path: *const c_char, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, said = path(path): filled(done(|process| process.xattr(path_of(said, true), name_of(name)?)), into, room);
    /// lgetxattr(2).
    fn lgetxattr(path: *const c_char, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, said = path(path): filled(done(|process| process.xattr(path_of(said, false), name_of(name)?)), into, room);
}

held! {
    /// fgetxattr(2).
    fn fgetxattr(descriptor: c_int, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, descriptor => filled(done(|process| process.xattr(Whose::Descriptor(borrowed(descriptor)), name_of(name)?)), into, room);
}

named! {
    /// listxattr(2).
    fn listxattr(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, said = path(path): filled(done(|process| process.xattrs(path_of(said, true))), into.cast(), room);
    /// llistxattr(2).
    fn llistxattr(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, said = path(path): filled(done(|process| process.xattrs(path_of(said, false))), into.cast(), room);
}

held! {
    /// flistxattr(2).
    fn flistxattr(descriptor: c_int, into: *mut c_char, room: size_t) -> ssize_t, descriptor => filled(done(|process| process.xattrs(Whose::Descriptor(borrowed(descriptor)))), into.cast(), room);
}

named! {
    /// setxattr(2).
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, said = path(path): zero(done(|process| process.set_xattr(path_of(said, true), name_of(name)?, whole(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
    /// lsetxattr(2).
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, said = path(path): zero(done(|process| process.set_xattr(path_of(said, false), name_of(name)?, whole(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
}

held! {
    /// fsetxattr(2).
    fn fsetxattr(descriptor: c_int, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, descriptor => zero(done(|process| process.set_xattr(Whose::Descriptor(borrowed(descriptor)), name_of(name)?, whole(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
}

named! {
    /// removexattr(2).
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int, said = path(path): zero(done(|process| process.remove_xattr(path_of(said, true), name_of(name)?)));
    /// lremovexattr(2).
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int, said = path(path): zero(done(|process| process.remove_xattr(path_of(said, false), name_of(name)?)));
}

held! {
    /// fremovexattr(2).
    fn fremovexattr(descriptor: c_int, name: *const c_char) -> c_int, descriptor => zero(done(|process| process.remove_xattr(Whose::Descriptor(borrowed(descriptor)), name_of(name)?)));
}

symbols! {
    /// pathconf(3): the values of tmpfs for the pool.
    fn pathconf(path: *const c_char, name: c_int) -> c_long {
        // SAFETY: the program's path argument.
        match unsafe { ours::path(path) } {
            Some(said) => match done(|process| process.stat(said.into(), at(0))) {
                // SAFETY: an existing path on a file system with the same limits.
                Ok(_) => unsafe { next(c"/dev/shm".as_ptr(), name) },
                Err(errno) => { set_errno(errno); -1 }
            },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, name) },
        }
    }
}
