//! Waiting for a condition that another thread, task or process brings about.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait. Whatever tests wait for takes far less, also on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// Waits until `holds`, which another thread or process brings about. Panics with `what` after a
/// minute.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "did not happen within {LIMIT:?}: {what}");
        thread::yield_now();
    }
}

/// Waits until `holds`, as [`until`] does, and lets other tasks of the same thread run meanwhile.
pub async fn until_polled(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    std::future::poll_fn(|context| {
        if holds() {
            return Poll::Ready(());
        }
        assert!(begin.elapsed() < LIMIT, "did not happen within {LIMIT:?}: {what}");
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_wait_ends_when_another_thread_has_done_it() {
        let done = Arc::new(AtomicBool::new(false));
        let (here, there) = (Arc::clone(&done), done);
        let other = thread::spawn(move || there.store(true, Ordering::Release));
        until("the flag is set", || here.load(Ordering::Acquire));
        other.join().unwrap();
    }
}
