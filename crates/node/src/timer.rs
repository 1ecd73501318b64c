//! Timers: for requests that wait for space in a full pool, and for pauses between tries at a node
//! that does not answer.
//!
//! One thread wakes all sleepers; it runs only while there are some. A thread that has a
//! [`LocalTime`] does not need it: the code that waits there wakes the sleepers itself. Simulated
//! time passes only when the simulation advances it.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::OccupiedEntry},
    future::Future,
    marker::PhantomData,
    mem::ManuallyDrop,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Instant,
};

static TIMER: Timer = Timer { state: Mutex::new(TimerState::new()), changed: Condvar::new() };

/// The timer of all threads that have no [`LocalTime`].
struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

struct TimerState {
    sleepers: Sleepers,
    running: bool,
}

impl TimerState {
    const fn new() -> Self {
        Self { sleepers: Sleepers::new(), running: false }
    }
}

/// Sleepers in the order of their ends.
#[derive(Debug)]
struct Sleepers {
    by_end: BTreeMap<(Instant, u64), Waker>,
    issued: u64,
}

impl Sleepers {
    const fn new() -> Self {
        Self { by_end: BTreeMap::new(), issued: 0 }
    }

    /// Adds or updates a sleeper; returns its number, and the waker that it had before.
    fn insert(&mut self, end: Instant, number: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        let number = number.unwrap_or(self.issued);
        self.issued = self.issued.max(number + 1);
        (number, self.by_end.insert((end, number), waker))
    }

    fn next(&self) -> Option<Instant> {
        self.by_end.first_key_value().map(|((end, _), _)| *end)
    }

    /// Takes one sleeper whose end has come.
    fn take_due(&mut self, now: Instant) -> Option<Waker> {
        self.by_end.first_entry().filter(|first| first.key().0 <= now).map(OccupiedEntry::remove)
    }
}

