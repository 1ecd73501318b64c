//! The reactor for all pools of the process. Threads that wait for calls drive the connections, so
//! there is no background thread, and the process may fork.

use client::{Client, RetryPolicy};
use pool::{NoWay, Reactor};
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

static HAND: OnceLock<Reactor> = OnceLock::new();

fn hand() -> io::Result<&'static Reactor> {
    if let Some(hand) = HAND.get() {
        return Ok(hand);
    }
    let made = Reactor::new()?;
    Ok(HAND.get_or_init(|| made))
}

/// Connects to the pool of a pool file.
pub fn connect(py: Python<'_>, path: &Path) -> PyResult<Result<Client, NoWay>> {
    let hand = hand()?;
    Ok(py.detach(|| pool::connect_with(hand, path, RetryPolicy::default())))
}

/// Waits without the interpreter lock. If a signal handler raises, the wait ends and the call is
/// dropped; the rest of its work is not done later.
pub fn wait<T: Send>(py: Python<'_>, call: impl Future<Output = T> + Send) -> PyResult<T> {
    let (hand, mut raised) = (hand()?, None);
    let gives_up = || match Python::attach(signals) {
        Ok(()) => false,
        Err(error) => {
            raised = Some(error);
            true
        }
    };
    let done = py.detach(|| hand.block_on_unless(call, gives_up));
    done.ok_or_else(|| raised.expect("that is why it was given up"))
}

/// Runs the Python handlers of signals that came.
fn signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// Polls a call that no thread waits for; its waker is woken when it can make progress.
pub fn poll<F: Future + ?Sized>(call: Pin<&mut F>, context: &mut Context<'_>) -> io::Result<Poll<F::Output>> {
    Ok(hand()?.poll(call, context))
}

/// Drives the connections. Returns the time after which to call it again even if [`descriptor`] is
/// not readable.
pub fn turn() -> io::Result<Option<Duration>> {
    Ok(hand()?.poll_io().map(|next| next.saturating_duration_since(Instant::now())))
}

/// Descriptor that is readable when connections must be driven.
pub fn descriptor() -> io::Result<OwnedFd> {
    hand()?.descriptor()
}

/// Prepares for a fork: waits until no thread is inside the reactor; none enters before
/// [`after_fork`]. The caller holds the interpreter lock: threads inside the reactor never wait for
/// it, and threads without it start no calls.
#[pyfunction]
pub fn before_fork() {
    HAND.get().into_iter().for_each(Reactor::before_fork);
}

/// Ends the preparation for a fork, in the process that forked or in its child.
#[pyfunction]
pub fn after_fork(is_child: bool) -> PyResult<()> {
    Ok(HAND.get().map_or(Ok(()), |hand| hand.after_fork(is_child))?)
}
