//! State of a pool while it is open.

use crate::errors;
use client::{Client, Objects};
use parking_lot::RwLock;
use pyo3::PyResult;
use std::{path::PathBuf, process};
use vfs::Vfs;

/// Handle of a pool. Cheap to clone.
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
    /// The pool file; `None` if the pool is in this process.
    pub file: Option<PathBuf>,
    /// The process that the pool is in and that may use it; `None` if the pool is in other
    /// processes.
    process: Option<u32>,
    way: RwLock<Option<Way>>,
}

impl State {
    pub fn new(client: Client, file: Option<PathBuf>) -> Self {
        let process = file.is_none().then(process::id);
        Self { file, process, way: RwLock::new(Some(Way::new(client))) }
    }

    /// The handle of the pool; raises `PoolClosed` if it was closed or is inside another process.
    pub fn way(&self) -> PyResult<Way> {
        if self.is_of_another() {
            return Err(errors::of_another_process());
        }
        self.way.read().clone().ok_or_else(errors::closed)
    }

    /// Takes the handle to close the pool; `None` if it was closed before, or is another process's.
    pub fn end(&self) -> Option<Way> {
        if self.is_of_another() { None } else { self.way.write().take() }
    }

    pub fn is_closed(&self) -> bool {
        self.is_of_another() || self.way.read().is_none()
    }

    fn is_of_another(&self) -> bool {
        self.process.is_some_and(|process| process != process::id())
    }
}
