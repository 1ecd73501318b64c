//! Locks and atomics of the code that shares words without a lock. The models in `tests/model.rs`
//! compile the same sources with the model checker's types instead, and try every interleaving.

pub use parking_lot::{Condvar, Mutex, RwLock};
pub use std::sync::atomic;
