//! Reactor: client connections that the waiting threads drive themselves. It starts no thread and
//! needs no runtime, and its process may fork.

use crate::{
    driven_connection::{Driven, DrivenConnection, Input},
    fork_lock::{ForkGuard, ForkLock},
    leader_follower::{Waiters, WaitingThread},
    raw_socket::{PollEntry, Poller},
    spin_policy::{SpinPolicy, SpinStep},
};
use node::LocalTime;
use parking_lot::Mutex;
use rustix::{fs::Timespec, thread::sched_getaffinity};
use std::{
    cell::Cell,
    fmt,
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// Longest time that a thread busy-polls for its reply before it sleeps: longer than a node of this
/// host takes for a request of each of a dozen clients. It lets others have the processor all the
/// while, so a process that waits takes none from those that it waits for.
const SPIN: Duration = Duration::from_micros(200);
/// Interval at which a caller that may cancel is asked, even if no signal interrupts its wait.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    static THREAD_STATE: Cell<ThreadState> = const { Cell::new(ThreadState::Outside) };
}

/// State of a thread in a reactor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ThreadState {
    Outside,
    /// Drives connections.
    Driving,
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
pub struct Reactor(Arc<ReactorInner>);

/// State that clones share.
pub struct ReactorInner {
    poller: Mutex<Arc<Poller>>,
    connections: Mutex<Arc<[Arc<DrivenConnection>]>>,
    waiters: Waiters,
    /// Timers of the futures that are polled here.
    pub time: LocalTime,
    /// Spin policy of the leader.
    spin_policy: Mutex<SpinPolicy>,
    fork_lock: ForkLock,
    generation: AtomicU64,
    last_number: AtomicU64,
}

impl Reactor {
    /// Creates a reactor without connections. Fails if this process can open no more descriptors.
    pub fn new() -> io::Result<Self> {
        // A single processor is what the node needs to answer, so do not spin on it.
        // `sched_getaffinity` is one call; `available_parallelism` of the standard library first
        // reads cgroup files, a dozen system calls in each process that touches a pool.
        let alone = sched_getaffinity(None).is_ok_and(|processors| processors.count() == 1);
        Self::with_spin(if alone { Duration::ZERO } else { SPIN })
    }

    /// Like [`Self::new`], with this longest time of busy polling before a thread sleeps.
    pub fn with_spin(spin: Duration) -> io::Result<Self> {
        Ok(Self(Arc::new(ReactorInner {
            poller: Mutex::new(Arc::new(Poller::new()?)),
            connections: Mutex::new(Arc::new([])),
            waiters: Waiters::default(),
            time: LocalTime::new(),
            spin_policy: Mutex::new(SpinPolicy::eager(spin)),
            fork_lock: ForkLock::default(),
            generation: AtomicU64::new(0),
            last_number: AtomicU64::new(0),
        })))
    }

