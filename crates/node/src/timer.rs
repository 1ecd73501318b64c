//! Sleeping without a runtime: one thread for all sleepers, there only while there are some.
//!
//! Futures of this crate and of `client` are first polled on whatever thread asks (a FUSE thread, a test), so they cannot
//! count on a runtime's timer. They sleep seldom: for space in a full pool, and between tries at a node that does not answer.
//!
//! What runs on a thread that has [`SimulatedTime`] sleeps by that instead: time passes there when the simulation says so.

use parking_lot::{Condvar, Mutex};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    marker::PhantomData,
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

thread_local! {
    static SIMULATED: RefCell<Option<Simulated>> = const { RefCell::new(None) };
}

/// Moment and sleepers of a thread whose time is simulated.
struct Simulated {
    now: Instant,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    made: u64,
}

/// While this is there, time stands still for this thread but for [`Self::advance`]. There is one at a time.
#[derive(Debug)]
pub struct SimulatedTime(PhantomData<*const ()>);

impl SimulatedTime {
    /// Time stops.
    pub fn begin() -> Self {
        let began = Simulated { now: Instant::now(), sleepers: BTreeMap::new(), made: 0 };
        let before = SIMULATED.replace(Some(began));
        assert!(before.is_none(), "a thread has one time");
        Self(PhantomData)
    }

    /// Goes on to the moment at which the next sleeper ends, and wakes it; false if there is none.
    pub fn advance(&self) -> bool {
        let woken = SIMULATED.with_borrow_mut(|simulated| {
            let simulated = simulated.as_mut()?;
            let ((end, _), waker) = simulated.sleepers.pop_first()?;
            simulated.now = simulated.now.max(end);
            Some(waker)
        });
        woken.map(Waker::wake).is_some()
    }
}

impl Drop for SimulatedTime {
    fn drop(&mut self) {
        let ended = SIMULATED.take();
        drop(ended); // not while it is borrowed: a waker may own a sleeper
    }
}

/// The moment that it is, for this thread.
pub fn now() -> Instant {
    SIMULATED.with_borrow(|simulated| simulated.as_ref().map(|simulated| simulated.now)).unwrap_or_else(Instant::now)
}

/// Enters a sleeper where time is simulated: its number, and what it replaced; else gives the waker back.
fn enter_simulated(end: Instant, number: Option<u64>, waker: Waker) -> Result<(u64, Option<Waker>), Waker> {
    SIMULATED.with_borrow_mut(|simulated| {
        let Some(simulated) = simulated else { return Err(waker) };
        let number = number.unwrap_or(simulated.made);
        simulated.made = simulated.made.max(number + 1);
        Ok((number, simulated.sleepers.insert((end, number), waker)))
    })
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
        if now() >= self.end {
            return Poll::Ready(());
        }
        let waker = match enter_simulated(self.end, self.number, context.waker().clone()) {
            Ok((number, replaced)) => {
                self.number = Some(number);
                drop(replaced);
                return Poll::Pending;
            }
            Err(waker) => waker,
        };
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
            let key = (self.end, number);
            let simulated =
                SIMULATED.with_borrow_mut(|simulated| simulated.as_mut().map(|time| time.sleepers.remove(&key)));
            if let Some(waker) = simulated {
                drop(waker);
                return;
            }
            let waker = TIMER.state.lock().sleepers.remove(&key);
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
    fn simulated_time_passes_only_when_it_is_told_to() {
        let time = SimulatedTime::begin();
        let (start, waker) = (now(), Waker::noop());
        let mut late = sleep_until(start + Duration::from_hours(2));
        let mut early = sleep_until(start + Duration::from_hours(1));
        let dropped = Box::pin(sleep_until(start + Duration::from_mins(1)));
        for sleep in [&mut late, &mut early] {
            assert!(Pin::new(sleep).poll(&mut Context::from_waker(waker)).is_pending());
        }
        drop(dropped);
        assert!(time.advance());
        assert_eq!(now() - start, Duration::from_hours(1));
        assert!(Pin::new(&mut early).poll(&mut Context::from_waker(waker)).is_ready());
        assert!(Pin::new(&mut late).poll(&mut Context::from_waker(waker)).is_pending());
        drop(late);
        assert!(!time.advance(), "nobody sleeps");
        drop(time);
        assert!(now() < start + Duration::from_mins(1), "this thread's time is everybody's again");
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
