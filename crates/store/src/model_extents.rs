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

use crate::model::{Hook, OtherEnd, State, call, locked};
use crate::{Access, Allocate, EngineError, ExtentState, Extents, Held, Mark, Put, SeekTo, Slot};

const PAGE_BYTES: u64 = 4096;
type Page = [u8; 4096];

/// The extent files of a [`Model`](crate::Model).
pub struct ModelExtents {
    pub capacity: u64,
    pub state: Arc<Mutex<State>>,
    pub hook: Hook,
}

/// All slots that were ever taken.
#[derive(Debug, Default)]
pub struct Files {
    made: Vec<File>,
    stock: Vec<u32>,
    /// Live opens: the model's end of a socket pair whose other end is the program's descriptor.
    opens: BTreeMap<(Slot, Mark), OtherEnd>,
}

#[derive(Debug)]
struct File {
    length: u64,
    pages: BTreeMap<u64, Box<Page>>,
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
}

impl Files {
    /// The bytes of all pages.
    pub fn held(&self) -> u64 {
        self.made.iter().map(|file| file.pages.len() as u64).sum::<u64>() * PAGE_BYTES
    }

    fn file(&mut self, slot: Slot) -> &mut File {
        self.made.get_mut(slot.0 as usize).expect("a slot that was taken")
    }

