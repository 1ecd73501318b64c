//! Request buffers. The data of a write can be kept beyond the request without a copy; its buffer
//! is reused after the data is dropped.
//!
//! Buffers are reused because a fresh buffer costs more than a copy: the first touch of its pages
//! runs at a tenth of the speed of memcpy.

use std::{fmt, ops::Deref, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::abi::{BESIDE_WRITE, BUFFER_MIN};

/// Offset of the data of a WRITE: the length of its two headers.
const WRITE_DATA: usize = 80;
/// Alignment of write data; page-aligned data is copied faster.
const PAGE: usize = 4096;
/// Minimum length to keep data without a copy. Shorter data is copied, so that it does not hold a
/// buffer for a whole request.
const RETAIN_BYTES_MIN: usize = 256 << 10;
/// Maximum number of kept buffers per thread that are reused. More are in use only while writers
/// wait for space.
const RETAINED_MAX: usize = 8;

/// A buffer for one request, allocated once; its pages are touched when first needed.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// Creates a buffer for requests of up to `request_bytes` bytes of data.
    pub(crate) fn new(request_bytes: usize) -> Self {
        let length = (request_bytes + BESIDE_WRITE).max(BUFFER_MIN);
        let bytes = vec![0; length + PAGE];
        let start = (bytes.as_ptr().addr() + WRITE_DATA).next_multiple_of(PAGE) - WRITE_DATA - bytes.as_ptr().addr();
        Self { bytes, start, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// The buffers of one thread.
pub(crate) struct BufferPool {
    request_bytes: usize,
    /// The buffer of the current request.
    current: Arc<Buffer>,
    /// Buffers of requests whose data was kept, and may still be.
    retained: Vec<Arc<Buffer>>,
}

impl BufferPool {
    /// Creates buffers for requests of up to `request_bytes` bytes of data.
    pub(crate) fn new(request_bytes: usize) -> Self {
        Self { request_bytes, current: Arc::new(Buffer::new(request_bytes)), retained: Vec::new() }
    }

    /// The buffer of the current request.
    pub(crate) fn current(&self) -> &Arc<Buffer> {
        &self.current
    }

    /// Makes a buffer without kept data the current one, for the next request.
    pub(crate) fn next(&mut self) -> &mut Buffer {
        if Arc::get_mut(&mut self.current).is_none() {
            let free = self.retained.iter_mut().position(|retained| Arc::get_mut(retained).is_some());
            let next = free.map(|at| self.retained.swap_remove(at));
            let next = next.unwrap_or_else(|| Arc::new(Buffer::new(self.request_bytes)));
            let retained = std::mem::replace(&mut self.current, next);
            if self.retained.len() < RETAINED_MAX {
                self.retained.push(retained);
            }
        }
        Arc::get_mut(&mut self.current).expect("the current buffer has no other owner")
    }
}

/// The data of a write: a slice of the request's buffer.
#[derive(Clone, Copy)]
pub struct WriteData<'a> {
    bytes: &'a [u8],
    buffer: Option<&'a Arc<Buffer>>,
}

impl<'a> WriteData<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, buffer: None }
    }

    /// Sets the buffer that holds the data.
    pub(crate) fn with_buffer(self, buffer: &'a Arc<Buffer>) -> Self {
        Self { buffer: Some(buffer), ..self }
    }

    /// Returns the data for use beyond the request. Long data is not copied; its buffer is not
    /// reused until the data is dropped.
    pub fn to_bytes(&self) -> Bytes {
        match self.buffer {
            Some(buffer) if self.bytes.len() >= RETAIN_BYTES_MIN => {
                let start = self.bytes.as_ptr().addr() - buffer.bytes.as_ptr().addr();
                Bytes::from_owner(RetainedBuffer { buffer: Arc::clone(buffer), range: start..start + self.bytes.len() })
            }
            _ => Bytes::copy_from_slice(self.bytes),
        }
    }
}

impl Deref for WriteData<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for WriteData<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(out)
    }
}

struct RetainedBuffer {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl AsRef<[u8]> for RetainedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = RETAIN_BYTES_MIN;

    /// Keeps `length` bytes of data of `value` from a request.
    fn retain(buffers: &mut BufferPool, value: u8, length: usize) -> Bytes {
        buffers.next().bytes_mut()[WRITE_DATA..WRITE_DATA + length].fill(value);
        let buffer = buffers.current();
        WriteData::new(&buffer.bytes()[WRITE_DATA..WRITE_DATA + length]).with_buffer(buffer).to_bytes()
    }

    #[test]
    fn memory_is_used_again_only_after_its_last_view_is_gone() {
        let mut buffers = BufferPool::new(LONG);
        let first = retain(&mut buffers, 1, LONG);
        let (view, address) = (first.slice(5..10), first.as_ptr());
        drop(first);
        let second = retain(&mut buffers, 2, LONG);
        assert_ne!(second.as_ptr(), address);
        assert_eq!(&view[..], [1; 5]);
        drop(view);
        let third = retain(&mut buffers, 3, LONG);
        assert_eq!(third.as_ptr(), address);
        assert!(second.iter().all(|byte| *byte == 2) && third.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn what_nobody_keeps_costs_no_second_buffer() {
        let mut buffers = BufferPool::new(LONG);
        let first = retain(&mut buffers, 1, LONG).as_ptr();
        assert_eq!(retain(&mut buffers, 2, LONG).as_ptr(), first);
        assert!(buffers.retained.is_empty());
    }

    #[test]
    fn short_writes_hold_no_memory_of_a_whole_request() {
        let mut buffers = BufferPool::new(LONG);
        let short = retain(&mut buffers, 1, LONG - 1);
        buffers.next().bytes_mut().fill(2);
        assert!(buffers.retained.is_empty() && short.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn what_waits_for_long_is_not_remembered_without_bound() {
        let mut buffers = BufferPool::new(LONG);
        let waiting: Vec<Bytes> = (0..3 * RETAINED_MAX).map(|_| retain(&mut buffers, 7, LONG)).collect();
        buffers.next();
        assert_eq!(buffers.retained.len(), RETAINED_MAX);
        assert!(waiting.iter().all(|bytes| bytes.iter().all(|byte| *byte == 7)));
    }
}
