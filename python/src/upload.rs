//! An upload: an object whose bytes come piece by piece, and which is invisible until it is
//! complete.

use crate::{
    asyncio_loop::{PendingCallsArg, run_or_submit},
    buffer::pinned_bytes,
    errors::CallError,
    open_pool::OpenPool,
    operations,
};
use client::objects::{Condition, Upload as ObjectUpload};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::Arc;

/// An upload into a pool. If it is dropped unfinished, its bytes are freed when the pool is closed;
/// `abandon` frees them immediately.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Upload {
    pool: Arc<OpenPool>,
    state: Arc<UploadState>,
}

/// State of an upload; empty while a call uses it.
pub struct UploadState {
    path: Vec<u8>,
    condition: Condition,
    upload: Mutex<Option<ObjectUpload>>,
}

impl UploadState {
    /// Takes the upload for one call, which returns it by [`Self::release`] or ends it.
    fn acquire(&self) -> PyResult<ObjectUpload> {
        let upload = self.upload.lock().take();
        upload.ok_or_else(|| PyValueError::new_err("it has ended, or another call is at it"))
    }

    pub fn release(&self, upload: ObjectUpload) {
        *self.upload.lock() = Some(upload);
    }

    /// The failure of a call on this upload.
    pub fn error(&self, refusal: wire::Refusal) -> CallError {
        CallError { path: self.path.clone(), refusal: operations::changed_to_exists(self.condition, refusal) }
    }
}

impl Upload {
    pub fn new(pool: Arc<OpenPool>, (path, condition): (Vec<u8>, Condition), upload: ObjectUpload) -> Self {
        Self { pool, state: Arc::new(UploadState { path, condition, upload: Mutex::new(Some(upload)) }) }
    }

    /// Takes the upload for one call, if the pool is open.
    fn acquire(&self) -> PyResult<(Arc<UploadState>, ObjectUpload)> {
        self.pool.session()?;
        Ok((self.state.clone(), self.state.acquire()?))
    }
}

#[pymethods]
impl Upload {
    /// Appends bytes.
    #[pyo3(signature = (data, pending_calls = None))]
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let data = pinned_bytes(data)?;
        run_or_submit(py, pending_calls, operations::append(self.acquire()?, data))
    }

    /// Completes the object and makes it visible; returns its version.
    #[pyo3(signature = (pending_calls = None))]
    fn finish(&self, py: Python<'_>, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::finish(self.acquire()?))
    }

    /// Abandons the upload and frees its bytes.
    #[pyo3(signature = (pending_calls = None))]
    fn abandon(&self, py: Python<'_>, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::abandon(self.acquire()?))
    }
}
