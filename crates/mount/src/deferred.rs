//! Replies to requests: immediately if the pool can answer, otherwise deferred until it can.
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

use crate::{errno, metrics::Counters};

/// Largest number of deferred requests; each may hold 1 MiB of data. A caller has one request at a
/// time, so it takes this many waiting threads to reach the limit.
const DEFERRED_MAX: usize = 256;
/// Largest number of requests that wait for locks. They hold no data, and must not use up the
/// permits of other requests.
const LOCK_WAITERS_MAX: usize = 4096;
/// Time in which an interrupted request may still complete. A request that waits only for another
/// kernel's cache-invalidation ack completes by then, and must not report EINTR for a change that
/// was made. Waits for space and locks are much longer. A person who pressed Ctrl-C does not notice
/// the delay.
const INTERRUPT_GRACE: Duration = Duration::from_millis(20);

/// A pending reply to the kernel.
pub(crate) trait DeferrableReply: Send + 'static {
    /// Sends the error.
    fn send_error(self, errno: Errno);
    /// Resolves when the caller has received a signal that is fatal or that it handles; otherwise
    /// never.
    fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static;
}

impl DeferrableReply for fuse_transport::FuseReply {
    fn send_error(self, errno: Errno) {
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
    Cancel,
    /// None: the request is completed. A close by a killed process must still close, and a rename
    /// must not be left half done.
    Complete,
}

/// Properties of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOptions {
    /// Name of the operation, for the log.
    pub(crate) operation: &'static str,
    /// Effect of a signal.
    pub(crate) on_signal: OnSignal,
    /// Queue for a request that must wait.
    pub(crate) queue: WaitQueue,
}

/// Queue that a waiting request counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitQueue {
    /// Waits for space, or for the cache-invalidation acks of a change.
    Pool,
    /// Waits for a lock of another program.
    Locks,
}

/// The deferred requests of a mount.
#[derive(Debug)]
pub(crate) struct DeferredReplies {
    /// Runtime of the mount's own, if any; present until dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    /// Cancels the deferred requests when this is dropped.
    cancel_on_drop: DropGuard,
    permits: Arc<Semaphore>,
    lock_permits: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl DeferredReplies {
    /// Creates the queues. Deferred requests wait on `runtime`, or if that is `None` on a new
    /// thread of the mount's own.
    pub(crate) fn new(counters: Arc<Counters>, runtime: Option<&Handle>) -> std::io::Result<Self> {
        let (runtime, handle) = if let Some(given) = runtime {
            (None, given.clone())
        } else {
            let own =
                Builder::new_multi_thread().worker_threads(1).thread_name("fuse-deferred").enable_time().build()?;
            let handle = own.handle().clone();
            (Some(own), handle)
        };
        Ok(Self {
            runtime,
            handle,
            cancel_on_drop: CancellationToken::new().drop_guard(),
            permits: Arc::new(Semaphore::new(DEFERRED_MAX)),
            lock_permits: Arc::new(Semaphore::new(LOCK_WAITERS_MAX)),
            counters,
        })
    }

    /// Runs `future`. Passes its value to `answer`, or replies with its refusal.
    pub(crate) fn serve<T, R, A>(
        &self,
        options: RequestOptions,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: DeferrableReply,
        A: FnOnce(R, T) + Send + 'static,
    {
        let mut future = Box::pin(future);
        match self.poll_once(future.as_mut()) {
            Some(Poll::Ready(outcome)) => send_reply(options, outcome, reply, answer),
            Some(Poll::Pending) => self.defer(options, future, reply, answer),
            // The panic's message is already printed. The thread continues with other requests.
            None => reply.send_error(Errno::IO),
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
        // A task polls the deferred future again, so a wakeup lost here does no harm.
        let mut context = Context::from_waker(Waker::noop());
        catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))).ok()
    }

