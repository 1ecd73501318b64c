//! Layer 0: small values that every crate needs: byte sizes, natural order, nearest names,
//! problems, safe text.
//!
//! Nothing here does I/O, keeps state, or knows what Tidemill is.
#![forbid(unsafe_code)]

pub mod natural;
pub mod nearest;
pub mod printable;
pub mod problem;
mod size;

pub use problem::{Place, Problem};
pub use size::ByteSize;
