//! Reactor: client connections that the waiting threads drive themselves. It starts no thread and
//! needs no runtime, and its process may fork.

use crate::{
    client_connection::Line,
    dial::Target,
    driven_connection::Carried,
    fork_lock::{Gate, Inside},
    leader_follower::{Crew, Wait},
    raw_socket::Gear,
};
use node::LocalTime;
use parking_lot::Mutex;
use rustix::{fs::Timespec, thread::sched_getaffinity};
use std::{
    cell::Cell,
    fmt,
    future::Future,
    hint, io,
    os::fd::{AsFd, OwnedFd},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Time that a thread busy-polls for its reply before it sleeps: longer than a node of this host
/// that is awake takes for one, and shorter than a wake-up. So busy polling costs at most what
/// sleeping would have.
const SPIN: Duration = Duration::from_micros(30);
/// Interval at which a caller that may cancel is asked, even if no signal interrupts its wait.
const ASK_AGAIN: Duration = Duration::from_millis(100);

thread_local! {
    static AT: Cell<At> = const { Cell::new(At::Outside) };
}

/// State of a thread in a reactor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Outside,
    /// Drives connections.
    Inside,
    /// Polls the future of a caller; the requests that it makes are sent together afterwards.
    Polling,
}

/// Reactor: drives connections on the threads that wait for them. Cheap to clone; clones share one
/// reactor.
///
/// All threads of a process may share a reactor: one of the waiting threads polls the sockets for
/// all. Only [`Self::block_on`] and [`Self::poll`] may poll futures over its connections.
///
/// A process that forks while other threads use the reactor calls [`Self::before_fork`], and then
/// [`Self::after_fork`] in the parent and in the child. The child sends nothing on its parent's
/// connections; its first call makes new ones, in a session of its own. If another thread was
/// starting a client's session at the fork, that client stays unfinished in the child, which must
/// connect a new one.
#[derive(Clone)]
pub struct Hand(Arc<Inner>);

/// State that clones share.
pub struct Inner {
    gear: Mutex<Arc<Gear>>,
    carried: Mutex<Arc<[Arc<Carried>]>>,
    crew: Crew,
    /// Timers of the futures that are polled here.
    pub time: LocalTime,
    spin: Duration,
    gate: Gate,
    generation: AtomicU64,
    made: AtomicU64,
}

impl Hand {
    /// Creates a reactor without connections. Fails if this process can open no more descriptors.
    pub fn new() -> io::Result<Self> {
        // A single processor is what the node needs to answer, so do not spin on it.
        // `sched_getaffinity` is one call; `available_parallelism` of the standard library first
        // reads cgroup files, a dozen system calls in each process that touches a pool.
        let alone = sched_getaffinity(None).is_ok_and(|processors| processors.count() == 1);
        Self::spinning(if alone { Duration::ZERO } else { SPIN })
    }

    /// Like [`Self::new`], with this time of busy polling before a thread sleeps.
    pub fn spinning(spin: Duration) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            gear: Mutex::new(Arc::new(Gear::new()?)),
            carried: Mutex::new(Arc::new([])),
            crew: Crew::default(),
            time: LocalTime::new(),
            spin,
            gate: Gate::default(),
            generation: AtomicU64::new(0),
            made: AtomicU64::new(0),
        })))
    }

    /// Waits for the output of a future, and drives connections meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.wait(future, None).expect("nobody gives up")
    }

    /// Like [`Self::block_on`], unless the caller cancels: `gives_up` is asked when a signal has
    /// interrupted the wait, and ten times a second. Then the future is dropped.
    pub fn block_on_unless<F: Future>(&self, future: F, mut gives_up: impl FnMut() -> bool) -> Option<F::Output> {
        self.wait(future, Some(&mut gives_up))
    }

    fn wait<F: Future>(&self, future: F, mut gives_up: Option<&mut dyn FnMut() -> bool>) -> Option<F::Output> {
        let mut future = pin!(future);
        let wait = self.0.enter(|| Wait::new(self.gear()));
        let waker = Waker::from(wait.clone());
        loop {
            wait.run();
            if let Poll::Ready(output) = self.poll(future.as_mut(), &mut Context::from_waker(&waker)) {
                return Some(output);
            }
            while !wait.is_woken() {
                let gives_up = gives_up.as_mut();
                self.0.sleep(&wait, gives_up.is_some());
                if gives_up.is_some_and(|gives_up| !wait.is_woken() && gives_up()) {
                    return None;
                }
            }
        }
    }

    /// Polls a future once and sends the requests that it makes. Its waker is woken by a thread
    /// that drives the connections: one that waits here, or one that calls [`Self::turn`].
    pub fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.enter(|| {
            let polled = {
                let _time = self.0.time.enter();
                let _at = Set::to(At::Polling);
                future.poll(context)
            };
            self.0.turn(Carried::is_wanted);
            if polled.is_pending() {
                self.0.wake_in_time();
            }
            polled
        })
    }

    /// Makes all progress that is possible without waiting. Returns the time at which to call it
    /// again even if [`Self::descriptor`] is not readable.
    pub fn turn(&self) -> Option<Instant> {
        self.0.enter(|| {
            self.0.turn(|_| true);
            self.0.time.wake_due();
        });
        self.0.time.next()
    }

    /// Descriptor that is readable when there is something to [`Self::turn`], for an event loop
    /// that waits for other things too. A forked child needs a new one.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.gear().as_fd().try_clone_to_owned()
    }

    /// Waits until no thread is inside the reactor; none enters before [`Self::after_fork`].
    pub fn before_fork(&self) {
        self.0.gate.close();
    }

    /// Call after [`Self::before_fork`], in the process that forked and in its child. Fails in a
    /// child that can open no more descriptors; then no connection can be made there.
    pub fn after_fork(&self, is_child: bool) -> io::Result<()> {
        if !is_child {
            self.0.gate.open();
            return Ok(());
        }
        self.0.generation.fetch_add(1, Relaxed);
        self.gear().leave();
        let carried = std::mem::replace(&mut *self.0.carried.lock(), Arc::new([]));
        carried.iter().for_each(|carried| carried.clone().abandon());
        std::mem::forget(carried);
        self.0.crew.forget();
        let gear = Gear::new().map(|gear| *self.0.gear.lock() = Arc::new(gear));
        self.0.gate.open_in_child();
        gear
    }

    /// Number of forks between the process that created the reactor and this one.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// Opens and drives a connection.
    pub(crate) fn carry(&self, target: &Arc<Target>, line: &Arc<Line>) {
        self.0.enter(|| {
            let number = self.0.made.fetch_add(1, Relaxed) + 1;
            let carried = Carried::new(target, line, &self.0, self.gear(), number);
            let mut all = self.0.carried.lock();
            *all = all.iter().chain([&carried]).cloned().collect();
            drop(all);
            self.0.turn_soon(&carried);
        });
    }

    fn gear(&self) -> Arc<Gear> {
        self.0.gear.lock().clone()
    }
}

