//! Memory of Python objects, as bytes to put and as buffers to read into. Uses unsafe code.
#![allow(unsafe_code)] // only the interpreter knows what an object's buffer points to

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyTypeError},
    prelude::*,
};
use std::{mem, ptr, slice};

/// Shorter buffers are copied: this is faster than to pin the object, and the pool may store a
/// small file in the very bytes that were sent.
const BORROWED_MIN: usize = 32 << 10;

/// Buffers dropped where nothing may wait for the interpreter lock: while a connection is driven.
/// The next call releases them.
static GIVEN_BACK: Mutex<Vec<PyUntypedBuffer>> = Mutex::new(Vec::new());

/// Releases the buffers in `GIVEN_BACK`.
pub fn release(_: Python<'_>) {
    let given_back = mem::take(&mut *GIVEN_BACK.lock());
    drop(given_back); // not under the lock: releasing may run any code of the objects
}

/// Buffer of a Python object, pinned in memory; `None` only while this is dropped.
struct Lent(Option<PyUntypedBuffer>);

impl Lent {
    /// Pins an object's memory, which must be contiguous.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.format().to_bytes().split(|byte| *byte == b':').step_by(2).any(has_references) {
            return Err(PyTypeError::new_err(
                "its memory has references to Python objects, or pointers, which mean nothing elsewhere: pickle it, or give its elements another type",
            ));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "its bytes do not lie one after the other; give a copy that does, as numpy.ascontiguousarray makes one",
            ));
        }
        Ok(Self(Some(buffer)))
    }
}

/// Returns whether elements are pointers. `format` is that of the `struct` module and `NumPy`,
/// without names of fields (`:name:`).
fn has_references(format: &[u8]) -> bool {
    format.iter().any(|code| matches!(code, b'O' | b'P' | b'z' | b'&' | b'X'))
}

impl Drop for Lent {
    fn drop(&mut self) {
        GIVEN_BACK.lock().extend(self.0.take());
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let Some(buffer) = self.0.as_ref().filter(|buffer| buffer.len_bytes() > 0) else { return &[] };
        // SAFETY: the buffer is contiguous (checked by `of`), and the object neither frees nor
        // moves it before it is released, which happens only after `self` is dropped. Another
        // thread of the program may write to it meanwhile, as with `write(2)`: a mixture is put
        // then, and no code here relies on reading the same value of a byte twice.
        unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
    }
}

/// The bytes of an object. Long ones are not copied: the object stays pinned until the call that
/// takes them has ended.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let lent = Lent::of(object)?;
    if lent.as_ref().len() >= BORROWED_MIN {
        return Ok(Bytes::from_owner(lent));
    }
    let copied = Bytes::copy_from_slice(lent.as_ref());
    drop(lent);
    release(object.py());
    Ok(copied)
}

/// A writable buffer to read into.
pub struct Room {
    lent: Lent,
    at: *mut u8,
}

// SAFETY: the object keeps its memory for the owner of this value, in any thread; only `fill`
// writes to it.
unsafe impl Send for Room {}
// SAFETY: as above; `fill` is called only by the one call that this value was made for.
unsafe impl Sync for Room {}

impl Room {
    /// Pins the memory of an object, which must be writable.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Lent::of(object)?;
        match lent.0.as_ref().filter(|buffer| !buffer.readonly()) {
            Some(buffer) => Ok(Self { at: buffer.buf_ptr().cast(), lent }),
            None => Err(PyBufferError::new_err("it cannot be written to")),
        }
    }

    pub fn len(&self) -> usize {
        self.lent.as_ref().len()
    }

    /// Copies the pieces to the beginning of the buffer, as far as they fit; returns the bytes
    /// copied.
    pub fn fill(&self, pieces: &[Bytes]) -> usize {
        let mut filled = 0;
        for piece in pieces {
            let length = piece.len().min(self.len() - filled);
            // SAFETY: the buffer is contiguous, writable, and stays in place until this is dropped;
            // `filled + length` is within it. A piece is memory of the pool or was received over a
            // socket, so it does not overlap with a writable object.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.at.add(filled), length) };
            filled += length;
        }
        filled
    }
}