    fn defer<T, R, A>(
        &self,
        options: RequestOptions,
        future: Pin<Box<impl Future<Output = Outcome<T>> + Send + 'static>>,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: DeferrableReply,
        A: FnOnce(R, T) + Send + 'static,
    {
        let (permits, refusal) = match options.queue {
            WaitQueue::Pool => (&self.permits, Errno::NOSPC),
            WaitQueue::Locks => (&self.lock_permits, Errno::NOLCK),
        };
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            tracing::warn!("{}: too many requests wait already: this one is refused", options.operation);
            return reply.send_error(refusal);
        };
        self.counters.deferred_requests();
        let signal = reply.interrupted();
        let cancelled = self.cancel_on_drop.token().clone();
        self.handle.spawn(async move {
            let outcome = tokio::select! {
                biased;
                outcome = future => outcome,
                () = cancelled_by_signal(options.on_signal, signal) => Err(Refusal::Interrupted(Object::Pool)),
                () = cancelled.cancelled_owned() => return, // dropping the reply sends EIO
            };
            drop(permit);
            send_reply(options, outcome, reply, answer);
        });
    }
}

impl Drop for DeferredReplies {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn send_reply<T, R: DeferrableReply>(
    options: RequestOptions,
    outcome: Outcome<T>,
    reply: R,
    answer: impl FnOnce(R, T),
) {
    match outcome {
        Ok(value) => answer(reply, value),
        Err(refusal) => reply.send_error(errno::log_and_map(options.operation, &refusal)),
    }
}

fn log(operation: &'static str, outcome: Outcome<()>) {
    if let Err(refusal) = outcome {
        errno::log_and_map(operation, &refusal);
    }
}

/// Resolves when the request is to be cancelled: after a signal and the grace period. Never for a
/// request that ignores signals.
async fn cancelled_by_signal(on_signal: OnSignal, signal: impl Future<Output = ()>) {
    if on_signal == OnSignal::Complete {
        return pending().await;
    }
    signal.await;
    tokio::time::sleep(INTERRUPT_GRACE).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::ready, sync::mpsc};
    use tokio::sync::watch;
    use wire::SpaceShortage;

    /// Reply that goes to the test instead of the kernel; `Ok` with the thread that sent it.
    struct TestReply {
        sender: mpsc::Sender<Result<thread::ThreadId, Errno>>,
        signal: watch::Receiver<bool>,
    }

