//! Extent files of the reference implementation: pages in a map, simple enough to be checked by
//! reading it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;

use crate::completion::lock;
use crate::model::{ModelState, PlaceholderPeer, SharedHook, run_hook};
use crate::{
    Access, EngineError, ExtentState, Extents, FallocateMode, LeaseNumber, PlaceholderHandle, SeekTarget, Slot,
    WriteResult,
};

const PAGE_BYTES: u64 = 4096;
type Page = [u8; 4096];

/// The extent files of a [`ModelEngine`](crate::ModelEngine).
pub struct ModelExtents {
    pub capacity: u64,
    pub state: Arc<Mutex<ModelState>>,
    pub hook: SharedHook,
}

/// All slots that were ever allocated.
#[derive(Debug, Default)]
pub struct ModelFiles {
    files: Vec<File>,
    free: Vec<u32>,
    /// Live opens: the model's end of a socket pair whose other end is the program's descriptor.
    opens: BTreeMap<(Slot, LeaseNumber), PlaceholderPeer>,
}

#[derive(Debug)]
struct File {
    length: u64,
    pages: BTreeMap<u64, Box<Page>>,
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
}

impl ModelFiles {
    /// The bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.pages.len() as u64).sum::<u64>() * PAGE_BYTES
    }

    fn file(&mut self, slot: Slot) -> &mut File {
        self.files.get_mut(slot.0 as usize).expect("an allocated slot")
    }

    /// Returns whether the other end is still open, and forgets the open if it is not.
    fn is_open(&mut self, slot: Slot, lease: LeaseNumber) -> bool {
        let held = self.opens.get(&(slot, lease)).is_some_and(PlaceholderPeer::is_open);
        if !held {
            self.opens.remove(&(slot, lease));
        }
        held
    }
}

impl File {
    fn new() -> Self {
        let now = SystemTime::now();
        Self { length: 0, pages: BTreeMap::new(), accessed: now, modified: now, changed: now }
    }

    fn touch(&mut self) {
        self.modified = SystemTime::now();
        self.changed = self.modified;
    }

    /// Each page of the range, with the part of the page that is in the range.
    fn split_pages(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let (start, end) = (range.start, range.end);
        let numbers = if start < end { start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) } else { 0..0 };
        numbers.map(move |number| {
            let within = |at: u64| usize::try_from(at - number * PAGE_BYTES).expect("within a page");
            (number, within(start.max(number * PAGE_BYTES))..within(end.min((number + 1) * PAGE_BYTES)))
        })
    }

    fn zero(&mut self, range: &Range<u64>) {
        for (number, part) in Self::split_pages(range) {
            if part.len() as u64 == PAGE_BYTES {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                page[part].fill(0);
            }
        }
    }
}

impl fmt::Debug for ModelExtents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ModelExtents").field("slots", &self.slot_counts()).finish_non_exhaustive()
    }
}

impl ModelExtents {
    /// Allocates pages for the range from its start on, as far as there is space. Returns the end
    /// of the part that has pages.
    fn fill(&self, slot: Slot, range: &Range<u64>) -> Result<u64, EngineError> {
        let mut state = lock(&self.state);
        let mut end = range.start;
        for (number, part) in File::split_pages(range) {
            let used = state.used();
            let pages = &mut state.extents.file(slot).pages;
            if !pages.contains_key(&number) && used + PAGE_BYTES > self.capacity {
                break;
            }
            pages.entry(number).or_insert_with(|| Box::new([0; 4096]));
            end += part.len() as u64;
        }
        let full = EngineError::Full { capacity: self.capacity, used: state.used(), wanted: range.end - range.start };
        if end > range.start { Ok(end) } else { Err(full) }
    }

    fn write(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<WriteResult, EngineError> {
        if data.is_empty() {
            return Ok(WriteResult { offset, length: 0 });
        }
        let end = self.fill(slot, &(offset..offset + data.len() as u64))?;
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        let mut rest = data;
        for (number, part) in File::split_pages(&(offset..end)) {
            let (now, later) = rest.split_at(part.len());
            file.pages.get_mut(&number).expect("filled")[part].copy_from_slice(now);
            rest = later;
        }
        file.length = file.length.max(end);
        file.touch();
        Ok(WriteResult { offset, length: u32::try_from(end - offset).expect("at most what was given") })
    }
}

impl Extents for ModelExtents {
    fn allocate_slot(&self) -> Option<Slot> {
        if !self.reserve_headroom() {
            return None;
        }
        let files = &mut lock(&self.state).extents;
        let slot = files.free.pop().unwrap_or_else(|| {
            files.files.push(File::new());
            u32::try_from(files.files.len() - 1).expect("few in tests")
        });
        Some(Slot(slot))
    }

