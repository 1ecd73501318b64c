//! Who waits with a hand: one leads and looks at the sockets for all; the others sleep until they are woken, or the lead is theirs.

use crate::bare::Gear;
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

/// It goes on by itself.
const RUNS: u32 = 0;
/// It is to look at what it waits for.
const WOKEN: u32 = 1;
/// It sleeps until it is woken.
const SLEEPS: u32 = 2;
/// It sleeps until something comes over a socket, or the bell rings.
const LOOKS: u32 = 3;

/// A thread that waits.
#[derive(Debug)]
pub struct Wait {
    state: AtomicU32,
    /// The lead was given to it.
    leads: AtomicBool,
    gear: Arc<Gear>,
}

impl Wait {
    /// A thread that does not wait yet.
    pub fn new(gear: Arc<Gear>) -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(RUNS), leads: AtomicBool::new(false), gear })
    }

    /// It looks at what it waits for: from now on it is woken anew.
    pub fn run(&self) {
        self.state.store(RUNS, SeqCst);
    }

    /// Whether it is to look at what it waits for.
    pub fn is_woken(&self) -> bool {
        self.state.load(SeqCst) == WOKEN
    }

    /// Sleeps until it is woken, leads, a signal has come, or this time is over.
    pub fn sleep(&self, most: Option<&Timespec>) {
        if self.begin(SLEEPS) && !self.leads.load(SeqCst) {
            // Each of its ends is one of those.
            let _ = futex::wait(&self.state, Flags::PRIVATE, SLEEPS, most);
        }
        self.end(SLEEPS);
    }

    /// Looks at sockets, unless it was woken.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let looked = self.begin(LOOKS).then(look);
        self.end(LOOKS);
        looked
    }

    fn begin(&self, what: u32) -> bool {
        self.state.compare_exchange(RUNS, what, SeqCst, Relaxed).is_ok()
    }

    fn end(&self, what: u32) {
        // Else it was woken meanwhile.
        let _ = self.state.compare_exchange(what, RUNS, SeqCst, Relaxed);
    }

    /// It leads now.
    fn promote(&self) {
        self.leads.store(true, SeqCst); // before it is looked whether it sleeps, and it the other way round
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

/// All that wait with one hand.
#[derive(Debug, Default)]
pub struct Crew(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_led: bool,
    followers: Vec<Arc<Wait>>,
    /// The leader sleeps.
    sleeps: bool,
    /// Until when at most it does; none where nothing else would wake it.
    until: Option<Instant>,
}

impl Crew {
    /// Whether this one leads now; else it follows until it leaves.
    pub fn join(&self, wait: &Arc<Wait>) -> bool {
        let mut state = self.0.lock();
        let leads = !std::mem::replace(&mut state.is_led, true);
        if !leads {
            state.followers.push(wait.clone());
        }
        leads
    }

    /// It follows no longer; whether that is because it leads now.
    pub fn leave(&self, wait: &Arc<Wait>) -> bool {
        let followers = &mut self.0.lock().followers;
        let place = followers.iter().position(|other| Arc::ptr_eq(other, wait));
        if let Some(place) = place {
            followers.swap_remove(place);
        }
        wait.leads.store(false, SeqCst);
        place.is_none()
    }

    /// Who led does so no longer: somebody else does, if there is anybody.
    pub fn pass_on(&self) {
        let mut state = self.0.lock();
        let next = state.followers.pop();
        state.is_led = next.is_some();
        drop(state);
        if let Some(next) = next {
            next.promote();
        }
    }

    /// The leader goes to sleep until a moment that is looked up here.
    pub fn begin_sleep(&self, until: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let mut state = self.0.lock();
        let until = until();
        (state.sleeps, state.until) = (true, until);
        until
    }

    /// It sleeps no longer.
    pub fn end_sleep(&self) {
        self.0.lock().sleeps = false;
    }

    /// Whether the leader sleeps longer than until then.
    pub fn oversleeps(&self, moment: Instant) -> bool {
        let state = self.0.lock();
        state.sleeps && state.until.is_none_or(|until| moment < until)
    }

    /// In a child of the process: nobody else is there.
    pub fn forget(&self) {
        *self.0.lock() = State::default();
    }
}
