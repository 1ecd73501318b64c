//! Sleeping without a runtime: one thread for all sleepers, there only while there are some.
//!
//! Futures of this crate and of `client` are first polled on whatever thread asks (a FUSE thread, a test), so they cannot
//! count on a runtime's timer. They sleep seldom: for space in a full pool, and between tries at a node that does not answer.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
    time::Instant,
};

static TIMER: Timer = Timer { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    made: u64,
    running: bool,
}

impl State {
    const fn new() -> Self {
        Self { sleepers: BTreeMap::new(), made: 0, running: false }
    }
}

/// Ends at its moment. Dropped earlier, it leaves nothing behind.
#[derive(Debug)]
pub struct Sleep {
    end: Instant,
    number: Option<u64>,
}

/// Sleeps until `end`.
pub fn sleep_until(end: Instant) -> Sleep {
    Sleep { end, number: None }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.end {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let mut state = TIMER.state.lock();
        let number = self.number.unwrap_or(state.made);
        state.made += u64::from(self.number.is_none());
        let replaced = state.sleepers.insert((self.end, number), waker);
        self.number = Some(number);
        start(&mut state);
        drop(state);
        TIMER.changed.notify_one();
        drop(replaced); // not under the lock: a waker may own a task, and that may own a sleeper
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = TIMER.state.lock().sleepers.remove(&(self.end, number));
            drop(waker); // the lock is free again: see above
        }
    }
}

/// Starts the thread when it does not run.
fn start(state: &mut State) {
    if !state.running {
        let started = thread::Builder::new().name("tidemill-timer".into()).spawn(run);
        state.running = started.inspect_err(|error| tracing::error!(%error, "no thread for waiting")).is_ok();
    }
}

/// Wakes sleepers in order until there are none.
fn run() {
    let mut state = TIMER.state.lock();
    while let Some((&(end, number), _)) = state.sleepers.first_key_value() {
        if Instant::now() < end {
            TIMER.changed.wait_until(&mut state, end);
            continue;
        }
        let waker = state.sleepers.remove(&(end, number));
        parking_lot::MutexGuard::unlocked(&mut state, || waker.into_iter().for_each(Waker::wake));
    }
    state.running = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_ends() {
        let start = Instant::now();
        let late = sleep_until(start + Duration::from_millis(20));
        let early = sleep_until(start + Duration::from_millis(5));
        tokio::pin!(late);
        tokio::select! {
            biased;
            () = &mut late => panic!("the early one ends first"),
            () = early => {}
        }
        late.await;
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_dropped_sleeper_leaves_nothing() {
        let end = Instant::now() + Duration::from_hours(1);
        let mut sleep = sleep_until(end);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let key = (end, sleep.number.unwrap());
        assert!(TIMER.state.lock().sleepers.contains_key(&key));
        drop(sleep);
        assert!(!TIMER.state.lock().sleepers.contains_key(&key));
    }
}
