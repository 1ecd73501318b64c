//! Layer 2: the engine trait: bytes of stripes by key, with its conformance suite and test doubles.
//!
//! An [`Engine`] stores the bytes of stripes and nothing else: it knows no names, networks or
//! clocks. This crate also has all that the tests of an engine, or of its users, need: the engine's
//! contract as test functions ([`conformance`]; every engine runs them by [`conformance_tests!`]),
//! a reference implementation ([`ModelEngine`]), and an engine that injects faults
//! ([`FaultyEngine`]).
//!
//! An engine may offer more: extent files, each in a file of its own ([`Extents`]); memory that
//! other processes can map ([`Segments`]), or write and then hand over to the engine
//! ([`WriteSegment`]); and receive buffers ([`RecvBuffer`]).
#![deny(unsafe_code)]

pub mod conformance;
mod engine;
mod error;
mod extents;
mod fault_injection;
mod faulty_extents;
mod model;
mod model_extents;
#[allow(unsafe_code, reason = "the one file that touches raw memory; its block says why it is sound")]
mod offer_table;
mod placeholder;
mod shared_memory;

pub use engine::{Engine, EngineUsage, FreedHook, Generation, StripeKey};
pub use error::EngineError;
pub use extents::{Access, ExtentState, Extents, FallocateMode, LeaseNumber, SeekTarget, Slot, WriteResult};
pub use fault_injection::{EngineCall, EngineOp, FaultRule, FaultyEngine};
pub use model::ModelEngine;
pub use offer_table::{OFFER_SLOTS, OFFER_TABLE_BYTES, OfferTable};
pub use placeholder::{PlaceholderHandle, PlaceholderKind};
pub use shared_memory::{RecvBuffer, SegmentPosition, Segments, WriteSegment};
