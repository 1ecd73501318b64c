//! The reactor for all pools of the process. Threads that wait for calls drive the connections, so
//! there is no background thread, and the process may fork.

use client::{Client, RetryPolicy};
use pool::{ConnectError, Reactor};
use pyo3::prelude::*;
use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
    time::{Duration, Instant},
};

static REACTOR: OnceLock<Reactor> = OnceLock::new();

fn reactor() -> io::Result<&'static Reactor> {
    if let Some(reactor) = REACTOR.get() {
        return Ok(reactor);
    }
    let created = Reactor::new()?;
    Ok(REACTOR.get_or_init(|| created))
}

/// Connects to the pool of a pool file.
pub fn connect(py: Python<'_>, path: &Path) -> PyResult<Result<Client, ConnectError>> {
    let reactor = reactor()?;
    Ok(py.detach(|| pool::connect_with_reactor(reactor, path, RetryPolicy::default())))
}

/// Waits without the interpreter lock. If a signal handler raises, the wait ends and the call is
/// dropped; the rest of its work is not done later.
pub fn block_on<T: Send>(py: Python<'_>, call: impl Future<Output = T> + Send) -> PyResult<T> {
    let (reactor, mut exception) = (reactor()?, None);
    let is_cancelled = || match Python::attach(check_signals) {
        Ok(()) => false,
        Err(error) => {
            exception = Some(error);
            true
        }
    };
    let done = py.detach(|| reactor.block_on_unless(call, is_cancelled));
    done.ok_or_else(|| exception.expect("that is why it was given up"))
}

/// Runs the Python handlers of signals that came.
fn check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// Polls a call that no thread waits for; its waker is woken when it can make progress.
pub fn poll<F: Future + ?Sized>(call: Pin<&mut F>, context: &mut Context<'_>) -> io::Result<Poll<F::Output>> {
    Ok(reactor()?.poll(call, context))
}

/// Drives the connections. Returns the time after which to call it again even if [`descriptor`] is
/// not readable.
pub fn poll_io() -> io::Result<Option<Duration>> {
    Ok(reactor()?.poll_io().map(|next| next.saturating_duration_since(Instant::now())))
}

/// Descriptor that is readable when connections must be driven.
pub fn descriptor() -> io::Result<OwnedFd> {
    reactor()?.descriptor()
}

/// Prepares for a fork: waits until no thread is inside the reactor; none enters before
/// [`after_fork`]. The caller holds the interpreter lock: threads inside the reactor never wait for
/// it, and threads without it start no calls.
#[pyfunction]
pub fn before_fork() {
    REACTOR.get().into_iter().for_each(Reactor::before_fork);
}

/// Ends the preparation for a fork, in the process that forked or in its child.
#[pyfunction]
pub fn after_fork(is_child: bool) -> PyResult<()> {
    Ok(REACTOR.get().map_or(Ok(()), |reactor| reactor.after_fork(is_child))?)
}
