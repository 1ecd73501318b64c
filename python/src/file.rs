//! An open file: reads and writes at offsets. What Python's file objects add to that is `tidemill/_files.py`.

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
    /// None once it is closed.
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
    /// Bytes at an offset as a view; fewer only at the end.
    #[pyo3(signature = (offset, length, via = None))]
    fn read(&self, py: Python<'_>, offset: Count, length: Count, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let length = u32::try_from(length.0).unwrap_or(u32::MAX);
        go(py, via, calls::read(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, length)))
    }

    /// The same into an object that may be written to: how many bytes.
    fn read_into(&self, py: Python<'_>, offset: Count, room: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let room = Room::of(room)?;
        go(py, None, calls::read_into(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, room)))
    }

    /// Writes at an offset, or at the end if it was opened so: how many bytes.
    #[pyo3(signature = (offset, data, via = None))]
    fn write(&self, py: Python<'_>, offset: Count, data: &Bound<'_, PyAny>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let data = bytes_of(data)?;
        go(py, via, calls::write(self.state.way()?, self.handle()?, self.path.clone(), (offset.0, data)))
    }

    /// How long it is, bytes.
    #[pyo3(signature = (via = None))]
    fn size(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        go(py, via, calls::size(self.state.way()?, self.inode, self.path.clone(), None))
    }

    /// Cuts it, or makes it longer by zeros.
    #[pyo3(signature = (size, via = None))]
    fn truncate(&self, py: Python<'_>, size: Count, via: Via<'_>) -> PyResult<Py<PyAny>> {
        self.handle()?;
        go(py, via, calls::size(self.state.way()?, self.inode, self.path.clone(), Some(size.0)))
    }

    /// Closes it; a second time does nothing.
    #[pyo3(signature = (via = None))]
    fn close(&self, py: Python<'_>, via: Via<'_>) -> PyResult<Py<PyAny>> {
        let handle = self.handle.lock().take();
        // With its pool every file of it is closed.
        match (handle, self.state.way()) {
            (Some(handle), Ok(way)) => go(py, via, calls::close(way, handle, self.path.clone())),
            _ => go(py, via, async { Ok(crate::done::Done::Nothing) }),
        }
    }
}
