//! Functions on names: create, rename, link, read a symlink, remove; and the working directory.

use super::{on_descriptor, on_path, symbols};
use crate::call::{at, number, pointer, run, zero};
use crate::classify::{self, PoolPath};
use crate::cstr::{checked, copy_or_allocate, copy_out};
use crate::memory::writable;
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t, size_t, ssize_t};
use posix::{PathOperand, PosixProcess};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// Classifies the two paths of a call; `None` if neither is of the pool, `EFAULT` if the other one
/// is unreadable.
///
/// # Safety
/// The paths outlive the result.
unsafe fn operands<'a>(
    (old_dirfd, old): (c_int, *const c_char),
    (new_dirfd, new): (c_int, *const c_char),
) -> Option<Result<(PathOperand<'a>, PathOperand<'a>), Errno>> {
    // SAFETY: same contract as this function's.
    let operands = unsafe { (classify::path_at(old_dirfd, old), classify::path_at(new_dirfd, new)) };
    let operand = |arg: Option<PoolPath<'a>>, dirfd: c_int, path| {
        if let Some(arg) = arg {
            return Ok(PathOperand::Pool(arg.into()));
        }
        // SAFETY: same contract as this function's.
        unsafe { checked(path)? };
        // SAFETY: the program's descriptor, for this call. -1 cannot be borrowed, and -2 is as
        // invalid.
        let dirfd = unsafe { BorrowedFd::borrow_raw(if dirfd == -1 { -2 } else { dirfd }) };
        // SAFETY: a readable, nul-terminated string, as checked above.
        Ok(PathOperand::Host(dirfd, unsafe { CStr::from_ptr(path) }))
    };
    match operands {
        (None, None) => None,
        (old_arg, new_arg) => Some(
            operand(old_arg, old_dirfd, old).and_then(|old| operand(new_arg, new_dirfd, new).map(|new| (old, new))),
        ),
    }
}

/// renameat2(2), if one of the names is of the pool.
///
/// # Safety
/// As [`operands`].
unsafe fn rename_at(old: (c_int, *const c_char), new: (c_int, *const c_char), flags: c_uint) -> Option<c_int> {
    let flags = RenameFlags::from_bits_retain(flags);
    // SAFETY: same contract as this function's.
    let operands = unsafe { operands(old, new) }?;
    Some(zero(operands.and_then(|(old, new)| run(|process| process.rename(old, new, flags)))))
}

/// linkat(2), if one of the names is of the pool.
///
/// # Safety
/// As [`operands`].
unsafe fn link_at(old: (c_int, *const c_char), new: (c_int, *const c_char), flags: c_int) -> Option<c_int> {
    // SAFETY: same contract as this function's.
    let operands = unsafe { operands(old, new) }?;
    Some(zero(operands.and_then(|(old, new)| run(|process| process.link(old, new, at(flags))))))
}

/// Fills a buffer with as much of a symlink's target as fits, as readlink(2) does. The kernel takes
/// the size as a positive `int`.
///
/// # Safety
/// `into` has space for `room` bytes.
unsafe fn read_into(arg: PoolPath<'_>, into: *mut c_char, room: size_t) -> ssize_t {
    let room = room & c_uint::MAX as usize;
    if !(1..=c_int::MAX as usize).contains(&room) {
        return number(Err(Errno::INVAL));
    }
    number(run(|process| {
        let text = process.read_link(arg.into())?;
        // SAFETY: guaranteed by the caller.
        let fits = unsafe { writable(into.cast(), room.min(text.len())) }?.len() >= room.min(text.len());
        if !fits {
            return Err(Errno::FAULT);
        }
        // SAFETY: that many bytes are writable.
        ssize_t::try_from(unsafe { copy_out(&text, into, room) }).map_err(|_| Errno::NAMETOOLONG)
    }))
}

