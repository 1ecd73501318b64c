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
const PIN_BYTES_MIN: usize = 32 << 10;

/// Buffers dropped where nothing may wait for the interpreter lock: while a connection is driven.
/// The next call releases them.
static RELEASE_QUEUE: Mutex<Vec<PyUntypedBuffer>> = Mutex::new(Vec::new());

/// Releases the buffers in `RELEASE_QUEUE`.
pub fn release_dropped(_: Python<'_>) {
    let dropped = mem::take(&mut *RELEASE_QUEUE.lock());
    drop(dropped); // not under the lock: releasing may run any code of the objects
}

/// Buffer of a Python object, pinned in memory; `None` only while this is dropped.
struct PinnedBuffer(Option<PyUntypedBuffer>);

impl PinnedBuffer {
    /// Pins an object's memory, which must be contiguous.
    fn pin(object: &Bound<'_, PyAny>) -> PyResult<Self> {
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

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        RELEASE_QUEUE.lock().extend(self.0.take());
    }
}

impl AsRef<[u8]> for PinnedBuffer {
    fn as_ref(&self) -> &[u8] {
        let Some(buffer) = self.0.as_ref().filter(|buffer| buffer.len_bytes() > 0) else { return &[] };
        // SAFETY: the buffer is contiguous (checked by `pin`), and the object neither frees nor
        // moves it before it is released, which happens only after `self` is dropped. Another
        // thread of the program may write to it meanwhile, as with `write(2)`: a mixture is put
        // then, and no code here relies on reading the same value of a byte twice.
        unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
    }
}

/// The bytes of an object. Long ones are not copied: the object stays pinned until the call that
/// takes them has ended.
pub fn pinned_bytes(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let pinned = PinnedBuffer::pin(object)?;
    if pinned.as_ref().len() >= PIN_BYTES_MIN {
        return Ok(Bytes::from_owner(pinned));
    }
    let copied = Bytes::copy_from_slice(pinned.as_ref());
    drop(pinned);
    release_dropped(object.py());
    Ok(copied)
}

/// A writable buffer to read into.
pub struct OutBuffer {
    pinned: PinnedBuffer,
    start: *mut u8,
}

// SAFETY: the object keeps its memory for the owner of this value, in any thread; only `fill`
// writes to it.
unsafe impl Send for OutBuffer {}
// SAFETY: as above; `fill` is called only by the one call that this value was made for.
unsafe impl Sync for OutBuffer {}

impl OutBuffer {
    /// Pins the memory of an object, which must be writable.
    pub fn pin(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let pinned = PinnedBuffer::pin(object)?;
        match pinned.0.as_ref().filter(|buffer| !buffer.readonly()) {
            Some(buffer) => Ok(Self { start: buffer.buf_ptr().cast(), pinned }),
            None => Err(PyBufferError::new_err("it cannot be written to")),
        }
    }

    pub fn len(&self) -> usize {
        self.pinned.as_ref().len()
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
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.start.add(filled), length) };
            filled += length;
        }
        filled
    }
}