    impl DeferrableReply for TestReply {
        fn send_error(self, errno: Errno) {
            self.sender.send(Err(errno)).unwrap();
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

    fn deferred_replies() -> DeferredReplies {
        DeferredReplies::new(Arc::default(), None).unwrap()
    }

    /// Receiver of the caller's replies, and sender of its signal.
    type Submitted = (mpsc::Receiver<Result<thread::ThreadId, Errno>>, watch::Sender<bool>);

    fn submit(
        deferred: &DeferredReplies,
        on_signal: OnSignal,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
    ) -> Submitted {
        let (sender, received) = mpsc::channel();
        let (send, signal) = watch::channel(false);
        let answer = |reply: TestReply, ()| reply.sender.send(Ok(thread::current().id())).unwrap();
        let options = RequestOptions { operation: "test", on_signal, queue: WaitQueue::Pool };
        deferred.serve(options, future, TestReply { sender, signal }, answer);
        (received, send)
    }

    #[test]
    fn what_is_ready_is_answered_on_the_callers_thread() {
        let (received, _) = submit(&deferred_replies(), OnSignal::Complete, ready(Ok(())));
        assert_eq!(received.try_recv().unwrap(), Ok(thread::current().id()));
    }

    #[test]
    fn what_must_wait_is_answered_later_and_holds_up_nothing() {
        let deferred = deferred_replies();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (waiting, _signal) = submit(&deferred, OnSignal::Cancel, async {
            wait.await.unwrap();
            Ok(())
        });
        assert!(waiting.try_recv().is_err());
        assert!(submit(&deferred, OnSignal::Complete, ready(Ok(()))).0.try_recv().is_ok());
        go.send(()).unwrap();
        assert!(waiting.recv().unwrap().is_ok());
        assert_eq!(deferred.counters.now().deferred_requests, 1);
    }

    #[test]
    fn a_signal_ends_what_may_be_given_up_and_nothing_else() {
        let deferred = deferred_replies();
        let (cancelled, signal) = submit(&deferred, OnSignal::Cancel, pending());
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (completed, other) = submit(&deferred, OnSignal::Complete, async {
            wait.await.unwrap();
            Ok(())
        });
        other.send(true).unwrap();
        signal.send(true).unwrap();
        assert_eq!(cancelled.recv().unwrap(), Err(Errno::INTR));
        assert!(completed.try_recv().is_err());
        go.send(()).unwrap();
        assert!(completed.recv().unwrap().is_ok());
    }

    #[test]
    fn what_is_done_when_the_signal_comes_is_told_as_done() {
        let deferred = deferred_replies();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (received, signal) = submit(&deferred, OnSignal::Cancel, async {
            wait.await.unwrap();
            Ok(())
        });
        go.send(()).unwrap();
        signal.send(true).unwrap();
        assert!(received.recv().unwrap().is_ok());
    }

    #[test]
    fn what_waits_on_a_runtime_of_others_ends_with_the_mount() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let deferred = DeferredReplies::new(Arc::default(), Some(runtime.handle())).unwrap();
        let (received, _signal) = submit(&deferred, OnSignal::Complete, pending());
        drop(deferred);
        assert_eq!(received.recv(), Err(mpsc::RecvError), "its reply is dropped, which the kernel hears as EIO");
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let deferred = deferred_replies();
        let (received, _) = submit(&deferred, OnSignal::Complete, async { panic!("on purpose") });
        assert_eq!(received.try_recv().unwrap(), Err(Errno::IO));
        assert!(submit(&deferred, OnSignal::Complete, ready(Ok(()))).0.try_recv().is_ok());
    }

    #[test]
    fn no_more_requests_wait_than_there_are_places() {
        let deferred = deferred_replies();
        let waiting: Vec<_> = (0..DEFERRED_MAX).map(|_| submit(&deferred, OnSignal::Complete, pending())).collect();
        assert_eq!(submit(&deferred, OnSignal::Complete, pending()).0.try_recv().unwrap(), Err(Errno::NOSPC));
        assert!(waiting.iter().all(|(received, _)| received.try_recv() == Err(mpsc::TryRecvError::Empty)));
    }

    #[test]
    fn who_waits_for_a_lock_takes_nobodys_place() {
        let deferred = deferred_replies();
        let wait_for_a_lock = || {
            let (sender, received) = mpsc::channel();
            let (send, signal) = watch::channel(false);
            let options = RequestOptions { operation: "test", on_signal: OnSignal::Cancel, queue: WaitQueue::Locks };
            deferred.serve(options, pending(), TestReply { sender, signal }, |_: TestReply, ()| ());
            (received, send)
        };
        let lock_permits: Vec<Submitted> = (0..LOCK_WAITERS_MAX).map(|_| wait_for_a_lock()).collect();
        assert_eq!(wait_for_a_lock().0.try_recv().unwrap(), Err(Errno::NOLCK));
        let (writer, _signal) = submit(&deferred, OnSignal::Cancel, pending());
        assert_eq!(writer.try_recv(), Err(mpsc::TryRecvError::Empty), "it waits");
        assert!(lock_permits.iter().all(|(received, _)| received.try_recv() == Err(mpsc::TryRecvError::Empty)));
    }

    #[test]
    fn a_refusal_reaches_the_program_as_its_errno() {
        let shortage = SpaceShortage { node: None, capacity: 1, used: 1, wanted: 1, waited: Duration::ZERO };
        let (received, _) = submit(&deferred_replies(), OnSignal::Cancel, ready(Err(Refusal::NoSpace(shortage))));
        assert_eq!(received.try_recv().unwrap(), Err(Errno::NOSPC));
    }
}
