//! Functions on names: create, rename, link, read a symlink, remove; and the working directory.

use super::{held, named, symbols};
use crate::guard::{at, done, number, pointer, zero};
use crate::memory::room as room_of;
use crate::ours::{self, Said};
use crate::text::{copy_out, given_or_new, told};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t, size_t, ssize_t};
use posix::{Process, Side};
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
unsafe fn sides<'a>(
    (old_folder, old): (c_int, *const c_char),
    (new_folder, new): (c_int, *const c_char),
) -> Option<Result<(Side<'a>, Side<'a>), Errno>> {
    // SAFETY: same contract as this function's.
    let sides = unsafe { (ours::path_at(old_folder, old), ours::path_at(new_folder, new)) };
    let side = |said: Option<Said<'a>>, folder: c_int, path| {
        if let Some(said) = said {
            return Ok(Side::Pool(said.into()));
        }
        // SAFETY: same contract as this function's.
        unsafe { told(path)? };
        // SAFETY: the program's descriptor, for this call. -1 cannot be borrowed, and -2 is as
        // invalid.
        let folder = unsafe { BorrowedFd::borrow_raw(if folder == -1 { -2 } else { folder }) };
        // SAFETY: a readable, nul-terminated string, as checked above.
        Ok(Side::Host(folder, unsafe { CStr::from_ptr(path) }))
    };
    match sides {
        (None, None) => None,
        (old_said, new_said) => {
            Some(side(old_said, old_folder, old).and_then(|old| side(new_said, new_folder, new).map(|new| (old, new))))
        }
    }
}

/// renameat2(2), if one of the names is of the pool.
///
/// # Safety
/// As [`sides`].
unsafe fn renamed(old: (c_int, *const c_char), new: (c_int, *const c_char), flags: c_uint) -> Option<c_int> {
    let flags = RenameFlags::from_bits_retain(flags);
    // SAFETY: same contract as this function's.
    let sides = unsafe { sides(old, new) }?;
    Some(zero(sides.and_then(|(old, new)| done(|process| process.rename(old, new, flags)))))
}

/// linkat(2), if one of the names is of the pool.
///
/// # Safety
/// As [`sides`].
unsafe fn linked(old: (c_int, *const c_char), new: (c_int, *const c_char), flags: c_int) -> Option<c_int> {
    // SAFETY: same contract as this function's.
    let sides = unsafe { sides(old, new) }?;
    Some(zero(sides.and_then(|(old, new)| done(|process| process.link(old, new, at(flags))))))
}

/// Fills a buffer with as much of a symlink's target as fits, as readlink(2) does. The kernel takes
/// the size as a positive `int`.
///
/// # Safety
/// `into` has space for `room` bytes.
unsafe fn read_into(said: Said<'_>, into: *mut c_char, room: size_t) -> ssize_t {
    let room = room & c_uint::MAX as usize;
    if !(1..=c_int::MAX as usize).contains(&room) {
        return number(Err(Errno::INVAL));
    }
    number(done(|process| {
        let text = process.read_link(said.into())?;
        // SAFETY: guaranteed by the caller.
        let fits = unsafe { room_of(into.cast(), room.min(text.len())) }?.len() >= room.min(text.len());
        if !fits {
            return Err(Errno::FAULT);
        }
        // SAFETY: that many bytes are writable.
        ssize_t::try_from(unsafe { copy_out(&text, into, room) }).map_err(|_| Errno::NAMETOOLONG)
    }))
}