on_path! {
    /// mkdir(2).
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int, arg = path(path): zero(run(|process| process.mkdir(arg.into(), mode)));
    /// mkdirat(2).
    fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.mkdir(arg.into(), mode)));
    /// mknod(2).
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int, arg = path(path):
        zero(run(|process| process.mknod(arg.into(), mode, device_number(device))));
    /// mknodat(2).
    fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.mknod(arg.into(), mode, device_number(device))));
    /// mknod(2) in programs built with a C library before 2.33.
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int, arg = path(path):
        zero(run(|process| process.mknod(arg.into(), mode, device_number(*device))));
    /// mknodat(2) in programs built with a C library before 2.33.
    fn __xmknodat(version: c_int, dirfd: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.mknod(arg.into(), mode, device_number(*device))));
    /// mkfifo(3).
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int, arg = path(path):
        zero(run(|process| process.mknod(arg.into(), mode | libc::S_IFIFO, device_number(0))));
    /// mkfifoat(3).
    fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.mknod(arg.into(), mode | libc::S_IFIFO, device_number(0))));
    /// symlink(2): the target is stored unchanged.
    fn symlink(text: *const c_char, path: *const c_char) -> c_int, arg = path(path):
        zero(run(|process| process.symlink(checked(text)?, arg.into())));
    /// symlinkat(2).
    fn symlinkat(text: *const c_char, dirfd: c_int, path: *const c_char) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.symlink(checked(text)?, arg.into())));
    /// readlink(2).
    fn readlink(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, arg = path(path): read_into(arg, into, room);
    /// readlinkat(2).
    fn readlinkat(dirfd: c_int, path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, arg = path_at(dirfd, path):
        read_into(arg, into, room);
    /// readlink(2) in programs built with `_FORTIFY_SOURCE`; `most` is the size of their buffer.
    fn __readlink_chk(path: *const c_char, into: *mut c_char, room: size_t, most: size_t) -> ssize_t, arg = path(path):
        read_into(arg, into, room.min(most));
    /// readlinkat(2) in programs built with `_FORTIFY_SOURCE`.
    fn __readlinkat_chk(dirfd: c_int, path: *const c_char, into: *mut c_char, room: size_t, most: size_t) -> ssize_t, arg = path_at(dirfd, path):
        read_into(arg, into, room.min(most));
    /// unlink(2).
    fn unlink(path: *const c_char) -> c_int, arg = path(path): zero(run(|process| process.unlink(arg.into(), AtFlags::empty())));
    /// unlinkat(2).
    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int, arg = path_at(dirfd, path):
        zero(run(|process| process.unlink(arg.into(), at(flags))));
    /// rmdir(2).
    fn rmdir(path: *const c_char) -> c_int, arg = path(path): zero(run(|process| process.unlink(arg.into(), AtFlags::REMOVEDIR)));
    /// remove(3): removes a file, or an empty directory.
    fn remove(path: *const c_char) -> c_int, arg = path(path): zero(run(|process| match process.unlink(arg.into(), AtFlags::empty()) {
        Err(Errno::ISDIR) => process.unlink(arg.into(), AtFlags::REMOVEDIR),
        outcome => outcome,
    }));
    /// chroot(2): refused, because the kernel finds no programs there.
    fn chroot(path: *const c_char) -> c_int, arg = path(path): zero(run(|process| process.stat(arg.into(), AtFlags::empty()).and(Err(Errno::PERM))));
}

symbols! {
    /// rename(2).
    fn rename(old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { rename_at((AT_FDCWD, old), (AT_FDCWD, new), 0).unwrap_or_else(|| next(old, new)) }
    }

    /// renameat(2).
    fn renameat(old_dirfd: c_int, old: *const c_char, new_dirfd: c_int, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { rename_at((old_dirfd, old), (new_dirfd, new), 0).unwrap_or_else(|| next(old_dirfd, old, new_dirfd, new)) }
    }

    /// renameat2(2).
    fn renameat2(old_dirfd: c_int, old: *const c_char, new_dirfd: c_int, new: *const c_char, flags: c_uint) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { rename_at((old_dirfd, old), (new_dirfd, new), flags).unwrap_or_else(|| next(old_dirfd, old, new_dirfd, new, flags)) }
    }

    /// link(2).
    fn link(old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { link_at((AT_FDCWD, old), (AT_FDCWD, new), 0).unwrap_or_else(|| next(old, new)) }
    }

    /// linkat(2).
    fn linkat(old_dirfd: c_int, old: *const c_char, new_dirfd: c_int, new: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { link_at((old_dirfd, old), (new_dirfd, new), flags).unwrap_or_else(|| next(old_dirfd, old, new_dirfd, new, flags)) }
    }

    /// chdir(2). A path of the host leaves the pool.
    fn chdir(path: *const c_char) -> c_int {
        // SAFETY: the program's path argument.
        match unsafe { classify::path(path) } {
            Some(arg) => record_cwd(run(|process| process.chdir(arg.into()).map(|()| process.directory()))),
            // SAFETY: forwards the program's own arguments.
            None => record_cwd_outside(unsafe { next(path) }),
        }
    }

    /// fchdir(2).
    fn fchdir(descriptor: c_int) -> c_int {
        match classify::kind(descriptor) {
            Some(_) => record_cwd(run(|process| process.chdir(PoolPath::At(descriptor, b"").into()).map(|()| process.directory()))),
            // SAFETY: forwards the program's own arguments.
            None => record_cwd_outside(unsafe { next(descriptor) }),
        }
    }

    /// daemon(3), which changes to the root directory unless told not to.
    fn daemon(stays: c_int, keeps: c_int) -> c_int {
        // SAFETY: forwards the program's own arguments.
        let outcome = unsafe { next(stays, keeps) };
        if stays == 0 { record_cwd_outside(outcome) } else { outcome }
    }

    /// getcwd(3).
    fn getcwd(into: *mut c_char, room: size_t) -> *mut c_char {
        if !classify::is_cwd_in_pool() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(into, room) };
        }
        pointer(run(PosixProcess::getcwd).and_then(|text| {
            // SAFETY: the program's buffer, or null.
            unsafe { copy_or_allocate(&text, into, room) }
        }))
    }

    /// getcwd(3) in programs built with `_FORTIFY_SOURCE`.
    fn __getcwd_chk(into: *mut c_char, room: size_t, most: size_t) -> *mut c_char {
        // SAFETY: forwards the program's own arguments.
        unsafe { getcwd(into, room.min(most)) }
    }

    /// getwd(3): into a buffer of `PATH_MAX` bytes.
    fn getwd(into: *mut c_char) -> *mut c_char {
        // SAFETY: forwards the program's own arguments.
        unsafe { getcwd(into, size_t::try_from(libc::PATH_MAX).unwrap_or(4096)) }
    }

    /// `get_current_dir_name(3)`: allocates the result.
    fn get_current_dir_name() -> *mut c_char {
        // SAFETY: a null buffer requests a new one.
        if classify::is_cwd_in_pool() { unsafe { getcwd(null_mut(), 0) } } else { unsafe { next() } }
    }
}

