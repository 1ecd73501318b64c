//! The memory of an arena: files of a memory file system that nobody else can name, and their mappings.
//!
//! Bytes come in by `pwrite` and go out through the mapping. A write through the mapping would fault each fresh page in and
//! clear it first; `pwrite` takes fresh pages without clearing what it is about to fill, and in folios as large as the write.
//! On the reference machine that fills fresh memory several times as fast. Bytes that are received from a socket go through the mapping,
//! into touched memory only.
//!
//! The kernel lets one writer at a time into a file, so there are several, and neighbouring large blocks lie in different ones.
//!
//! The files lie in a private tmpfs with `huge=within_size` where we may make one (`CAP_SYS_ADMIN`, or a user namespace): made
//! with fsmount and never attached, so they have no path and are gone with this process, however that ends. Elsewhere they are memfds, in small pages.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::OnceLock;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};

use crate::guarded::Guard;
use crate::tmpfs::Tmpfs;

/// Zeros are written in pieces of this many bytes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What `stat` counts blocks in, whatever the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// More files than threads of a node write at one time, so that two rarely meet in one.
pub const FILES: usize = 16;

/// Memory of one fixed length, dealt over several files in units of a large block: unit `i` is number `i / FILES` of file
/// `i % FILES`. No range that is written, viewed or given back crosses a unit.
pub struct Backing {
    files: Vec<Mapped>,
    unit_bytes: usize,
    /// Where files of this memory lie; none where they are memfds.
    home: io::Result<Tmpfs>,
}

/// A file in memory and its mapping.
pub struct Mapped {
    /// From when others have descriptors of it. Goes before the file does.
    guard: OnceLock<Guard>,
    file: File,
    map: MmapRaw,
}

impl Backing {
    /// `units` times `unit_bytes` of zeros that take no memory before they are written.
    pub fn new(units: u64, unit_bytes: u64) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(units.div_ceil(FILES as u64) * unit_bytes).map_err(too_large)?;
        // The ledger bounds what is used; a bound of tmpfs's own would only come in its way.
        let home = Tmpfs::unbounded();
        let files = (0..FILES).map(|_| Mapped::new(&home, len)).collect::<io::Result<_>>()?;
        Ok(Self { files, unit_bytes: usize::try_from(unit_bytes).map_err(too_large)?, home })
    }

    /// One more file beside those of this memory, of so many bytes.
    pub fn another(&self, len: usize) -> io::Result<Mapped> {
        Mapped::new(&self.home, len)
    }

    /// Its own file system; none where it is of memfds.
    pub fn home(&self) -> Option<&Tmpfs> {
        self.home.as_ref().ok()
    }

    /// The file that holds byte `at`, and where in it.
    fn locate(&self, at: usize) -> (&Mapped, usize) {
        let (unit, within) = (at / self.unit_bytes, at % self.unit_bytes);
        (&self.files[unit % FILES], unit / FILES * self.unit_bytes + within)
    }

    /// Where byte `at` is mapped; its unit follows on in the mapping.
    pub fn pointer(&self, at: usize) -> *const u8 {
        let (mapped, at) = self.locate(at);
        mapped.pointer(at)
    }

    /// Puts `data` at `at`. Fails where the system has no memory left; some of it may be there then.
    pub fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.write(at, data)
    }

    /// Puts `len` zeros at `at`.
    pub fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.zero(at, len)
    }

    /// How long each file is, bytes.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(Mapped::bytes)
    }

    /// A file once more, for reading only.
    pub fn reopen(&self, file: usize) -> io::Result<OwnedFd> {
        self.files.get(file).ok_or(io::ErrorKind::NotFound)?.reopen(false)
    }

    /// The file in whose mapping these bytes are, and where; none when they are elsewhere.
    pub fn find(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        self.files.iter().enumerate().find_map(|(file, mapped)| Some((file, mapped.find(bytes)?)))
    }

    /// The memory that the system holds for it, in bytes.
    pub fn resident(&self) -> io::Result<u64> {
        self.files.iter().map(Mapped::resident).sum()
    }

    /// Gives the memory of whole pages back to the system; they read as zeros then.
    pub fn give_back(&self, at: usize, len: usize) -> io::Result<()> {
        let (mapped, at) = self.locate(at);
        mapped.give_back(at, len)
    }
}

impl Mapped {
    /// A file of `len` zeros in `home`, or in the system's own memory file system where we may not have one.
    fn new(home: &io::Result<Tmpfs>, len: usize) -> io::Result<Self> {
        let file = match home {
            Ok(home) => home.nameless_file()?,
            Err(_) => memory_file()?,
        };
        file.set_len(len as u64)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        if home.is_err() {
            // A memfd can be sealed, so that nobody changes its length.
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        }
        Ok(Self { guard: OnceLock::new(), file, map })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is mapped to.
    pub fn start(&self) -> usize {
        self.map.as_ptr().addr()
    }

    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Where byte `at` is mapped.
    pub fn pointer(&self, at: usize) -> *const u8 {
        self.map.as_ptr().wrapping_add(at)
    }

    /// As [`Backing::write`].
    pub fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at as u64)
    }

    /// As [`Backing::zero`].
    pub fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        let piece = |from: usize| &ZEROS[..(len - from).min(ZEROS.len())];
        (0..len).step_by(ZEROS.len()).try_for_each(|from| self.write(at + from, piece(from)))
    }

    /// As [`Backing::give_back`].
    pub fn give_back(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, at as u64, len as u64)?)
    }

    /// Where these bytes are in it; none when they are elsewhere.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        let offset = bytes.as_ptr().addr().checked_sub(self.start())?;
        (!bytes.is_empty() && offset + bytes.len() <= self.map.len()).then_some(offset)
    }

    /// The file once more, for reading only or for writing too. From now on it keeps its length.
    pub fn reopen(&self, write: bool) -> io::Result<OwnedFd> {
        if self.guard.get().is_none() {
            // Of two that come at once one is let go.
            drop(self.guard.set(Guard::of(&self.file)?));
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(File::options().read(true).write(write).open(path)?.into())
    }

    /// The memory that the system holds for it, in bytes.
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

    fn backing() -> Backing {
        Backing::new(40, UNIT as u64).unwrap()
    }

    fn content(backing: &Backing, at: usize, len: usize) -> Vec<u8> {
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
        backing.give_back(half, half / 2).unwrap();
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
