//! Allocating, freeing and searching ranges of a file.

use serde::{Deserialize, Serialize};

/// Operation on a range: the modes of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocateMode {
    /// Allocates space, and extends the file to the end of the range if it is shorter.
    Extend,
    /// Allocates space; the file size stays (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Frees space: the range reads as zeros, the file size stays (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Zeroes the range, and extends the file to its end if it is shorter (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// Zeroes the range; the file size stays.
    ZeroRangeKeepSize,
}

/// Target of a search from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SeekTo {
    /// Bytes that may be nonzero (`SEEK_DATA`).
    Data,
    /// A hole, or the end of the file (`SEEK_HOLE`).
    Hole,
}
