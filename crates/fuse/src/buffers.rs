//! Buffers for the bytes of large writes, used again and again.
//!
//! A request's bytes lie in the transport's buffer, which the next request overwrites, so a write takes them along. Fresh memory
//! would cost more than the copy: its pages are touched for the first time (a tenth of memcpy's speed).

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Smaller ones come from the allocator, which keeps such sizes warm by itself.
const LARGE_BYTES: usize = 64 << 10;
/// Spare buffers that are kept; more are in use only while writers wait for space.
const SPARE_MAX: usize = 16;

/// Spare buffers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A copy of `data` that goes back here when its last view is dropped.
    pub(crate) fn copy(&self, data: &[u8]) -> Bytes {
        if data.len() < LARGE_BYTES {
            return Bytes::copy_from_slice(data);
        }
        let mut bytes = self.0.lock().pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(data);
        Bytes::from_owner(Loan { bytes, home: Arc::downgrade(&self.0) })
    }
}

struct Loan {
    bytes: Vec<u8>,
    home: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut spare = home.lock();
        if spare.len() < SPARE_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_only_after_its_last_view_is_gone() {
        let buffers = Buffers::default();
        let first = buffers.copy(&vec![1; 1 << 20]);
        let view = first.slice(5..10);
        let address = first.as_ptr();
        drop(first);
        let second = buffers.copy(&vec![2; 1 << 20]);
        assert_ne!(second.as_ptr(), address);
        assert_eq!(&view[..], [1; 5]);
        drop(view);
        let third = buffers.copy(&vec![3; 1 << 20]);
        assert_eq!(third.as_ptr(), address);
        assert!(third.iter().all(|byte| *byte == 3));
    }
}
