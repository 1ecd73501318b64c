//! The memory of an arena: a file of a memory file system that nobody else can name, and its mapping.
//!
//! Bytes come in by `pwrite` and go out through the mapping. A write through the mapping would fault each fresh page in and
//! clear it first; `pwrite` takes fresh pages without clearing what it is about to fill, and in folios as large as the write.
//! On the reference machine that fills fresh memory several times as fast.
//!
//! The file lies in a private tmpfs with `huge=within_size` where we may make one (`CAP_SYS_ADMIN`): made with fsmount and never
//! attached, so it has no path and is gone with this process, however that ends. Elsewhere it is a memfd, in small pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, memfd_create, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

/// Zeros are written in pieces of this many bytes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What `stat` counts blocks in, whatever the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// A file in memory and its mapping, of one fixed length.
pub struct Backing {
    file: File,
    map: MmapRaw,
}

impl Backing {
    /// `bytes` of zeros that take no memory before they are written.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = private_file().or_else(|_| memory_file())?;
        file.set_len(bytes)?;
        let len = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Self { file, map })
    }

    /// Where the mapping begins.
    pub fn pointer(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Puts `data` at `at`. Fails where the system has no memory left; some of it may be there then.
    pub fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at as u64)
    }

    /// Puts `len` zeros at `at`.
    pub fn zero(&self, at: usize, len: usize) -> io::Result<()> {
        let piece = |from: usize| &ZEROS[..(len - from).min(ZEROS.len())];
        (0..len).step_by(ZEROS.len()).try_for_each(|from| self.write(at + from, piece(from)))
    }

    /// The memory that the system holds for it, in bytes.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * STAT_BLOCK_BYTES)
    }

    /// Gives the memory of whole pages back to the system; they read as zeros then.
    pub fn give_back(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, at as u64, len as u64)?)
    }
}

/// A nameless file in a tmpfs of its own.
fn private_file() -> io::Result<File> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // The ledger bounds what is used; a bound of tmpfs's own (half of the memory) would only come in its way.
    fsconfig_set_string(&context, "size", "0")?;
    fsconfig_set_string(&context, "huge", "within_size")?;
    // Older kernels do not know it; there the pool may be swapped out, as any memory may.
    let _ = fsconfig_set_flag(&context, "noswap");
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(&mount, ".", flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("tidemill-pool", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(backing: &Backing, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![1; len];
        backing.file.read_exact_at(&mut bytes, at as u64).unwrap();
        bytes
    }

    #[test]
    fn what_was_given_back_reads_as_zeros_and_the_rest_stays() {
        let backing = Backing::new(4 << 20).unwrap();
        backing.write(0, &vec![7; 3 << 20]).unwrap();
        backing.give_back(1 << 20, 1 << 20).unwrap();
        assert_eq!(content(&backing, (1 << 20) - 1, 3), [7, 0, 0]);
        assert_eq!(content(&backing, (2 << 20) - 1, 2), [0, 7]);
    }

    #[test]
    fn zeros_replace_what_was_there_to_the_byte() {
        let backing = Backing::new(1 << 20).unwrap();
        backing.write(0, &vec![7; 200_000]).unwrap();
        backing.zero(1, 199_998).unwrap();
        assert_eq!(content(&backing, 0, 200_000).iter().map(|byte| u32::from(*byte)).sum::<u32>(), 14);
        backing.zero(0, 0).unwrap();
    }

    #[test]
    fn both_kinds_of_file_are_to_be_had_where_they_are_allowed() {
        assert!(memory_file().is_ok());
        let allowed = rustix::process::geteuid().is_root();
        assert!(private_file().is_ok() || !allowed || std::fs::read_to_string("/proc/1/cgroup").is_err());
    }
}
