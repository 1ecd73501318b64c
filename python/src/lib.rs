//! Layer 5: the native part of the Python package: calls of a pool, views of its memory.
//!
//! ```text
//!   tidemill/_pool.py   what users see: names, types, what is told of errors
//!        |
//!   Pool, File -> calls (one future for each verb) -> driver: waited for by this thread, or begun for a loop of asyncio
//!                                                \-> Done -> Python: View, tuples of plain values
//! ```
//!
//! Invariants:
//! - Nobody waits, and nothing long is copied, with the interpreter's lock.
//! - What a view shows stays as it is as long as the view, or an array over it, is there; also after its pool was closed.
//! - A call on a pool that was closed, or started inside the process that this one was forked from, raises. A forked child goes on in pools of
//!   other processes with connections and a session of its own.
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

/// What `tidemill` is made of; not for others.
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