    /// Returns whether the other end is still open, and forgets the open if it is not.
    fn holds(&mut self, slot: Slot, mark: Mark) -> bool {
        let held = self.opens.get(&(slot, mark)).is_some_and(OtherEnd::is_held);
        if !held {
            self.opens.remove(&(slot, mark));
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
    fn pages_of(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let (start, end) = (range.start, range.end);
        let numbers = if start < end { start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) } else { 0..0 };
        numbers.map(move |number| {
            let within = |at: u64| usize::try_from(at - number * PAGE_BYTES).expect("within a page");
            (number, within(start.max(number * PAGE_BYTES))..within(end.min((number + 1) * PAGE_BYTES)))
        })
    }

    fn zero(&mut self, range: &Range<u64>) {
        for (number, part) in Self::pages_of(range) {
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
        out.debug_struct("ModelExtents").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

impl ModelExtents {
    /// Allocates pages for the range from its start on, as far as there is space. Returns the end
    /// of the part that has pages.
    fn fill(&self, slot: Slot, range: &Range<u64>) -> Result<u64, EngineError> {
        let mut state = locked(&self.state);
        let mut end = range.start;
        for (number, part) in File::pages_of(range) {
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

    fn put(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<Put, EngineError> {
        if data.is_empty() {
            return Ok(Put { offset, length: 0 });
        }
        let end = self.fill(slot, &(offset..offset + data.len() as u64))?;
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        let mut rest = data;
        for (number, part) in File::pages_of(&(offset..end)) {
            let (now, later) = rest.split_at(part.len());
            file.pages.get_mut(&number).expect("filled")[part].copy_from_slice(now);
            rest = later;
        }
        file.length = file.length.max(end);
        file.touch();
        Ok(Put { offset, length: u32::try_from(end - offset).expect("at most what was given") })
    }
}

impl Extents for ModelExtents {
    fn take(&self) -> Option<Slot> {
        if !self.make_way() {
            return None;
        }
        let files = &mut locked(&self.state).extents;
        let slot = files.stock.pop().unwrap_or_else(|| {
            files.made.push(File::new());
            u32::try_from(files.made.len() - 1).expect("few in tests")
        });
        Some(Slot(slot))
    }

    fn give_back(&self, slot: Slot) {
        {
            let files = &mut locked(&self.state).extents;
            assert!(!files.stock.contains(&slot.0), "{slot} was given back twice");
            *files.file(slot) = File::new();
            files.stock.push(slot.0);
        }
        call(&self.hook);
    }

    fn make_way(&self) -> bool {
        locked(&self.state).used() <= self.capacity / 2
    }

    fn fd(&self, _slot: Slot) -> Option<BorrowedFd<'_>> {
        None
    }

    /// A descriptor with the lifetime of a file's; it is a socket and shows no bytes.
    fn open(&self, slot: Slot, _access: Access, mark: Mark) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let earlier = locked(&self.state).extents.opens.insert((slot, mark), OtherEnd(ours));
        assert!(earlier.is_none(), "{mark} of {slot} was given twice");
        Ok(theirs.into())
    }

    fn holds(&self, slot: Slot, mark: Mark) -> bool {
        locked(&self.state).extents.holds(slot, mark)
    }

    fn watch(&self, _slot: Slot) {}

    fn forget(&self, _slot: Slot) {}

    /// Never true: all pages of the model are small.
    fn is_loose(&self, _slot: Slot) -> bool {
        false
    }

    fn thin(&self, _slot: Slot, _from: u64) -> Option<u64> {
        None
    }

    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError> {
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        let allocated = file.pages.len() as u64 * PAGE_BYTES;
        let File { length, accessed, modified, changed, .. } = *file;
        Ok(ExtentState { length, allocated, accessed, modified, changed })
    }

    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError> {
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        let end = offset.saturating_add(len.into()).min(file.length);
        let mut bytes = Vec::new();
        for (number, part) in File::pages_of(&(offset..end)) {
            match file.pages.get(&number) {
                Some(page) => bytes.extend_from_slice(&page[part]),
                None => bytes.resize(bytes.len() + part.len(), 0),
            }
        }
        Ok(bytes.into())
    }

    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<Put, EngineError> {
        self.put(slot, offset, data)
    }

    fn append(&self, slot: Slot, data: &[u8]) -> Result<Put, EngineError> {
        // This is not atomic, but tests of the model have only one writer.
        let end = locked(&self.state).extents.file(slot).length;
        self.put(slot, end, data)
    }

    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError> {
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        file.zero(&(length..file.length.next_multiple_of(PAGE_BYTES)));
        file.pages.split_off(&length.div_ceil(PAGE_BYTES));
        file.length = length;
        file.touch();
        drop(state);
        call(&self.hook);
        Ok(())
    }

    fn allocate(&self, slot: Slot, range: Range<u64>, how: Allocate) -> Result<(), EngineError> {
        if matches!(how, Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize) {
            locked(&self.state).extents.file(slot).zero(&range);
        }
        if how != Allocate::PunchHole && self.fill(slot, &range)? < range.end {
            let (capacity, wanted) = (self.capacity, range.end - range.start);
            return Err(EngineError::Full { capacity, used: locked(&self.state).used(), wanted });
        }
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        if matches!(how, Allocate::Extend | Allocate::ZeroRange) {
            file.length = file.length.max(range.end);
        }
        file.touch();
        drop(state);
        call(&self.hook);
        Ok(())
    }

    fn seek(&self, slot: Slot, offset: u64, target: SeekTo) -> Result<Option<u64>, EngineError> {
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        let is_data = |at: u64| file.pages.contains_key(&(at / PAGE_BYTES));
        let mut places = std::iter::once(offset).chain((offset / PAGE_BYTES + 1..).map(|page| page * PAGE_BYTES));
        let found =
            places.by_ref().take_while(|at| *at < file.length).find(|at| is_data(*at) == (target == SeekTo::Data));
        let end = (target == SeekTo::Hole && offset < file.length).then_some(file.length);
        Ok(found.or(end))
    }

    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError> {
        let mut state = locked(&self.state);
        let file = state.extents.file(slot);
        (file.accessed, file.modified) = (accessed.unwrap_or(file.accessed), modified.unwrap_or(file.modified));
        file.changed = SystemTime::now();
        Ok(())
    }

    fn is_quiet(&self, slot: Slot) -> bool {
        let files = &mut locked(&self.state).extents;
        let marks: Vec<Mark> =
            files.opens.range((slot, Mark(0))..=(slot, Mark(u64::MAX))).map(|((_, mark), _)| *mark).collect();
        marks.into_iter().all(|mark| !files.holds(slot, mark))
    }

    fn slots(&self) -> (u64, u64) {
        let files = &locked(&self.state).extents;
        (files.made.len() as u64, files.stock.len() as u64)
    }
}
