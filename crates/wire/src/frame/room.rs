//! Memory for payloads. That of long ones is used again: fresh memory of the system costs a fault for each page, which is as long as copying it.

use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};
use store::Landing;

/// Shorter payloads are the allocator's business: it uses such memory again by itself.
const LONG_BYTES: usize = 64 << 10;
/// So much is kept while nobody uses it, bytes: what some connections have on their way at once.
const KEPT_BYTES_MAX: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: Vec::new(), bytes: 0 });

struct Kept {
    free: Vec<BytesMut>,
    /// Capacity of all that is free.
    bytes: usize,
}

/// A payload that is coming.
#[derive(Debug)]
pub enum Coming {
    /// To memory of its own, which has room for all of it.
    Own(BytesMut),
    /// To where it may stay, so many bytes so far.
    Landing(Box<dyn Landing>, usize),
}

impl Coming {
    /// Takes what has come of it together with other bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Own(payload) => payload.extend_from_slice(bytes),
            Self::Landing(landing, came) => {
                landing.room()[*came..][..bytes.len()].copy_from_slice(bytes);
                *came += bytes.len();
            }
        }
    }

    /// How many bytes have come.
    pub fn len(&self) -> usize {
        match self {
            Self::Own(payload) => payload.len(),
            Self::Landing(_, came) => *came,
        }
    }

    /// All of it has come.
    pub fn whole(self) -> Bytes {
        match self {
            Self::Own(payload) => filled(payload),
            Self::Landing(landing, _) => landing.landed(),
        }
    }
}

/// Empty, with room for so many bytes at least.
pub fn room(bytes: usize) -> BytesMut {
    if bytes < LONG_BYTES {
        return BytesMut::with_capacity(bytes);
    }
    let fits = |free: &BytesMut| (bytes..=bytes.saturating_mul(2)).contains(&free.capacity());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // Those that were used last are in the processor's cache.
    let Some(at) = kept.free.iter().rposition(fits) else {
        drop(kept);
        return BytesMut::with_capacity(bytes);
    };
    let room = kept.free.remove(at);
    kept.bytes -= room.capacity();
    room
}

/// The bytes, whose memory is used again when nobody looks at them any more.
fn filled(bytes: BytesMut) -> Bytes {
    if bytes.len() < LONG_BYTES { bytes.freeze() } else { Bytes::from_owner(Long(bytes)) }
}

/// A long payload that somebody looks at.
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
        // Of a length that no other test has.
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
