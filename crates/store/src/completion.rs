//! The completion of an operation: its result, or the promise of one.
//!
//! ```text
//!   store.read(..) --> Ready(result)          in memory: no task, no allocation
//!                  --> Pending(future) ......> result
//! ```

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::EngineError;

/// The future of an operation that goes on.
pub type PendingOperation<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send>>;

/// The completion of an operation that was submitted to a store. The operation is done even if this
/// is dropped.
#[must_use = "the operation may fail"]
pub enum StoreCompletion<T> {
    /// The operation is done.
    Ready(Result<T, EngineError>),
    /// The operation goes on.
    Pending(PendingOperation<T>),
}

impl<T> StoreCompletion<T> {
    /// The completion of an operation that goes on, with the promise of its result.
    pub fn promised() -> (Promise<T>, Self)
    where
        T: Send + 'static,
    {
        let outcome = Arc::new(Mutex::new(PromisedOutcome { result: None, waker: None }));
        (Promise { outcome: Arc::clone(&outcome) }, Self::Pending(Box::pin(PromisedFuture(outcome))))
    }

    /// The result of an operation of a store that completes all operations at once. Panics if it
    /// goes on.
    pub fn now(self) -> Result<T, EngineError> {
        match self {
            Self::Ready(result) => result,
            Self::Pending(_) => panic!("a store in memory completes its operations at once"),
        }
    }

    /// Waits for the result.
    pub async fn done(self) -> Result<T, EngineError> {
        match self {
            Self::Ready(result) => result,
            Self::Pending(pending) => pending.await,
        }
    }

    /// Blocks this thread until there is a result: for a thread without a runtime.
    pub fn wait(self) -> Result<T, EngineError> {
        block_on(self.done())
    }
}

impl<T> From<Result<T, EngineError>> for StoreCompletion<T> {
    fn from(result: Result<T, EngineError>) -> Self {
        Self::Ready(result)
    }
}

impl<T: fmt::Debug> fmt::Debug for StoreCompletion<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(result) => out.debug_tuple("Ready").field(result).finish(),
            Self::Pending(_) => out.write_str("Pending"),
        }
    }
}

/// The promise of a result, for the store that does the operation. If it is dropped, the result is
/// [`EngineError::Closed`].
pub struct Promise<T> {
    outcome: Arc<Mutex<PromisedOutcome<T>>>,
}

struct PromisedOutcome<T> {
    result: Option<Result<T, EngineError>>,
    waker: Option<Waker>,
}

struct PromisedFuture<T>(Arc<Mutex<PromisedOutcome<T>>>);

impl<T> Promise<T> {
    /// Completes the operation.
    pub fn keep(self, result: Result<T, EngineError>) {
        lock(&self.outcome).result = Some(result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut outcome = lock(&self.outcome);
        outcome.result.get_or_insert(Err(EngineError::Closed));
        let waker = outcome.waker.take();
        drop(outcome);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Promise")
    }
}

impl<T> Future for PromisedFuture<T> {
    type Output = Result<T, EngineError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = lock(&self.0);
        if let Some(result) = outcome.result.take() {
            return Poll::Ready(result);
        }
        outcome.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes a thread that blocks.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until the future ends.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(ThreadWaker(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Locks the mutex, even if it is poisoned: what panicked has failed already, and the others go on.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_from_another_thread() {
        let (promise, completion) = StoreCompletion::promised();
        thread::scope(|scope| {
            scope.spawn(|| promise.keep(Ok(7)));
            assert_eq!(completion.wait().unwrap(), 7);
        });
    }

    #[test]
    fn a_promise_that_is_dropped_is_an_error() {
        let (promise, completion) = StoreCompletion::<u32>::promised();
        drop(promise);
        assert!(matches!(completion.wait(), Err(EngineError::Closed)));
    }
}
