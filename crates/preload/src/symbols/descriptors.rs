//! Descriptor calls: close, duplicate, lock, control. The kernel keeps the descriptor table; this
//! module keeps the library's records in line with it.

use super::{on_descriptor, symbols};
use crate::call::{SignalMask, number, run, run_interruptible, zero};
use crate::classify::{self, borrow, kind, record};
use crate::memory::{load, store};
use libc::{F_DUPFD, F_DUPFD_CLOEXEC, c_int, c_uint, c_ulong, c_void, off_t};
use posix::{LockBase, LockKind, LockOperation, LockRange};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, fcntl_getfd};

/// Closes a descriptor with `close`, and removes its record first, because its number may be reused
/// as soon as it is closed.
pub fn close_recorded(descriptor: c_int, close: impl FnOnce() -> c_int) -> c_int {
    if !classify::is_recorded(descriptor) {
        return close();
    }
    let _signal_mask = SignalMask::block_all();
    if classify::is_unidentified(descriptor) || kind(descriptor).is_none() {
        record(descriptor, None);
        return close();
    }
    record(descriptor, None);
    let removed = run(|process| Ok(process.remove(descriptor)));
    let outcome = close();
    if let Ok(Some(removed)) = removed {
        // Errors are ignored here; the next call that needs the pool reports them.
        let _ = run(|process| process.release(&removed));
    }
    outcome
}

/// Returns the first reserved descriptor of the library in a range.
fn first_reserved(first: c_uint, last: c_uint) -> Option<c_uint> {
    let known = posix::RESERVED_FDS;
    let range = known.start.cast_unsigned().max(first)..known.end.cast_unsigned().min(last.saturating_add(1));
    range.into_iter().find(|&descriptor| posix::is_reserved(descriptor.cast_signed()))
}

/// Records that the kernel has duplicated a descriptor.
fn record_dup(from: c_int, to: c_int) -> c_int {
    if to >= 0
        && from != to
        && classify::is_recorded(from)
        && !classify::record_unidentified_dup(from, to)
        && let Some(known) = kind(from)
    {
        let _ = run(|process| {
            process.record_dup(borrow(from), to);
            Ok(())
        });
        record(to, Some(known));
    }
    crate::stream::sync_standard(to);
    to
}

/// Replaces a descriptor by a duplicate with `copy`, and updates the records. A duplication that
/// the kernel refuses closes nothing.
fn replace(from: c_int, to: c_int, flags: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if posix::is_reserved(to) {
        return number(Err(Errno::BUSY));
    }
    let is_open = from >= 0 && fcntl_getfd(borrow(from)).is_ok();
    if from == to || !is_open || flags & !libc::O_CLOEXEC != 0 {
        return copy();
    }
    record_dup(from, close_recorded(to, copy))
}

