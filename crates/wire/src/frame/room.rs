//! Payload buffers. Long ones are reused: fresh memory costs one page fault for each page, which
//! takes as long as copying the page.

use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};
use store::Landing;

/// Minimum length of a reused buffer, bytes. The allocator reuses shorter ones by itself.
const LONG_BYTES: usize = 64 << 10;
/// Maximum length of all idle buffers, bytes: the payloads that a few connections have in flight.
const KEPT_BYTES_MAX: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: Vec::new(), bytes: 0 });

struct Kept {
    free: Vec<BytesMut>,
    /// Total capacity of the idle buffers.
    bytes: usize,
}

/// A payload that is being received.
#[derive(Debug)]
pub enum Coming {
    /// Into memory of its own, with the full capacity.
    Own(BytesMut),
    /// Into a receive buffer of the engine; with the number of bytes received so far.
    Landing(Box<dyn Landing>, usize),
}

impl Coming {
    /// Appends payload bytes that were read together with other bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Own(payload) => payload.extend_from_slice(bytes),
            Self::Landing(landing, came) => {
                landing.room()[*came..][..bytes.len()].copy_from_slice(bytes);
                *came += bytes.len();
            }
        }
    }

    /// Returns the number of bytes received so far.
    pub fn len(&self) -> usize {
        match self {
            Self::Own(payload) => payload.len(),
            Self::Landing(_, came) => *came,
        }
    }

    /// Returns the payload, which must be complete.
    pub fn whole(self) -> Bytes {
        match self {
            Self::Own(payload) => filled(payload),
            Self::Landing(landing, _) => landing.landed(),
        }
    }
}

/// Returns an empty buffer with at least this capacity.
pub fn room(bytes: usize) -> BytesMut {
    if bytes < LONG_BYTES {
        return BytesMut::with_capacity(bytes);
    }
    let fits = |free: &BytesMut| (bytes..=bytes.saturating_mul(2)).contains(&free.capacity());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // Take the most recently used one: it is in the processor's cache.
    let Some(at) = kept.free.iter().rposition(fits) else {
        drop(kept);
        return BytesMut::with_capacity(bytes);
    };
    let room = kept.free.remove(at);
    kept.bytes -= room.capacity();
    room
}

/// Freezes a buffer; its memory is reused when the last view of it is dropped.
fn filled(bytes: BytesMut) -> Bytes {
    if bytes.len() < LONG_BYTES { bytes.freeze() } else { Bytes::from_owner(Long(bytes)) }
}

/// A long payload that is in use. Returns its memory when it is dropped.
struct Long(BytesMut);

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let mut free = std::mem::take(&mut self.0);
        free.clear();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + free.capacity() <= KEPT_BYTES_MAX {
            kept.bytes += free.capacity();
            kept.free.push(free);
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
            let mut room = room((3 << 20) + 1);
            room.resize((3 << 20) + 1, 7);
            filled(room)
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
