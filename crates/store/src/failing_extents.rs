//! Extent files of the fault-injecting engine: those of the engine inside, of which an open may
//! fail by the rule.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::failing::{Inner, Verb};
use crate::{Access, Allocate, Engine, EngineError, ExtentState, Extents, Mark, Put, SeekTo, Slot};

/// The extent files of a [`Failing`](crate::Failing).
pub struct FailingExtents<E> {
    failing: Arc<Inner<E>>,
    extents: Arc<dyn Extents>,
}

impl<E> FailingExtents<E> {
    /// Passes calls on to `extents`, except opens for which the rule returns an error.
    pub fn new(failing: Arc<Inner<E>>, extents: Arc<dyn Extents>) -> Self {
        Self { failing, extents }
    }
}

impl<E> fmt::Debug for FailingExtents<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FailingExtents").field("extents", &self.extents).finish_non_exhaustive()
    }
}

impl<E: Engine> Extents for FailingExtents<E> {
    fn take(&self) -> Option<Slot> {
        self.extents.take()
    }

    fn give_back(&self, slot: Slot) {
        self.extents.give_back(slot);
    }

    fn make_way(&self) -> bool {
        self.extents.make_way()
    }

    fn watch(&self, slot: Slot) {
        self.extents.watch(slot);
    }

    fn forget(&self, slot: Slot) {
        self.extents.forget(slot);
    }

    fn is_loose(&self, slot: Slot) -> bool {
        self.extents.is_loose(slot)
    }

    fn thin(&self, slot: Slot, from: u64) -> Option<u64> {
        self.extents.thin(slot, from)
    }

    fn fd(&self, slot: Slot) -> Option<BorrowedFd<'_>> {
        self.extents.fd(slot)
    }

    fn open(&self, slot: Slot, access: Access, mark: Mark) -> io::Result<OwnedFd> {
        let failed = |error| io::Error::other(format!("{slot}: open failed: {error}"));
        self.failing.check(Verb::Open, None, 0).map_err(failed)?;
        self.extents.open(slot, access, mark)
    }

    fn holds(&self, slot: Slot, mark: Mark) -> bool {
        self.extents.holds(slot, mark)
    }

    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError> {
        self.extents.state(slot)
    }

    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError> {
        self.extents.read_at(slot, offset, len)
    }

    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<Put, EngineError> {
        self.extents.write_at(slot, offset, data)
    }

    fn append(&self, slot: Slot, data: &[u8]) -> Result<Put, EngineError> {
        self.extents.append(slot, data)
    }

    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError> {
        self.extents.truncate(slot, length)
    }

    fn allocate(&self, slot: Slot, range: Range<u64>, how: Allocate) -> Result<(), EngineError> {
        self.extents.allocate(slot, range, how)
    }

    fn seek(&self, slot: Slot, offset: u64, target: SeekTo) -> Result<Option<u64>, EngineError> {
        self.extents.seek(slot, offset, target)
    }

    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError> {
        self.extents.set_times(slot, accessed, modified)
    }

    fn is_quiet(&self, slot: Slot) -> bool {
        self.extents.is_quiet(slot)
    }

    fn slots(&self) -> (u64, u64) {
        self.extents.slots()
    }
}
