//! Layer 0: the engine trait: bytes of stripes by key, with its conformance suite and twins.
//!
//! An [`Engine`] keeps the bytes of stripes and nothing else: it knows no names, no networks and no clocks. Beside the
//! trait stands all that an engine, or a user of one, needs for its tests.
#![forbid(unsafe_code)]

mod engine;
mod error;

pub use engine::{Engine, FreedHook, Generation, StripeKey, Usage};
pub use error::EngineError;
