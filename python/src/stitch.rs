//! Pieces of the pool's memory as one: each is mapped anew, side by side. Touches raw memory.
#![allow(unsafe_code)] // mappings

use bytes::Bytes;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed, munmap};
use std::{ffi::c_void, ptr, slice};

/// Fewer bytes are copied: that is as soon done as to map them, and whoever reads them next finds them in the caches.
const MAPPED_MIN: usize = 2 << 20;
/// Mappings begin at multiples of this on all machines that we are built for.
const PAGE_BYTES: usize = 4096;

/// Memory that shows pieces one after the other.
struct Stitched {
    at: *mut c_void,
    /// What is mapped: whole pages.
    mapped: usize,
    /// Where the bytes begin in it.
    start: usize,
    length: usize,
    _pieces: Vec<Bytes>,
}

// SAFETY: it is memory that nobody writes to any more; whoever holds this may look at it and unmap it.
unsafe impl Send for Stitched {}
// SAFETY: as above: to look at it changes nothing.
unsafe impl Sync for Stitched {}

/// Shows pieces as one, and tells how many bytes were copied: a piece that was received is in the heap, where it does not begin with a page. None
/// when all are few, or do not meet at the borders of pages.
pub fn stitched(pieces: &[Bytes]) -> Option<(Bytes, usize)> {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let [first, between @ .., last] = pieces else { return None };
    let are_pages = between.iter().all(|piece| piece.len().is_multiple_of(PAGE_BYTES));
    if length < MAPPED_MIN || last.is_empty() || !are_pages {
        return None;
    }
    // The first may begin within a page: it ends with one.
    let start = first.len().next_multiple_of(PAGE_BYTES) - first.len();
    let (mapped, may) = ((start + length).next_multiple_of(PAGE_BYTES), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: new memory, at a place that the system chooses.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), mapped, may, MapFlags::PRIVATE) }.ok()?;
    let stitched = Stitched { at, mapped, start, length, _pieces: pieces.to_vec() };
    let (mut next, mut copied) = (at.wrapping_byte_add(start), 0);
    for piece in pieces {
        if piece.as_ptr().addr() % PAGE_BYTES != next.addr() % PAGE_BYTES {
            // SAFETY: the place is within the new memory, where nothing was mapped yet, and is nobody else's.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), next.cast(), piece.len()) };
            copied += piece.len();
        } else if !show(piece, next) {
            // What is mapped at the place now is not known: the place is never used again.
            std::mem::forget(stitched);
            return None;
        }
        next = next.wrapping_byte_add(piece.len());
    }
    Some((Bytes::from_owner(stitched), copied))
}

/// Maps a piece at a place too, which is as far into its page; false where it is not of a file that is mapped to be shared.
fn show(piece: &Bytes, at: *mut c_void) -> bool {
    let into = at.addr() % PAGE_BYTES;
    let (from, at) = (piece.as_ptr().cast_mut().wrapping_sub(into).cast(), at.wrapping_byte_sub(into));
    let pages = (into + piece.len()).next_multiple_of(PAGE_BYTES);
    // SAFETY: an old length of 0 leaves the old mapping as it is, and shows the same pages at the new place too; the system refuses it where they
    // are not those of a file that is mapped to be shared. The new place is new memory that nobody looks at yet, of at least as many pages.
    // All pages of a piece are of one mapping, which is there as long as the piece is: also the first page of one that begins within it, and the
    // last of one that ends there, for blocks of a pool are whole pages.
    unsafe { mremap_fixed(from, 0, pages, MremapFlags::MAYMOVE, at) }.is_ok()
}

impl AsRef<[u8]> for Stitched {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: all of it is mapped to be read until this is dropped, and shows what the pieces show, which are kept, or copies of them: nobody
        // writes to it.
        unsafe { slice::from_raw_parts(self.at.wrapping_byte_add(self.start).cast(), self.length) }
    }
}

impl Drop for Stitched {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `stitched`, and nobody looks at it any more.
        let unmapped = unsafe { munmap(self.at, self.mapped) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
