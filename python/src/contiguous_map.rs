//! Contiguous map: maps pieces of the pool's memory side by side, as one range. Uses unsafe code.
#![allow(unsafe_code)] // mappings

use bytes::Bytes;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed, munmap};
use std::{ffi::c_void, ptr, slice};

/// Fewer bytes are copied: this takes as long as to map them, and leaves them in the caches.
const MAPPED_MIN: usize = 2 << 20;
/// Page size: mappings begin at multiples of this on all supported machines.
const PAGE_BYTES: usize = 4096;

/// Memory that shows pieces one after the other.
struct ContiguousMap {
    at: *mut c_void,
    /// Length of the mapping: full pages.
    mapped: usize,
    /// Offset of the bytes in the mapping.
    start: usize,
    length: usize,
    _pieces: Vec<Bytes>,
}

// SAFETY: nobody writes to the memory any more; any owner of this value may read and unmap it.
unsafe impl Send for ContiguousMap {}
// SAFETY: as above: reading changes nothing.
unsafe impl Sync for ContiguousMap {}

/// Maps pieces as one range, and returns the number of bytes that were copied instead: a piece that
/// was received over a socket is on the heap and not aligned to pages. Returns `None` if the bytes
/// are few, or the pieces do not meet at page boundaries.
pub fn map_contiguous(pieces: &[Bytes]) -> Option<(Bytes, usize)> {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let [first, between @ .., last] = pieces else { return None };
    let are_pages = between.iter().all(|piece| piece.len().is_multiple_of(PAGE_BYTES));
    if length < MAPPED_MIN || last.is_empty() || !are_pages {
        return None;
    }
    // The first piece may begin within a page; it ends at a page boundary.
    let start = first.len().next_multiple_of(PAGE_BYTES) - first.len();
    let (mapped, protection) = ((start + length).next_multiple_of(PAGE_BYTES), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: new memory, at an address that the kernel chooses.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) }.ok()?;
    let map = ContiguousMap { at, mapped, start, length, _pieces: pieces.to_vec() };
    let (mut next, mut copied) = (at.wrapping_byte_add(start), 0);
    for piece in pieces {
        if piece.as_ptr().addr() % PAGE_BYTES != next.addr() % PAGE_BYTES {
            // SAFETY: the destination is within the new memory, where nothing else is mapped yet,
            // and which nobody else uses.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), next.cast(), piece.len()) };
            copied += piece.len();
        } else if !remap(piece, next) {
            // The state of the mapping is unknown after the failure, so it is leaked and never used
            // again.
            std::mem::forget(map);
            return None;
        }
        next = next.wrapping_byte_add(piece.len());
    }
    Some((Bytes::from_owner(map), copied))
}

/// Maps the pages of a piece at `at`, which has the same offset in its page. Returns false if the
/// piece is not in a shared mapping of a file.
fn remap(piece: &Bytes, at: *mut c_void) -> bool {
    let into = at.addr() % PAGE_BYTES;
    let (from, at) = (piece.as_ptr().cast_mut().wrapping_sub(into).cast(), at.wrapping_byte_sub(into));
    let pages = (into + piece.len()).next_multiple_of(PAGE_BYTES);
    // SAFETY: an old length of 0 leaves the old mapping as it is, and maps the same pages at the
    // new address too; the kernel refuses it if they are not a shared mapping of a file. The new
    // address is in new memory that nobody uses yet, of at least as many pages. All pages of a
    // piece are in one mapping, which exists as long as the piece does. This includes the first
    // page of a piece that begins within it, and the last page of one that ends within it, since
    // blocks of a pool are full pages.
    unsafe { mremap_fixed(from, 0, pages, MremapFlags::MAYMOVE, at) }.is_ok()
}

impl AsRef<[u8]> for ContiguousMap {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is mapped readable until this is dropped. It shows the memory of the
        // pieces, which are kept alive, or copies of them; nobody writes to it.
        unsafe { slice::from_raw_parts(self.at.wrapping_byte_add(self.start).cast(), self.length) }
    }
}

impl Drop for ContiguousMap {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map_contiguous`, and nobody uses it any more.
        let unmapped = unsafe { munmap(self.at, self.mapped) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
    }
}
