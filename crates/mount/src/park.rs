//! Replies to requests: immediately if the pool can answer, otherwise deferred (parked) until it
//! can.
//!
//! ```text
//!   serve --poll once--> ready   --> reply on this thread        (nearly always)
//!                    \-> pending --> a task holds the reply; the thread serves the next request
//!                                      |-- the future ends           --> reply
//!                                      \-- the caller gets a signal  --> EINTR, if cancellable
//! ```
//!
//! No thread of the transport ever waits, so a full pool cannot block the reads and deletions that
//! would empty it.

use std::{
    future::{Future, pending},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use rustix::io::Errno;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{Object, Outcome, Refusal};

use crate::{errno, traffic::Counters};

/// Largest number of parked requests; each may hold 1 MiB of data. A caller has one request at a
/// time, so it takes this many waiting threads to reach the limit.
const PARKED_MAX: usize = 256;
/// Largest number of requests that wait for locks. They hold no data, and must not use up the
/// permits of other requests.
const LOCKERS_MAX: usize = 4096;
/// Time in which an interrupted request may still complete. A request that waits only for another
/// kernel's cache-invalidation ack completes by then, and must not report EINTR for a change that
/// was made. Waits for space and locks are much longer. A person who pressed Ctrl-C does not notice
/// the delay.
const GRACE: Duration = Duration::from_millis(20);

/// A pending reply to the kernel.
pub(crate) trait Answer: Send + 'static {
    /// Sends the error.
    fn refuse(self, errno: Errno);
    /// Resolves when the caller has received a signal that is fatal or that it handles; otherwise
    /// never.
    fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static;
}

impl Answer for fuse_transport::FuseReply {
    fn refuse(self, errno: Errno) {
        self.error(errno.raw_os_error());
    }

    fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        Self::interrupted(self)
    }
}

/// Effect of a signal on a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// Cancels the request with EINTR, without side effects.
    GiveUp,
    /// None: the request is completed. A close by a killed process must still close, and a rename
    /// must not be left half done.
    GoOn,
}

/// Properties of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Name of the operation, for the log.
    pub(crate) operation: &'static str,
    /// Effect of a signal.
    pub(crate) on_signal: OnSignal,
    /// Queue for a request that must wait.
    pub(crate) queue: Queue,
}

/// Queue that a waiting request counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Waits for space, or for the cache-invalidation acks of a change.
    Pool,
    /// Waits for a lock of another program.
    Locks,
}

/// The deferred requests of a mount.
#[derive(Debug)]
pub(crate) struct Parking {
    /// Runtime of the mount's own, if any; present until dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    /// Cancels the parked requests when this is dropped.
    ending: DropGuard,
    places: Arc<Semaphore>,
    lockers: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Parking {
    /// Creates the queues. Parked requests wait on `runtime`, or if that is `None` on a new thread
    /// of the mount's own.
    pub(crate) fn new(counters: Arc<Counters>, runtime: Option<&Handle>) -> std::io::Result<Self> {
        let (runtime, handle) = if let Some(given) = runtime {
            (None, given.clone())
        } else {
            let own = Builder::new_multi_thread().worker_threads(1).thread_name("fuse-parked").enable_time().build()?;
            let handle = own.handle().clone();
            (Some(own), handle)
        };
        Ok(Self {
            runtime,
            handle,
            ending: CancellationToken::new().drop_guard(),
            places: Arc::new(Semaphore::new(PARKED_MAX)),
            lockers: Arc::new(Semaphore::new(LOCKERS_MAX)),
            counters,
        })
    }

    /// Runs `future`. Passes its value to `answer`, or replies with its refusal.
    pub(crate) fn serve<T, R, A>(
        &self,
        call: Call,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: Answer,
        A: FnOnce(R, T) + Send + 'static,
    {
        let mut future = Box::pin(future);
        match self.poll_once(future.as_mut()) {
            Some(Poll::Ready(outcome)) => deliver(call, outcome, reply, answer),
            Some(Poll::Pending) => self.park(call, future, reply, answer),
            // The panic's message is already printed. The thread continues with other requests.
            None => reply.refuse(Errno::IO),
        }
    }

    /// Blocks until `future` completes. Must not be called on a thread that serves requests.
    pub(crate) fn wait<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        // Blocks a new thread, because the caller may be inside a runtime already.
        let waited = thread::scope(|scope| scope.spawn(|| self.handle.block_on(future)).join());
        waited.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs `future` in the background.
    pub(crate) fn run(&self, operation: &'static str, future: impl Future<Output = Outcome<()>> + Send + 'static) {
        let mut future = Box::pin(future);
        match self.poll_once(future.as_mut()) {
            Some(Poll::Ready(outcome)) => log(operation, outcome),
            Some(Poll::Pending) => drop(self.handle.spawn(async move { log(operation, future.await) })),
            None => {}
        }
    }

    /// Polls a future once; `None` if it panicked.
    fn poll_once<T>(&self, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<Poll<T>> {
        let _timers = self.handle.enter();
        // A task polls the parked future again, so a wakeup lost here does no harm.
        let mut context = Context::from_waker(Waker::noop());
        catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))).ok()
    }

