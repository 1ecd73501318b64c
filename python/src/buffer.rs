//! Memory of Python objects, as bytes to be put and as room to read into: it touches raw memory.
#![allow(unsafe_code)] // what an object's buffer points to is known by its interpreter alone

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyTypeError},
    prelude::*,
};
use std::{mem, ptr, slice};

/// Less is copied: that is sooner done than to have the object keep it, and small files live as what was sent.
const BORROWED_MIN: usize = 32 << 10;

/// Memory that was given back where nobody may wait for the interpreter: in the middle of turning a connection. Released with the next call.
static GIVEN_BACK: Mutex<Vec<PyUntypedBuffer>> = Mutex::new(Vec::new());

/// Releases what was given back.
pub fn release(_: Python<'_>) {
    let given_back = mem::take(&mut *GIVEN_BACK.lock());
    drop(given_back); // not under the lock: the objects may do anything
}

/// Memory that an object keeps where it is; none only while this is dropped.
struct Lent(Option<PyUntypedBuffer>);

impl Lent {
    /// Takes hold of an object's memory, which must be in one piece.
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

/// Whether elements are addresses, by their format as of the `struct` module and `NumPy`, without the names of fields (`:name:`).
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
        // SAFETY: the buffer is contiguous (`of` asked) and the object neither frees nor moves it before it is released, which is when this is
        // dropped. That another thread of the program may write to it meanwhile is the program's affair, as with `write(2)`: what is put then
        // is some mixture, and nothing here takes two looks at a byte to be one.
        unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
    }
}

/// The bytes of an object. Long ones stay where they are: the object keeps them until the call that takes them has ended.
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

/// Room to read into.
pub struct Room {
    lent: Lent,
    at: *mut u8,
}

// SAFETY: the object keeps its memory for whoever has this, in whatever thread; only `fill` writes to it.
unsafe impl Send for Room {}
// SAFETY: as above; `fill` is called by the one call that this was made for.
unsafe impl Sync for Room {}

impl Room {
    /// Of an object that may be written to.
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

    /// Fills it in from its beginning, as far as it goes; how many bytes.
    pub fn fill(&self, pieces: &[Bytes]) -> usize {
        let mut filled = 0;
        for piece in pieces {
            let length = piece.len().min(self.len() - filled);
            // SAFETY: the room is contiguous, may be written to, and stays where it is until this is dropped; `filled + length` is within it.
            // A piece is the pool's memory, or was received: no object that may be written to shows it.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.at.add(filled), length) };
            filled += length;
        }
        filled
    }
}
