//! Answering a request: at once where the pool can, parked where it must wait.
//!
//! ```text
//!   callback --poll once--> ready   --> reply on this thread        (nearly always)
//!                       \-> pending --> a task holds the reply; the thread serves the next request
//!                                         |-- the future ends  --> reply
//!                                         \-- the caller dies  --> EINTR
//! ```
//!
//! No callback ever waits, so a full pool cannot stop the reads and deletions that would empty it.

use std::{
    future::{Future, pending},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fuser::Errno;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
};
use wire::{Object, Outcome, Refusal};

use crate::{caller, errno, traffic::Counters};

/// Requests that wait at one time; each may hold 1 MiB of data. A caller has one request at a time, so this many threads would
/// have to wait for space at once.
const PARKED_MAX: usize = 256;
/// How often the caller of a parked request is looked at: a person who pressed Ctrl-C does not notice it.
const CALLER_PAUSE: Duration = Duration::from_millis(25);

/// A reply that can say no.
pub(crate) trait Refuse: Send + 'static {
    /// Sends the error.
    fn refuse(self, errno: Errno);
}

macro_rules! can_refuse {
    ($($reply:ident)*) => { $(impl Refuse for fuser::$reply {
        fn refuse(self, errno: Errno) {
            self.error(errno);
        }
    })* };
}
can_refuse!(ReplyEmpty ReplyData ReplyEntry ReplyAttr ReplyOpen ReplyWrite ReplyStatfs ReplyCreate ReplyDirectory ReplyDirectoryPlus);

/// What is asked, and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Its name for the log.
    pub(crate) operation: &'static str,
    /// The calling thread (0 if it cannot be seen from here), if its death ends the request.
    pub(crate) caller: Option<u32>,
}

/// Where requests wait.
pub(crate) struct Parking {
    /// Present until dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    places: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Parking {
    /// Starts the one thread on which parked requests wait.
    pub(crate) fn new(counters: Arc<Counters>) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("fuse-parked").enable_time().build()?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle, places: Arc::new(Semaphore::new(PARKED_MAX)), counters })
    }

    /// Runs `future` and gives what comes of it to `answer`, or refuses.
    pub(crate) fn serve<T, R, A>(
        &self,
        call: Call,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
        reply: R,
        answer: A,
    ) where
        T: Send + 'static,
        R: Refuse,
        A: FnOnce(R, T) + Send + 'static,
    {
        let mut future = Box::pin(future);
        match self.poll_once(future.as_mut()) {
            Some(Poll::Ready(outcome)) => deliver(call, outcome, reply, answer),
            Some(Poll::Pending) => self.park(call, future, reply, answer),
            // The panic's own message is out already; the thread lives on for the other requests.
            None => reply.refuse(Errno::EIO),
        }
    }

    /// None: it panicked.
    fn poll_once<T>(&self, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<Poll<T>> {
        let _timers = self.handle.enter();
        // A parked future is polled again by its task, so nothing is lost by waking nobody here.
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
        R: Refuse,
        A: FnOnce(R, T) + Send + 'static,
    {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!("{}: {PARKED_MAX} requests wait already, so this one is refused", call.operation);
            return reply.refuse(Errno::ENOSPC);
        };
        self.counters.parked();
        self.handle.spawn(async move {
            let outcome = tokio::select! {
                biased;
                outcome = future => outcome,
                () = until_dying(call.caller) => Err(Refusal::Interrupted(Object::Pool)),
            };
            drop(place);
            deliver(call, outcome, reply, answer);
        });
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        // Requests still parked are answered with EIO as their replies are dropped.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn deliver<T, R: Refuse>(call: Call, outcome: Outcome<T>, reply: R, answer: impl FnOnce(R, T)) {
    match outcome {
        Ok(value) => answer(reply, value),
        Err(refusal) => reply.refuse(errno::tell(call.operation, &refusal)),
    }
}

/// Never, for a request that is carried through in any case.
async fn until_dying(caller: Option<u32>) {
    let Some(pid) = caller else { return pending().await };
    loop {
        tokio::time::sleep(CALLER_PAUSE).await;
        if caller::is_dying(pid) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::ready, sync::mpsc, thread};
    use wire::Shortage;

    /// A reply that tells the test instead of the kernel; `Ok` with the thread that answered.
    struct Told(mpsc::Sender<Result<thread::ThreadId, Errno>>);

    impl Refuse for Told {
        fn refuse(self, errno: Errno) {
            self.0.send(Err(errno)).unwrap();
        }
    }

    fn parking() -> Parking {
        Parking::new(Arc::default()).unwrap()
    }

    fn ask(
        parking: &Parking,
        caller: Option<u32>,
        future: impl Future<Output = Outcome<()>> + Send + 'static,
    ) -> mpsc::Receiver<Result<thread::ThreadId, Errno>> {
        let (told, hear) = mpsc::channel();
        let answer = |reply: Told, ()| reply.0.send(Ok(thread::current().id())).unwrap();
        parking.serve(Call { operation: "test", caller }, future, Told(told), answer);
        hear
    }

    #[test]
    fn what_is_ready_is_answered_on_the_callers_thread() {
        let hear = ask(&parking(), None, ready(Ok(())));
        assert_eq!(hear.try_recv().unwrap(), Ok(thread::current().id()));
    }

    #[test]
    fn what_must_wait_is_answered_later_and_holds_up_nothing() {
        let parking = parking();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let waiting = ask(&parking, Some(std::process::id()), async {
            wait.await.unwrap();
            Ok(())
        });
        assert!(waiting.try_recv().is_err());
        assert!(ask(&parking, None, ready(Ok(()))).try_recv().is_ok());
        go.send(()).unwrap();
        assert!(waiting.recv().unwrap().is_ok());
        assert_eq!(parking.counters.now().parked, 1);
    }

    #[test]
    fn what_waits_for_a_caller_that_is_gone_ends_and_what_must_be_done_does_not() {
        let parking = parking();
        let gone = ask(&parking, Some(u32::MAX), pending());
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let carried_through = ask(&parking, None, async {
            wait.await.unwrap();
            Ok(())
        });
        assert_eq!(gone.recv().unwrap(), Err(Errno::EINTR));
        assert!(carried_through.try_recv().is_err());
        go.send(()).unwrap();
        assert!(carried_through.recv().unwrap().is_ok());
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let parking = parking();
        let hear = ask(&parking, None, async { panic!("on purpose") });
        assert_eq!(hear.try_recv().unwrap(), Err(Errno::EIO));
        assert!(ask(&parking, None, ready(Ok(()))).try_recv().is_ok());
    }

    #[test]
    fn no_more_requests_wait_than_there_are_places() {
        let parking = parking();
        let waiting: Vec<_> = (0..PARKED_MAX).map(|_| ask(&parking, None, pending())).collect();
        assert_eq!(ask(&parking, None, pending()).try_recv().unwrap(), Err(Errno::ENOSPC));
        assert!(waiting.iter().all(|hear| hear.try_recv() == Err(mpsc::TryRecvError::Empty)));
    }

    #[test]
    fn a_refusal_reaches_the_program_as_its_errno() {
        let shortage = Shortage { capacity: 1, used: 1, wanted: 1, waited: Duration::ZERO };
        let hear = ask(&parking(), None, ready(Err(Refusal::NoSpace(shortage))));
        assert_eq!(hear.try_recv().unwrap(), Err(Errno::ENOSPC));
    }
}
