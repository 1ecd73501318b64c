//! Bytes of bound files: read from the host's files, which this node keeps open.

use parking_lot::RwLock;
use placement::FileId;
use std::{collections::HashMap, fs::File, io, os::fd::AsFd, sync::Arc};
use wire::{HostFile, Object, Refusal};

/// Most host files that are kept open at one time: far below the usual limit of 1,024 descriptors.
const OPEN_MAX: usize = 256;

/// The host files that are open.
#[derive(Debug, Default)]
pub struct HostFiles {
    open: RwLock<HashMap<FileId, Arc<File>>>,
}

impl HostFiles {
    /// Reads exactly `length` bytes at `offset`. Refused with `Io` if the host file is gone or has
    /// become shorter.
    pub fn read(&self, file: FileId, host: &HostFile, offset: u64, length: u32) -> Result<Vec<u8>, Refusal> {
        let opened = self.open_cached(file, host)?;
        let mut bytes = Vec::with_capacity(length as usize);
        while bytes.len() < length as usize {
            let at = offset + bytes.len() as u64;
            let wanted = length as usize - bytes.len();
            let read = read_at(&opened, &mut bytes, wanted, at).map_err(|error| read_failed(host, &error))?;
            if read == 0 {
                return Err(too_short(host, at));
            }
        }
        Ok(bytes)
    }

    fn open_cached(&self, file: FileId, host: &HostFile) -> Result<Arc<File>, Refusal> {
        if let Some(opened) = self.open.read().get(&file) {
            return Ok(opened.clone());
        }
        let opened = Arc::new(File::open(&host.path).map_err(|error| read_failed(host, &error))?);
        let mut open = self.open.write();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(file, opened.clone());
        Ok(opened)
    }
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
