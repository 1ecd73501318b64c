//! A node's memory, mapped at a client to be looked at.
//!
//! With `TIDEMILL_GUARD=1` only what is lent can be looked at: a late look ends the process, in place of seeing what is there by then. It costs a few
//! system calls a view, and is for those who test what holds views.

use crate::loan::Used;
use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::mm::{MprotectFlags, mprotect};
use std::{collections::BTreeMap, env, ffi::OsStr, fs::File, io, ops::Range, os::fd::OwnedFd, sync::Arc};

/// What is protected at a time, bytes: a page of most machines, and a part of a block.
const GUARDED_BYTES: usize = 4096;

/// One file of it, mapped for reading.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
    /// How many views there are of each page that is looked at, where no other can be; none where all can.
    guard: Option<Mutex<BTreeMap<usize, u32>>>,
}

impl Segment {
    /// Maps so many bytes of a file. A child of this process has them too, and may look at them; what it sees there is not kept for it.
    pub fn map(file: OwnedFd, length: u64) -> io::Result<Arc<Self>> {
        let is_guarded = env::var_os("TIDEMILL_GUARD").as_deref() == Some(OsStr::new("1"));
        Self::mapped(&File::from(file), length, is_guarded).map(Arc::new)
    }

    fn mapped(file: &File, length: u64, is_guarded: bool) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // A file that is shorter would end this process at the first look.
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

    /// Bytes that the node keeps as they are until the loan is dropped; none when they are not all here.
    pub fn view(self: &Arc<Self>, offset: u64, length: u32, loan: Arc<Used>) -> Option<Bytes> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length as usize)?;
        (end <= self.map.len()).then(|| Bytes::from_owner(View::new(self, offset..end, loan)))
    }

    /// Lets pages be looked at, or not.
    fn protect(&self, pages: Range<usize>, may: bool) {
        let at = self.map.as_mut_ptr().wrapping_add(pages.start * GUARDED_BYTES);
        let length = (pages.end * GUARDED_BYTES).min(self.map.len()) - pages.start * GUARDED_BYTES;
        let flags = if may { MprotectFlags::READ } else { MprotectFlags::empty() };
        // SAFETY: the pages are in the mapping. Nobody is to look at those that are taken away: no view of them is left.
        if let Err(error) = unsafe { mprotect(at.cast(), length, flags) } {
            panic!("pages could not be guarded, which a test asked for: {error}");
        }
    }

    /// A view of these bytes begins, or ends.
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

/// Bytes that someone looks at.
struct View {
    segment: Arc<Segment>,
    bytes: Range<usize>,
    _loan: Arc<Used>,
}

impl View {
    fn new(segment: &Arc<Segment>, bytes: Range<usize>, loan: Arc<Used>) -> Self {
        segment.count(&bytes, true);
        Self { segment: segment.clone(), bytes, _loan: loan }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.segment.count(&self.bytes, false);
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        let at = self.segment.map.as_ptr().wrapping_add(self.bytes.start);
        // SAFETY: the range was checked to be in the mapping, which the segment holds and this holds. Its bytes are initialised:
        // holes of a file are zeros. Nobody writes them while the slice lives: the node holds a view of them for this loan, and
        // an arena never writes what a view can see; it drops that view only when the loan was given back, which this does when it is
        // dropped, or when this process can look no more (it has ended, or has let go of the hold, which the loan holds). The
        // file is never cut to less than it had when it was mapped. In a child of the process to which they were lent they may change under
        // the slice, as docs/PYTHON.md says: what is read there then is some mixture, and nothing here takes two looks at a byte to be one.
        unsafe { std::slice::from_raw_parts(at, self.bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Which pages can be looked at.
    fn open(segment: &Segment) -> Vec<usize> {
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
        assert_eq!(open(&Segment::mapped(&file, 8 * 4096, false).unwrap()), [0, 1, 2, 3, 4, 5, 6, 7]);
        let segment = Segment::mapped(&file, 8 * 4096, true).unwrap();
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
