//! Locks and atomic words of what is shared without a lock around it. The models in `tests/model.rs` compile the same sources with
//! the model checker's own in their place, and try every order of steps.

pub use parking_lot::{Condvar, Mutex, RwLock};
pub use std::sync::atomic;
