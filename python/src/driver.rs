//! What waits for calls: the one place that knows who carries the connections.
//!
//! Today they are carried by threads of `link`; the thread that waits is parked, and looks for signals now and then.

use base::Problem;
use client::{Client, Patience};
use pyo3::prelude::*;
use std::{
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

/// So often a thread that waits looks whether Ctrl-C was pressed: at once, to a person.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The way into the pool that a file tells of.
pub async fn connect(path: &Path) -> Result<Client, Problem> {
    pool::carrier()?;
    pool::connect(path, Patience::default()).await
}

/// A thread that waits.
struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// What the handler of a signal raised.
fn raised(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// Waits without the interpreter's lock. A signal whose handler raises ends the wait; what was not done then is not done later.
pub fn wait<T: Send>(py: Python<'_>, call: impl Future<Output = T> + Send) -> PyResult<T> {
    py.detach(|| {
        let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(parked.clone());
        let (mut context, mut call) = (Context::from_waker(&waker), pin!(call));
        loop {
            if let Poll::Ready(done) = call.as_mut().poll(&mut context) {
                return Ok(done);
            }
            while !parked.woken.swap(false, Ordering::Acquire) {
                thread::park_timeout(SIGNALS_EVERY);
                if !parked.woken.load(Ordering::Acquire) {
                    Python::attach(raised)?;
                }
            }
        }
    })
}
