//! The trait of whole files: extents, each a file of its own that holds all the bytes of one file of the pool.
//!
//! ```text
//!   stock --take--> a life: written, read, cut, mapped by a kernel --give_back--> stock
//! ```
//!
//! An engine keeps a stock of *slots*. A slot that is taken is an empty file; one that is given back is emptied and may be
//! taken again, with the same number and the same descriptor. Extents share the engine's capacity with its stripes and
//! reservations: what all of them hold together is never above it, however bytes come into an extent.
//!
//! Who takes a slot keeps count of its lives and of who uses it, and gives it back only when nobody does: an engine cannot see
//! late callers, only whether a descriptor or a mapping of somebody else is open ([`Extents::is_quiet`]).
//!
//! A program of this host may have an extent open by itself ([`Extents::open`]): what it then does with its descriptor, and whom it
//! gives copies, is between it and the system. Each such open has a [`Mark`], by which the system is asked whether it lives on.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::SystemTime;

use bytes::Bytes;

use crate::EngineError;

/// Which extent of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u32);

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "extent {}", self.0)
    }
}

/// The number of one open of an extent by a program, below 2^62. Who gives them gives none twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Mark(pub u64);

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "open {}", self.0)
    }
}

/// What may be done through an open: at least one of reading and writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Each write goes to the end, wherever that is by then. A program may change that of its descriptor.
    pub append: bool,
}

/// What an extent is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentState {
    /// Its length, bytes.
    pub length: u64,
    /// What it holds of the capacity, bytes.
    pub allocated: u64,
    /// Last read, as `relatime` keeps it.
    pub accessed: SystemTime,
    /// Last change of the bytes.
    pub modified: SystemTime,
    /// Last change of anything.
    pub changed: SystemTime,
}

/// How space is set aside for a range, or given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Space for the range; a shorter extent grows to its end.
    Extend,
    /// Space for the range; the length stays.
    KeepSize,
    /// The range reads as zeros and holds no whole page any more; the length stays.
    PunchHole,
    /// The range reads as zeros and has space; a shorter extent grows to its end.
    ZeroRange,
    /// The range reads as zeros and has space; the length stays.
    ZeroRangeKeepSize,
}

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Bytes that were written.
    Data,
    /// A hole; there is one at the end.
    Hole,
}

/// What was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put {
    /// Where it went.
    pub offset: u64,
    /// How many bytes: fewer than given only when the capacity is used up.
    pub length: u32,
}

/// Extents by slot. All calls but [`Self::take`] are for a slot that is taken; a slot that never was is a broken promise.
///
/// The promises are proven by [`crate::conformance`], which every engine with extents runs in its tests.
pub trait Extents: Send + Sync + fmt::Debug {
    /// An empty extent; none when the engine is crowded, or has no more descriptors.
    fn take(&self) -> Option<Slot>;

    /// Ends the life of an extent: its bytes are gone, its space is free at once and announced, the slot may be taken again.
    fn give_back(&self, slot: Slot);

    /// Makes room for a writer past us, who writes to the descriptor and cannot ask for it. False when the engine is crowded,
    /// more than half of its capacity used: then such a writer had better not be let in, for he is refused at once where others
    /// wait for space.
    fn make_way(&self) -> bool;

    /// From now on somebody past us may write to it: an engine that must know how it is filled looks at it by itself.
    fn watch(&self, slot: Slot);

    /// Nobody past us has it open any more.
    fn forget(&self, slot: Slot);

    /// Whether about half of what it takes was never written, as pages were larger than what was. What was [allocated](Self::allocate)
    /// counts as written.
    fn is_loose(&self, slot: Slot) -> bool;

    /// Gives back what was never written so, of a piece of the file from `from` on. Where the next piece begins, if there is one. Only to be
    /// called of what is loose, while nobody else can use the extent. Its bytes and their times stay.
    fn thin(&self, slot: Slot, from: u64) -> Option<u64>;

    /// The descriptor, the same for every life of the slot; none where the bytes are not in a file.
    fn fd(&self, slot: Slot) -> Option<BorrowedFd<'_>>;

    /// The same file once more, as a program that asks the system has it: with an offset and an access of its own, shared by all
    /// copies of the descriptor and by nobody else. Not kept over an exec.
    ///
    /// Fails where the bytes are not in a file, and where the system has no more descriptors.
    fn open(&self, slot: Slot, access: Access, mark: Mark) -> io::Result<OwnedFd>;

    /// Whether what was opened under the mark is still open somewhere: a copy of its descriptor in whatever process, or a mapping made
    /// through one. Who has it may end that early, but not prolong it beyond them.
    fn holds(&self, slot: Slot, mark: Mark) -> bool;

    /// What it is now, whoever changed it.
    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError>;

    /// The bytes of the range: short at the end; holes are zeros.
    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError>;

    /// Puts `data` at `offset`; a gap before it reads as zeros. [`EngineError::Full`] when not a byte has room.
    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<Put, EngineError>;

    /// Puts `data` at the end, wherever that is by then: no other append, also past us, overlaps it.
    fn append(&self, slot: Slot, data: &[u8]) -> Result<Put, EngineError>;

    /// Cuts, or extends by a hole. What was cut never comes back.
    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError>;

    /// Sets space aside for a range that is not empty, or gives it back.
    fn allocate(&self, slot: Slot, range: Range<u64>, how: Allocate) -> Result<(), EngineError>;

    /// The next place of the kind from `offset` on; none from the end on, and none where only a hole follows.
    fn seek(&self, slot: Slot, offset: u64, target: SeekTo) -> Result<Option<u64>, EngineError>;

    /// Sets the times that are given; that of the last change of anything becomes now.
    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError>;

    /// Whether nobody else has its file open or mapped. Mappings of [`Self::fd`] itself are not seen.
    fn is_quiet(&self, slot: Slot) -> bool;

    /// How many slots there are, and how many of them are in the stock.
    fn slots(&self) -> (u64, u64);
}