thread_local! {
    /// Without a destructor, because a thread may wait for nodes while its other thread-local
    /// values are already destroyed. It is empty by then: [`TimerScope`] has restored the `None`
    /// that it found.
    static LOCAL: RefCell<ManuallyDrop<Option<LocalTime>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// A timer whose sleepers are woken by the code that waits with it.
#[derive(Clone, Debug, Default)]
pub struct LocalTime(Arc<LocalTimer>);

#[derive(Debug)]
struct LocalTimer {
    sleepers: Mutex<Sleepers>,
    /// The current time, if it is simulated.
    simulated: Option<Mutex<Instant>>,
}

impl Default for LocalTimer {
    fn default() -> Self {
        Self { sleepers: Mutex::new(Sleepers::new()), simulated: None }
    }
}

impl LocalTime {
    /// A timer without sleepers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this the timer of the current thread until the result is dropped.
    pub fn enter(&self) -> TimerScope {
        TimerScope { before: replace_local(Some(self.clone())), thread: PhantomData }
    }

    /// The time at which the first sleeper is to be woken.
    pub fn next(&self) -> Option<Instant> {
        self.0.sleepers.lock().next()
    }

    /// Wakes all sleepers whose time has come; returns whether there was one.
    pub fn wake_due(&self) -> bool {
        let (mut sleepers, mut any) = (self.0.sleepers.lock(), false);
        while sleepers.next().is_some()
            && let Some(waker) = sleepers.take_due(self.now())
        {
            any = true;
            MutexGuard::unlocked(&mut sleepers, || waker.wake());
        }
        any
    }

    fn now(&self) -> Instant {
        self.0.simulated.as_ref().map_or_else(Instant::now, |now| *now.lock())
    }

    fn of_this_thread() -> Option<Self> {
        LOCAL.with_borrow(|local| (**local).clone())
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Sets the timer of this thread; returns the one before.
fn replace_local(local: Option<LocalTime>) -> Option<LocalTime> {
    ManuallyDrop::into_inner(LOCAL.replace(ManuallyDrop::new(local)))
}

/// The scope of a thread's [`LocalTime`]; dropping it restores the one before.
#[derive(Debug)]
pub struct TimerScope {
    before: Option<LocalTime>,
    /// Makes it `!Send`: it belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Drop for TimerScope {
    fn drop(&mut self) {
        let left = replace_local(self.before.take());
        drop(left); // not while borrowed: a waker may own a sleeper
    }
}

/// Simulated time: while this lives, time stands still for this thread except for
/// [`Self::advance`]. There is one at a time.
#[derive(Debug)]
pub struct SimulatedTime {
    time: LocalTime,
    _scope: TimerScope,
}

impl SimulatedTime {
    /// Stops time on this thread.
    pub fn begin() -> Self {
        let simulated = Some(Mutex::new(Instant::now()));
        let time = LocalTime(Arc::new(LocalTimer { simulated, ..LocalTimer::default() }));
        let entered = time.enter();
        assert!(entered.before.is_none(), "a thread has one time");
        Self { time, _scope: entered }
    }

    /// Advances to the end of the next sleeper and wakes it; false if there is none.
    pub fn advance(&self) -> bool {
        let first = self.time.0.sleepers.lock().by_end.pop_first();
        let Some(((end, _), waker)) = first else { return false };
        if let Some(now) = &self.time.0.simulated {
            let mut now = now.lock();
            *now = end.max(*now);
        }
        waker.wake();
        true
    }
}

/// The current time of this thread.
pub fn now() -> Instant {
    LOCAL.with_borrow(|local| local.as_ref().map_or_else(Instant::now, LocalTime::now))
}

/// A future that ends at a given time. Dropped earlier, it leaves nothing behind.
#[derive(Debug)]
pub struct Sleep {
    end: Instant,
    /// The timer that has it as a sleeper (`None` for the shared one), and its number there.
    registration: Option<(Option<LocalTime>, u64)>,
}

/// Sleeps until `end`.
pub fn sleep_until(end: Instant) -> Sleep {
    Sleep { end, registration: None }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.end {
            return Poll::Ready(());
        }
        let local = LocalTime::of_this_thread();
        let number = match &self.registration {
            Some((of, number)) if is_same(of.as_ref(), local.as_ref()) => Some(*number),
            Some(_) => {
                self.cancel();
                None
            }
            None => None,
        };
        let waker = context.waker().clone();
        let (number, replaced) = match &local {
            Some(local) => local.0.sleepers.lock().insert(self.end, number, waker),
            None => insert_shared(self.end, number, waker),
        };
        self.registration = Some((local, number));
        drop(replaced); // not under the lock: a waker may own a task, and that may own a sleeper
        Poll::Pending
    }
}

impl Sleep {
    fn cancel(&mut self) {
        let Some((of, number)) = self.registration.take() else { return };
        let key = (self.end, number);
        let waker = match of {
            Some(local) => local.0.sleepers.lock().by_end.remove(&key),
            None => TIMER.state.lock().sleepers.by_end.remove(&key),
        };
        drop(waker); // the lock is free again: see above
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn is_same(one: Option<&LocalTime>, other: Option<&LocalTime>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is(other),
        _ => false,
    }
}

fn insert_shared(end: Instant, number: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
    let mut state = TIMER.state.lock();
    let entered = state.sleepers.insert(end, number, waker);
    start(&mut state);
    drop(state);
    TIMER.changed.notify_one();
    entered
}

/// Starts the thread if it does not run.
fn start(state: &mut TimerState) {
    if !state.running {
        let started = thread::Builder::new().name("tidemill-timer".into()).spawn(run);
        state.running = started.inspect_err(|error| tracing::error!(%error, "no thread for waiting")).is_ok();
    }
}

/// Wakes sleepers in order until there are none.
fn run() {
    let mut state = TIMER.state.lock();
    while let Some(end) = state.sleepers.next() {
        match state.sleepers.take_due(Instant::now()) {
            Some(waker) => MutexGuard::unlocked(&mut state, || waker.wake()),
            None => {
                TIMER.changed.wait_until(&mut state, end);
            }
        }
    }
    state.running = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        task::Wake,
        time::Duration,
    };

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
        let key = (end, sleep.registration.as_ref().unwrap().1);
        assert!(TIMER.state.lock().sleepers.by_end.contains_key(&key));
        drop(sleep);
        assert!(!TIMER.state.lock().sleepers.by_end.contains_key(&key));
    }

    #[test]
    fn who_waits_with_a_time_of_its_own_wakes_its_sleepers_itself() {
        let (time, end) = (LocalTime::new(), Instant::now() + Duration::from_millis(5));
        let (counting, mut sleep) = (Arc::new(Counting::default()), sleep_until(end));
        let waker = Waker::from(counting.clone());
        let entered = time.enter();
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(time.next(), Some(end));
        while time.next().is_some() {
            time.wake_due();
        }
        assert!(Instant::now() >= end && counting.0.load(SeqCst) == 1);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_ready());
        drop(entered);
        assert!(LocalTime::of_this_thread().is_none());
    }

    #[test]
    fn a_sleeper_that_goes_to_a_thread_with_another_time_is_woken_there() {
        let (one, other, waker) = (LocalTime::new(), LocalTime::new(), Waker::noop());
        let mut sleep = sleep_until(Instant::now() + Duration::from_hours(1));
        for time in [&one, &other] {
            let _scope = time.enter();
            assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert!(one.next().is_none() && other.next().is_some());
        drop(sleep);
        assert!(other.next().is_none());
    }

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}
