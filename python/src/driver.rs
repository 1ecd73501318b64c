//! What waits for calls: one hand for all pools of the process. Whoever waits turns the connections, so there is no thread, and a process may fork.

use client::{Client, Patience};
use pool::{Hand, NoWay};
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

static HAND: OnceLock<Hand> = OnceLock::new();

fn hand() -> io::Result<&'static Hand> {
    if let Some(hand) = HAND.get() {
        return Ok(hand);
    }
    let made = Hand::new()?;
    Ok(HAND.get_or_init(|| made))
}

/// The way into the pool that a file tells of.
pub fn connect(py: Python<'_>, path: &Path) -> PyResult<Result<Client, NoWay>> {
    let hand = hand()?;
    Ok(py.detach(|| pool::connect_with(hand, path, Patience::default())))
}

/// Waits without the interpreter's lock. A signal whose handler raises ends the wait; what was not done then is not done later.
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

/// Has the handlers of signals run that came.
fn signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// Polls a call that nobody waits for here; its waker is woken when it can go on.
pub fn poll<F: Future + ?Sized>(call: Pin<&mut F>, context: &mut Context<'_>) -> io::Result<Poll<F::Output>> {
    Ok(hand()?.poll(call, context))
}

/// Turns the connections: in how long it is to be done again, though [`descriptor`] shows nothing.
pub fn turn() -> io::Result<Option<Duration>> {
    Ok(hand()?.turn().map(|next| next.saturating_duration_since(Instant::now())))
}

/// Can be read from when there is something to turn.
pub fn descriptor() -> io::Result<OwnedFd> {
    hand()?.descriptor()
}

/// Before this process forks: nothing is in the middle of anything until [`after_fork`]. With the interpreter's lock, which nobody in the middle of
/// something waits for, and without which nobody comes to wait for us.
#[pyfunction]
pub fn before_fork() {
    HAND.get().into_iter().for_each(Hand::before_fork);
}

/// The process has forked: in it, or in its child.
#[pyfunction]
pub fn after_fork(is_child: bool) -> PyResult<()> {
    Ok(HAND.get().map_or(Ok(()), |hand| hand.after_fork(is_child))?)
}