    fn park<T, R, A>(
        &self,
        call: Call,
        future: Pin<Box<impl Future<Output = Outcome<T>> + Send + 'static>>,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: Answer,
        A: FnOnce(R, T) + Send + 'static,
    {
        let (places, refusal) = match call.queue {
            Queue::Pool => (&self.places, Errno::NOSPC),
            Queue::Locks => (&self.lockers, Errno::NOLCK),
        };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            tracing::warn!("{}: too many requests wait already, so this one is refused", call.operation);
            return reply.refuse(refusal);
        };
        self.counters.parked();
        let signal = reply.interrupted();
        let ended = self.ending.token().clone();
        self.handle.spawn(async move {
            let outcome = tokio::select! {
                biased;
                outcome = future => outcome,
                () = given_up(call.on_signal, signal) => Err(Refusal::Interrupted(Object::Pool)),
                () = ended.cancelled_owned() => return, // dropping the reply sends EIO
            };
            drop(place);
            deliver(call, outcome, reply, answer);
        });
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn deliver<T, R: Answer>(call: Call, outcome: Outcome<T>, reply: R, answer: impl FnOnce(R, T)) {
    match outcome {
        Ok(value) => answer(reply, value),
        Err(refusal) => reply.refuse(errno::tell(call.operation, &refusal)),
    }
}

fn log(operation: &'static str, outcome: Outcome<()>) {
    if let Err(refusal) = outcome {
        errno::tell(operation, &refusal);
    }
}

/// Resolves when the request is to be cancelled: after a signal and the grace period. Never for a
/// request that ignores signals.
async fn given_up(on_signal: OnSignal, signal: impl Future<Output = ()>) {
    if on_signal == OnSignal::GoOn {
        return pending().await;
    }
    signal.await;
    tokio::time::sleep(GRACE).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::ready, sync::mpsc};
    use tokio::sync::watch;
    use wire::SpaceShortage;

    /// Reply that goes to the test instead of the kernel; `Ok` with the thread that sent it.
    struct Told {
        told: mpsc::Sender<Result<thread::ThreadId, Errno>>,
        signal: watch::Receiver<bool>,
    }

    impl Answer for Told {
        fn refuse(self, errno: Errno) {
            self.told.send(Err(errno)).unwrap();
        }

        fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
            let mut signal = self.signal.clone();
            async move {
                if signal.wait_for(|sent| *sent).await.is_err() {
                    pending::<()>().await;
                }
            }
        }
    }

    fn parking() -> Parking {
        Parking::new(Arc::default(), None).unwrap()
    }

    /// The caller's replies, and its way to send a signal.
    type Asked = (mpsc::Receiver<Result<thread::ThreadId, Errno>>, watch::Sender<bool>);

    fn ask(
        parking: &Parking,
        on_signal: OnSignal,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
    ) -> Asked {
        let (told, hear) = mpsc::channel();
        let (send, signal) = watch::channel(false);
        let answer = |reply: Told, ()| reply.told.send(Ok(thread::current().id())).unwrap();
        let call = Call { operation: "test", on_signal, queue: Queue::Pool };
        parking.serve(call, future, Told { told, signal }, answer);
        (hear, send)
    }

    #[test]
    fn what_is_ready_is_answered_on_the_callers_thread() {
        let (hear, _) = ask(&parking(), OnSignal::GoOn, ready(Ok(())));
        assert_eq!(hear.try_recv().unwrap(), Ok(thread::current().id()));
    }

