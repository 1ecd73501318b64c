//! Pending calls of an asyncio loop: started, polled when the loop sees a wakeup, or dropped.
//!
//! ```text
//!   begin -> polled once: done immediately, or kept under a number
//!   a reply comes -> the loop sees the reactor's descriptor -> turn: drives the connections,
//!                    polls the calls that were woken, returns those that are done
//!   another thread wakes a call -> its number is queued, the event is signalled
//!                    -> the loop reads the event -> turn
//! ```

use crate::{
    buffer::release,
    done::{Done, Finished},
    driver,
    errors::Failed,
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

type Call = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// Number of a call that is done, and its result or exception.
type Ended = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);

/// The pending calls of one asyncio loop. Only that loop's thread uses it.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Bridge {
    bell: Arc<Bell>,
    calls: Mutex<Calls>,
    /// Descriptor that is readable when connections must be driven.
    turns: OwnedFd,
}

#[derive(Default)]
struct Calls {
    given: u64,
    under_way: HashMap<u64, Call>,
}

/// Queue of the calls to poll, and the event that tells the loop about them.
struct Bell {
    event: OwnedFd,
    woken: Mutex<Vec<u64>>,
}

/// Waker of one call.
struct Ringer {
    call: u64,
    bell: Arc<Bell>,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_first = {
            let mut woken = self.bell.woken.lock();
            woken.push(self.call);
            woken.len() == 1
        };
        if is_first {
            // The write fails only if the counter is full, and the loop reads it long before that.
            let _ = io::write(&self.bell.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Bell {
    /// Takes the calls to poll now, each once.
    fn heard(&self) -> Vec<u64> {
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

impl Bridge {
    fn poll(&self, number: u64, call: &mut Call) -> std::io::Result<Poll<Finished>> {
        let waker = Waker::from(Arc::new(Ringer { call: number, bell: self.bell.clone() }));
        driver::poll(call.as_mut(), &mut Context::from_waker(&waker))
    }

    /// Starts a call. Returns (0, its result) if it is done immediately, else (its number, None).
    fn begin(&self, py: Python<'_>, mut call: Call) -> PyResult<Py<PyAny>> {
        let number = {
            let mut calls = self.calls.lock();
            calls.given += 1;
            calls.given
        };
        match py.detach(|| self.poll(number, &mut call))? {
            Poll::Ready(done) => (0, shown(py, done)?).into_py_any(py),
            Poll::Pending => {
                self.calls.lock().under_way.insert(number, call);
                (number, py.None()).into_py_any(py)
            }
        }
    }

    fn turn_one(&self, py: Python<'_>, number: u64) -> PyResult<Option<Finished>> {
        // The call may be done already, or dropped.
        let Some(mut call) = self.calls.lock().under_way.remove(&number) else { return Ok(None) };
        match py.detach(|| self.poll(number, &mut call))? {
            Poll::Ready(done) => Ok(Some(done)),
            Poll::Pending => {
                self.calls.lock().under_way.insert(number, call);
                Ok(None)
            }
        }
    }
}

fn shown(py: Python<'_>, done: Finished) -> PyResult<Py<PyAny>> {
    done.map_err(|failed: Failed| failed.raise(py)).and_then(|done: Done| done.into_py(py))
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let (bell, turns) = (Arc::new(Bell { event, woken: Mutex::default() }), driver::descriptor()?);
        Ok(Self { bell, calls: Mutex::default(), turns })
    }

    /// The two descriptors; [`Self::turn`] has work to do when one of them is readable.
    fn filenos(&self) -> (i32, i32) {
        (self.bell.event.as_raw_fd(), self.turns.as_raw_fd())
    }

    /// Makes all progress that is possible without waiting. Returns (number, result, exception) of
    /// each call that is done, and the seconds after which to call it again even if no descriptor
    /// is readable.
    fn turn(&self, py: Python<'_>) -> PyResult<(Vec<Ended>, Option<f64>)> {
        let next = py.detach(driver::turn)?;
        release(py);
        let mut done = Vec::new();
        for number in self.bell.heard() {
            if let Some(finished) = self.turn_one(py, number)? {
                done.push(match shown(py, finished) {
                    Ok(brought) => (number, Some(brought), None),
                    Err(raised) => (number, None, Some(raised.into_value(py).into_any())),
                });
            }
        }
        Ok((done, next.map(|next| next.as_secs_f64())))
    }

    /// Drops a call that nobody waits for any more.
    fn drop_call(&self, py: Python<'_>, number: u64) {
        let call = self.calls.lock().under_way.remove(&number);
        py.detach(|| drop(call));
    }
}

/// Runs a call: waits for it, or starts it in an asyncio loop.
pub fn go(
    py: Python<'_>,
    via: Option<PyRef<'_, Bridge>>,
    call: impl Future<Output = Finished> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    match via {
        None => {
            let done = driver::wait(py, call);
            release(py);
            shown(py, done?)
        }
        Some(bridge) => bridge.begin(py, Box::pin(call)),
    }
}
