//! Layer 0: the engine trait: bytes of stripes by key, with its conformance suite and test doubles.
//!
//! An [`Engine`] stores the bytes of stripes and nothing else: it knows no names, networks or
//! clocks. This crate also has all that the tests of an engine, or of its users, need: the engine's
//! contract as test functions ([`conformance`]; every engine runs them by [`conformance_tests!`]),
//! a reference implementation ([`Model`]), and an engine that injects faults ([`Failing`]).
//!
//! An engine may offer more: extent files, each in a file of its own ([`Extents`]); memory that
//! other processes can map ([`Segments`]), or write and then hand over to the engine ([`Bay`]); and
//! receive buffers ([`Landing`]).
#![deny(unsafe_code)]

pub mod conformance;
mod engine;
mod error;
mod extents;
mod failing;
mod failing_extents;
mod model;
mod model_extents;
mod segments;
mod stand_in;
#[allow(unsafe_code, reason = "the one file that touches raw memory; its block says why it is sound")]
mod table;

pub use engine::{Engine, FreedHook, Generation, StripeKey, Usage};
pub use error::EngineError;
pub use extents::{Access, Allocate, ExtentState, Extents, Mark, Put, SeekTo, Slot};
pub use failing::{Call, Failing, Rule, Verb};
pub use model::Model;
pub use segments::{Bay, Landing, Place, Segments};
pub use stand_in::{Held, StandIn};
pub use table::{SLOTS, TABLE_BYTES, Table};
