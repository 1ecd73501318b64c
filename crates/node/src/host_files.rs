//! Bytes of bound files: read from the host's files, which this node keeps open.
//!
//! Bytes in the page cache are read at once. A disk or a network file system may take long, and the
//! thread serves other clients too: meanwhile the runtime, if this is a thread of one, has another
//! thread do that.

use parking_lot::RwLock;
use placement::FileId;
use rustix::io::{ReadWriteFlags, preadv2};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, IoSliceMut},
    os::fd::AsFd,
    sync::Arc,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use wire::{HostFile, Object, Refusal};

/// Most host files that are kept open at one time: far below the usual limit of 1,024 descriptors.
const OPEN_MAX: usize = 256;

/// Size of a page of the page cache.
const PAGE_BYTES: u64 = 4096;

/// The host files that are open.
#[derive(Debug, Default)]
pub struct HostFiles {
    open: RwLock<HashMap<FileId, Arc<File>>>,
}

impl HostFiles {
    /// Reads exactly `length` bytes at `offset`. Refused with `Io` if the host file is gone or has
    /// become shorter.
    pub fn read(&self, file: FileId, host: &HostFile, offset: u64, length: u32) -> Result<Vec<u8>, Refusal> {
        let known = self.open.read().get(&file).cloned();
        let opened = known.map_or_else(|| beside_others(|| self.open(file, host)), Ok)?;
        if length == 0 || is_cached(&opened, offset, offset + u64::from(length) - 1) {
            return read_exactly(&opened, host, offset, length);
        }
        beside_others(|| read_exactly(&opened, host, offset, length))
    }

    fn open(&self, file: FileId, host: &HostFile) -> Result<Arc<File>, Refusal> {
        let opened = Arc::new(File::open(&host.path).map_err(|error| read_failed(host, &error))?);
        let mut open = self.open.write();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(file, opened.clone());
        Ok(opened)
    }
}

/// Runs work that may take long. A runtime of several threads has another thread serve its tasks
/// meanwhile.
fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) { block_in_place(work) } else { work() }
}

/// Returns whether the page cache has both ends of a range, and so most likely all of it: it reads
/// ahead.
fn is_cached(file: &File, first: u64, last: u64) -> bool {
    let has = |offset| preadv2(file, &mut [IoSliceMut::new(&mut [0])], offset, ReadWriteFlags::NOWAIT).is_ok();
    has(first) && (first / PAGE_BYTES == last / PAGE_BYTES || has(last))
}

/// Reads exactly `length` bytes.
fn read_exactly(opened: &File, host: &HostFile, offset: u64, length: u32) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::with_capacity(length as usize);
    while bytes.len() < length as usize {
        let at = offset + bytes.len() as u64;
        let wanted = length as usize - bytes.len();
        let read = read_at(opened, &mut bytes, wanted, at).map_err(|error| read_failed(host, &error))?;
        if read == 0 {
            return Err(too_short(host, at));
        }
    }
    Ok(bytes)
}

/// Appends at most `wanted` bytes, read at `offset`, to `bytes`.
fn read_at(file: &File, bytes: &mut Vec<u8>, wanted: usize, offset: u64) -> io::Result<usize> {
    debug_assert!(bytes.capacity() - bytes.len() >= wanted, "the buffer was allocated with this capacity");
    loop {
        match rustix::io::pread(file.as_fd(), rustix::buffer::spare_capacity(bytes), offset) {
            Err(rustix::io::Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

fn host_object(host: &HostFile) -> Object {
    Object::Text(host.path.display().to_string())
}

fn read_failed(host: &HostFile, error: &io::Error) -> Refusal {
    let why = format!("this bound input cannot be read any more: {error}; put the file back, or bind it again");
    Refusal::Io { object: host_object(host), why: why.into() }
}

fn too_short(host: &HostFile, end: u64) -> Refusal {
    let why =
        format!("this bound input has become shorter: {end} bytes, {} when it was bound; bind it again", host.size);
    Refusal::Io { object: host_object(host), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn bytes_that_were_just_written_are_read_without_another_thread() {
        let mut file = tempfile::tempfile().unwrap();
        (0..3).for_each(|_| file.write_all(&[7; 4096]).unwrap());
        for (first, last) in [(0, 0), (0, 3 * PAGE_BYTES - 1), (PAGE_BYTES, PAGE_BYTES + 9)] {
            assert!(is_cached(&file, first, last), "{first}..={last}");
        }
    }
}
