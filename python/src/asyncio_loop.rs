//! Pending calls of an asyncio loop: started, polled when the loop sees a wakeup, or dropped.
//!
//! ```text
//!   submit -> polled once: done immediately, or stored under a number
//!   a reply comes -> the loop sees the reactor's descriptor -> poll: drives the connections,
//!                    polls the calls that were woken, returns those that are done
//!   another thread wakes a call -> its number is queued, the event is signalled
//!                    -> the loop reads the event -> poll
//! ```

use crate::{
    buffer::release_dropped,
    errors::CallError,
    reactor,
    results::{CallOutcome, CallResult},
};
use parking_lot::Mutex;
use pyo3::{IntoPyObjectExt, prelude::*};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{self, Errno},
};
use std::{
    collections::HashMap,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

type CallFuture = Pin<Box<dyn Future<Output = CallOutcome> + Send>>;

/// Number of a call that is done, and its result or exception.
type CompletedCall = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);

/// The argument of a method that is waited for (`None`), or is pending in an asyncio loop.
pub type PendingCallsArg<'py> = Option<PyRef<'py, PendingCalls>>;

/// The pending calls of one asyncio loop. Only that loop's thread uses it.
#[pyclass(frozen, module = "tidemill._native")]
pub struct PendingCalls {
    wakeup: Arc<Wakeup>,
    calls: Mutex<CallTable>,
    /// Descriptor that is readable when connections must be driven.
    io_event: OwnedFd,
}

#[derive(Default)]
struct CallTable {
    last_number: u64,
    pending: HashMap<u64, CallFuture>,
}

/// Queue of the calls to poll, and the event that tells the loop about them.
struct Wakeup {
    event: OwnedFd,
    woken: Mutex<Vec<u64>>,
}

/// Waker of one call.
struct CallWaker {
    call: u64,
    wakeup: Arc<Wakeup>,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_first = {
            let mut woken = self.wakeup.woken.lock();
            woken.push(self.call);
            woken.len() == 1
        };
        if is_first {
            // The write fails only if the counter is full, and the loop reads it long before that.
            let _ = io::write(&self.wakeup.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Wakeup {
    /// Takes the calls to poll now, each once.
    fn take_woken(&self) -> Vec<u64> {
        let mut count = [0; 8];
        match io::read(&self.event, &mut count) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => unreachable!("an event of ours cannot be read: {error}"),
        }
        let mut woken = std::mem::take(&mut *self.woken.lock());
        woken.sort_unstable();
        woken.dedup();
        woken
    }
}

impl PendingCalls {
    fn poll_call(&self, number: u64, call: &mut CallFuture) -> std::io::Result<Poll<CallOutcome>> {
        let waker = Waker::from(Arc::new(CallWaker { call: number, wakeup: self.wakeup.clone() }));
        reactor::poll(call.as_mut(), &mut Context::from_waker(&waker))
    }

    /// Starts a call. Returns (0, its result) if it is done immediately, else (its number, None).
    fn submit(&self, py: Python<'_>, mut call: CallFuture) -> PyResult<Py<PyAny>> {
        let number = {
            let mut calls = self.calls.lock();
            calls.last_number += 1;
            calls.last_number
        };
        match py.detach(|| self.poll_call(number, &mut call))? {
            Poll::Ready(done) => (0, result_into_py(py, done)?).into_py_any(py),
            Poll::Pending => {
                self.calls.lock().pending.insert(number, call);
                (number, py.None()).into_py_any(py)
            }
        }
    }

    fn poll_one(&self, py: Python<'_>, number: u64) -> PyResult<Option<CallOutcome>> {
        // The call may be done already, or dropped.
        let Some(mut call) = self.calls.lock().pending.remove(&number) else { return Ok(None) };
        match py.detach(|| self.poll_call(number, &mut call))? {
            Poll::Ready(done) => Ok(Some(done)),
            Poll::Pending => {
                self.calls.lock().pending.insert(number, call);
                Ok(None)
            }
        }
    }
}

fn result_into_py(py: Python<'_>, done: CallOutcome) -> PyResult<Py<PyAny>> {
    done.map_err(|failed: CallError| failed.into_py_err(py)).and_then(|done: CallResult| done.into_py(py))
}

#[pymethods]
impl PendingCalls {
    #[new]
    fn new() -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let (wakeup, io_event) = (Arc::new(Wakeup { event, woken: Mutex::default() }), reactor::descriptor()?);
        Ok(Self { wakeup, calls: Mutex::default(), io_event })
    }

    /// The two descriptors; [`Self::poll`] has work to do when one of them is readable.
    fn filenos(&self) -> (i32, i32) {
        (self.wakeup.event.as_raw_fd(), self.io_event.as_raw_fd())
    }

    /// Makes all progress that is possible without waiting. Returns (number, result, exception) of
    /// each call that is done, and the seconds after which to call it again even if no descriptor
    /// is readable.
    fn poll(&self, py: Python<'_>) -> PyResult<(Vec<CompletedCall>, Option<f64>)> {
        let next = py.detach(reactor::poll_io)?;
        release_dropped(py);
        let mut done = Vec::new();
        for number in self.wakeup.take_woken() {
            if let Some(finished) = self.poll_one(py, number)? {
                done.push(match result_into_py(py, finished) {
                    Ok(result) => (number, Some(result), None),
                    Err(error) => (number, None, Some(error.into_value(py).into_any())),
                });
            }
        }
        Ok((done, next.map(|next| next.as_secs_f64())))
    }

    /// Drops a call that nobody waits for any more.
    fn drop_call(&self, py: Python<'_>, number: u64) {
        let call = self.calls.lock().pending.remove(&number);
        py.detach(|| drop(call));
    }
}

/// Runs a call: waits for it, or starts it in an asyncio loop.
pub fn run_or_submit(
    py: Python<'_>,
    pending_calls: Option<PyRef<'_, PendingCalls>>,
    call: impl Future<Output = CallOutcome> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    match pending_calls {
        None => {
            let done = reactor::block_on(py, call);
            release_dropped(py);
            result_into_py(py, done?)
        }
        Some(pending_calls) => pending_calls.submit(py, Box::pin(call)),
    }
}