impl Inner {
    /// Runs `what` under the fork lock.
    pub fn enter<T>(&self, what: impl FnOnce() -> T) -> T {
        self.enter_and(|_| what())
    }

    fn enter_and<T>(&self, what: impl FnOnce(Option<&mut Inside<'_>>) -> T) -> T {
        if AT.get() != At::Outside {
            return what(None);
        }
        let mut inside = self.gate.enter();
        let _at = Set::to(At::Inside);
        what(Some(&mut inside))
    }

    /// Drives the connections that `which` selects.
    fn turn(&self, which: impl Fn(&Carried) -> bool) {
        let all = self.carried.lock().clone();
        all.iter().filter(|carried| which(carried)).for_each(Carried::turn);
    }

    /// Drives a connection: now, or after the future that this thread is polling, so that requests
    /// made together are sent together.
    pub fn turn_soon(&self, carried: &Arc<Carried>) {
        if AT.get() != At::Polling {
            self.enter(|| carried.turn());
            self.wake_in_time();
        }
    }

    /// Wakes the leader if it would sleep beyond the next timer.
    fn wake_in_time(&self) {
        if self.time.next().is_some_and(|next| self.crew.oversleeps(next)) {
            self.gear.lock().ring();
        }
    }

    /// Removes a connection that has ended.
    pub fn let_go(&self, number: u64) {
        let mut all = self.carried.lock();
        let left = all.iter().filter(|carried| carried.number != number).cloned().collect();
        let before = std::mem::replace(&mut *all, left);
        drop(all);
        drop(before); // outside the lock: a view that it holds may come back here
    }

    /// Sleeps until woken; if the caller may cancel, at most until it must be asked.
    fn sleep(&self, wait: &Arc<Wait>, is_asked: bool) {
        let most = is_asked.then(|| Timespec { tv_sec: 0, tv_nsec: i64::from(ASK_AGAIN.subsec_nanos()) });
        self.enter_and(|mut inside| {
            let leads = self.crew.join(wait) || {
                outside(inside.as_deref_mut(), || wait.sleep(most.as_ref()));
                self.crew.leave(wait)
            };
            if leads {
                Leading(self).lead(wait, is_asked, inside);
            }
        });
    }
}

/// Guard of the leading thread; dropping it passes the lead on.
struct Leading<'a>(&'a Inner);

impl Leading<'_> {
    /// Polls the sockets until the thread is woken, or the caller must be asked whether it cancels.
    fn lead(&self, wait: &Arc<Wait>, is_asked: bool, mut inside: Option<&mut Inside<'_>>) {
        let hand = self.0;
        let (begun, mut came) = (Instant::now(), Vec::new());
        loop {
            hand.turn(|carried| carried.is_waited_for() || came.contains(&carried.number));
            came.clear();
            hand.time.wake_due();
            if wait.is_woken() {
                return;
            }
            if begun.elapsed() < hand.spin {
                hint::spin_loop();
                continue;
            }
            let asked = is_asked.then(|| begun + ASK_AGAIN);
            let was_interrupted = self.look(wait, asked, &mut came, inside.as_deref_mut());
            if asked.is_some_and(|asked| was_interrupted || Instant::now() >= asked) {
                return;
            }
        }
    }

    /// Sleeps until an event or `until`; returns whether a signal came.
    fn look(&self, wait: &Wait, until: Option<Instant>, came: &mut Vec<u64>, inside: Option<&mut Inside<'_>>) -> bool {
        let hand = self.0;
        let gear = hand.gear.lock().clone();
        let until = hand.crew.begin_sleep(|| hand.time.next().into_iter().chain(until).min());
        let looked = outside(inside, || wait.look(|| gear.wait(until, came)));
        hand.crew.end_sleep();
        match looked {
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => true,
            Some(Err(error)) => panic!("the sockets of this process cannot be waited for: {error}"),
            Some(Ok(())) | None => false,
        }
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.crew.pass_on();
    }
}

/// Runs `sleep` without the fork lock, if this thread holds it.
fn outside<T>(inside: Option<&mut Inside<'_>>, sleep: impl FnOnce() -> T) -> T {
    match inside {
        Some(inside) => inside.outside(sleep),
        None => sleep(),
    }
}

/// Guard that sets the state of this thread and restores the one before.
struct Set(At);

impl Set {
    fn to(at: At) -> Self {
        Self(AT.replace(at))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        AT.set(self.0);
    }
}

impl fmt::Debug for Hand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hand").field("carried", &*self.0.carried.lock()).finish_non_exhaustive()
    }
}
