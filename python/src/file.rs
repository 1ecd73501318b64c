//! An open file: reads and writes at offsets. `tidemill/_files.py` makes Python's file objects of
//! it.

use crate::{
    asyncio_loop::{PendingCallsArg, run_or_submit},
    buffer::{OutBuffer, pinned_bytes},
    open_pool::OpenPool,
    operations,
    pool::Count,
};
use parking_lot::Mutex;
use placement::FileId;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::Arc;
use vfs::Handle;

/// An open file of a pool.
#[pyclass(frozen, module = "tidemill._native")]
pub struct File {
    pool: Arc<OpenPool>,
    path: Arc<[u8]>,
    inode: FileId,
    /// `None` after the file was closed.
    handle: Mutex<Option<Handle>>,
}

impl File {
    pub fn new(pool: Arc<OpenPool>, path: Arc<[u8]>, (inode, handle): (FileId, Handle)) -> Self {
        Self { pool, path, inode, handle: Mutex::new(Some(handle)) }
    }

    fn handle(&self) -> PyResult<Handle> {
        (*self.handle.lock()).ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

#[pymethods]
impl File {
    /// Reads bytes at an offset as a view; fewer only at the end.
    #[pyo3(signature = (offset, length, pending_calls = None))]
    fn read(
        &self,
        py: Python<'_>,
        offset: Count,
        length: Count,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let length = u32::try_from(length.0).unwrap_or(u32::MAX);
        run_or_submit(
            py,
            pending_calls,
            operations::read(self.pool.session()?, self.handle()?, self.path.clone(), (offset.0, length)),
        )
    }

    /// Reads bytes at an offset into a writable object; returns the bytes read.
    fn read_into(&self, py: Python<'_>, offset: Count, buffer: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let buffer = OutBuffer::pin(buffer)?;
        run_or_submit(
            py,
            None,
            operations::read_into(self.pool.session()?, self.handle()?, self.path.clone(), (offset.0, buffer)),
        )
    }

    /// Writes at an offset, or at the end if the file is open for appending; returns the bytes
    /// written.
    #[pyo3(signature = (offset, data, pending_calls = None))]
    fn write(
        &self,
        py: Python<'_>,
        offset: Count,
        data: &Bound<'_, PyAny>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let data = pinned_bytes(data)?;
        run_or_submit(
            py,
            pending_calls,
            operations::write(self.pool.session()?, self.handle()?, self.path.clone(), (offset.0, data)),
        )
    }

    /// The length of the file in bytes.
    #[pyo3(signature = (pending_calls = None))]
    fn size(&self, py: Python<'_>, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        run_or_submit(py, pending_calls, operations::size(self.pool.session()?, self.inode, self.path.clone(), None))
    }

    /// Sets the length of the file; it is extended by zeros.
    #[pyo3(signature = (size, pending_calls = None))]
    fn truncate(&self, py: Python<'_>, size: Count, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        run_or_submit(
            py,
            pending_calls,
            operations::size(self.pool.session()?, self.inode, self.path.clone(), Some(size.0)),
        )
    }

    /// Closes the file; a second call does nothing.
    #[pyo3(signature = (pending_calls = None))]
    fn close(&self, py: Python<'_>, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        let handle = self.handle.lock().take();
        // Closing a pool closes all of its files.
        match (handle, self.pool.session()) {
            (Some(handle), Ok(session)) => {
                run_or_submit(py, pending_calls, operations::close(session, handle, self.path.clone()))
            }
            _ => run_or_submit(py, pending_calls, async { Ok(crate::results::CallResult::Unit) }),
        }
    }
}
