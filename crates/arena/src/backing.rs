//! The memory of an arena: nameless files of a tmpfs, or memfds, and their mappings.
//!
//! Bytes are written with `pwrite` and read through the mapping. A write through the mapping would
//! fault in each fresh page and clear it first. `pwrite` takes fresh pages without clearing the
//! part that it fills, and in folios as large as the write. On the reference machine that fills
//! fresh memory several times as fast. Bytes that are received from a socket go through the
//! mapping, but into touched memory only.
//!
//! The kernel allows one writer at a time in a file. So there are several files, and neighbouring
//! large blocks are in different ones.
//!
//! The files are in a private tmpfs with `huge=within_size` if this process can create one
//! (`CAP_SYS_ADMIN`, or in a user namespace). It is made with fsmount and never attached, so the
//! files have no path and vanish with this process, however it ends. Otherwise they are memfds with
//! small pages.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::OnceLock;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};

use crate::length_guard::LengthGuard;
use crate::tmpfs::Tmpfs;

/// A source of zeros, written in pieces of this length.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Unit of the block count of `stat`, on every file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// Number of files: more than a node has threads that write at a time, so two writers rarely meet
/// in one file.
pub const FILES: usize = 16;

/// Memory of a fixed length, striped over several files in units of a large block: unit `i` is
/// number `i / FILES` of file `i % FILES`. No range that is written, viewed or given back crosses a
/// unit.
pub struct BackingMemory {
    files: Vec<Mapped>,
    unit_bytes: usize,
    /// The tmpfs of the files; an error if they are memfds.
    tmpfs: io::Result<Tmpfs>,
}

/// A file in memory and its mapping.
pub struct Mapped {
    /// Keeps the file's length; set when others first get a descriptor. Declared before `file`, so
    /// that it is dropped first.
    guard: OnceLock<LengthGuard>,
    file: File,
    map: MmapRaw,
}

impl BackingMemory {
    /// Creates `units * unit_bytes` zero bytes, which take no memory before they are written.
    pub fn new(units: u64, unit_bytes: u64) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(units.div_ceil(FILES as u64) * unit_bytes).map_err(too_large)?;
        // The ledger limits usage; a limit of the tmpfs would only interfere.
        let tmpfs = Tmpfs::unbounded();
        let files = (0..FILES).map(|_| Mapped::new(&tmpfs, len)).collect::<io::Result<_>>()?;
        Ok(Self { files, unit_bytes: usize::try_from(unit_bytes).map_err(too_large)?, tmpfs })
    }

    /// Creates another file of `len` bytes beside the files of this memory.
    pub fn create_file(&self, len: usize) -> io::Result<Mapped> {
        Mapped::new(&self.tmpfs, len)
    }

    /// The tmpfs of the files; `None` if they are memfds.
    pub fn tmpfs(&self) -> Option<&Tmpfs> {
        self.tmpfs.as_ref().ok()
    }

    /// Returns the file of byte `at` and the offset in it.
    fn locate(&self, at: usize) -> (&Mapped, usize) {
        let (unit, within) = (at / self.unit_bytes, at % self.unit_bytes);
        (&self.files[unit % FILES], unit / FILES * self.unit_bytes + within)
    }

    /// Returns the mapped address of byte `at`; the rest of its unit follows it in the mapping.
    pub fn pointer(&self, at: usize) -> *const u8 {
        let (mapped, at) = self.locate(at);
        mapped.pointer(at)
    }

    /// Writes `data` at `at`. Fails if the system has no memory left; a part may have been written
    /// then.
    pub fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.write(at, data)
    }

    /// Writes `len` zeros at `at`.
    pub fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.zero(at, len)
    }

    /// Lengths of the files in bytes.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(Mapped::bytes)
    }

    /// Opens a file once more, read-only.
    pub fn reopen(&self, file: usize) -> io::Result<OwnedFd> {
        self.files.get(file).ok_or(io::ErrorKind::NotFound)?.reopen(false)
    }

    /// Returns the file in whose mapping these bytes are, and the offset; `None` if they are
    /// elsewhere.
    pub fn find(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        self.files.iter().enumerate().find_map(|(file, mapped)| Some((file, mapped.find(bytes)?)))
    }

    /// Bytes of memory that the system holds for the files.
    pub fn resident(&self) -> io::Result<u64> {
        self.files.iter().map(Mapped::resident).sum()
    }

    /// Gives the memory of whole pages back to the system; they read as zeros afterwards.
    pub fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.discard(at, len)
    }
}