    fn free_slot(&self, slot: Slot) {
        {
            let files = &mut lock(&self.state).extents;
            assert!(!files.free.contains(&slot.0), "{slot} was given back twice");
            *files.file(slot) = File::new();
            files.free.push(slot.0);
        }
        run_hook(&self.hook);
    }

    fn reserve_headroom(&self) -> bool {
        lock(&self.state).used() <= self.capacity / 2
    }

    fn fd(&self, _slot: Slot) -> Option<BorrowedFd<'_>> {
        None
    }

    /// A descriptor with the lifetime of a file's; it is a socket and shows no bytes.
    fn open(&self, slot: Slot, _access: Access, lease: LeaseNumber) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let earlier = lock(&self.state).extents.opens.insert((slot, lease), PlaceholderPeer(ours));
        assert!(earlier.is_none(), "{lease} of {slot} was given twice");
        Ok(theirs.into())
    }

    fn is_open(&self, slot: Slot, lease: LeaseNumber) -> bool {
        lock(&self.state).extents.is_open(slot, lease)
    }

    fn begin_direct_writes(&self, _slot: Slot) {}

    fn end_direct_writes(&self, _slot: Slot) {}

    /// Never true: all pages of the model are small.
    fn has_slack(&self, _slot: Slot) -> bool {
        false
    }

    fn thin(&self, _slot: Slot, _from: u64) -> Option<u64> {
        None
    }

    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError> {
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        let allocated = file.pages.len() as u64 * PAGE_BYTES;
        let File { length, accessed, modified, changed, .. } = *file;
        Ok(ExtentState { length, allocated, accessed, modified, changed })
    }

    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError> {
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        let end = offset.saturating_add(len.into()).min(file.length);
        let mut bytes = Vec::new();
        for (number, part) in File::split_pages(&(offset..end)) {
            match file.pages.get(&number) {
                Some(page) => bytes.extend_from_slice(&page[part]),
                None => bytes.resize(bytes.len() + part.len(), 0),
            }
        }
        Ok(bytes.into())
    }

    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<WriteResult, EngineError> {
        self.write(slot, offset, data)
    }

    fn append(&self, slot: Slot, data: &[u8]) -> Result<WriteResult, EngineError> {
        // This is not atomic, but tests of the model have only one writer.
        let end = lock(&self.state).extents.file(slot).length;
        self.write(slot, end, data)
    }

    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        file.zero(&(length..file.length.next_multiple_of(PAGE_BYTES)));
        file.pages.split_off(&length.div_ceil(PAGE_BYTES));
        file.length = length;
        file.touch();
        drop(state);
        run_hook(&self.hook);
        Ok(())
    }

    fn fallocate(&self, slot: Slot, range: Range<u64>, mode: FallocateMode) -> Result<(), EngineError> {
        if matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize) {
            lock(&self.state).extents.file(slot).zero(&range);
        }
        if mode != FallocateMode::PunchHole && self.fill(slot, &range)? < range.end {
            let (capacity, wanted) = (self.capacity, range.end - range.start);
            return Err(EngineError::Full { capacity, used: lock(&self.state).used(), wanted });
        }
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        if matches!(mode, FallocateMode::Extend | FallocateMode::ZeroRange) {
            file.length = file.length.max(range.end);
        }
        file.touch();
        drop(state);
        run_hook(&self.hook);
        Ok(())
    }

    fn seek(&self, slot: Slot, offset: u64, target: SeekTarget) -> Result<Option<u64>, EngineError> {
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        let is_data = |at: u64| file.pages.contains_key(&(at / PAGE_BYTES));
        let mut places = std::iter::once(offset).chain((offset / PAGE_BYTES + 1..).map(|page| page * PAGE_BYTES));
        let found =
            places.by_ref().take_while(|at| *at < file.length).find(|at| is_data(*at) == (target == SeekTarget::Data));
        let end = (target == SeekTarget::Hole && offset < file.length).then_some(file.length);
        Ok(found.or(end))
    }

    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let file = state.extents.file(slot);
        (file.accessed, file.modified) = (accessed.unwrap_or(file.accessed), modified.unwrap_or(file.modified));
        file.changed = SystemTime::now();
        Ok(())
    }

    fn is_idle(&self, slot: Slot) -> bool {
        let files = &mut lock(&self.state).extents;
        let leases: Vec<LeaseNumber> = files
            .opens
            .range((slot, LeaseNumber(0))..=(slot, LeaseNumber(u64::MAX)))
            .map(|((_, lease), _)| *lease)
            .collect();
        leases.into_iter().all(|lease| !files.is_open(slot, lease))
    }

    fn slot_counts(&self) -> (u64, u64) {
        let files = &lock(&self.state).extents;
        (files.files.len() as u64, files.free.len() as u64)
    }
}