on_path! {
    /// realpath(3).
    fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char, arg = path(path): real_path_into(arg, into);
    /// realpath(3) in programs built with `_FORTIFY_SOURCE`; their buffer has at least `PATH_MAX`
    /// bytes.
    fn __realpath_chk(path: *const c_char, into: *mut c_char, most: size_t) -> *mut c_char, arg = path(path): real_path_into(arg, into);
    /// `canonicalize_file_name(3)`.
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char, arg = path(path): real_path_into(arg, null_mut());
}

on_descriptor! {
    /// fpathconf(3): the values of tmpfs for the pool.
    fn fpathconf(descriptor: c_int, name: c_int) -> libc::c_long, descriptor => {
        libc::pathconf(c"/dev/shm".as_ptr(), name)
    };
}

/// # Safety
/// `into` is null or has space for `PATH_MAX` bytes.
unsafe fn real_path_into(arg: PoolPath<'_>, into: *mut c_char) -> *mut c_char {
    let room = if into.is_null() { 0 } else { size_t::try_from(libc::PATH_MAX).unwrap_or(4096) };
    pointer(run(|process| process.real_path(arg.into())).and_then(|text| {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_or_allocate(&text, into, room) }
    }))
}

/// Returns a device number in the form that inodes store.
fn device_number(device: dev_t) -> u32 {
    u32::try_from(device).unwrap_or(u32::MAX)
}

/// Records the working directory after a chdir(2): in the pool, or outside it if a symlink led out.
/// New programs get it in an environment variable.
fn record_cwd(outcome: Result<Option<Vec<u8>>, Errno>) -> c_int {
    zero(outcome.map(|path| {
        classify::set_cwd_in_pool(path.is_some());
        crate::environment::set_directory(path.as_deref());
    }))
}

/// Records that the working directory left the pool, if the call succeeded.
fn record_cwd_outside(outcome: c_int) -> c_int {
    if outcome == 0 && classify::is_cwd_in_pool() {
        classify::set_cwd_in_pool(false);
        crate::environment::set_directory(None);
        // An error means that there is no connection to the pool, and so no directory to forget.
        let _ = run(|process| {
            process.leave_pool();
            Ok(())
        });
    }
    outcome
}

#[cfg(test)]
#[path = "names_test.rs"]
mod tests;
