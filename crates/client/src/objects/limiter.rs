//! The limiter: back-pressure on the calls of one client.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Most calls in flight; more wait. Far more than keeps a node busy, and fewer than a connection
/// carries (8,192).
const CALLS_MAX: usize = 1024;
/// Most KiB in flight to or from nodes: more than a second of a fast link would be waste.
const KIB_MAX: usize = 64 << 10;

/// Limits of the calls and bytes in flight.
#[derive(Debug)]
pub struct Limiter {
    calls: Semaphore,
    kib: Semaphore,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { calls: Semaphore::new(CALLS_MAX), kib: Semaphore::new(KIB_MAX) }
    }
}

const NEVER_CLOSED: &str = "it is never closed";

impl Limiter {
    /// Waits until one more call may begin. It counts until the permit is dropped.
    pub async fn call(&self) -> SemaphorePermit<'_> {
        self.calls.acquire().await.expect(NEVER_CLOSED)
    }

    /// Waits until this many more bytes may be in flight. A length above the limit waits until
    /// nothing else is.
    pub async fn bytes(&self, length: u64) -> SemaphorePermit<'_> {
        let kib = usize::try_from(length.div_ceil(1024)).unwrap_or(KIB_MAX).min(KIB_MAX);
        self.kib.acquire_many(u32::try_from(kib).expect("bounded")).await.expect(NEVER_CLOSED)
    }
}
