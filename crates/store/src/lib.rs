//! Layer 2: the traits of storage: bytes of stripes by key; with conformance suites and doubles.
//!
//! A [`StripeStore`] stores the bytes of stripes and nothing else: it knows no names, networks or
//! clocks. It may be slow: each operation has a [`StoreCompletion`]. A [`Tier`] makes one store of
//! two. An [`Engine`] is what a node is given: a store, and perhaps extent files, each in a file of
//! its own ([`Extents`]); memory that other processes can map ([`SharedMemory`]), or write and then
//! hand over to the engine ([`WriteSegment`]), and receive buffers ([`RecvBuffer`]); and
//! placeholder descriptors ([`Placeholders`]).
//!
//! This crate also has all that the tests of a store, or of its users, need: the contract as test
//! functions ([`conformance`]; every store runs them by [`conformance_tests!`]), a reference
//! implementation ([`ModelEngine`]), a store that injects faults ([`FaultyStore`]), and one that
//! answers late and out of order ([`LateStore`]).
#![deny(unsafe_code)]

mod completion;
pub mod conformance;
mod engine;
mod error;
mod extents;
mod fault_injection;
mod late;
mod model;
mod model_extents;
#[allow(unsafe_code, reason = "the one file that touches raw memory; its block says why it is sound")]
mod offer_table;
mod placeholder;
mod shared_memory;
mod stripe_store;
mod tier;

pub use completion::{PendingOperation, Promise, StoreCompletion};
pub use engine::Engine;
pub use error::EngineError;
pub use extents::{
    Access, ExtentState, Extents, FallocateMode, LeaseNumber, PageChecks, SeekTarget, Slot, WriteResult,
};
pub use fault_injection::{EngineCall, EngineOp, FaultRule, FaultyStore};
pub use late::LateStore;
pub use model::ModelEngine;
pub use offer_table::{OFFER_SLOTS, OFFER_TABLE_BYTES, OfferTable};
pub use placeholder::{PlaceholderHandle, PlaceholderKind, Placeholders};
pub use shared_memory::{RecvBuffer, SegmentPosition, SharedMemory, WriteSegment};
pub use stripe_store::{
    EngineUsage, FreedHook, Generation, StripeEntry, StripeKey, StripeScan, StripeSnapshot, StripeStore,
};
pub use tier::{Tier, TierMarks};