symbols! {
    /// close(2).
    fn close(descriptor: c_int) -> c_int {
        if posix::is_reserved(descriptor) {
            return number(Err(Errno::BADF));
        }
        // SAFETY: forwards the program's own arguments.
        close_recorded(descriptor, || unsafe { next(descriptor) })
    }

    /// `close_range(2)`.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // Skip the reserved descriptors, which the program may not close. They are close-on-exec
        // anyway.
        if let Some(own) = first_reserved(first, last) {
            // SAFETY: the program's own range, without the reserved descriptor.
            let before = if own > first { unsafe { close_range(first, own - 1, flags) } } else { 0 };
            // SAFETY: the program's own range, without the reserved descriptor.
            return if before == 0 && own < last { unsafe { close_range(own + 1, last, flags) } } else { before };
        }
        if flags == 0 {
            classify::for_each_recorded(first, last, |descriptor| { close_recorded(descriptor, || 0); });
        }
        // SAFETY: forwards the program's own arguments.
        unsafe { next(first, last, flags) }
    }

    /// closefrom(3).
    fn closefrom(first: c_int) -> () {
        if first_reserved(first.max(0).cast_unsigned(), c_uint::MAX).is_some() {
            // SAFETY: forwards the program's own arguments.
            unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
            return;
        }
        classify::for_each_recorded(first.max(0).cast_unsigned(), c_uint::MAX, |descriptor| { close_recorded(descriptor, || 0); });
        // SAFETY: forwards the program's own arguments.
        unsafe { next(first) }
    }

    /// dup(2).
    fn dup(descriptor: c_int) -> c_int {
        // SAFETY: forwards the program's own arguments.
        record_dup(descriptor, unsafe { next(descriptor) })
    }

    /// dup2(2).
    fn dup2(from: c_int, to: c_int) -> c_int {
        // SAFETY: forwards the program's own arguments.
        replace(from, to, 0, || unsafe { next(from, to) })
    }

    /// dup3(2).
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        // SAFETY: forwards the program's own arguments.
        replace(from, to, flags, || unsafe { next(from, to, flags) })
    }

    /// fcntl(2). The third argument is taken from its register even if the caller passes none.
    fn fcntl(descriptor: c_int, command: c_int, argument: c_ulong) -> c_int | fcntl64 {
        let Some(_) = kind(descriptor) else {
            // SAFETY: forwards the program's own arguments.
            return unsafe { next(descriptor, command, argument) };
        };
        let is_path_only = kind(descriptor) == Some(classify::FdKind::Path);
        match command {
            _ if is_path_only && !PATH_COMMANDS.contains(&command) => number(Err(Errno::BADF)),
            // A lease or seal would apply to the node's memory file and block the node; a
            // placeholder gets no notifications.
            libc::F_GETLEASE => libc::F_UNLCK,
            libc::F_SETLEASE => number(Err(lease_error(descriptor, argument))),
            libc::F_NOTIFY => number(Err(if kind(descriptor) == Some(classify::FdKind::Directory) { Errno::INVAL } else { Errno::NOTDIR })),
            libc::F_GET_SEALS => libc::F_SEAL_SEAL,
            libc::F_ADD_SEALS => number(Err(Errno::PERM)),
            // SAFETY: forwards the program's own arguments.
            F_DUPFD | F_DUPFD_CLOEXEC => record_dup(descriptor, unsafe { next(descriptor, command, argument) }),
            libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
                let lock: *mut libc::flock = std::ptr::with_exposed_provenance_mut(usize::try_from(argument).unwrap_or(0));
                // SAFETY: the program's lock structure.
                zero(unsafe { load(lock) }.and_then(|mut lock_range| {
                    set_fcntl_lock(descriptor, command, &mut lock_range)?;
                    // SAFETY: the program's lock structure; only a test writes it.
                    if [libc::F_GETLK, libc::F_OFD_GETLK].contains(&command) { unsafe { store(lock_range, lock) } } else { Ok(()) }
                }))
            }
            libc::F_GETFL if classify::is_remote(descriptor) => number(run(|process| process.flags(borrow(descriptor)).map(|flags| flags.bits().cast_signed()))),
            libc::F_SETFL if classify::is_remote(descriptor) => {
                zero(run(|process| process.set_flags(borrow(descriptor), OFlags::from_bits_retain(u32::try_from(argument).unwrap_or(0)))))
            }
            // SAFETY: forwards the program's own arguments.
            _ => unsafe { next(descriptor, command, argument) },
        }
    }

    /// ioctl(2): files support two requests, the number of bytes left to read and the inode flags,
    /// which are always 0.
    fn ioctl(descriptor: c_int, request: c_ulong, argument: c_ulong) -> c_int {
        if let Some(flags) = Flags::of(request)
            && kind(descriptor).is_some()
        {
            let place: *mut c_void = std::ptr::with_exposed_provenance_mut(usize::try_from(argument).unwrap_or(0));
            // SAFETY: the program's structure for the request.
            return zero(run(|process| process.check_not_path_only(borrow(descriptor))).and_then(|()| unsafe { flags.answer(place) }));
        }
        if request == libc::FIONREAD && classify::is_remote(descriptor) {
            let into: *mut c_int = std::ptr::with_exposed_provenance_mut(usize::try_from(argument).unwrap_or(0));
            return zero(run(|process| {
                let left = process.readable_bytes(borrow(descriptor))?;
                // SAFETY: the program's integer.
                unsafe { store(left, into) }
            }));
        }
        // SAFETY: forwards the program's own arguments.
        unsafe { next(descriptor, request, argument) }
    }
}

on_descriptor! {
    /// flock(2).
    fn flock(descriptor: c_int, operation: c_int) -> c_int, descriptor => zero(flock_operation(operation).and_then(|operation| run_interruptible(|process, interrupted| process.flock(borrow(descriptor), operation, interrupted))));
    /// lockf(3), for the bytes from the descriptor's offset on.
    fn lockf(descriptor: c_int, command: c_int, bytes: off_t) -> c_int | lockf64, descriptor =>
        zero(set_lockf_lock(descriptor, command, bytes));
}

/// Returns the error of a lease request: `EAGAIN`, because another process may always have the file
/// open, or `EINVAL` if the request is invalid.
fn lease_error(descriptor: c_int, wanted: c_ulong) -> Errno {
    let is_lease =
        c_int::try_from(wanted).is_ok_and(|wanted| [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK].contains(&wanted));
    if is_lease && kind(descriptor) != Some(classify::FdKind::Directory) { Errno::AGAIN } else { Errno::INVAL }
}

/// Commands of fcntl(2) that an `O_PATH` descriptor supports.
const PATH_COMMANDS: [c_int; 5] = [F_DUPFD, F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];

/// Request for inode flags (`FS_IOC_GETFLAGS` and the like). They would apply to the node's own
/// file, so they read as 0 and cannot be set.
#[derive(Debug, Clone, Copy)]
enum Flags {
    /// Read the flags.
    Get,
    /// Read the flags and further attributes (`struct fsxattr`).
    GetExtended,
    /// Set the flags.
    Set,
    /// Set the flags and further attributes.
    SetExtended,
}

