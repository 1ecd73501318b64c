//! Leader/follower scheduling of the threads that wait in a reactor: one leads and polls the
//! sockets for all; the others sleep until they are woken or become the leader.

use crate::raw_socket::Gear;
use parking_lot::Mutex;
use rustix::{
    fs::Timespec,
    thread::futex::{self, Flags},
};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Wake,
    time::Instant,
};

/// The thread runs.
const RUNS: u32 = 0;
/// The thread must poll its future.
const WOKEN: u32 = 1;
/// The thread sleeps on its futex until woken.
const SLEEPS: u32 = 2;
/// The thread sleeps in the poller until a socket is ready or it is woken.
const LOOKS: u32 = 3;

/// Waiting thread.
#[derive(Debug)]
pub struct Wait {
    state: AtomicU32,
    /// True if the thread was made the leader.
    leads: AtomicBool,
    gear: Arc<Gear>,
}

impl Wait {
    /// Creates the state of a thread that does not wait yet.
    pub fn new(gear: Arc<Gear>) -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(RUNS), leads: AtomicBool::new(false), gear })
    }

    /// Resets the wake-up before the thread polls its future.
    pub fn run(&self) {
        self.state.store(RUNS, SeqCst);
    }

    /// Returns whether the thread must poll its future.
    pub fn is_woken(&self) -> bool {
        self.state.load(SeqCst) == WOKEN
    }

    /// Sleeps until woken, made the leader, interrupted by a signal, or timed out.
    pub fn sleep(&self, most: Option<&Timespec>) {
        if self.begin(SLEEPS) && !self.leads.load(SeqCst) {
            // Every result means one of these.
            let _ = futex::wait(&self.state, Flags::PRIVATE, SLEEPS, most);
        }
        self.end(SLEEPS);
    }

    /// Runs `look`, which waits for sockets, unless the thread was woken.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let looked = self.begin(LOOKS).then(look);
        self.end(LOOKS);
        looked
    }

    fn begin(&self, what: u32) -> bool {
        self.state.compare_exchange(RUNS, what, SeqCst, Relaxed).is_ok()
    }

    fn end(&self, what: u32) {
        // This fails if the thread was woken meanwhile.
        let _ = self.state.compare_exchange(what, RUNS, SeqCst, Relaxed);
    }

    /// Makes the thread the leader.
    fn promote(&self) {
        self.leads.store(true, SeqCst); // before reading the state; `sleep` does the reverse
        if self.state.compare_exchange(SLEEPS, RUNS, SeqCst, Relaxed).is_ok() {
            self.shake();
        }
    }

    fn shake(&self) {
        let _ = futex::wake(&self.state, Flags::PRIVATE, 1);
    }
}

impl Wake for Wait {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, SeqCst) {
            SLEEPS => self.shake(),
            LOOKS => self.gear.ring(),
            _ => {}
        }
    }
}

/// All threads that wait in one reactor.
#[derive(Debug, Default)]
pub struct Crew(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_led: bool,
    followers: Vec<Arc<Wait>>,
    /// True while the leader sleeps.
    sleeps: bool,
    /// Time until which the leader sleeps at most; `None` for no limit.
    until: Option<Instant>,
}

impl Crew {
    /// Returns true if the thread leads now; else it follows until it leaves.
    pub fn join(&self, wait: &Arc<Wait>) -> bool {
        let mut state = self.0.lock();
        let leads = !std::mem::replace(&mut state.is_led, true);
        if !leads {
            state.followers.push(wait.clone());
        }
        leads
    }

    /// Removes a follower; returns true if it leads now.
    pub fn leave(&self, wait: &Arc<Wait>) -> bool {
        let followers = &mut self.0.lock().followers;
        let place = followers.iter().position(|other| Arc::ptr_eq(other, wait));
        if let Some(place) = place {
            followers.swap_remove(place);
        }
        wait.leads.store(false, SeqCst);
        place.is_none()
    }

    /// Passes the lead to a follower, if there is one.
    pub fn pass_on(&self) {
        let mut state = self.0.lock();
        let next = state.followers.pop();
        state.is_led = next.is_some();
        drop(state);
        if let Some(next) = next {
            next.promote();
        }
    }

    /// Notes that the leader sleeps until the time that `until` returns; `until` runs under the
    /// lock.
    pub fn begin_sleep(&self, until: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let mut state = self.0.lock();
        let until = until();
        (state.sleeps, state.until) = (true, until);
        until
    }

    /// Notes that the leader is awake.
    pub fn end_sleep(&self) {
        self.0.lock().sleeps = false;
    }

    /// Returns whether the leader sleeps beyond `moment`.
    pub fn oversleeps(&self, moment: Instant) -> bool {
        let state = self.0.lock();
        state.sleeps && state.until.is_none_or(|until| moment < until)
    }

    /// Forgets all threads; called in a forked child, which has none of them.
    pub fn forget(&self) {
        *self.0.lock() = State::default();
    }
}