named! {
    /// mkdir(2).
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int, said = path(path): zero(done(|process| process.mkdir(said.into(), mode)));
    /// mkdirat(2).
    fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.mkdir(said.into(), mode)));
    /// mknod(2).
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int, said = path(path):
        zero(done(|process| process.mknod(said.into(), mode, device_number(device))));
    /// mknodat(2).
    fn mknodat(folder: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.mknod(said.into(), mode, device_number(device))));
    /// mknod(2) in programs built with a C library before 2.33.
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int, said = path(path):
        zero(done(|process| process.mknod(said.into(), mode, device_number(*device))));
    /// mknodat(2) in programs built with a C library before 2.33.
    fn __xmknodat(version: c_int, folder: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.mknod(said.into(), mode, device_number(*device))));
    /// mkfifo(3).
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int, said = path(path):
        zero(done(|process| process.mknod(said.into(), mode | libc::S_IFIFO, device_number(0))));
    /// mkfifoat(3).
    fn mkfifoat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.mknod(said.into(), mode | libc::S_IFIFO, device_number(0))));
    /// symlink(2): the target is stored unchanged.
    fn symlink(text: *const c_char, path: *const c_char) -> c_int, said = path(path):
        zero(done(|process| process.symlink(told(text)?, said.into())));
    /// symlinkat(2).
    fn symlinkat(text: *const c_char, folder: c_int, path: *const c_char) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.symlink(told(text)?, said.into())));
    /// readlink(2).
    fn readlink(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, said = path(path): read_into(said, into, room);
    /// readlinkat(2).
    fn readlinkat(folder: c_int, path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t, said = path_at(folder, path):
        read_into(said, into, room);
    /// readlink(2) in programs built with `_FORTIFY_SOURCE`; `most` is the size of their buffer.
    fn __readlink_chk(path: *const c_char, into: *mut c_char, room: size_t, most: size_t) -> ssize_t, said = path(path):
        read_into(said, into, room.min(most));
    /// readlinkat(2) in programs built with `_FORTIFY_SOURCE`.
    fn __readlinkat_chk(folder: c_int, path: *const c_char, into: *mut c_char, room: size_t, most: size_t) -> ssize_t, said = path_at(folder, path):
        read_into(said, into, room.min(most));
    /// unlink(2).
    fn unlink(path: *const c_char) -> c_int, said = path(path): zero(done(|process| process.unlink(said.into(), AtFlags::empty())));
    /// unlinkat(2).
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int, said = path_at(folder, path):
        zero(done(|process| process.unlink(said.into(), at(flags))));
    /// rmdir(2).
    fn rmdir(path: *const c_char) -> c_int, said = path(path): zero(done(|process| process.unlink(said.into(), AtFlags::REMOVEDIR)));
    /// remove(3): removes a file, or an empty directory.
    fn remove(path: *const c_char) -> c_int, said = path(path): zero(done(|process| match process.unlink(said.into(), AtFlags::empty()) {
        Err(Errno::ISDIR) => process.unlink(said.into(), AtFlags::REMOVEDIR),
        done => done,
    }));
    /// chroot(2): refused, because the kernel finds no programs there.
    fn chroot(path: *const c_char) -> c_int, said = path(path): zero(done(|process| process.stat(said.into(), AtFlags::empty()).and(Err(Errno::PERM))));
}

symbols! {
    /// rename(2).
    fn rename(old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { renamed((AT_FDCWD, old), (AT_FDCWD, new), 0).unwrap_or_else(|| next(old, new)) }
    }

    /// renameat(2).
    fn renameat(old_folder: c_int, old: *const c_char, new_folder: c_int, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { renamed((old_folder, old), (new_folder, new), 0).unwrap_or_else(|| next(old_folder, old, new_folder, new)) }
    }

    /// renameat2(2).
    fn renameat2(old_folder: c_int, old: *const c_char, new_folder: c_int, new: *const c_char, flags: c_uint) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { renamed((old_folder, old), (new_folder, new), flags).unwrap_or_else(|| next(old_folder, old, new_folder, new, flags)) }
    }

    /// link(2).
    fn link(old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { linked((AT_FDCWD, old), (AT_FDCWD, new), 0).unwrap_or_else(|| next(old, new)) }
    }

    /// linkat(2).
    fn linkat(old_folder: c_int, old: *const c_char, new_folder: c_int, new: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's path arguments.
        unsafe { linked((old_folder, old), (new_folder, new), flags).unwrap_or_else(|| next(old_folder, old, new_folder, new, flags)) }
    }

    /// chdir(2). A path of the host leaves the pool.
    fn chdir(path: *const c_char) -> c_int {
        // SAFETY: the program's path argument.
        match unsafe { ours::path(path) } {
            Some(said) => gone_to(done(|process| process.chdir(said.into()).map(|()| process.directory()))),
            // SAFETY: forwards the program's own arguments.
            None => left(unsafe { next(path) }),
        }
    }

    /// fchdir(2).
    fn fchdir(descriptor: c_int) -> c_int {
        match ours::kind(descriptor) {
            Some(_) => gone_to(done(|process| process.chdir(Said::From(descriptor, b"").into()).map(|()| process.directory()))),
            // SAFETY: forwards the program's own arguments.
            None => left(unsafe { next(descriptor) }),
        }
    }

    /// daemon(3), which changes to the root directory unless told not to.
    fn daemon(stays: c_int, keeps: c_int) -> c_int {
        // SAFETY: forwards the program's own arguments.
        let outcome = unsafe { next(stays, keeps) };
        if stays == 0 { left(outcome) } else { outcome }
    }

    /// getcwd(3).
    fn getcwd(into: *mut c_char, room: size_t) -> *mut c_char {
        if !ours::is_inside() {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(into, room) };
        }
        pointer(done(Process::getcwd).and_then(|text| {
            // SAFETY: the program's buffer, or null.
            unsafe { given_or_new(&text, into, room) }
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
        if ours::is_inside() { unsafe { getcwd(null_mut(), 0) } } else { unsafe { next() } }
    }
}

named! {
    /// realpath(3).
    fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char, said = path(path): resolved(said, into);
    /// realpath(3) in programs built with `_FORTIFY_SOURCE`; their buffer has at least `PATH_MAX`
    /// bytes.
    fn __realpath_chk(path: *const c_char, into: *mut c_char, most: size_t) -> *mut c_char, said = path(path): resolved(said, into);
    /// `canonicalize_file_name(3)`.
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char, said = path(path): resolved(said, null_mut());
}

held! {
    /// fpathconf(3): the values of tmpfs for the pool.
    fn fpathconf(descriptor: c_int, name: c_int) -> libc::c_long, descriptor => {
        libc::pathconf(c"/dev/shm".as_ptr(), name)
    };
}

/// # Safety
/// `into` is null or has space for `PATH_MAX` bytes.
unsafe fn resolved(said: Said<'_>, into: *mut c_char) -> *mut c_char {
    let room = if into.is_null() { 0 } else { size_t::try_from(libc::PATH_MAX).unwrap_or(4096) };
    pointer(done(|process| process.real_path(said.into())).and_then(|text| {
        // SAFETY: guaranteed by the caller.
        unsafe { given_or_new(&text, into, room) }
    }))
}

/// Returns a device number in the form that inodes store.
fn device_number(device: dev_t) -> u32 {
    u32::try_from(device).unwrap_or(u32::MAX)
}

/// Records the working directory after a chdir(2): in the pool, or outside it if a symlink led out.
/// New programs get it in an environment variable.
fn gone_to(outcome: Result<Option<Vec<u8>>, Errno>) -> c_int {
    zero(outcome.map(|path| {
        ours::set_inside(path.is_some());
        crate::settings::set_directory(path.as_deref());
    }))
}

/// Records that the working directory left the pool, if the call succeeded.
fn left(outcome: c_int) -> c_int {
    if outcome == 0 && ours::is_inside() {
        ours::set_inside(false);
        crate::settings::set_directory(None);
        // An error means that there is no connection to the pool, and so no directory to forget.
        let _ = done(|process| {
            process.left();
            Ok(())
        });
    }
    outcome
}
