//! Back-pressure: how much the calls of one client may have under way together.

use tokio::sync::{Semaphore, SemaphorePermit};

/// So many calls may be under way; more wait. Far more than keeps a node busy, and fewer than a connection carries (8,192).
const CALLS_MAX: usize = 1024;
/// So many bytes may be on their way to or from nodes, in KiB: more than a second of a fast link would be waste.
const KIB_MAX: usize = 64 << 10;

/// What is under way.
#[derive(Debug)]
pub struct Flow {
    calls: Semaphore,
    kib: Semaphore,
}

impl Default for Flow {
    fn default() -> Self {
        Self { calls: Semaphore::new(CALLS_MAX), kib: Semaphore::new(KIB_MAX) }
    }
}

const NEVER_CLOSED: &str = "it is never closed";

impl Flow {
    /// Waits until one more call may begin; it counts until what is given is dropped.
    pub async fn call(&self) -> SemaphorePermit<'_> {
        self.calls.acquire().await.expect(NEVER_CLOSED)
    }

    /// The same for so many bytes on their way. More than all that may be wait until nothing else is.
    pub async fn bytes(&self, length: u64) -> SemaphorePermit<'_> {
        let kib = usize::try_from(length.div_ceil(1024)).unwrap_or(KIB_MAX).min(KIB_MAX);
        self.kib.acquire_many(u32::try_from(kib).expect("bounded")).await.expect(NEVER_CLOSED)
    }
}
