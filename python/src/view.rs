//! Bytes of the pool as a Python object: one of the three files of this crate that touch raw memory.
#![allow(unsafe_code)] // the buffer protocol is C's

use bytes::Bytes;
use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    types::{PyBytes, PyMemoryView, PyType},
};
use std::ffi::c_int;
use wire::Head;

/// Bytes of the pool, read only. Whatever looks at it through the buffer protocol (`memoryview`, `NumPy`) sees the pool's memory itself, and keeps
/// it as it is for as long as it looks.
#[pyclass(frozen, module = "tidemill")]
pub struct View {
    bytes: Bytes,
    /// The object that they are of; none for those of an open file.
    head: Option<Head>,
    /// They lay in several pieces, and were copied into one: they are few, or of another host.
    copied: bool,
}

impl View {
    pub fn new(bytes: Bytes, head: Option<Head>, copied: bool) -> Self {
        Self { bytes, head, copied }
    }
}

#[pymethods]
impl View {
    /// Whether the bytes lay in several pieces of the pool and were copied into one; else they are the pool's memory itself, mapped side by side
    /// where there are several.
    #[getter]
    fn copied(&self) -> bool {
        self.copied
    }

    /// The version of the object that these are bytes of; None for bytes of an open file.
    #[getter]
    fn version(&self) -> Option<String> {
        self.head.map(|head| head.version.to_string())
    }

    /// How long it is, bytes: what memoryview and `NumPy` call nbytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes as an object of their own: a copy.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// The bytes as a `NumPy` array that cannot be written to, of any dtype and shape; none of them is copied, and the array keeps this view.
    ///
    /// Without a shape it has one dimension. Raises `ValueError` where the bytes are not so many.
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

    /// Elsewhere it is `bytes`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (Bound<'py, PyBytes>,)) {
        (py.get_type::<PyBytes>(), (self.tobytes(py),))
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to fill in"));
        }
        let bytes = &slf.get().bytes;
        let length = ffi::Py_ssize_t::try_from(bytes.len())?;
        // SAFETY: `view` is the interpreter's to be filled in, and not null. The bytes are `slf`'s, which is frozen and is kept by the buffer
        // that is filled in: they stay where and as they are until that is released. It says that nobody may write to them.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
