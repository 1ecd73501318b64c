//! Layer 1: what tests of several crates share. Only tests, and suites and doubles for tests, use
//! it.
//!
//! - [`Random`]: random choices that depend on a seed alone
//! - [`until`], [`until_polled`]: waiting for a condition that others bring about, without sleeping
//!
//! Scratch directories are `tempfile`'s.
#![forbid(unsafe_code)]

mod random;
mod wait;

pub use random::Random;
pub use wait::{until, until_polled};
