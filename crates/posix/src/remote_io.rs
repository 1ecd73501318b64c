//! Reads and writes of files that have only a placeholder descriptor: the bytes go through
//! requests. The kernel keeps the descriptor's offset, so duplicates share it, also in other
//! processes.

use crate::fd_table::OpenDescription;
use crate::open::FdKind;
use crate::{Caller, Errno, PosixProcess};
use bytes::Bytes;
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, seek};
use rustix::thread::CapabilitySet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::{AllocateMode, FILE_BYTES_MAX, Kind, SeekTo, WritePlace};

/// Largest read request, bytes.
const READ_BYTES: u32 = 8 << 20;
/// Largest write request, bytes.
const WRITE_BYTES: usize = 8 << 20;
/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` (which needs the first) and
/// `FALLOC_FL_ZERO_RANGE`.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
/// `O_LARGEFILE`, which `F_GETFL` reports for every file opened with 64-bit sizes.
const LARGE_FILE: OFlags = OFlags::from_bits_retain(0o100_000);
/// Flags of a placeholder descriptor that the kernel keeps.
const KERNEL_FLAGS: OFlags = OFlags::NONBLOCK;

impl PosixProcess {
    /// read(2) and pread(2): from `at`, or from the descriptor's offset, which advances.
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn read(&self, descriptor: BorrowedFd<'_>, into: &mut [u8], at: Option<i64>) -> Result<usize, Errno> {
        let open = self.table.get(descriptor)?;
        if !open.flags.read {
            return Err(Errno::BADF);
        }
        if open.kind == FdKind::Directory {
            return Err(Errno::ISDIR);
        }
        let offset = match at {
            Some(at) => u64::try_from(at).map_err(|_| Errno::INVAL)?,
            None => reserve(descriptor, into.len())?,
        };
        let read = self.read_at(&open, offset, into);
        if at.is_none() {
            rewind(descriptor, into.len() - *read.as_ref().unwrap_or(&0))?;
        }
        read
    }

    fn read_at(&self, open: &OpenDescription, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.wait(async {
            let mut done = 0;
            while done < into.len() {
                let wanted = u32::try_from(into.len() - done).unwrap_or(READ_BYTES).min(READ_BYTES);
                let bytes = match self.client.read(open.file, offset + done as u64, wanted).await {
                    Ok(bytes) => bytes,
                    Err(_) if done > 0 => break,
                    Err(refusal) => return Err(crate::errno(&refusal)),
                };
                into[done..done + bytes.len()].copy_from_slice(&bytes);
                done += bytes.len();
                if bytes.len() < wanted as usize {
                    break;
                }
            }
            Ok(done)
        })
    }

    /// write(2) and pwrite(2): to `at`, or to the descriptor's offset, which advances. A file
    /// opened for appending is written at its end.
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn write(&self, descriptor: BorrowedFd<'_>, from: &[u8], at: Option<i64>) -> Result<usize, Errno> {
        let open = self.table.get(descriptor)?;
        if !open.flags.write {
            return Err(Errno::BADF);
        }
        if from.is_empty() {
            return Ok(0);
        }
        let kill_set_id = !Caller::effective().can(CapabilitySet::FSETID);
        if open.append.load(Relaxed) {
            let (written, end) = self.write_at(&open, WritePlace::End, from, kill_set_id)?;
            if at.is_none() {
                seek(descriptor, SeekFrom::Start(end))?;
            }
            return Ok(written);
        }
        let offset = match at {
            Some(at) => u64::try_from(at).map_err(|_| Errno::INVAL)?,
            None => reserve(descriptor, from.len())?,
        };
        let written = self.write_at(&open, WritePlace::At(offset), from, kill_set_id);
        if at.is_none() {
            rewind(descriptor, from.len() - written.as_ref().map_or(0, |(written, _)| *written))?;
        }
        written.map(|(written, _)| written)
    }

    /// Returns the number of bytes written, and the offset after them.
    fn write_at(
        &self,
        open: &OpenDescription,
        place: WritePlace,
        from: &[u8],
        kill: bool,
    ) -> Result<(usize, u64), Errno> {
        self.wait(async {
            let (mut done, mut place, mut end) = (0, place, 0);
            for piece in from.chunks(WRITE_BYTES) {
                let written = match self.client.write(open.file, place, Bytes::copy_from_slice(piece), kill).await {
                    Ok(written) => written,
                    Err(_) if done > 0 => break,
                    Err(refusal) => return Err(crate::errno(&refusal)),
                };
                done += written.length as usize;
                end = written.offset + u64::from(written.length);
                if let WritePlace::At(_) = place {
                    place = WritePlace::At(end);
                }
                if (written.length as usize) < piece.len() {
                    break;
                }
            }
            Ok((done, end))
        })
    }

    /// Reads from any descriptor, of the pool or of the system.
    ///
    /// # Errors
    /// As read(2) and pread(2).
    pub fn read_any(&self, descriptor: BorrowedFd<'_>, into: &mut [u8], at: Option<i64>) -> Result<usize, Errno> {
        match (self.is_remote(descriptor), at) {
            (true, at) => self.read(descriptor, into, at),
            (false, None) => rustix::io::read(descriptor, into),
            (false, Some(at)) => rustix::io::pread(descriptor, into, u64::try_from(at).map_err(|_| Errno::INVAL)?),
        }
    }

    /// Writes to any descriptor, of the pool or of the system.
    ///
    /// # Errors
    /// As write(2) and pwrite(2).
    pub fn write_any(&self, descriptor: BorrowedFd<'_>, from: &[u8], at: Option<i64>) -> Result<usize, Errno> {
        match (self.is_remote(descriptor), at) {
            (true, at) => self.write(descriptor, from, at),
            (false, None) => rustix::io::write(descriptor, from),
            (false, Some(at)) => rustix::io::pwrite(descriptor, from, u64::try_from(at).map_err(|_| Errno::INVAL)?),
        }
    }

    /// Makes the checks of sendfile(2) before it sends `bytes` bytes.
    ///
    /// # Errors
    /// `EBADF` if a descriptor is not open for its direction, `EINVAL` if writes append or the
    /// source is a directory.
    pub fn check_sendfile(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        let (source, target) = (self.flags_any(from)?, self.flags_any(to)?);
        if source & OFlags::RWMODE == OFlags::WRONLY || target & OFlags::RWMODE == OFlags::RDONLY {
            return Err(Errno::BADF);
        }
        let is_directory = bytes > 0 && self.table.get(from).is_ok_and(|open| open.kind == FdKind::Directory);
        if is_directory || target.contains(OFlags::APPEND) { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Makes the checks of `copy_file_range(2)` before it copies `bytes` bytes. Each side starts at
    /// its given offset, or at the descriptor's offset if none is given.
    ///
    /// # Errors
    /// As `copy_file_range(2)`.
    pub fn check_copy(
        &self,
        from: (BorrowedFd<'_>, Option<i64>),
        to: (BorrowedFd<'_>, Option<i64>),
        bytes: usize,
        flags: u32,
    ) -> Result<(), Errno> {
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let is_directory = |descriptor| self.table.get(descriptor).is_ok_and(|open| open.kind == FdKind::Directory);
        if is_directory(from.0) || is_directory(to.0) {
            return Err(Errno::ISDIR);
        }
        let (source, target) = (self.flags_any(from.0)?, self.flags_any(to.0)?);
        let (reads, writes) = (source & OFlags::RWMODE != OFlags::WRONLY, target & OFlags::RWMODE != OFlags::RDONLY);
        if !reads || !writes || target.contains(OFlags::APPEND) {
            return Err(Errno::BADF);
        }
        let (Ok(source), Ok(target)) = (self.table.get(from.0), self.table.get(to.0)) else { return Ok(()) };
        if source.file != target.file {
            return Ok(());
        }
        let place = |(descriptor, at): (BorrowedFd<'_>, Option<i64>)| match at {
            Some(at) => u64::try_from(at).map_err(|_| Errno::INVAL),
            None => seek(descriptor, SeekFrom::Current(0)),
        };
        let (start, onto) = (place(from)?, place(to)?);
        let left = self.wait(self.stat_description(&source))?.size.saturating_sub(start);
        let bytes = left.min(bytes as u64);
        if onto < start + bytes && start < onto.saturating_add(bytes) { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// `F_GETFL` of any descriptor, of the pool or of the system.
    fn flags_any(&self, descriptor: BorrowedFd<'_>) -> Result<OFlags, Errno> {
        if self.is_remote(descriptor) { self.flags(descriptor) } else { fcntl_getfl(descriptor) }
    }

    /// Makes the checks of mmap(2) on a descriptor. `shared_and_written` is true for a writable
    /// mapping whose changes go to the file.
    ///
    /// # Errors
    /// `EACCES` if the descriptor's access mode does not permit the mapping, `EBADF` for an
    /// `O_PATH` descriptor.
    pub fn check_map(&self, descriptor: BorrowedFd<'_>, shared_and_written: bool) -> Result<(), Errno> {
        self.check_not_path_only(descriptor)?;
        let flags = self.table.get(descriptor)?.flags;
        if flags.read && (flags.write || !shared_and_written) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn is_remote(&self, descriptor: BorrowedFd<'_>) -> bool {
        self.table.get(descriptor).is_ok_and(|open| open.kind == FdKind::Remote)
    }

    /// Moves a descriptor's offset by `by` bytes.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek_any(&self, descriptor: BorrowedFd<'_>, by: i64) -> Result<(), Errno> {
        seek(descriptor, SeekFrom::Current(by)).map(drop)
    }

    /// lseek(2).
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek(&self, descriptor: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        self.check_not_path_only(descriptor)?;
        let open = self.table.get(descriptor)?;
        let target = match to {
            SeekFrom::End(by) => {
                let size = self.wait(self.stat_description(&open))?.size;
                size.checked_add_signed(by).filter(|at| *at <= FILE_BYTES_MAX).ok_or(Errno::INVAL)?
            }
            SeekFrom::Data(at) => self.find_extent(&open, at, SeekTo::Data)?,
            SeekFrom::Hole(at) => self.find_extent(&open, at, SeekTo::Hole)?,
            other => return seek(descriptor, other),
        };
        seek(descriptor, SeekFrom::Start(target))
    }

    fn find_extent(&self, open: &OpenDescription, at: u64, seek_to: SeekTo) -> Result<u64, Errno> {
        self.wait(async { self.client.seek(open.file, at, seek_to).await.map_err(|refusal| crate::errno(&refusal)) })
    }

    /// ftruncate(2).
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_size(&self, descriptor: BorrowedFd<'_>, bytes: i64) -> Result<(), Errno> {
        let open = self.table.get(descriptor)?;
        self.check_not_path_only(descriptor)?;
        let size = u64::try_from(bytes).map_err(|_| Errno::INVAL)?;
        if !open.flags.write {
            return Err(Errno::INVAL);
        }
        let caller = Caller::effective();
        self.wait(async {
            let found = self.stat_description(&open).await?;
            if found.kind != Kind::File {
                return Err(Errno::INVAL);
            }
            self.set_length(&caller, &found, size).await
        })
    }

    /// fallocate(2): reserves space, punches holes, or zeroes ranges.
    ///
    /// # Errors
    /// As fallocate(2); `EOPNOTSUPP` for modes that collapse, insert or unshare ranges.
    pub fn allocate(&self, descriptor: BorrowedFd<'_>, mode: u32, at: i64, bytes: i64) -> Result<(), Errno> {
        const PUNCH_AND_KEEP: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        let open = self.table.get(descriptor)?;
        if !open.flags.write {
            return Err(Errno::BADF);
        }
        let mode = match mode {
            0 => AllocateMode::Extend,
            KEEP_SIZE => AllocateMode::KeepSize,
            PUNCH_AND_KEEP => AllocateMode::PunchHole,
            ZERO_RANGE => AllocateMode::ZeroRange,
            ZERO_AND_KEEP => AllocateMode::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (at, bytes) =
            (u64::try_from(at).map_err(|_| Errno::INVAL)?, u64::try_from(bytes).map_err(|_| Errno::INVAL)?);
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        self.wait(async {
            self.client.allocate(open.file, at, bytes, mode).await.map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// `F_GETFL`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn flags(&self, descriptor: BorrowedFd<'_>) -> Result<OFlags, Errno> {
        let open = self.table.get(descriptor)?;
        let access = match (open.flags.read, open.flags.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        if open.is_path_only() {
            return Ok(OFlags::PATH);
        }
        let append = if open.append.load(Relaxed) { OFlags::APPEND } else { OFlags::empty() };
        Ok(access | append | LARGE_FILE | (fcntl_getfl(descriptor)? & KERNEL_FLAGS))
    }

    /// `F_SETFL`: sets whether writes append. `O_NONBLOCK` has no effect here, and the kernel keeps
    /// it; other flags are ignored.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_flags(&self, descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<(), Errno> {
        self.check_not_path_only(descriptor)?;
        self.table.get(descriptor)?.append.store(flags.contains(OFlags::APPEND), Relaxed);
        fcntl_setfl(descriptor, flags & KERNEL_FLAGS)
    }

    /// `FIONREAD`: the number of bytes up to the end of the file, limited to an `int`.
    ///
    /// # Errors
    /// `EBADF`, and those of the connection to the pool.
    pub fn readable_bytes(&self, descriptor: BorrowedFd<'_>) -> Result<i32, Errno> {
        self.check_not_path_only(descriptor)?;
        let open: Arc<OpenDescription> = self.table.get(descriptor)?;
        let size = self.wait(self.stat_description(&open))?.size;
        let left = size.saturating_sub(seek(descriptor, SeekFrom::Current(0))?);
        Ok(i32::try_from(left).unwrap_or(i32::MAX))
    }
}

/// Advances the descriptor's offset and returns the old one. The kernel moves it atomically, so no
/// other user of a shared offset gets the same range.
fn reserve(descriptor: BorrowedFd<'_>, bytes: usize) -> Result<u64, Errno> {
    let by = i64::try_from(bytes).map_err(|_| Errno::INVAL)?;
    Ok(seek(descriptor, SeekFrom::Current(by))? - by.unsigned_abs())
}

/// Moves the offset back over bytes that were not transferred.
fn rewind(descriptor: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    match i64::try_from(bytes).map_err(|_| Errno::INVAL)? {
        0 => Ok(()),
        by => seek(descriptor, SeekFrom::Current(-by)).map(drop),
    }
}
