//! Memory of Python objects, as bytes to be put and as room to read into: it touches raw memory.
#![allow(unsafe_code)] // what an object's buffer points to is known by its interpreter alone

use bytes::Bytes;
use pyo3::{buffer::PyUntypedBuffer, exceptions::PyBufferError, prelude::*};
use std::{ptr, slice};

/// Less is copied: that is sooner done than to have the object keep it, and small files live as what was sent.
const BORROWED_MIN: usize = 32 << 10;

/// Memory that an object keeps where it is.
struct Lent(PyUntypedBuffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous (`take` asked) and the object neither frees nor moves it before it is released, which is when this is
        // dropped. That another thread of the program may write to it meanwhile is the program's affair, as with `write(2)`: what is put then
        // is some mixture, and nothing here takes two looks at a byte to be one.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), length) }
    }
}

/// Takes hold of an object's memory, which must be in one piece.
fn take(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err(
            "its bytes do not lie one after the other; give a copy that does, as numpy.ascontiguousarray makes one",
        ));
    }
    Ok(buffer)
}

/// The bytes of an object. Long ones stay where they are: the object keeps them until the call that takes them has ended.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let lent = Lent(take(object)?);
    if lent.0.len_bytes() < BORROWED_MIN {
        return Ok(Bytes::copy_from_slice(lent.as_ref()));
    }
    Ok(Bytes::from_owner(lent))
}

/// Room to read into.
pub struct Room(PyUntypedBuffer);

impl Room {
    /// Of an object that may be written to.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = take(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("it cannot be written to"));
        }
        Ok(Self(buffer))
    }

    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Fills it in from its beginning, as far as it goes; how many bytes.
    pub fn fill(&self, pieces: &[Bytes]) -> usize {
        let mut filled = 0;
        for piece in pieces {
            let length = piece.len().min(self.len() - filled);
            // SAFETY: the room is contiguous, may be written to, and stays where it is until this is dropped; `filled + length` is within it.
            // A piece is the pool's memory, or was received: no object that may be written to shows it.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.0.buf_ptr().cast::<u8>().add(filled), length) };
            filled += length;
        }
        filled
    }
}
