//! Layer 11: the native part of the Python package: calls of a pool, views of its memory.
//!
//! ```text
//!   tidemill/_pool.py   the public interface: names, types, documentation of errors
//!        |
//!   Pool, File -> operations (one future each) -> reactor: this thread waits for it, or
//!                     |                           asyncio_loop: it is pending in a loop
//!                     \-> CallResult -> Python: View, tuples of plain values
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

mod asyncio_loop;
mod buffer;
mod contiguous_map;
mod errors;
mod file;
mod open_pool;
mod operations;
mod pool;
mod reactor;
mod results;
mod upload;
mod view;

use pyo3::prelude::*;

/// Native parts of `tidemill`; not public.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        asyncio_loop::PendingCalls,
        file::File,
        pool::{Pool, connect, start, usual_pool},
        reactor::{after_fork, before_fork},
        upload::Upload,
        view::View,
    };
}
