//! Payload buffers. Long ones are reused: fresh memory costs one page fault for each page, which
//! takes as long as copying the page.

use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};
use store::RecvBuffer;

/// Minimum length of a reused buffer, bytes. The allocator reuses shorter ones by itself.
const LONG_BYTES: usize = 64 << 10;
/// Maximum length of all idle buffers, bytes: the payloads that a few connections have in flight.
const IDLE_BYTES_MAX: usize = 32 << 20;

static IDLE_BUFFERS: Mutex<IdleBuffers> = Mutex::new(IdleBuffers { free: Vec::new(), bytes: 0 });

struct IdleBuffers {
    free: Vec<BytesMut>,
    /// Total capacity of the idle buffers.
    bytes: usize,
}

/// A payload that is being received.
#[derive(Debug)]
pub enum IncomingPayload {
    /// Into memory of its own, with the full capacity.
    Owned(BytesMut),
    /// Into a receive buffer of the engine; with the number of bytes received so far.
    InEngine(Box<dyn RecvBuffer>, usize),
}

impl IncomingPayload {
    /// Appends payload bytes that were read together with other bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Owned(payload) => payload.extend_from_slice(bytes),
            Self::InEngine(landing, received) => {
                landing.bytes_mut()[*received..][..bytes.len()].copy_from_slice(bytes);
                *received += bytes.len();
            }
        }
    }

    /// Returns the number of bytes received so far.
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(payload) => payload.len(),
            Self::InEngine(_, received) => *received,
        }
    }

    /// Returns the payload, which must be complete.
    pub fn finish(self) -> Bytes {
        match self {
            Self::Owned(payload) => freeze(payload),
            Self::InEngine(landing, _) => landing.freeze(),
        }
    }
}

/// Returns an empty buffer with at least this capacity.
pub fn allocate(bytes: usize) -> BytesMut {
    if bytes < LONG_BYTES {
        return BytesMut::with_capacity(bytes);
    }
    let fits = |free: &BytesMut| (bytes..=bytes.saturating_mul(2)).contains(&free.capacity());
    let mut idle = IDLE_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    // Take the most recently used one: it is in the processor's cache.
    let Some(at) = idle.free.iter().rposition(fits) else {
        drop(idle);
        return BytesMut::with_capacity(bytes);
    };
    let room = idle.free.remove(at);
    idle.bytes -= room.capacity();
    room
}

/// Freezes a buffer; its memory is reused when the last view of it is dropped.
fn freeze(bytes: BytesMut) -> Bytes {
    if bytes.len() < LONG_BYTES { bytes.freeze() } else { Bytes::from_owner(PooledBuffer(bytes)) }
}

/// A long payload that is in use. Returns its memory when it is dropped.
struct PooledBuffer(BytesMut);

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut free = std::mem::take(&mut self.0);
        free.clear();
        let mut idle = IDLE_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + free.capacity() <= IDLE_BYTES_MAX {
            idle.bytes += free.capacity();
            idle.free.push(free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_long_payload_is_used_again_once_nobody_looks_at_it() {
        // A length that no other test uses.
        let long = || {
            let mut room = allocate((3 << 20) + 1);
            room.resize((3 << 20) + 1, 7);
            freeze(room)
        };
        let first = long();
        let (place, part) = (first.as_ptr(), first.slice(9..10));
        drop(first);
        assert_ne!(long().as_ptr(), place, "a part of it is looked at");
        assert_eq!(part, b"\x07"[..]);
        drop(part);
        assert_eq!(long().as_ptr(), place);
    }
}
