//! Layer 0: small values that every crate needs: byte sizes, natural order, nearest names,
//! problems, safe text.
//!
//! Nothing here does I/O, keeps state, or knows what Tidemill is.
//!
//! Modules:
//! - `size`: amounts of bytes as people write and read them
//! - `natural`: natural order: `part2` before `part10`
//! - `nearest`: the nearest known name to a mistyped one
//! - `problem`: a problem with the user's input: what, where, and what to do
//! - `printable`: untrusted text made safe for a terminal or a log
//! - `random`: small pseudorandom numbers that depend on a seed alone
#![forbid(unsafe_code)]

pub mod natural;
pub mod nearest;
pub mod printable;
pub mod problem;
mod random;
mod size;

pub use problem::{Problem, SourceLocation};
pub use random::SplitMix64;
pub use size::ByteSize;
