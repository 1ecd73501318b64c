//! A file as a device.
#![expect(unsafe_code, reason = "bytes of a mapping")]

use super::{MappedRange, StoreDevice};
use memmap2::MmapRaw;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    slice,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// A device in a file.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The mappings that are still used: `fdatasync` need not write what was stored through them.
    maps: Mutex<Vec<Weak<MappedFile>>>,
}

#[derive(Debug)]
struct MappedFile(MmapRaw);

impl FileDevice {
    /// A device in this file, which is open for reading and writing; `None` if another one is, here
    /// or in another process.
    pub fn new(file: File) -> Option<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { file, maps: Mutex::default() })
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // Mappings that readers still have keep the file open, and so would keep its lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl StoreDevice for FileDevice {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), offset, length)?)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|map| map.strong_count() > 0);
        let live: Vec<_> = maps.iter().filter_map(Weak::upgrade).collect();
        drop(maps);
        live.iter().try_for_each(|map| map.0.flush())?;
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, how, offset, length) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn map(&self, offset: u64, length: usize) -> io::Result<Arc<dyn MappedRange>> {
        let map = Arc::new(MappedFile(memmap2::MmapOptions::new().offset(offset).len(length).map_raw(&self.file)?));
        self.maps.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&map));
        Ok(map)
    }
}

impl MappedRange for MappedFile {
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.0.len()), "it fits the mapping");
        // SAFETY: the range is within the mapping, and the caller has it alone.
        unsafe { self.0.as_mut_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at.checked_add(length).is_some_and(|end| end <= self.0.len()), "it is within the mapping");
        // SAFETY: the range is within the mapping, which lives as long as `self`, and the caller
        // sees to it that nobody stores there.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(at), length) }
    }
}