    /// Waits for the output of a future, and drives connections meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.wait(future, None).expect("nobody gives up")
    }

    /// Like [`Self::block_on`], unless the caller cancels: `is_cancelled` is called when a signal
    /// has interrupted the wait, and ten times a second. Then the future is dropped.
    pub fn block_on_unless<F: Future>(&self, future: F, mut is_cancelled: impl FnMut() -> bool) -> Option<F::Output> {
        self.wait(future, Some(&mut is_cancelled))
    }

    fn wait<F: Future>(&self, future: F, mut is_cancelled: Option<&mut dyn FnMut() -> bool>) -> Option<F::Output> {
        let mut future = pin!(future);
        let thread = self.0.run_locked(|| WaitingThread::new(self.poller()));
        let waker = Waker::from(thread.clone());
        loop {
            thread.run();
            if let Poll::Ready(output) = self.poll(future.as_mut(), &mut Context::from_waker(&waker)) {
                return Some(output);
            }
            while !thread.is_woken() {
                let is_cancelled = is_cancelled.as_mut();
                self.0.sleep(&thread, is_cancelled.is_some());
                if is_cancelled.is_some_and(|is_cancelled| !thread.is_woken() && is_cancelled()) {
                    return None;
                }
            }
        }
    }

    /// Polls a future once and sends the requests that it makes. Its waker is woken by a thread
    /// that drives the connections: one that waits here, or one that calls [`Self::poll_io`].
    pub fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.run_locked(|| {
            let polled = {
                let _time = self.0.time.enter();
                let _state = ThreadStateGuard::set(ThreadState::Polling);
                future.poll(context)
            };
            self.0.drive_connections(|connection| connection.needs_drive().then_some(Input::Unknown));
            if polled.is_pending() {
                self.0.wake_for_timer();
            }
            polled
        })
    }

    /// Makes all progress that is possible without waiting. Returns the time at which to call it
    /// again even if [`Self::descriptor`] is not readable.
    pub fn poll_io(&self) -> Option<Instant> {
        self.0.run_locked(|| {
            self.0.drive_connections(|_| Some(Input::Possible));
            self.0.time.wake_due();
        });
        self.0.time.next()
    }

    /// Descriptor that is readable when there is something for [`Self::poll_io`], for an event loop
    /// that waits for other things too. A forked child needs a new one.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.poller().as_fd().try_clone_to_owned()
    }

    /// Waits until no thread is inside the reactor; none enters before [`Self::after_fork`].
    pub fn before_fork(&self) {
        self.0.fork_lock.close();
    }

    /// Call after [`Self::before_fork`], in the process that forked and in its child. Fails in a
    /// child that can open no more descriptors; then no connection can be made there.
    pub fn after_fork(&self, is_child: bool) -> io::Result<()> {
        if !is_child {
            self.0.fork_lock.open();
            return Ok(());
        }
        self.0.generation.fetch_add(1, Relaxed);
        self.poller().mark_inherited();
        let connections = std::mem::replace(&mut *self.0.connections.lock(), Arc::new([]));
        connections.iter().for_each(|connection| connection.clone().abandon());
        std::mem::forget(connections);
        self.0.waiters.clear();
        let poller = Poller::new().map(|poller| *self.0.poller.lock() = Arc::new(poller));
        self.0.fork_lock.open_in_child();
        poller
    }

    /// Number of forks between the process that created the reactor and this one.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// Drives a connection, until it ends or the process forks; `open` starts it.
    pub fn drive<D: Driven + 'static>(&self, open: impl FnOnce(Arc<PollEntry>) -> D) {
        self.0.run_locked(|| {
            let number = self.0.last_number.fetch_add(1, Relaxed) + 1;
            let driven = open(PollEntry::new(self.poller(), number));
            let connection = DrivenConnection::new(number, Box::new(driven), &self.0);
            let mut all = self.0.connections.lock();
            *all = all.iter().chain([&connection]).cloned().collect();
            drop(all);
            self.0.drive_soon(&connection);
        });
    }

    fn poller(&self) -> Arc<Poller> {
        self.0.poller.lock().clone()
    }
}

impl ReactorInner {
    /// Runs `work` under the fork lock.
    pub fn run_locked<T>(&self, work: impl FnOnce() -> T) -> T {
        self.run_locked_with(|_| work())
    }

    fn run_locked_with<T>(&self, work: impl FnOnce(Option<&mut ForkGuard<'_>>) -> T) -> T {
        if THREAD_STATE.get() != ThreadState::Outside {
            return work(None);
        }
        let mut guard = self.fork_lock.acquire();
        let _state = ThreadStateGuard::set(ThreadState::Driving);
        work(Some(&mut guard))
    }

    /// Drives the connections for which `selects` returns an input.
    fn drive_connections(&self, selects: impl Fn(&DrivenConnection) -> Option<Input>) {
        let all = self.connections.lock().clone();
        for connection in &*all {
            if let Some(input) = selects(connection) {
                connection.drive(input);
            }
        }
    }

    /// Drives a connection: now, or after the future that this thread is polling, so that requests
    /// made together are sent together.
    pub fn drive_soon(&self, connection: &Arc<DrivenConnection>) {
        if THREAD_STATE.get() != ThreadState::Polling {
            self.run_locked(|| connection.drive(Input::Unknown));
            self.wake_for_timer();
        }
    }

    /// Wakes the leader if it would sleep beyond the next timer.
    fn wake_for_timer(&self) {
        if self.time.next().is_some_and(|next| self.waiters.sleeps_past(next)) {
            self.poller.lock().wake();
        }
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, number: u64) {
        let mut all = self.connections.lock();
        let left = all.iter().filter(|connection| connection.number != number).cloned().collect();
        let before = std::mem::replace(&mut *all, left);
        drop(all);
        drop(before); // outside the lock: a view that it holds may come back here
    }

    /// Sleeps until woken; if the caller may cancel, at most until it must be asked.
    fn sleep(&self, thread: &Arc<WaitingThread>, may_cancel: bool) {
        let most = may_cancel.then(|| Timespec { tv_sec: 0, tv_nsec: i64::from(CANCEL_CHECK_INTERVAL.subsec_nanos()) });
        self.run_locked_with(|mut guard| {
            let is_leader = self.waiters.join(thread) || {
                run_unlocked(guard.as_deref_mut(), || thread.sleep(most.as_ref()));
                self.waiters.leave(thread)
            };
            if is_leader {
                LeaderGuard(self).lead(thread, may_cancel, guard);
            }
        });
    }
}

/// Guard of the leading thread; dropping it passes the lead on.
struct LeaderGuard<'a>(&'a ReactorInner);

