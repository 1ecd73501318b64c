//! The error type of engine operations.

use std::io;

use base::ByteSize;

use crate::{Generation, Slot, StripeKey};

/// The reason why an engine operation failed. The stripe is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No space. Space becomes free when stripes are removed, views dropped or reservations
    /// released.
    #[error(
        "no room for {}: {} of {} are used; remove files or give the pool more memory",
        ByteSize(*wanted), ByteSize(*used), ByteSize(*capacity)
    )]
    Full {
        /// The capacity of the engine, in bytes.
        capacity: u64,
        /// The bytes that were used when the engine refused the call.
        used: u64,
        /// The bytes that the call would have added.
        wanted: u64,
    },
    /// The call's generation is older than the stripe's: look up the file's present generation and
    /// try again.
    #[error("{key} was truncated meanwhile (generation {seen}, the call knew {given}); look the file up again")]
    Stale {
        /// The stripe.
        key: StripeKey,
        /// The generation of the call.
        given: Generation,
        /// The generation of the stripe.
        seen: Generation,
    },
    /// The range ends behind the longest stripe: the caller divided the file into the wrong pieces.
    #[error("{key} cannot reach to byte {end}: a stripe has at most {limit} bytes")]
    TooLong {
        /// The stripe.
        key: StripeKey,
        /// The end of the range that was to be written.
        end: u64,
        /// The length of the longest stripe.
        limit: u32,
    },
    /// The device or the operating system failed on an extent, or does not support this operation
    /// on it.
    #[error("{slot}: {action} failed: {source}")]
    Extent {
        /// The extent.
        slot: Slot,
        /// The operation, for example `write`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The stripe's partition is moving to another node: ask the node that serves it.
    #[error("{key} moves to another node")]
    Moved {
        /// The stripe.
        key: StripeKey,
    },
    /// The store ended before the operation was done.
    #[error("the store was closed before the operation was done")]
    Closed,
    /// The device or the operating system failed.
    #[error("{key}: {action} failed: {source}")]
    Io {
        /// The stripe.
        key: StripeKey,
        /// The operation, for example `write`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}
