//! An upload: an object whose bytes come piece by piece, and which is invisible until it is
//! complete.

use crate::{
    bridge::{Bridge, go},
    buffer::bytes_of,
    calls,
    errors::Failed,
    state::State,
};
use client::objects::{Condition, Upload as Pending};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::Arc;

/// An upload into a pool. If it is dropped unfinished, its bytes are freed when the pool is closed;
/// `abandon` frees them immediately.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Upload {
    state: Arc<State>,
    slot: Arc<Slot>,
}

/// State of an upload; empty while a call uses it.
pub struct Slot {
    path: Vec<u8>,
    condition: Condition,
    pending: Mutex<Option<Pending>>,
}

impl Slot {
    /// Takes the upload for one call, which returns it by [`Self::give_back`] or ends it.
    fn take(&self) -> PyResult<Pending> {
        let taken = self.pending.lock().take();
        taken.ok_or_else(|| PyValueError::new_err("it has ended, or another call is at it"))
    }

    pub fn give_back(&self, pending: Pending) {
        *self.pending.lock() = Some(pending);
    }

    /// The failure of a call on this upload.
    pub fn failed(&self, refusal: wire::Refusal) -> Failed {
        Failed { path: self.path.clone(), refusal: calls::refused(self.condition, refusal) }
    }
}

impl Upload {
    pub fn new(state: Arc<State>, (path, condition): (Vec<u8>, Condition), pending: Pending) -> Self {
        Self { state, slot: Arc::new(Slot { path, condition, pending: Mutex::new(Some(pending)) }) }
    }

    /// Takes the upload for one call, if the pool is open.
    fn take(&self) -> PyResult<(Arc<Slot>, Pending)> {
        self.state.way()?;
        Ok((self.slot.clone(), self.slot.take()?))
    }
}

type Via<'py> = Option<PyRef<'py, Bridge>>;

#[pymethods]
impl Upload {
    /// Appends bytes.
    #[pyo3(signature = (data, via = None))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let data = bytes_of(data)?;
        go(py, via, calls::add(self.take()?, data))
    }

    /// Completes the object and makes it visible; returns its version.
    #[pyo3(signature = (via = None))]
    fn finish(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        go(py, via, calls::finish(self.take()?))
    }

    /// Abandons the upload and frees its bytes.
    #[pyo3(signature = (via = None))]
    fn abandon(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        go(py, via, calls::abandon(self.take()?))
    }
}
