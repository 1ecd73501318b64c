//! How large files of a program may become (`RLIMIT_FSIZE`): the kernel sees to it where it has the bytes, and here is what it does for the others.

use crate::ours::{Said, borrowed};
use posix::Process;
use rustix::fs::{AtFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::ffi::c_int;

/// How many of so many bytes may be written, at a place or where the descriptor is.
///
/// # Errors
/// `EFBIG`, and `SIGXFSZ`, where none may.
pub fn within(process: &Process, descriptor: c_int, at: Option<i64>, bytes: usize) -> Result<usize, Errno> {
    let Some(most) = getrlimit(Resource::Fsize).current else { return Ok(bytes) };
    if bytes == 0 {
        return Ok(0);
    }
    let start = match at {
        _ if process.flags(borrowed(descriptor))?.contains(OFlags::APPEND) => size(process, descriptor)?,
        Some(at) => u64::try_from(at).map_err(|_| Errno::INVAL)?,
        None => process.seek(borrowed(descriptor), SeekFrom::Current(0))?,
    };
    if start >= most {
        // SAFETY: a signal of this thread's own.
        unsafe { libc::raise(libc::SIGXFSZ) };
        return Err(Errno::FBIG);
    }
    Ok(usize::try_from(most - start).map_or(bytes, |left| bytes.min(left)))
}

fn size(process: &Process, descriptor: c_int) -> Result<u64, Errno> {
    let found = process.stat(Said::From(descriptor, b"").into(), AtFlags::EMPTY_PATH)?;
    u64::try_from(found.size).map_err(|_| Errno::INVAL)
}