impl Flags {
    fn of(request: c_ulong) -> Option<Self> {
        Some(match request {
            0x8008_6601 => Self::Get,
            0x801c_581f => Self::GetExtended,
            0x4008_6602 => Self::Set,
            0x401c_5820 => Self::SetExtended,
            _ => return None,
        })
    }

    /// # Safety
    /// `place` points to the request's structure; it need not be accessible.
    unsafe fn answer(self, place: *mut c_void) -> Result<(), Errno> {
        let none = |is_none: bool| if is_none { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::Get => store(0_u32, place.cast()),
                Self::GetExtended => store([0_u32; 7], place.cast()),
                Self::Set => none(load::<u32>(place.cast())? == 0),
                Self::SetExtended => none(load::<[u32; 7]>(place.cast())? == [0; 7]),
            }
        }
    }
}

/// Sets or tests a lock of fcntl(2). The result of a test is stored in `lock`.
fn set_fcntl_lock(descriptor: c_int, command: c_int, lock: &mut libc::flock) -> Result<(), Errno> {
    let (wanted, of_open) = match command {
        libc::F_GETLK => (LockOperation::Test, false),
        libc::F_SETLK => (LockOperation::Set, false),
        libc::F_SETLKW => (LockOperation::Wait, false),
        libc::F_OFD_GETLK => (LockOperation::Test, true),
        libc::F_OFD_SETLK => (LockOperation::Set, true),
        _ => (LockOperation::Wait, true),
    };
    // A lock of an open names no process.
    if of_open && lock.l_pid != 0 {
        return Err(Errno::INVAL);
    }
    let kind = match c_int::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK if wanted != LockOperation::Test => LockKind::Unlock,
        _ => return Err(Errno::INVAL),
    };
    let from = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => LockBase::Start,
        libc::SEEK_CUR => LockBase::Current,
        libc::SEEK_END => LockBase::End,
        _ => return Err(Errno::INVAL),
    };
    let lock_range = LockRange { kind, from, start: lock.l_start, bytes: lock.l_len, process: lock.l_pid };
    let Some(held) = run_interruptible(|process, interrupted| {
        process.lock(borrow(descriptor), wanted, of_open, lock_range, interrupted)
    })?
    else {
        return Ok(());
    };
    let short = |number: c_int| i16::try_from(number).unwrap_or(0);
    if held.kind == LockKind::Unlock {
        // Without a conflict the rest of the structure stays unchanged.
        lock.l_type = short(libc::F_UNLCK);
        return Ok(());
    }
    lock.l_type = short(if held.kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK });
    lock.l_whence = short(libc::SEEK_SET);
    (lock.l_start, lock.l_len, lock.l_pid) = (held.start, held.bytes, held.process);
    Ok(())
}

/// Executes lockf(3) as a lock of fcntl(2).
fn set_lockf_lock(descriptor: c_int, command: c_int, bytes: off_t) -> Result<(), Errno> {
    let (wanted, kind) = match command {
        libc::F_LOCK => (LockOperation::Wait, LockKind::Write),
        libc::F_TLOCK => (LockOperation::Set, LockKind::Write),
        libc::F_ULOCK => (LockOperation::Set, LockKind::Unlock),
        libc::F_TEST => (LockOperation::Test, LockKind::Write),
        _ => return Err(Errno::INVAL),
    };
    let lock_range = LockRange { kind, from: LockBase::Current, start: 0, bytes, process: 0 };
    match run_interruptible(|process, interrupted| {
        process.lock(borrow(descriptor), wanted, false, lock_range, interrupted)
    })? {
        Some(held) if held.kind != LockKind::Unlock => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}

/// Converts the operation of flock(2).
fn flock_operation(operation: c_int) -> Result<FlockOperation, Errno> {
    let waits = operation & libc::LOCK_NB == 0;
    match (operation & !libc::LOCK_NB, waits) {
        (libc::LOCK_SH, true) => Ok(FlockOperation::LockShared),
        (libc::LOCK_SH, false) => Ok(FlockOperation::NonBlockingLockShared),
        (libc::LOCK_EX, true) => Ok(FlockOperation::LockExclusive),
        (libc::LOCK_EX, false) => Ok(FlockOperation::NonBlockingLockExclusive),
        (libc::LOCK_UN, _) => Ok(FlockOperation::Unlock),
        _ => Err(Errno::INVAL),
    }
}

/// The variadic argument of fcntl(2) and ioctl(2) has the width of a pointer.
const _: () = assert!(size_of::<c_ulong>() == size_of::<usize>(), "only systems of 64 bits");

/// Closes a descriptor as [`close_recorded`] does, for a `close` function that returns another
/// value.
pub fn close_recorded_with<T>(descriptor: c_int, close: impl FnOnce() -> T) -> T {
    let mut close = Some(close);
    let mut outcome = None;
    close_recorded(descriptor, || {
        outcome = close.take().map(|close| close());
        0
    });
    // `close_recorded` calls it exactly once in every case.
    outcome.unwrap_or_else(|| unreachable!("closed calls what it is given"))
}

#[cfg(test)]
#[path = "descriptors_test.rs"]
mod tests;
