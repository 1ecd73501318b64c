//! File size limit of a process (`RLIMIT_FSIZE`), for files whose bytes the kernel does not have.

use crate::classify::{PoolPath, borrow};
use posix::{PathArg, PosixProcess};
use rustix::fs::{Access, AtFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::ffi::c_int;

/// Returns how many of `bytes` bytes may be written at an offset, or at the descriptor's offset.
///
/// # Errors
/// `EFBIG`, with signal `SIGXFSZ`, if none may be written.
pub fn allowed_bytes(process: &PosixProcess, descriptor: c_int, at: Option<i64>, bytes: usize) -> Result<usize, Errno> {
    let Some(most) = getrlimit(Resource::Fsize).current else { return Ok(bytes) };
    if bytes == 0 {
        return Ok(0);
    }
    let start = match at {
        _ if process.flags(borrow(descriptor))?.contains(OFlags::APPEND) => size(process, descriptor)?,
        Some(at) => u64::try_from(at).map_err(|_| Errno::INVAL)?,
        None => process.seek(borrow(descriptor), SeekFrom::Current(0))?,
    };
    if start >= most {
        return Err(exceeded());
    }
    Ok(usize::try_from(most - start).map_or(bytes, |left| bytes.min(left)))
}

/// Checks that a file may grow to a size.
///
/// # Errors
/// `EFBIG`, with signal `SIGXFSZ`, if it may not, and those of access to the file. A size that is
/// no larger than the file's is permitted.
pub fn check_size(process: &PosixProcess, file: PathArg<'_>, flags: AtFlags, bytes: i64) -> Result<(), Errno> {
    let Some(most) = getrlimit(Resource::Fsize).current else { return Ok(()) };
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > most) && process.stat(file, flags)?.size < bytes {
        process.access(file, Access::WRITE_OK, flags | AtFlags::EACCESS)?;
        return Err(exceeded());
    }
    Ok(())
}

/// Sends the signal for a file that would become too large.
fn exceeded() -> Errno {
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGXFSZ) };
    Errno::FBIG
}

fn size(process: &PosixProcess, descriptor: c_int) -> Result<u64, Errno> {
    let found = process.stat(PoolPath::At(descriptor, b"").into(), AtFlags::EMPTY_PATH)?;
    u64::try_from(found.size).map_err(|_| Errno::INVAL)
}
