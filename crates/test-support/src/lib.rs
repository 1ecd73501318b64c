//! Layer 1: what tests of several crates share. Only tests, and suites and doubles for tests, use
//! it.
//!
//! - [`Random`]: random choices that depend on a seed alone
//! - [`until`], [`until_polled`]: waiting for a condition that others bring about, without sleeping
//! - [`FormatPage`], [`Shapes`]: pages of `docs/formats`, and the shapes of values that they show
//!
//! Scratch directories are `tempfile`'s.
#![forbid(unsafe_code)]

mod format_page;
mod random;
mod shape;
mod wait;

pub use format_page::{FormatPage, fenced};
pub use random::Random;
pub use shape::{Fields, Shapes, Type, variants};
pub use wait::{until, until_polled};
