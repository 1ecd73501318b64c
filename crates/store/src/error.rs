//! Why an engine did not do what it was asked.

use std::io;

use base::ByteSize;

use crate::{Generation, Slot, StripeKey};

/// Why an engine did not do what it was asked. The stripe is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no room; it comes when stripes are removed, views dropped or reservations released.
    #[error(
        "no room for {}: {} of {} are used; remove files or give the pool more memory",
        ByteSize(*wanted), ByteSize(*used), ByteSize(*capacity)
    )]
    Full {
        /// What the engine may hold, in bytes.
        capacity: u64,
        /// What it held when it refused, in bytes.
        used: u64,
        /// What the call would have added, in bytes.
        wanted: u64,
    },
    /// The call knew an older truncation than the stripe: ask for the file's present generation and try again.
    #[error("{key} was truncated meanwhile (generation {seen}, the call knew {given}); look the file up again")]
    Stale {
        /// The stripe.
        key: StripeKey,
        /// The generation of the call.
        given: Generation,
        /// The generation that the stripe has seen.
        seen: Generation,
    },
    /// The range ends behind the longest stripe: the caller cut the file into the wrong pieces.
    #[error("{key} cannot reach to byte {end}: a stripe has at most {limit} bytes")]
    TooLong {
        /// The stripe.
        key: StripeKey,
        /// Where the write would have ended.
        end: u64,
        /// The longest stripe.
        limit: u32,
    },
    /// The device or the operating system failed on an extent, or cannot do this to it.
    #[error("{slot}: {action} failed: {source}")]
    Extent {
        /// The extent.
        slot: Slot,
        /// What was tried, for example `write`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The device or the operating system failed.
    #[error("{key}: {action} failed: {source}")]
    Io {
        /// The stripe.
        key: StripeKey,
        /// What was tried, for example `write`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
