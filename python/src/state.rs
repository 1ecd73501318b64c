//! A pool as long as it is open.

use crate::errors;
use client::{Client, Objects};
use parking_lot::RwLock;
use pyo3::PyResult;
use std::{path::PathBuf, process};
use vfs::Vfs;

/// The way into a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Way {
    pub client: Client,
    pub objects: Objects,
    pub vfs: Vfs,
}

impl Way {
    fn new(client: Client) -> Self {
        Self { objects: Objects::new(client.clone()), vfs: Vfs::new(client.clone()), client }
    }
}

/// A pool that was connected to or started, until it is closed.
#[derive(Debug)]
pub struct State {
    /// The pool file; none where the pool is in this process.
    pub file: Option<PathBuf>,
    /// The process that may use it: threads that carry connections, and memory, are not there in one that is forked from it.
    process: u32,
    way: RwLock<Option<Way>>,
}

impl State {
    pub fn new(client: Client, file: Option<PathBuf>) -> Self {
        Self { file, process: process::id(), way: RwLock::new(Some(Way::new(client))) }
    }

    /// The way in; raises `PoolClosed` where there is none any more.
    pub fn way(&self) -> PyResult<Way> {
        if self.process != process::id() {
            return Err(errors::of_another_process());
        }
        self.way.read().clone().ok_or_else(errors::closed)
    }

    /// The way in for the last time; none when it was closed before, or is another process's to close.
    pub fn end(&self) -> Option<Way> {
        if self.process == process::id() { self.way.write().take() } else { None }
    }

    pub fn is_closed(&self) -> bool {
        self.process != process::id() || self.way.read().is_none()
    }
}