impl Mapped {
    /// Creates a file of `len` zero bytes in `tmpfs`, or a memfd if `tmpfs` is an error.
    fn new(tmpfs: &io::Result<Tmpfs>, len: usize) -> io::Result<Self> {
        let file = match tmpfs {
            Ok(tmpfs) => tmpfs.nameless_file()?,
            Err(_) => memory_file()?,
        };
        file.set_len(len as u64)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        if tmpfs.is_err() {
            // A memfd can be sealed, so that its length cannot change.
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        }
        Ok(Self { guard: OnceLock::new(), file, map })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The address at which the file is mapped.
    pub fn start(&self) -> usize {
        self.map.as_ptr().addr()
    }

    /// Length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the mapped address of byte `at`.
    pub fn pointer(&self, at: usize) -> *const u8 {
        self.map.as_ptr().wrapping_add(at)
    }

    /// Writes as [`BackingMemory::write`] does.
    pub fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at as u64)
    }

    /// Writes zeros as [`BackingMemory::zero`] does.
    pub fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        let piece = |from: usize| &ZEROS[..(len - from).min(ZEROS.len())];
        (0..len).step_by(ZEROS.len()).try_for_each(|from| self.write(at + from, piece(from)))
    }

    /// Gives memory back as [`BackingMemory::discard`] does.
    pub fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, at as u64, len as u64)?)
    }

    /// Returns the offset of these bytes in the file; `None` if they are elsewhere.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        let offset = bytes.as_ptr().addr().checked_sub(self.start())?;
        (!bytes.is_empty() && offset + bytes.len() <= self.map.len()).then_some(offset)
    }

    /// Opens the file once more, read-only or for writing too. From now on the file keeps its
    /// length.
    pub fn reopen(&self, write: bool) -> io::Result<OwnedFd> {
        if self.guard.get().is_none() {
            // If two threads set the guard at the same time, one guard is dropped.
            drop(self.guard.set(LengthGuard::new(&self.file)?));
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(File::options().read(true).write(write).open(path)?.into())
    }

    /// Bytes of memory that the system holds for the file.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * STAT_BLOCK_BYTES)
    }
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("tidemill-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 1 << 20;

    fn backing() -> BackingMemory {
        BackingMemory::new(40, UNIT as u64).unwrap()
    }

    fn content(backing: &BackingMemory, at: usize, len: usize) -> Vec<u8> {
        let (mapped, at) = backing.locate(at);
        let mut bytes = vec![1; len];
        mapped.file.read_exact_at(&mut bytes, at as u64).unwrap();
        bytes
    }

    #[test]
    fn every_unit_has_a_place_of_its_own() {
        let backing = backing();
        (0..40).for_each(|unit: u8| backing.write(usize::from(unit) * UNIT, &[unit; 3]).unwrap());
        (0..40).for_each(|unit: u8| assert_eq!(content(&backing, usize::from(unit) * UNIT, 3), [unit; 3]));
    }

    #[test]
    fn what_was_given_back_reads_as_zeros_and_the_rest_stays() {
        let backing = backing();
        let half = UNIT / 2;
        backing.write(0, &vec![7; UNIT]).unwrap();
        backing.discard(half, half / 2).unwrap();
        assert_eq!(content(&backing, half - 1, 3), [7, 0, 0]);
        assert_eq!(content(&backing, half + half / 2 - 1, 2), [0, 7]);
    }

    #[test]
    fn zeros_replace_what_was_there_to_the_byte() {
        let backing = backing();
        backing.write(0, &vec![7; 200_000]).unwrap();
        backing.zero(1, 199_998).unwrap();
        assert_eq!(content(&backing, 0, 200_000).iter().map(|byte| u32::from(*byte)).sum::<u32>(), 14);
        backing.zero(0, 0).unwrap();
    }

    #[test]
    fn a_memory_file_serves_where_a_tmpfs_of_our_own_is_refused() {
        let refused = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let mapped = Mapped::new(&refused, UNIT).unwrap();
        mapped.file.write_all_at(b"tide", 5).unwrap();
        let mut read = [0; 4];
        mapped.file.read_exact_at(&mut read, 5).unwrap();
        assert_eq!(&read, b"tide");
        assert!(mapped.file.set_len(0).is_err() && mapped.file.set_len(2 * UNIT as u64).is_err(), "it is sealed");
    }
}
