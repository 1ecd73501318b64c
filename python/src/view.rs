//! Bytes of the pool as a Python object: one of the three files of this crate with unsafe code.
#![allow(unsafe_code)] // the buffer protocol is C's

use bytes::Bytes;
use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    types::{PyBytes, PyMemoryView, PyType},
};
use std::ffi::c_int;
use wire::ObjectMeta;

/// Bytes of the pool, read only. Users of the buffer protocol (`memoryview`, `NumPy`) see the
/// pool's memory itself, which does not change as long as they use it.
#[pyclass(frozen, module = "tidemill")]
pub struct View {
    bytes: Bytes,
    /// The object that the bytes belong to; `None` for bytes of an open file.
    head: Option<ObjectMeta>,
    /// True if the bytes lay in several pieces and were copied into one, because they are few or on
    /// another host.
    copied: bool,
}

impl View {
    pub fn new(bytes: Bytes, head: Option<ObjectMeta>, copied: bool) -> Self {
        Self { bytes, head, copied }
    }
}

#[pymethods]
impl View {
    /// True if the bytes lay in several pieces of the pool and were copied into one; otherwise they
    /// are the pool's memory itself, with several pieces mapped side by side.
    #[getter]
    fn copied(&self) -> bool {
        self.copied
    }

    /// The version of the object that the bytes belong to; None for bytes of an open file.
    #[getter]
    fn version(&self) -> Option<String> {
        self.head.map(|head| head.version.to_string())
    }

    /// Length in bytes: what memoryview and `NumPy` call nbytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes as a separate `bytes` object: a copy.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// The bytes as a read-only `NumPy` array of any dtype and shape, without a copy; the array
    /// keeps this view alive.
    ///
    /// Without a shape it has one dimension. Raises `ValueError` if the number of bytes does not
    /// fit.
    #[pyo3(signature = (dtype = None, shape = None))]
    fn numpy<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        shape: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numpy = slf.py().import("numpy")?;
        let dtype = dtype.map_or_else(|| numpy.getattr("uint8"), Ok)?;
        let array = numpy.call_method1("frombuffer", (slf, dtype))?;
        match shape {
            None => Ok(array),
            Some(shape) => array.call_method1("reshape", (shape,)),
        }
    }

    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.tobytes(py)
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf.as_any())?.get_item(key)
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        PyMemoryView::from(slf.as_any())?.eq(other)
    }

    fn __repr__(&self) -> String {
        let of = self.head.map_or_else(String::new, |head| format!(" of version {}", head.version));
        let copied = if self.copied { ", copied" } else { "" };
        format!("<tidemill.View: {} bytes{of}{copied}>", self.bytes.len())
    }

    /// A pickled view is loaded as `bytes`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (Bound<'py, PyBytes>,)) {
        (py.get_type::<PyBytes>(), (self.tobytes(py),))
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to fill in"));
        }
        let bytes = &slf.get().bytes;
        let length = ffi::Py_ssize_t::try_from(bytes.len())?;
        // SAFETY: `view` is not null, and the interpreter passes it to be filled in. The bytes
        // belong to `slf`, which is frozen and kept alive by the buffer that is filled in: they
        // neither move nor change until it is released. The buffer is marked read-only.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
