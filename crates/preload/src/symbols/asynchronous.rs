//! Asynchronous reads and writes (aio(7)) of files that are not local. They are executed
//! synchronously, and reported as complete.
//!
//! The C library executes such operations in threads whose system calls bypass this library;
//! operations on local files are left to it. The state of an operation is in the program's own
//! structure, so the C library's functions that query it (`aio_error`, `aio_return`, `aio_suspend`,
//! `aio_cancel`) work unchanged.
//!
//! This module does not return before the bytes are moved, and starts no thread. The C library
//! starts the thread that a program requests by `SIGEV_THREAD`.

use super::read_write::{read_into, write_from};
use super::symbols;
use crate::call::{run, zero};
use crate::classify::{borrow, is_remote};
use libc::{
    LIO_NOP, LIO_NOWAIT, LIO_READ, LIO_WAIT, LIO_WRITE, c_char, c_int, c_void, off_t, sigevent, size_t, ssize_t,
};
use rustix::io::Errno;
use std::mem::offset_of;
use std::ptr::{null, null_mut};

/// `struct aiocb`, including the C library's private fields.
#[repr(C)]
pub struct AioControlBlock {
    descriptor: c_int,
    kind: c_int,
    priority: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    event: sigevent,
    _queue: *mut c_void,
    _absolute_priority: c_int,
    _policy: c_int,
    /// Result of `aio_error`.
    error: c_int,
    /// Result of `aio_return`.
    returned: ssize_t,
    offset: off_t,
    _reserved: [c_char; 32],
}

const _: () = assert!(size_of::<AioControlBlock>() == size_of::<libc::aiocb>());
const _: () = assert!(offset_of!(AioControlBlock, offset) == offset_of!(libc::aiocb, aio_offset));

/// Largest priority reduction of an operation (`AIO_PRIO_DELTA_MAX`).
const PRIORITY_MAX: c_int = 20;
/// Bits of `aio_lio_opcode` without the one that the C library sets for itself.
const KIND_BITS: c_int = 127;

symbols! {
    /// `aio_read(3)`.
    fn aio_read(operation: *mut AioControlBlock) -> c_int | aio_read64 {
        // SAFETY: the program's operation.
        unsafe { if is_remote((*operation).descriptor) { zero(submit(operation, LIO_READ)) } else { next(operation) } }
    }

    /// `aio_write(3)`.
    fn aio_write(operation: *mut AioControlBlock) -> c_int | aio_write64 {
        // SAFETY: the program's operation.
        unsafe { if is_remote((*operation).descriptor) { zero(submit(operation, LIO_WRITE)) } else { next(operation) } }
    }

    /// `aio_fsync(3)`: completes at once, because written bytes are visible to all.
    fn aio_fsync(argument: c_int, operation: *mut AioControlBlock) -> c_int | aio_fsync64 {
        // SAFETY: the program's operation.
        unsafe {
            if !is_remote((*operation).descriptor) {
                return next(argument, operation);
            }
            zero(check_sync(argument, (*operation).descriptor).map(|()| complete(operation, Ok(0))))
        }
    }

    /// `lio_listio(3)`: executes the operations of the pool here. The C library executes the rest,
    /// waits for it, and notifies when all is complete.
    fn lio_listio(mode: c_int, list: *const *mut AioControlBlock, count: c_int, event: *mut sigevent) -> c_int | lio_listio64 {
        // SAFETY: the program's list of `count` operations.
        unsafe {
            let known = mode == LIO_WAIT || mode == LIO_NOWAIT;
            let operations = if known { operation_list(list, count) } else { &[] };
            let is_ours = |operation: *mut AioControlBlock| {
                !operation.is_null() && (*operation).kind != LIO_NOP && is_remote((*operation).descriptor)
            };
            if !operations.iter().any(|operation| is_ours(*operation)) {
                return next(mode, list, count, event);
            }
            let (mut others, mut refused, mut failed) = (operations.to_vec(), false, false);
            for operation in &mut others {
                if is_ours(*operation) {
                    refused |= submit(*operation, (**operation).kind & KIND_BITS).is_err();
                    failed |= (**operation).error != 0;
                    *operation = null_mut();
                }
            }
            let rest = next(mode, others.as_ptr(), count, event);
            if rest == 0 && (refused || failed && mode == LIO_WAIT) { zero(Err(Errno::IO)) } else { rest }
        }
    }
}

/// # Safety
/// `list` has `count` entries.
unsafe fn operation_list<'a>(list: *const *mut AioControlBlock, count: c_int) -> &'a [*mut AioControlBlock] {
    match usize::try_from(count) {
        // SAFETY: guaranteed by the caller.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// Executes an operation, and notifies the program as it requested.
///
/// # Errors
/// `EINVAL` if the operation is not started. Its own result is in its structure.
///
/// # Safety
/// A valid operation of the program.
unsafe fn submit(operation: *mut AioControlBlock, kind: c_int) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let AioControlBlock { descriptor, priority, buffer, bytes, offset, .. } = *operation;
        if !(0..=PRIORITY_MAX).contains(&priority) {
            ((*operation).error, (*operation).returned) = (libc::EINVAL, -1);
            return Err(Errno::INVAL);
        }
        let outcome = match kind {
            LIO_READ => read_into(descriptor, buffer, bytes, Some(offset)),
            LIO_WRITE => write_from(descriptor, buffer, bytes, Some(offset)),
            _ => Err(Errno::INVAL),
        };
        complete(operation, outcome);
    }
    Ok(())
}

/// Stores the result of an operation, and notifies the program: an empty list with the operation's
/// event completes at once.
///
/// # Safety
/// A valid operation of the program.
unsafe fn complete(operation: *mut AioControlBlock, outcome: Result<usize, Errno>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*operation).error = outcome.err().map_or(0, Errno::raw_os_error);
        (*operation).returned = outcome.map_or(-1, |bytes| ssize_t::try_from(bytes).unwrap_or(ssize_t::MAX));
        let mut event = (*operation).event;
        if event.sigev_notify != libc::SIGEV_NONE {
            lio_listio(LIO_NOWAIT, null(), 0, &raw mut event);
        }
    }
}

/// Makes the checks of `aio_fsync(3)`.
fn check_sync(argument: c_int, descriptor: c_int) -> Result<(), Errno> {
    if argument != libc::O_SYNC && argument != libc::O_DSYNC {
        return Err(Errno::INVAL);
    }
    run(|process| process.check_not_path_only(borrow(descriptor)))
}

#[cfg(test)]
#[path = "asynchronous_test.rs"]
mod tests;
