//! Segment of a node's memory, mapped read-only at a client.
//!
//! With `TIDEMILL_GUARD=1` only leased bytes are readable: a read after the release of a view
//! crashes the process instead of returning other data. It costs a few system calls a view and is
//! for testing code that holds views.

use crate::remote::lease::LeaseGuard;
use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::mm::{MprotectFlags, mprotect};
use std::{collections::BTreeMap, env, ffi::OsStr, fs::File, io, ops::Range, os::fd::OwnedFd, sync::Arc};

/// Unit of protection, bytes: a page of most machines, and a part of a block.
const GUARDED_BYTES: usize = 4096;

/// One file of the node's memory, mapped for reading.
#[derive(Debug)]
pub struct MappedSegment {
    map: MmapRaw,
    /// Number of views of each page that is viewed, where other pages are protected; `None` where
    /// all pages are readable.
    guard: Option<Mutex<BTreeMap<usize, u32>>>,
}

impl MappedSegment {
    /// Maps `length` bytes of a file. A forked child has the mapping too and may read it, but the
    /// content is not preserved for the child.
    pub fn map(file: OwnedFd, length: u64) -> io::Result<Arc<Self>> {
        let is_guarded = env::var_os("TIDEMILL_GUARD").as_deref() == Some(OsStr::new("1"));
        Self::mapped(&File::from(file), length, is_guarded).map(Arc::new)
    }

    fn mapped(file: &File, length: u64, is_guarded: bool) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // Reading beyond the end of a shorter file would kill this process.
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("a segment is shorter than it was said to be"));
        }
        let map = MmapOptions::new().len(length).map_raw_read_only(file)?;
        let segment = Self { map, guard: is_guarded.then(Mutex::default) };
        if is_guarded {
            segment.protect(0..length.div_ceil(GUARDED_BYTES), false);
        }
        Ok(segment)
    }

    /// View of bytes that the node preserves until the lease is dropped; `None` if they are not all
    /// in the segment.
    pub fn view(self: &Arc<Self>, offset: u64, length: u32, lease: Arc<LeaseGuard>) -> Option<Bytes> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length as usize)?;
        (end <= self.map.len()).then(|| Bytes::from_owner(SegmentView::new(self, offset..end, lease)))
    }

    /// Makes pages readable, or protects them.
    fn protect(&self, pages: Range<usize>, may: bool) {
        let at = self.map.as_mut_ptr().wrapping_add(pages.start * GUARDED_BYTES);
        let length = (pages.end * GUARDED_BYTES).min(self.map.len()) - pages.start * GUARDED_BYTES;
        let flags = if may { MprotectFlags::READ } else { MprotectFlags::empty() };
        // SAFETY: the pages are in the mapping. Pages that become protected are not read any more:
        // no view of them is left.
        if let Err(error) = unsafe { mprotect(at.cast(), length, flags) } {
            panic!("pages could not be guarded, which a test asked for: {error}");
        }
    }

    /// Counts a view of these bytes in or out.
    fn count(&self, bytes: &Range<usize>, begins: bool) {
        let Some(guard) = &self.guard else { return };
        let pages = bytes.start / GUARDED_BYTES..bytes.end.div_ceil(GUARDED_BYTES);
        let mut views = guard.lock();
        for page in pages {
            let count = views.entry(page).or_default();
            *count = if begins { *count + 1 } else { *count - 1 };
            if *count == u32::from(begins) {
                self.protect(page..page + 1, begins);
            }
            if views[&page] == 0 {
                views.remove(&page);
            }
        }
    }
}

/// View of leased bytes.
struct SegmentView {
    segment: Arc<MappedSegment>,
    bytes: Range<usize>,
    _lease: Arc<LeaseGuard>,
}

impl SegmentView {
    fn new(segment: &Arc<MappedSegment>, bytes: Range<usize>, lease: Arc<LeaseGuard>) -> Self {
        segment.count(&bytes, true);
        Self { segment: segment.clone(), bytes, _lease: lease }
    }
}

impl Drop for SegmentView {
    fn drop(&mut self) {
        self.segment.count(&self.bytes, false);
    }
}

impl AsRef<[u8]> for SegmentView {
    fn as_ref(&self) -> &[u8] {
        let at = self.segment.map.as_ptr().wrapping_add(self.bytes.start);
        // SAFETY: the range was checked to be in the mapping, which lives as long as the segment
        // that `self` holds. Its bytes are initialised: holes of a file are zeros. Nobody writes
        // them while the slice lives: the node holds a view of them for this lease, and an arena
        // never writes what a view can see. The node drops that view only when the lease was
        // released, which happens when `self` is dropped, or when this process can read no more: it
        // has ended, or has closed the liveness pipe, which the lease holds. The file is never cut
        // below the length that it had when it was mapped. In a forked child of the process that
        // holds the lease the bytes may change under the slice, as docs/PYTHON.md says: the child
        // may read a mixture, and nothing here relies on reading a byte twice with one result.
        unsafe { std::slice::from_raw_parts(at, self.bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Pages that are readable.
    fn open(segment: &MappedSegment) -> Vec<usize> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let (start, end) = (segment.map.as_ptr().addr(), segment.map.as_ptr().addr() + segment.map.len());
        let ranges = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|may| may.starts_with('r')));
        let ranges = ranges.filter_map(|line| line.split(' ').next()?.split_once('-'));
        let ranges = ranges.map(|(from, to)| [from, to].map(|text| usize::from_str_radix(text, 16).unwrap()));
        let pages = ranges.flat_map(|[from, to]| (from.max(start)..to.min(end)).step_by(GUARDED_BYTES));
        pages.map(|page| (page - start) / GUARDED_BYTES).collect()
    }

    #[test]
    fn guarded_only_what_is_viewed_can_be_looked_at() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * 4096).unwrap();
        assert_eq!(open(&MappedSegment::mapped(&file, 8 * 4096, false).unwrap()), [0, 1, 2, 3, 4, 5, 6, 7]);
        let segment = MappedSegment::mapped(&file, 8 * 4096, true).unwrap();
        assert_eq!(open(&segment), [0; 0]);
        segment.count(&(100..5000), true);
        segment.count(&(4096..12_289), true);
        assert_eq!(open(&segment), [0, 1, 2, 3]);
        segment.count(&(100..5000), false);
        assert_eq!(open(&segment), [1, 2, 3]);
        segment.count(&(4096..12_289), false);
        assert_eq!(open(&segment), [0; 0]);
    }
}
