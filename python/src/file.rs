//! An open file: reads and writes at offsets. `tidemill/_files.py` makes Python's file objects of
//! it.

use crate::{
    bridge::{Bridge, go},
    buffer::{Room, bytes_of},
    calls,
    pool::Count,
    state::State,
};
use parking_lot::Mutex;
use placement::FileId;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::Arc;
use vfs::Handle;

/// An open file of a pool.
#[pyclass(frozen, module = "tidemill._native")]
pub struct File {
    state: Arc<State>,
    path: Arc<[u8]>,
    inode: FileId,
    /// `None` after the file was closed.
    handle: Mutex<Option<Handle>>,
}

type Via<'py> = Option<PyRef<'py, Bridge>>;

impl File {
    pub fn new(state: Arc<State>, path: Arc<[u8]>, (inode, handle): (FileId, Handle)) -> Self {
        Self { state, path, inode, handle: Mutex::new(Some(handle)) }
    }

    fn handle(&self) -> PyResult<Handle> {
        (*self.handle.lock()).ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

#[pymethods]
impl File {
    /// Reads bytes at an offset as a view; fewer only at the end.
    #[pyo3(signature = (offset, length, via = None))]
    fn read(&self, py: Python<'_>, offset: Count, length: Count, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let length = u32::try_from(length.0).unwrap_or(u32::MAX);
        go(py, via, calls::read(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, length)))
    }

    /// Reads bytes at an offset into a writable object; returns the bytes read.
    fn read_into(&self, py: Python<'_>, offset: Count, room: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let room = Room::of(room)?;
        go(py, None, calls::read_into(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, room)))
    }

    /// Writes at an offset, or at the end if the file is open for appending; returns the bytes
    /// written.
    #[pyo3(signature = (offset, data, via = None))]
    fn write(&self, py: Python<'_>, offset: Count, data: &Bound<'_, PyAny>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let data = bytes_of(data)?;
        go(py, via, calls::write(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, data)))
    }

    /// The length of the file in bytes.
    #[pyo3(signature = (via = None))]
    fn size(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        go(py, via, calls::size(self.state.way()?, self.inode, self.path.clone(), None))
    }

    /// Sets the length of the file; it is extended by zeros.
    #[pyo3(signature = (size, via = None))]
    fn truncate(&self, py: Python<'_>, size: Count, via: Via<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        go(py, via, calls::size(self.state.way()?, self.inode, self.path.clone(), Some(size.0)))
    }

    /// Closes the file; a second call does nothing.
    #[pyo3(signature = (via = None))]
    fn close(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let handle = self.handle.lock().take();
        // Closing a pool closes all of its files.
        match (handle, self.state.way()) {
            (Some(handle), Ok(way)) => go(py, via, calls::close(way, handle, self.path.clone())),
            _ => go(py, via, async { Ok(crate::done::Done::Nothing) }),
        }
    }
}
