//! The trait of extent files: each extent is a file of its own that holds all the bytes of one file
//! of the pool.
//!
//! ```text
//!   free --allocate_slot--> in use: written, read, cut, mapped by a kernel --free_slot--> free
//! ```
//!
//! An engine has *slots*. A slot that was just allocated is an empty file. A slot that is freed is
//! emptied and may be allocated again, with the same number and the same descriptor.
//! Extents share the engine's capacity with its stripes and reservations: together they never hold
//! more than it, however bytes come into an extent.
//!
//! The caller that allocates a slot must count the slot's lives and its users, and free it only
//! when it has no users. An engine cannot see late callers; it only sees whether another process
//! has a descriptor or a mapping open ([`Extents::is_idle`]).
//!
//! A program of this host may have an extent open by itself ([`Extents::open`]). It then uses and
//! copies its descriptor without the engine. Each such open has an open lease ([`LeaseNumber`]), by
//! which the engine asks the system whether the open is still alive.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::SystemTime;

use bytes::Bytes;

use crate::EngineError;

/// The number of an extent in its engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u32);

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "extent {}", self.0)
    }
}

/// An open lease: the number, below 2^62, of one open of an extent by a program. A number is never
/// given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LeaseNumber(pub u64);

impl fmt::Display for LeaseNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "open {}", self.0)
    }
}

/// The access mode of an open: at least one of reading and writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The open may read.
    pub read: bool,
    /// The open may write.
    pub write: bool,
    /// Each write goes to the end of the file at that time. A program may change this flag of its
    /// descriptor.
    pub append: bool,
}

/// The current state of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentState {
    /// The length in bytes.
    pub length: u64,
    /// The part of the capacity that the extent holds, in bytes.
    pub allocated: u64,
    /// The time of the last read, with the precision of `relatime`.
    pub accessed: SystemTime,
    /// The time of the last change of the bytes.
    pub modified: SystemTime,
    /// The time of the last change of anything.
    pub changed: SystemTime,
}

/// The mode of [`Extents::fallocate`], like those of fallocate(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallocateMode {
    /// Allocates space for the range; a shorter extent grows to the range's end.
    Extend,
    /// Allocates space for the range; the length stays.
    KeepSize,
    /// Makes the range read as zeros and frees its whole pages; the length stays.
    PunchHole,
    /// Makes the range read as zeros and allocates its space; a shorter extent grows to the range's
    /// end.
    ZeroRange,
    /// Makes the range read as zeros and allocates its space; the length stays.
    ZeroRangeKeepSize,
}

/// The target of a seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTarget {
    /// Bytes that were written.
    Data,
    /// A hole. The end of the file counts as one.
    Hole,
}

/// The result of a write to an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteResult {
    /// The offset at which the bytes were written.
    pub offset: u64,
    /// The number of bytes written: fewer than given only if the capacity is exhausted.
    pub length: u32,
}

/// Checks of extents that an engine makes beside calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageChecks {
    /// True while checks are made.
    pub running: bool,
    /// Rounds of checks that were made.
    pub rounds: u64,
    /// Extents that were checked, each as often as it was.
    pub checked: u64,
    /// Extents that are watched now.
    pub watched: u64,
}

/// Extent files by slot. All calls but [`Self::allocate_slot`] are for an allocated slot; they
/// panic for a slot that never was.
///
/// The tests in [`crate::conformance`] check this contract; every engine with extents runs them.
pub trait Extents: Send + Sync + fmt::Debug {
    /// Allocates an empty extent; `None` if the engine is crowded, or has no more descriptors.
    fn allocate_slot(&self) -> Option<Slot>;

    /// Frees an extent: its bytes are removed, its space is free at once, the freed
    /// hook runs, and the slot may be allocated again.
    fn free_slot(&self, slot: Slot);

    /// Reserves headroom for a writer that writes to the descriptor directly and cannot ask the
    /// engine for space. Returns false if the engine is crowded, that is, if more than half of its
    /// capacity is used. Do not give a descriptor to such a writer then: it would get ENOSPC at
    /// once where other writers wait for space.
    fn reserve_headroom(&self) -> bool;

    /// Announces a writer that writes to the descriptor directly. An engine that must know how the
    /// extent fills checks it by itself from now on.
    fn begin_direct_writes(&self, slot: Slot);

    /// Announces that no process has the descriptor open for direct writes any more.
    fn end_direct_writes(&self, slot: Slot);

    /// Returns whether about half of the extent's space was never written, because pages are larger
    /// than the bytes written to them. Bytes that were [allocated](Self::fallocate) count as
    /// written.
    fn has_slack(&self, slot: Slot) -> bool;

    /// Frees the space that was never written in one piece of the file, which starts at `from`.
    /// Returns the start of the next piece, if there is one. Call it only for an extent that [has
    /// slack](Self::has_slack), while nobody else can use it. The bytes and times of the file stay.
    fn thin(&self, slot: Slot, from: u64) -> Option<u64>;

    /// The descriptor, the same for every life of the slot; `None` if the bytes are not in a file.
    fn fd(&self, slot: Slot) -> Option<BorrowedFd<'_>>;

    /// Opens the extent's file once more, as open(2) does: with an offset and an access mode that
    /// all copies of the new descriptor share, and no other descriptor does. The descriptor is
    /// closed on exec.
    ///
    /// Fails if the bytes are not in a file, or if the system has no more descriptors.
    fn open(&self, slot: Slot, access: Access, lease: LeaseNumber) -> io::Result<OwnedFd>;

    /// Returns whether the open with this lease is still alive: a copy of its descriptor in any
    /// process, or a mapping made through one. A holder may end the lease early, but cannot prolong
    /// it beyond them.
    fn is_open(&self, slot: Slot, lease: LeaseNumber) -> bool;

    /// The current state, including changes made through descriptors.
    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError>;

    /// Reads the bytes of the range: short at the end of the file; holes read as zeros.
    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError>;

    /// Writes `data` at `offset`; a gap before it reads as zeros. Fails with [`EngineError::Full`]
    /// if there is not space for a single byte.
    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<WriteResult, EngineError>;

    /// Writes `data` at the current end of the file. No other append overlaps it, even one made
    /// through a descriptor.
    fn append(&self, slot: Slot, data: &[u8]) -> Result<WriteResult, EngineError>;

    /// Cuts the file, or extends it by a hole. Bytes that were cut never come back.
    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError>;

    /// Allocates or frees the space of a range, which must not be empty.
    fn fallocate(&self, slot: Slot, range: Range<u64>, mode: FallocateMode) -> Result<(), EngineError>;

    /// Finds the next data or hole from `offset` on. `None` if `offset` is at or behind the end, or
    /// if only a hole follows when data is sought.
    fn seek(&self, slot: Slot, offset: u64, target: SeekTarget) -> Result<Option<u64>, EngineError>;

    /// Sets those of the two times that are given; the time of the last change of anything becomes
    /// now.
    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError>;

    /// Returns whether nobody else has the file open or mapped. Mappings of [`Self::fd`] itself are
    /// not seen.
    fn is_idle(&self, slot: Slot) -> bool;

    /// The number of slots, and the number of the free ones.
    fn slot_counts(&self) -> (u64, u64);

    /// The checks of extents that the engine has made by itself.
    fn page_checks(&self) -> PageChecks {
        PageChecks::default()
    }
}
