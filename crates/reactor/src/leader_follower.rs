//! Leader/follower scheduling of the threads that wait in a reactor: one leads and polls the
//! sockets for all; the others sleep until they are woken or become the leader.

use crate::raw_socket::Poller;
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
const RUNNING: u32 = 0;
/// The thread must poll its future.
const WOKEN: u32 = 1;
/// The thread sleeps on its futex until woken.
const SLEEPING: u32 = 2;
/// The thread sleeps in the poller until a socket is ready or it is woken.
const POLLING: u32 = 3;

/// Waiting thread.
#[derive(Debug)]
pub struct WaitingThread {
    state: AtomicU32,
    /// True if the thread was made the leader.
    is_leader: AtomicBool,
    poller: Arc<Poller>,
}

impl WaitingThread {
    /// Creates the state of a thread that does not wait yet.
    pub fn new(poller: Arc<Poller>) -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(RUNNING), is_leader: AtomicBool::new(false), poller })
    }

    /// Resets the wake-up before the thread polls its future.
    pub fn run(&self) {
        self.state.store(RUNNING, SeqCst);
    }

    /// Returns whether the thread must poll its future.
    pub fn is_woken(&self) -> bool {
        self.state.load(SeqCst) == WOKEN
    }

    /// Sleeps until woken, made the leader, interrupted by a signal, or timed out.
    pub fn sleep(&self, most: Option<&Timespec>) {
        if self.begin(SLEEPING) && !self.is_leader.load(SeqCst) {
            // Every result means one of these.
            let _ = futex::wait(&self.state, Flags::PRIVATE, SLEEPING, most);
        }
        self.end(SLEEPING);
    }

    /// Runs `wait`, which waits for sockets, unless the thread was woken.
    pub fn poll_sockets<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        let waited = self.begin(POLLING).then(wait);
        self.end(POLLING);
        waited
    }

    fn begin(&self, waiting: u32) -> bool {
        self.state.compare_exchange(RUNNING, waiting, SeqCst, Relaxed).is_ok()
    }

    fn end(&self, waiting: u32) {
        // This fails if the thread was woken meanwhile.
        let _ = self.state.compare_exchange(waiting, RUNNING, SeqCst, Relaxed);
    }

    /// Makes the thread the leader.
    fn promote(&self) {
        self.is_leader.store(true, SeqCst); // before reading the state; `sleep` does the reverse
        if self.state.compare_exchange(SLEEPING, RUNNING, SeqCst, Relaxed).is_ok() {
            self.wake_futex();
        }
    }

    fn wake_futex(&self) {
        let _ = futex::wake(&self.state, Flags::PRIVATE, 1);
    }
}

impl Wake for WaitingThread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, SeqCst) {
            SLEEPING => self.wake_futex(),
            POLLING => self.poller.wake(),
            _ => {}
        }
    }
}

/// All threads that wait in one reactor.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<WaitersState>);

#[derive(Debug, Default)]
struct WaitersState {
    has_leader: bool,
    followers: Vec<Arc<WaitingThread>>,
    /// True while the leader sleeps.
    sleeping: bool,
    /// Time until which the leader sleeps at most; `None` for no limit.
    until: Option<Instant>,
}

impl Waiters {
    /// Returns true if the thread leads now; else it follows until it leaves.
    pub fn join(&self, thread: &Arc<WaitingThread>) -> bool {
        let mut state = self.0.lock();
        let is_leader = !std::mem::replace(&mut state.has_leader, true);
        if !is_leader {
            state.followers.push(thread.clone());
        }
        is_leader
    }

    /// Removes a follower; returns true if it leads now.
    pub fn leave(&self, thread: &Arc<WaitingThread>) -> bool {
        let followers = &mut self.0.lock().followers;
        let position = followers.iter().position(|other| Arc::ptr_eq(other, thread));
        if let Some(position) = position {
            followers.swap_remove(position);
        }
        thread.is_leader.store(false, SeqCst);
        position.is_none()
    }

    /// Passes the lead to a follower, if there is one.
    pub fn pass_lead(&self) {
        let mut state = self.0.lock();
        let next = state.followers.pop();
        state.has_leader = next.is_some();
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
        (state.sleeping, state.until) = (true, until);
        until
    }

    /// Notes that the leader is awake.
    pub fn end_sleep(&self) {
        self.0.lock().sleeping = false;
    }

    /// Returns whether the leader sleeps beyond `moment`.
    pub fn sleeps_past(&self, moment: Instant) -> bool {
        let state = self.0.lock();
        state.sleeping && state.until.is_none_or(|until| moment < until)
    }

    /// Forgets all threads; called in a forked child, which has none of them.
    pub fn clear(&self) {
        *self.0.lock() = WaitersState::default();
    }
}
