//! State of a pool while it is open.

use crate::errors;
use client::{Client, Objects};
use parking_lot::RwLock;
use pyo3::PyResult;
use std::{path::PathBuf, process};
use vfs::Vfs;

/// Handle of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PoolSession {
    pub client: Client,
    pub objects: Objects,
    pub vfs: Vfs,
}

impl PoolSession {
    fn new(client: Client) -> Self {
        Self { objects: Objects::new(client.clone()), vfs: Vfs::new(client.clone()), client }
    }
}

/// A pool that was connected to or started, until it is closed.
#[derive(Debug)]
pub struct OpenPool {
    /// The pool file; `None` if the pool is in this process.
    pub file: Option<PathBuf>,
    /// The process that the pool is in and that may use it; `None` if the pool is in other
    /// processes.
    process: Option<u32>,
    session: RwLock<Option<PoolSession>>,
}

impl OpenPool {
    pub fn new(client: Client, file: Option<PathBuf>) -> Self {
        let process = file.is_none().then(process::id);
        Self { file, process, session: RwLock::new(Some(PoolSession::new(client))) }
    }

    /// The handle of the pool; raises `PoolClosed` if it was closed or is inside another process.
    pub fn session(&self) -> PyResult<PoolSession> {
        if self.belongs_to_other_process() {
            return Err(errors::other_process());
        }
        self.session.read().clone().ok_or_else(errors::closed)
    }

    /// Takes the handle to close the pool; `None` if it was closed before, or is another process's.
    pub fn take_session(&self) -> Option<PoolSession> {
        if self.belongs_to_other_process() { None } else { self.session.write().take() }
    }

    pub fn is_closed(&self) -> bool {
        self.belongs_to_other_process() || self.session.read().is_none()
    }

    fn belongs_to_other_process(&self) -> bool {
        self.process.is_some_and(|process| process != process::id())
    }
}
