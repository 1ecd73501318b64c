//! Connections that are turned by who waits for them: no thread is started, no runtime is needed, and a process may fork.

use crate::{
    bare::Gear,
    carried::Carried,
    crew::{Crew, Wait},
    dial::Target,
    gate::{Gate, Inside},
    line::Line,
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

/// An answer is looked for so long before its thread sleeps: longer than a node of this host that is awake needs for one, and less than
/// being woken takes. So what it costs is at most what sleeping would have.
const SPIN: Duration = Duration::from_micros(30);
/// Who may be told to give up is asked so often, though no signal comes where it waits.
const ASK_AGAIN: Duration = Duration::from_millis(100);

thread_local! {
    static AT: Cell<At> = const { Cell::new(At::Outside) };
}

/// What a thread does in a hand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Outside,
    /// It turns connections.
    Inside,
    /// It polls what somebody waits for: what that says goes together, when it was polled.
    Polling,
}

/// Connections that are turned by who waits for them. Cheap to clone; clones are one hand.
///
/// All threads of a process may share one: one of those that wait looks at the sockets for all. Futures over its connections are polled by
/// [`Self::block_on`] or [`Self::poll`] alone.
///
/// A process that forks while other threads are here calls [`Self::before_fork`], and [`Self::after_fork`] on both sides. The child says nothing on
/// its parent's connections; its first call makes new ones, in a session of its own. A client that another thread had in the middle
/// of beginning a session stays so in the child, which connects a new one then.
#[derive(Clone)]
pub struct Hand(Arc<Inner>);

/// What clones share.
pub struct Inner {
    gear: Mutex<Arc<Gear>>,
    carried: Mutex<Arc<[Arc<Carried>]>>,
    crew: Crew,
    /// The time of what is polled here.
    pub time: LocalTime,
    spin: Duration,
    gate: Gate,
    generation: AtomicU64,
    made: AtomicU64,
}

impl Hand {
    /// With no connection. Fails where this process may have no more descriptors.
    pub fn new() -> io::Result<Self> {
        // A single processor is what the node needs to answer. Asked of the system at once: what the standard library has for it reads the
        // files of control groups first, a dozen calls in each process that touches a pool.
        let alone = sched_getaffinity(None).is_ok_and(|processors| processors.count() == 1);
        Self::spinning(if alone { Duration::ZERO } else { SPIN })
    }

    /// The same, where a thread that waits looks so long for its answer before it sleeps.
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

    /// Waits for what a future brings, and turns connections meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.wait(future, None).expect("nobody gives up")
    }

    /// The same, unless it is given up: that is asked when a signal has interrupted the wait, and ten times a second. Then the future is dropped.
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

    /// Polls a future, once; what it asks for is sent then. Its waker is woken by whoever turns the connections: a thread that waits here, or
    /// who calls [`Self::turn`].
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

    /// Does all that can be done now, without waiting; tells when it is to be called again, though [`Self::descriptor`] shows nothing.
    pub fn turn(&self) -> Option<Instant> {
        self.0.enter(|| {
            self.0.turn(|_| true);
            self.0.time.wake_due();
        });
        self.0.time.next()
    }

    /// A descriptor that can be read from when there is something to [`Self::turn`], for the loop of who waits for other things too. It is
    /// asked for anew in a child.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.gear().as_fd().try_clone_to_owned()
    }

    /// Waits until no thread is in the middle of something here; none goes on until [`Self::after_fork`].
    pub fn before_fork(&self) {
        self.0.gate.close();
    }

    /// Behind [`Self::before_fork`], in the process that forked and in its child. Fails in a child that may have no more descriptors; then no
    /// connection can be made there.
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

    /// In how many processes, each forked by the one before, this has been.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// Makes and drives a connection.
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
    /// Does something that no fork comes into.
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

    /// Turns some connections.
    fn turn(&self, which: impl Fn(&Carried) -> bool) {
        let all = self.carried.lock().clone();
        all.iter().filter(|carried| which(carried)).for_each(Carried::turn);
    }

    /// Turns a connection: now, or when what is being polled was polled, so that what is asked together goes together.
    pub fn turn_soon(&self, carried: &Arc<Carried>) {
        if AT.get() != At::Polling {
            self.enter(|| carried.turn());
            self.wake_in_time();
        }
    }

    /// Wakes who leads, if that one sleeps longer than somebody else may.
    fn wake_in_time(&self) {
        if self.time.next().is_some_and(|next| self.crew.oversleeps(next)) {
            self.gear.lock().ring();
        }
    }

    /// A connection has ended.
    pub fn let_go(&self, number: u64) {
        let mut all = self.carried.lock();
        let left = all.iter().filter(|carried| carried.number != number).cloned().collect();
        let before = std::mem::replace(&mut *all, left);
        drop(all);
        drop(before); // not under the lock: what a connection had may be somebody's view
    }

    /// Sleeps until there is an answer; when it is asked whether it gives up, no longer than until then.
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

/// The thread that leads; when this is dropped another does.
struct Leading<'a>(&'a Inner);

impl Leading<'_> {
    /// Looks at the sockets until there is an answer, or it is to be asked whether it gives up.
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

    /// Sleeps until something comes, or until then; whether a signal came.
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

/// Sleeps where a fork may come.
fn outside<T>(inside: Option<&mut Inside<'_>>, sleep: impl FnOnce() -> T) -> T {
    match inside {
        Some(inside) => inside.outside(sleep),
        None => sleep(),
    }
}

/// What this thread does; when this is dropped, what it did before.
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
