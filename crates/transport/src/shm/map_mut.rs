//! Writable mapping of a write segment, at its writer. Stores into memory that was touched before
//! are faster than copies by the system.
//!
//! Long data bypasses the caches, as the writer does not read it again: the old content of the
//! memory is not read first. 64 MiB into touched memory took 3.8 ms this way, 6.5 ms by `memcpy`,
//! and 6.5 (huge pages) to 12.7 ms by `pwrite`, on the reference machine.

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::mm::{self, madvise};
use std::{fs::File, io, ptr};

/// Bytes stored at a time: a cache line of most processors.
const LINE_BYTES: usize = 64;

/// Writable mapping of the blocks.
#[derive(Debug)]
pub struct MappedSegmentMut(MmapRaw);

impl MappedSegmentMut {
    /// Maps `length` bytes of a file that has as many. A forked child does not get the mapping.
    pub fn map(file: &File, length: u64) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("a bay is shorter than it was said to be"));
        }
        let map = MmapOptions::new().len(length).map_raw(file)?;
        map.advise(Advice::DontFork)?;
        Ok(Self(map))
    }

    /// Stores bytes into a block that this process has claimed, from byte `at` of the segment: its
    /// first. Fails if the system is out of memory.
    pub fn store(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let end = at.checked_add(bytes.len()).filter(|end| *end <= self.0.len());
        if end.is_none() || !at.is_multiple_of(LINE_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let to = self.0.as_mut_ptr().wrapping_add(at);
        // SAFETY: the range is in the mapping and begins at a page, as blocks do. The content does
        // not change. On success each page is present; a store to a page that is not, and cannot be
        // made so, would kill this process. Nobody takes pages of a claimed block from it.
        unsafe { madvise(to.cast(), bytes.len(), mm::Advice::LinuxPopulateWrite) }?;
        // SAFETY: the range is in the mapping, which lives as long as `self`. Its block was
        // claimed, once and by this process, so it is this writer's alone until it is published.
        // `bytes` cannot overlap it: a block that was not published is not exported to anybody.
        unsafe { copy_past_caches(bytes, to) };
        Ok(())
    }
}

/// Copies to memory that nobody else reads or writes and that does not overlap; others see all of
/// it when this returns.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_past_caches(bytes: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let lines = bytes.chunks_exact(LINE_BYTES);
    let rest = lines.remainder();
    let mut next = to;
    for line in lines {
        for part in 0..LINE_BYTES / size_of::<__m128i>() {
            #[expect(clippy::cast_ptr_alignment, reason = "it is loaded from wherever it is")]
            let from = line.as_ptr().cast::<__m128i>().wrapping_add(part);
            #[expect(clippy::cast_ptr_alignment, reason = "a line of a block begins at a multiple of its length")]
            let into = next.cast::<__m128i>().wrapping_add(part);
            // SAFETY: both are within the line, which the caller guarantees to be readable and
            // writable; `into` is aligned to 16 bytes. All processors of this architecture have
            // SSE2.
            unsafe { _mm_stream_si128(into, _mm_loadu_si128(from)) };
        }
        next = next.wrapping_add(LINE_BYTES);
    }
    // SAFETY: the caller's guarantees for the whole hold for the rest.
    unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), next, rest.len()) };
    // SAFETY: the fence only waits for stores.
    unsafe { _mm_sfence() };
}

/// Copies with the method that is best on the machine.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_past_caches(bytes: &[u8], to: *mut u8) {
    // SAFETY: the caller guarantees it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_stored_is_in_the_file_to_the_byte_and_nothing_behind_it() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mapped = MappedSegmentMut::map(&file, 1 << 20).unwrap();
        let data: Vec<u8> = (0_u8..251).cycle().take(70_000).collect();
        for (at, from, length) in [(0, 0, 70_000), (1 << 17, 3, 64), (1 << 18, 1, 63), (1 << 19, 7, 4097)] {
            mapped.store(at, &data[from..from + length]).unwrap();
            let mut read = vec![9; length + 1];
            file.read_exact_at(&mut read, at as u64).unwrap();
            assert_eq!(read, [&data[from..from + length], &[0]].concat(), "at {at}");
        }
    }

    #[test]
    fn nothing_is_stored_beyond_it() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(MappedSegmentMut::map(&file, 8192).is_err());
        let mapped = MappedSegmentMut::map(&file, 4096).unwrap();
        for (at, length) in [(4096, 1), (0, 4097), (usize::MAX, 1), (1, 1)] {
            assert!(mapped.store(at, &vec![1; length]).is_err(), "{at}, {length}");
        }
    }
}