    #[test]
    fn what_must_wait_is_answered_later_and_holds_up_nothing() {
        let parking = parking();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (waiting, _signal) = ask(&parking, OnSignal::GiveUp, async {
            wait.await.unwrap();
            Ok(())
        });
        assert!(waiting.try_recv().is_err());
        assert!(ask(&parking, OnSignal::GoOn, ready(Ok(()))).0.try_recv().is_ok());
        go.send(()).unwrap();
        assert!(waiting.recv().unwrap().is_ok());
        assert_eq!(parking.counters.now().parked, 1);
    }

    #[test]
    fn a_signal_ends_what_may_be_given_up_and_nothing_else() {
        let parking = parking();
        let (gone, signal) = ask(&parking, OnSignal::GiveUp, pending());
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (carried_through, other) = ask(&parking, OnSignal::GoOn, async {
            wait.await.unwrap();
            Ok(())
        });
        other.send(true).unwrap();
        signal.send(true).unwrap();
        assert_eq!(gone.recv().unwrap(), Err(Errno::INTR));
        assert!(carried_through.try_recv().is_err());
        go.send(()).unwrap();
        assert!(carried_through.recv().unwrap().is_ok());
    }

    #[test]
    fn what_is_done_when_the_signal_comes_is_told_as_done() {
        let parking = parking();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (hear, signal) = ask(&parking, OnSignal::GiveUp, async {
            wait.await.unwrap();
            Ok(())
        });
        go.send(()).unwrap();
        signal.send(true).unwrap();
        assert!(hear.recv().unwrap().is_ok());
    }

    #[test]
    fn what_waits_on_a_runtime_of_others_ends_with_the_mount() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let parking = Parking::new(Arc::default(), Some(runtime.handle())).unwrap();
        let (hear, _signal) = ask(&parking, OnSignal::GoOn, pending());
        drop(parking);
        assert_eq!(hear.recv(), Err(mpsc::RecvError), "its reply is dropped, which the kernel hears as EIO");
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let parking = parking();
        let (hear, _) = ask(&parking, OnSignal::GoOn, async { panic!("on purpose") });
        assert_eq!(hear.try_recv().unwrap(), Err(Errno::IO));
        assert!(ask(&parking, OnSignal::GoOn, ready(Ok(()))).0.try_recv().is_ok());
    }

    #[test]
    fn no_more_requests_wait_than_there_are_places() {
        let parking = parking();
        let waiting: Vec<_> = (0..PARKED_MAX).map(|_| ask(&parking, OnSignal::GoOn, pending())).collect();
        assert_eq!(ask(&parking, OnSignal::GoOn, pending()).0.try_recv().unwrap(), Err(Errno::NOSPC));
        assert!(waiting.iter().all(|(hear, _)| hear.try_recv() == Err(mpsc::TryRecvError::Empty)));
    }

    #[test]
    fn who_waits_for_a_lock_takes_nobodys_place() {
        let parking = parking();
        let wait_for_a_lock = || {
            let (told, hear) = mpsc::channel();
            let (send, signal) = watch::channel(false);
            let call = Call { operation: "test", on_signal: OnSignal::GiveUp, queue: Queue::Locks };
            parking.serve(call, pending(), Told { told, signal }, |_: Told, ()| ());
            (hear, send)
        };
        let lockers: Vec<Asked> = (0..LOCKERS_MAX).map(|_| wait_for_a_lock()).collect();
        assert_eq!(wait_for_a_lock().0.try_recv().unwrap(), Err(Errno::NOLCK));
        let (writer, _signal) = ask(&parking, OnSignal::GiveUp, pending());
        assert_eq!(writer.try_recv(), Err(mpsc::TryRecvError::Empty), "it waits");
        assert!(lockers.iter().all(|(hear, _)| hear.try_recv() == Err(mpsc::TryRecvError::Empty)));
    }

    #[test]
    fn a_refusal_reaches_the_program_as_its_errno() {
        let shortage = SpaceShortage { node: None, capacity: 1, used: 1, wanted: 1, waited: Duration::ZERO };
        let (hear, _) = ask(&parking(), OnSignal::GiveUp, ready(Err(Refusal::NoSpace(shortage))));
        assert_eq!(hear.try_recv().unwrap(), Err(Errno::NOSPC));
    }
}
