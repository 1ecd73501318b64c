//! Metrics of a mount: counts and sizes of the kernel's requests. They show whether requests have
//! the size that was negotiated.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Traffic of a mount since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Read requests of the kernel; reads from its page cache are not included.
    pub reads: u64,
    /// Bytes requested by them.
    pub read_bytes: u64,
    /// Size of the largest one, bytes.
    pub read_largest: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes brought by them.
    pub written_bytes: u64,
    /// Size of the largest one, bytes.
    pub write_largest: u64,
    /// Requests that had to wait, nearly always for space.
    pub deferred_requests: u64,
}

/// Counters behind [`Traffic`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    read_largest: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    write_largest: AtomicU64,
    deferred_requests: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, bytes: u32) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes.into(), Relaxed);
        self.read_largest.fetch_max(bytes.into(), Relaxed);
    }

    pub(crate) fn write(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.writes.fetch_add(1, Relaxed);
        self.written_bytes.fetch_add(bytes, Relaxed);
        self.write_largest.fetch_max(bytes, Relaxed);
    }

    pub(crate) fn deferred_requests(&self) {
        self.deferred_requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn now(&self) -> Traffic {
        Traffic {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            read_largest: self.read_largest.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            write_largest: self.write_largest.load(Relaxed),
            deferred_requests: self.deferred_requests.load(Relaxed),
        }
    }
}
