//! Layer 0: the engine trait: bytes of stripes by key, with its conformance suite and twins.
//!
//! An [`Engine`] keeps the bytes of stripes and nothing else: it knows no names, no networks and no clocks. Beside the
//! trait stands all that an engine, or a user of one, needs for its tests: the promises as functions ([`conformance`]; every
//! engine runs them by [`conformance_tests!`]), an engine that is right by reading it ([`Model`]) and one that breaks on
//! demand ([`Failing`]). An engine may also keep whole files, each in a file of its own: [`Extents`]; show its memory to other
//! processes: [`Segments`]; let them write there what it then takes over: [`Bay`]; and have bytes received into it: [`Landing`].
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