impl LeaderGuard<'_> {
    /// Polls the sockets until the thread is woken, or the caller must be asked whether it cancels.
    fn lead(&self, thread: &Arc<WaitingThread>, may_cancel: bool, mut guard: Option<&mut ForkGuard<'_>>) {
        let (reactor, mut ready) = (self.0, Vec::new());
        let check_at = may_cancel.then(|| Instant::now() + CANCEL_CHECK_INTERVAL);
        while !thread.is_woken() {
            if reactor.spin_policy.lock().on_idle(Instant::now(), false) == SpinStep::Spin {
                thread::yield_now();
                reactor.drive_connections(|connection| connection.has_work().then_some(Input::Possible));
                reactor.time.wake_due();
                continue;
            }
            let was_interrupted = self.wait_for_events(thread, check_at, &mut ready, guard.as_deref_mut());
            self.drive_ready(thread, &ready);
            ready.clear();
            if check_at.is_some_and(|check_at| was_interrupted || Instant::now() >= check_at) {
                return;
            }
        }
        reactor.spin_policy.lock().on_message(Instant::now());
    }

    /// Drives the connections that a sleep has reported as ready. After a timer all are driven: the
    /// time limit of a connect is kept by its connection.
    fn drive_ready(&self, thread: &WaitingThread, ready: &[u64]) {
        let reactor = self.0;
        let drive_all = reactor.time.wake_due() || (ready.is_empty() && !thread.is_woken());
        reactor.drive_connections(|connection| match () {
            () if ready.contains(&connection.number) => Some(Input::Possible),
            () if drive_all && connection.has_work() => Some(Input::Possible),
            () => connection.needs_drive().then_some(Input::Unknown),
        });
    }

    /// Sleeps until an event or `until`; returns whether a signal came.
    fn wait_for_events(
        &self,
        thread: &WaitingThread,
        until: Option<Instant>,
        ready: &mut Vec<u64>,
        guard: Option<&mut ForkGuard<'_>>,
    ) -> bool {
        let reactor = self.0;
        let poller = reactor.poller.lock().clone();
        let until = reactor.waiters.begin_sleep(|| reactor.time.next().into_iter().chain(until).min());
        let waited = run_unlocked(guard, || thread.poll_sockets(|| poller.wait(until, ready)));
        reactor.waiters.end_sleep();
        match waited {
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => true,
            Some(Err(error)) => panic!("the sockets of this process cannot be waited for: {error}"),
            Some(Ok(())) | None => false,
        }
    }
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        self.0.waiters.pass_lead();
    }
}

/// Runs `sleep` without the fork lock, if this thread holds it.
fn run_unlocked<T>(guard: Option<&mut ForkGuard<'_>>, sleep: impl FnOnce() -> T) -> T {
    match guard {
        Some(guard) => guard.run_unlocked(sleep),
        None => sleep(),
    }
}

/// Guard that sets the state of this thread and restores the one before.
struct ThreadStateGuard(ThreadState);

impl ThreadStateGuard {
    fn set(at: ThreadState) -> Self {
        Self(THREAD_STATE.replace(at))
    }
}

impl Drop for ThreadStateGuard {
    fn drop(&mut self) {
        THREAD_STATE.set(self.0);
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reactor").field("connections", &*self.0.connections.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "reactor_test.rs"]
mod reactor_test;
