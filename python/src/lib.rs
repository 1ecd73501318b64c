//! Layer 5: the native part of the Python package: calls of a pool, views of its memory.
//!
//! ```text
//!   tidemill/_pool.py   the public interface: names, types, documentation of errors
//!        |
//!   Pool, File -> calls (one future per operation) -> driver: this thread waits for it,
//!                     |                               or it is pending in an asyncio loop
//!                     \-> Done -> Python: View, tuples of plain values
//! ```
//!
//! Invariants:
//! - No call waits, or copies much data, while it holds the interpreter lock.
//! - The bytes of a view do not change as long as the view, or an array over it, exists; also after
//!   its pool was closed.
//! - A call on a pool that was closed, or that runs inside the process that this one was forked
//!   from, raises. A forked child goes on using pools of other processes, with its own connections
//!   and session.
#![deny(unsafe_code)]

mod bridge;
mod buffer;
mod calls;
mod done;
mod driver;
mod errors;
mod file;
mod pool;
mod state;
mod stitch;
mod upload;
mod view;

use pyo3::prelude::*;

/// Native parts of `tidemill`; not public.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        bridge::Bridge,
        driver::{after_fork, before_fork},
        file::File,
        pool::{Pool, connect, start, usual_pool},
        upload::Upload,
        view::View,
    };
}
