//! Extent files of the fault-injecting engine: those of the engine inside, of which an open may
//! fail by the rule.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::fault_injection::{EngineOp, FaultState};
use crate::{
    Access, Engine, EngineError, ExtentState, Extents, FallocateMode, LeaseNumber, SeekTarget, Slot, WriteResult,
};

/// The extent files of a [`FaultyEngine`](crate::FaultyEngine).
pub struct FaultyExtents<E> {
    faults: Arc<FaultState<E>>,
    extents: Arc<dyn Extents>,
}

impl<E> FaultyExtents<E> {
    /// Passes calls on to `extents`, except opens for which the rule returns an error.
    pub fn new(faults: Arc<FaultState<E>>, extents: Arc<dyn Extents>) -> Self {
        Self { faults, extents }
    }
}

impl<E> fmt::Debug for FaultyExtents<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FaultyExtents").field("extents", &self.extents).finish_non_exhaustive()
    }
}

impl<E: Engine> Extents for FaultyExtents<E> {
    fn allocate_slot(&self) -> Option<Slot> {
        self.extents.allocate_slot()
    }

    fn free_slot(&self, slot: Slot) {
        self.extents.free_slot(slot);
    }

    fn reserve_headroom(&self) -> bool {
        self.extents.reserve_headroom()
    }

    fn begin_direct_writes(&self, slot: Slot) {
        self.extents.begin_direct_writes(slot);
    }

    fn end_direct_writes(&self, slot: Slot) {
        self.extents.end_direct_writes(slot);
    }

    fn has_slack(&self, slot: Slot) -> bool {
        self.extents.has_slack(slot)
    }

    fn thin(&self, slot: Slot, from: u64) -> Option<u64> {
        self.extents.thin(slot, from)
    }

    fn fd(&self, slot: Slot) -> Option<BorrowedFd<'_>> {
        self.extents.fd(slot)
    }

    fn open(&self, slot: Slot, access: Access, lease: LeaseNumber) -> io::Result<OwnedFd> {
        let failed = |error| io::Error::other(format!("{slot}: open failed: {error}"));
        self.faults.check(EngineOp::Open, None, 0).map_err(failed)?;
        self.extents.open(slot, access, lease)
    }

    fn is_open(&self, slot: Slot, lease: LeaseNumber) -> bool {
        self.extents.is_open(slot, lease)
    }

    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError> {
        self.extents.state(slot)
    }

    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError> {
        self.extents.read_at(slot, offset, len)
    }

    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<WriteResult, EngineError> {
        self.extents.write_at(slot, offset, data)
    }

    fn append(&self, slot: Slot, data: &[u8]) -> Result<WriteResult, EngineError> {
        self.extents.append(slot, data)
    }

    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError> {
        self.extents.truncate(slot, length)
    }

    fn fallocate(&self, slot: Slot, range: Range<u64>, mode: FallocateMode) -> Result<(), EngineError> {
        self.extents.fallocate(slot, range, mode)
    }

    fn seek(&self, slot: Slot, offset: u64, target: SeekTarget) -> Result<Option<u64>, EngineError> {
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

    fn is_idle(&self, slot: Slot) -> bool {
        self.extents.is_idle(slot)
    }

    fn slot_counts(&self) -> (u64, u64) {
        self.extents.slot_counts()
    }
}
