//! A node's memory, mapped at a client: the one file of this crate that touches raw memory.

use crate::loan::Used;
use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{fs::File, io, os::fd::OwnedFd, sync::Arc};

/// One file of it, mapped for reading.
#[derive(Debug)]
pub struct Segment(MmapRaw);

impl Segment {
    /// Maps so many bytes of a file. A child of this process has them not: it would go on looking at what this one has given back.
    pub fn map(file: OwnedFd, length: u64) -> io::Result<Arc<Self>> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let file = File::from(file);
        // A file that is shorter would end this process at the first look.
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("a segment is shorter than it was said to be"));
        }
        let map = MmapOptions::new().len(length).map_raw_read_only(&file)?;
        map.advise(Advice::DontFork)?;
        Ok(Arc::new(Self(map)))
    }

    /// Bytes that the node keeps as they are until the loan is dropped; none when they are not all here.
    pub fn view(self: &Arc<Self>, offset: u64, length: u32, loan: Arc<Used>) -> Option<Bytes> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length as usize)?;
        let view = View { segment: self.clone(), offset, length: length as usize, _loan: loan };
        (end <= self.0.len()).then(|| Bytes::from_owner(view))
    }
}

/// Bytes that someone looks at.
struct View {
    segment: Arc<Segment>,
    offset: usize,
    length: usize,
    _loan: Arc<Used>,
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was checked to be in the mapping, which the segment holds and this holds. Its bytes are initialised:
        // holes of a file are zeros. Nobody writes them while the slice lives: the node holds a view of them for this loan, and
        // an arena never writes what a view can see; it drops that view only when the loan was given back, which this does when it is
        // dropped, or when this process can look no more (it has ended, or has let go of the hold, which the loan holds). The
        // file is never cut to less than it had when it was mapped.
        unsafe { std::slice::from_raw_parts(self.segment.0.as_ptr().wrapping_add(self.offset), self.length) }
    }
}
