//! Functions that read and change attributes: the families of stat, access, chmod, chown, utime and
//! truncate, and extended attributes.

use super::{on_descriptor, on_path, symbols};
use crate::call::{at, number, run, set_errno, zero};
use crate::classify::{self, PoolPath, borrow};
use crate::cstr::{checked, copy_out};
use crate::fsize_limit::check_size;
use crate::memory::{load, readable, store, writable};
use libc::{
    AT_EACCESS, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, c_uint, c_void, gid_t, mode_t, off_t, size_t, ssize_t,
    timespec, timeval, uid_t, utimbuf,
};
use posix::{FileTimes, Stat, XattrTarget};
use rustix::fs::{Access, XattrFlags};
use rustix::io::Errno;

/// Stores the attributes of a file of the pool.
///
/// # Safety
/// `into` has space for the structure; it need not be writable.
unsafe fn stat_into(arg: PoolPath<'_>, flags: c_int, into: *mut libc::stat) -> c_int {
    zero(run(|process| {
        let found = process.stat(arg.into(), at(flags))?;
        // SAFETY: guaranteed by the caller.
        unsafe { store(as_stat(&found), into) }
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
    statx.stx_btime = time(found.created);
    (statx.stx_dev_major, statx.stx_dev_minor) = found.device;
    (statx.stx_rdev_major, statx.stx_rdev_minor) = found.special;
    statx
}

/// Converts the mode of access(2).
fn access_mode(mode: c_int) -> Result<Access, Errno> {
    let mode = Access::from_bits_retain(mode.cast_unsigned());
    let known = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    if known.contains(mode) { Ok(mode) } else { Err(Errno::INVAL) }
}

/// Returns the target of an extended-attribute call on a path.
fn path_target(arg: PoolPath<'_>, follow: bool) -> XattrTarget<'_> {
    XattrTarget::Path { arg: arg.into(), follow }
}

/// # Safety
/// `times` is null or points to two times.
unsafe fn times_of(times: *const timespec) -> Result<FileTimes, Errno> {
    if times.is_null() {
        return Ok(FileTimes::NOW);
    }
    // SAFETY: guaranteed by the caller.
    let [accessed, modified] = unsafe { load(times.cast::<[timespec; 2]>()) }?;
    Ok(FileTimes { accessed: (accessed.tv_sec, accessed.tv_nsec), modified: (modified.tv_sec, modified.tv_nsec) })
}

/// # Safety
/// `times` is null or points to two times.
unsafe fn microseconds_of(times: *const timeval) -> Result<FileTimes, Errno> {
    if times.is_null() {
        return Ok(FileTimes::NOW);
    }
    // SAFETY: guaranteed by the caller.
    let [accessed, modified] = unsafe { load(times.cast::<[timeval; 2]>()) }?;
    let (accessed, modified) = ((accessed.tv_sec, accessed.tv_usec * 1000), (modified.tv_sec, modified.tv_usec * 1000));
    Ok(FileTimes { accessed, modified })
}

/// Stores the result of an extended-attribute call in a buffer. Returns its length, also if the
/// buffer is empty.
///
/// # Safety
/// `into` has space for `room` bytes.
unsafe fn copy_value(outcome: Result<Vec<u8>, Errno>, into: *mut c_void, room: size_t) -> ssize_t {
    let outcome = outcome.and_then(|value| {
        let length = ssize_t::try_from(value.len()).map_err(|_| Errno::RANGE)?;
        if room != 0 && value.len() > room {
            return Err(Errno::RANGE);
        }
        // SAFETY: guaranteed by the caller.
        if unsafe { writable(into, room.min(value.len())) }?.len() < room.min(value.len()) {
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
unsafe fn load_value<'a>(value: *const c_void, length: size_t) -> Result<&'a [u8], Errno> {
    if length > VALUE_BYTES_MAX {
        return Err(Errno::TOOBIG);
    }
    // SAFETY: guaranteed by the caller.
    let found = unsafe { readable(value, length) }?;
    if found.len() < length { Err(Errno::FAULT) } else { Ok(found) }
}

on_path! {
    /// stat(2).
    fn stat(path: *const c_char, into: *mut libc::stat) -> c_int | stat64, arg = path(path): stat_into(arg, 0, into);
    /// lstat(2).
    fn lstat(path: *const c_char, into: *mut libc::stat) -> c_int | lstat64, arg = path(path): stat_into(arg, AT_SYMLINK_NOFOLLOW, into);
}

on_descriptor! {
    /// fstat(2).
    fn fstat(descriptor: c_int, into: *mut libc::stat) -> c_int | fstat64, descriptor => stat_into(PoolPath::At(descriptor, b""), libc::AT_EMPTY_PATH, into);
}

on_path! {
    /// fstatat(2).
    fn fstatat(dirfd: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int | fstatat64, arg = path_at(dirfd, path): stat_into(arg, flags, into);
    /// stat(2) in programs built with a C library before 2.33. The version names the structure;
    /// there has been only one.
    fn __xstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int | __xstat64, arg = path(path): stat_into(arg, 0, into);
    /// lstat(2) in programs built with a C library before 2.33.
    fn __lxstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int | __lxstat64, arg = path(path): stat_into(arg, AT_SYMLINK_NOFOLLOW, into);
}

on_descriptor! {
    /// fstat(2) in programs built with a C library before 2.33.
    fn __fxstat(version: c_int, descriptor: c_int, into: *mut libc::stat) -> c_int | __fxstat64, descriptor => fstat(descriptor, into);
}

on_path! {
    /// fstatat(2) in programs built with a C library before 2.33.
    fn __fxstatat(version: c_int, dirfd: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int | __fxstatat64, arg = path_at(dirfd, path): stat_into(arg, flags, into);
}

symbols! {
    /// statx(2).
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx) -> c_int {
        // SAFETY: the program's path argument.
        let Some(arg) = (unsafe { classify::path_at(dirfd, path) }) else {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(dirfd, path, flags, mask, into) };
        };
        zero(run(|process| {
            let found = process.stat(arg.into(), at(flags))?;
            // SAFETY: the program's structure.
            unsafe { store(as_statx(&found), into) }
        }))
    }
}

on_path! {
    /// statfs(2).
    fn statfs(path: *const c_char, into: *mut libc::statfs) -> c_int | statfs64, arg = path(path): zero(run(|process| process.statfs(arg.into()).and_then(|found| store(crate::statfs::as_statfs(&found), into))));
}

on_descriptor! {
    /// fstatfs(2).
    fn fstatfs(descriptor: c_int, into: *mut libc::statfs) -> c_int | fstatfs64, descriptor => zero(run(|process| process.fstatfs(borrow(descriptor)).and_then(|found| store(crate::statfs::as_statfs(&found), into))));
}

on_path! {
    /// statvfs(3).
    fn statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int | statvfs64, arg = path(path): zero(run(|process| process.statfs(arg.into()).and_then(|found| store(crate::statfs::as_statvfs(&found), into))));
}

on_descriptor! {
    /// fstatvfs(3).
    fn fstatvfs(descriptor: c_int, into: *mut libc::statvfs) -> c_int | fstatvfs64, descriptor => zero(run(|process| process.fstatfs(borrow(descriptor)).and_then(|found| store(crate::statfs::as_statvfs(&found), into))));
}

on_path! {
    /// access(2).
    fn access(path: *const c_char, mode: c_int) -> c_int, arg = path(path): zero(run(|process| process.access(arg.into(), access_mode(mode)?, at(0))));
    /// faccessat(2).
    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, arg = path_at(dirfd, path): zero(run(|process| process.access(arg.into(), access_mode(mode)?, at(flags))));
    /// eaccess(3).
    fn eaccess(path: *const c_char, mode: c_int) -> c_int | euidaccess, arg = path(path): zero(run(|process| process.access(arg.into(), access_mode(mode)?, at(AT_EACCESS))));
    /// chmod(2).
    fn chmod(path: *const c_char, mode: mode_t) -> c_int, arg = path(path): zero(run(|process| process.chmod(arg.into(), mode, at(0))));
    /// lchmod(3).
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int, arg = path(path): zero(run(|process| process.chmod(arg.into(), mode, at(AT_SYMLINK_NOFOLLOW))));
}

on_descriptor! {
    /// fchmod(2).
    fn fchmod(descriptor: c_int, mode: mode_t) -> c_int, descriptor => zero(run(|process| process.check_not_path_only(borrow(descriptor)).and_then(|()| process.chmod(PoolPath::At(descriptor, b"").into(), mode, at(libc::AT_EMPTY_PATH)))));
}

on_path! {
    /// fchmodat(2).
    fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, arg = path_at(dirfd, path): zero(run(|process| process.chmod(arg.into(), mode, at(flags))));
    /// chown(2).
    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int, arg = path(path): zero(run(|process| process.chown(arg.into(), uid, gid, at(0))));
    /// lchown(2).
    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int, arg = path(path): zero(run(|process| process.chown(arg.into(), uid, gid, at(AT_SYMLINK_NOFOLLOW))));
}

on_descriptor! {
    /// fchown(2).
    fn fchown(descriptor: c_int, uid: uid_t, gid: gid_t) -> c_int, descriptor => zero(run(|process| process.check_not_path_only(borrow(descriptor)).and_then(|()| process.chown(PoolPath::At(descriptor, b"").into(), uid, gid, at(libc::AT_EMPTY_PATH)))));
}

on_path! {
    /// fchownat(2).
    fn fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int, arg = path_at(dirfd, path): zero(run(|process| process.chown(arg.into(), uid, gid, at(flags))));
}

on_path! {
    /// utimensat(2).
    fn utimensat(dirfd: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int, arg = path_at(dirfd, path): zero(run(|process| process.set_times(arg.into(), times_of(times)?, at(flags))));
}

on_descriptor! {
    /// futimens(3).
    fn futimens(descriptor: c_int, times: *const timespec) -> c_int, descriptor => zero(run(|process| {
        process.check_not_path_only(borrow(descriptor))?;
        process.set_times(PoolPath::At(descriptor, b"").into(), times_of(times)?, at(libc::AT_EMPTY_PATH))
    }));
}

on_path! {
    /// utimes(2).
    fn utimes(path: *const c_char, times: *const timeval) -> c_int, arg = path(path): zero(run(|process| process.set_times(arg.into(), microseconds_of(times)?, at(0))));
    /// lutimes(3).
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int, arg = path(path): zero(run(|process| process.set_times(arg.into(), microseconds_of(times)?, at(AT_SYMLINK_NOFOLLOW))));
}

on_descriptor! {
    /// futimes(3).
    fn futimes(descriptor: c_int, times: *const timeval) -> c_int, descriptor => zero(run(|process| {
        process.check_not_path_only(borrow(descriptor))?;
        process.set_times(PoolPath::At(descriptor, b"").into(), microseconds_of(times)?, at(libc::AT_EMPTY_PATH))
    }));
}

symbols! {
    /// futimesat(2).
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const timeval) -> c_int {
        if path.is_null() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { futimes(dirfd, times) };
        }
        // SAFETY: the program's path and times.
        unsafe { match classify::path_at(dirfd, path) { Some(arg) => zero(run(|process| process.set_times(arg.into(), microseconds_of(times)?, at(0)))), None => next(dirfd, path, times) } }
    }
    /// utime(2).
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
        // SAFETY: the program's path argument.
        let Some(arg) = (unsafe { classify::path(path) }) else {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(path, times) };
        };
        zero(run(|process| {
            let mut both = FileTimes::NOW;
            if !times.is_null() {
                // SAFETY: the program's times.
                let times = unsafe { load(times) }?;
                both = FileTimes { accessed: (times.actime, 0), modified: (times.modtime, 0) };
            }
            process.set_times(arg.into(), both, at(0))
        }))
    }
}

on_path! {
    /// truncate(2).
    fn truncate(path: *const c_char, bytes: off_t) -> c_int | truncate64, arg = path(path): zero(run(|process| {
        check_size(process, arg.into(), at(0), bytes)?;
        process.truncate(arg.into(), bytes)
    }));
    /// getxattr(2).
    fn getxattr(path: *const c_char, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, arg = path(path): copy_value(run(|process| process.xattr(path_target(arg, true), checked(name)?)), into, room);
    /// lgetxattr(2).
    fn lgetxattr(path: *const c_char, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, arg = path(path): copy_value(run(|process| process.xattr(path_target(arg, false), checked(name)?)), into, room);
}

on_descriptor! {
    /// fgetxattr(2).
    fn fgetxattr(descriptor: c_int, name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, descriptor => copy_value(run(|process| process.xattr(XattrTarget::Descriptor(borrow(descriptor)), checked(name)?)), into, room);
}

on_path! {
    /// listxattr(2).
    fn listxattr(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, arg = path(path): copy_value(run(|process| process.xattrs(path_target(arg, true))), into.cast(), room);
    /// llistxattr(2).
    fn llistxattr(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, arg = path(path): copy_value(run(|process| process.xattrs(path_target(arg, false))), into.cast(), room);
}

on_descriptor! {
    /// flistxattr(2).
    fn flistxattr(descriptor: c_int, into: *mut c_char, room: size_t) -> ssize_t, descriptor => copy_value(run(|process| process.xattrs(XattrTarget::Descriptor(borrow(descriptor)))), into.cast(), room);
}

on_path! {
    /// setxattr(2).
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, arg = path(path): zero(run(|process| process.set_xattr(path_target(arg, true), checked(name)?, load_value(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
    /// lsetxattr(2).
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, arg = path(path): zero(run(|process| process.set_xattr(path_target(arg, false), checked(name)?, load_value(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
}

on_descriptor! {
    /// fsetxattr(2).
    fn fsetxattr(descriptor: c_int, name: *const c_char, value: *const c_void, length: size_t, flags: c_int) -> c_int, descriptor => zero(run(|process| process.set_xattr(XattrTarget::Descriptor(borrow(descriptor)), checked(name)?, load_value(value, length)?, XattrFlags::from_bits_retain(flags.cast_unsigned()))));
}

on_path! {
    /// removexattr(2).
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int, arg = path(path): zero(run(|process| process.remove_xattr(path_target(arg, true), checked(name)?)));
    /// lremovexattr(2).
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int, arg = path(path): zero(run(|process| process.remove_xattr(path_target(arg, false), checked(name)?)));
}

on_descriptor! {
    /// fremovexattr(2).
    fn fremovexattr(descriptor: c_int, name: *const c_char) -> c_int, descriptor => zero(run(|process| process.remove_xattr(XattrTarget::Descriptor(borrow(descriptor)), checked(name)?)));
}

symbols! {
    /// pathconf(3): the values of tmpfs for the pool.
    fn pathconf(path: *const c_char, name: c_int) -> c_long {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            Some(arg) => match run(|process| process.stat(arg.into(), at(0))) {
                // SAFETY: an existing path on a file system with the same limits.
                Ok(_) => unsafe { next(c"/dev/shm".as_ptr(), name) },
                Err(errno) => { set_errno(errno); -1 }
            },
            // SAFETY: forwards the program's own arguments.
            None => unsafe { next(path, name) },
        }
    }
}

#[cfg(test)]
#[path = "attributes_test.rs"]
mod tests;
