//! Space of a range of a file: taken beforehand, given back, looked for.

use serde::{Deserialize, Serialize};

/// What is done with a range: the modes of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocateMode {
    /// Takes space, and moves the end of the file behind the range.
    Extend,
    /// Takes space; the end stays (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Gives space back: the range reads as zeros, the end stays (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// The range reads as zeros; the end moves behind it (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// The range reads as zeros; the end stays.
    ZeroRangeKeepSize,
}

/// What is looked for from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SeekTo {
    /// Bytes that may be other than zero (`SEEK_DATA`).
    Data,
    /// A hole, or the end of the file (`SEEK_HOLE`).
    Hole,
}
