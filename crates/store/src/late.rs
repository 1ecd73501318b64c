//! A store that answers late and out of order: a test double for storage that is slow.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use test_support::Random;

use crate::completion::lock;
use crate::{
    Engine, EngineError, EngineUsage, FreedHook, Generation, StoreCompletion, StripeEntry, StripeKey, StripeScan,
    StripeSnapshot, StripeStore,
};

/// A store that passes operations on to another one later, in an order that a seed chooses; those
/// on one stripe in their order. Results come later still, in any order.
///
/// Nothing happens by itself: each poll of a completion, and each [`Self::step`], may do the next
/// step of any operation.
pub struct LateStore<S> {
    inner: Arc<LateState<S>>,
}

struct LateState<S> {
    store: S,
    queue: Mutex<LateQueue<S>>,
}

struct LateQueue<S> {
    random: Random,
    steps: Vec<LateStep<S>>,
}

/// An operation; it returns its last step.
type LateOperation<S> = Box<dyn FnOnce(&S) -> LateStep<S> + Send>;

enum LateStep<S> {
    /// An operation is to be done, on a stripe unless it concerns the whole store.
    Execute(Option<StripeKey>, LateOperation<S>),
    /// The result is to be delivered.
    Deliver(Box<dyn FnOnce() + Send>),
}

impl<S: StripeStore + 'static> LateStore<S> {
    /// Passes operations on to `store`, which must complete them at once.
    pub fn new(store: S, seed: u64) -> Self {
        let queue = Mutex::new(LateQueue { random: Random::new(seed), steps: Vec::new() });
        Self { inner: Arc::new(LateState { store, queue }) }
    }

    /// The store inside.
    pub fn inner(&self) -> &S {
        &self.inner.store
    }

    /// Does a step of some operation, or of none.
    pub fn step(&self) {
        self.inner.step();
    }

    /// Does all operations that were submitted.
    pub fn settle(&self) {
        while !lock(&self.inner.queue).steps.is_empty() {
            self.step();
        }
    }

    fn submit<T: Send + 'static>(
        &self,
        key: Option<StripeKey>,
        op: impl FnOnce(&S) -> StoreCompletion<T> + Send + 'static,
    ) -> StoreCompletion<T> {
        self.inner.submit(key, op)
    }
}

impl<S: StripeStore + 'static> LateState<S> {
    fn submit<T: Send + 'static>(
        self: &Arc<Self>,
        key: Option<StripeKey>,
        op: impl FnOnce(&S) -> StoreCompletion<T> + Send + 'static,
    ) -> StoreCompletion<T> {
        let (promise, completion) = StoreCompletion::promised();
        let execute = |store: &S| {
            let result = op(store).now();
            LateStep::Deliver(Box::new(move || promise.keep(result)))
        };
        lock(&self.queue).steps.push(LateStep::Execute(key, Box::new(execute)));
        let StoreCompletion::Pending(mut pending) = completion else { return completion };
        let state = Arc::clone(self);
        StoreCompletion::Pending(Box::pin(poll_fn(move |context| {
            state.step();
            let polled = pending.as_mut().poll(context);
            if polled.is_pending() {
                context.waker().wake_by_ref();
            }
            polled
        })))
    }

    fn step(&self) {
        let mut queue = lock(&self.queue);
        let Some(chosen) = queue.choose() else { return };
        match queue.steps.remove(chosen) {
            LateStep::Execute(_, execute) => {
                // Under the lock: another thread must not overtake this operation.
                let deliver = execute(&self.store);
                queue.steps.insert(chosen, deliver);
            }
            LateStep::Deliver(deliver) => {
                drop(queue);
                deliver();
            }
        }
    }
}

impl<S> LateQueue<S> {
    /// Chooses a step that may be done now: an operation only if none on its stripe is before it.
    fn choose(&mut self) -> Option<usize> {
        let chosen = self.random.below(self.steps.len() + 1);
        match self.steps.get(chosen)? {
            LateStep::Execute(Some(key), _) => self.steps.iter().position(|step| step.is_on(*key)),
            _ => Some(chosen),
        }
    }
}

impl<S> LateStep<S> {
    fn is_on(&self, key: StripeKey) -> bool {
        matches!(self, Self::Execute(Some(own), _) if *own == key)
    }
}

impl<S: StripeStore + 'static> StripeStore for LateStore<S> {
    fn stripe_bytes(&self) -> u32 {
        self.inner.store.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        let data = data.clone();
        self.submit(Some(key), move |store| store.write(key, generation, offset, &data))
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.submit(Some(key), move |store| store.read(key, offset, len))
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.submit(Some(key), move |store| store.truncate(key, generation, len))
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        self.submit(Some(key), move |store| store.zero(key, generation, offset, len))
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.submit(Some(key), move |store| store.extend(key, generation, len))
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.submit(Some(key), move |store| store.remove(key))
    }

    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.submit(Some(key), move |store| store.shrink_to_fit(key))
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.submit(Some(key), move |store| store.snapshot(key))
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        let scan = Arc::new(Mutex::new(self.inner.store.scan()));
        Box::new(LateScan { state: Arc::clone(&self.inner), scan })
    }

    fn sync(&self) -> StoreCompletion<()> {
        self.submit(None, S::sync)
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.inner.store.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.inner.store.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        self.inner.store.usage()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.inner.store.on_freed(hook);
    }
}

impl<S: StripeStore + 'static> Engine for LateStore<S> {
    fn stripes(self: Arc<Self>) -> Arc<dyn StripeStore> {
        self
    }
}

struct LateScan<S> {
    state: Arc<LateState<S>>,
    scan: Arc<Mutex<Box<dyn StripeScan>>>,
}

impl<S: StripeStore + 'static> StripeScan for LateScan<S> {
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>> {
        let scan = Arc::clone(&self.scan);
        self.state.submit(None, move |_| lock(&scan).next_page(limit))
    }
}

impl<S: fmt::Debug> fmt::Debug for LateStore<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LateStore").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelEngine;
    use placement::{FileId, PartitionId, StripeNo};
    use std::task::{Context, Poll, Waker};

    crate::conformance_tests!(|stripes: u64| LateStore::new(ModelEngine::new(stripes * 4096, 4096), stripes));

    #[test]
    fn results_come_late_and_out_of_order() {
        let store = LateStore::new(ModelEngine::new(1 << 20, 4096), 3);
        let key = |stripe| StripeKey { partition: PartitionId(0), file: FileId(1), stripe: StripeNo(stripe) };
        let mut order = Vec::new();
        let mut writes: Vec<_> =
            (0..20).map(|stripe| (stripe, store.write(key(stripe), Generation(0), 0, &"x".into()))).collect();
        assert_eq!(store.usage().stripes, 0, "nothing is done yet");
        let mut context = Context::from_waker(Waker::noop());
        while !writes.is_empty() {
            writes.retain_mut(|(stripe, write)| {
                let StoreCompletion::Pending(pending) = write else { panic!("nothing is done at once") };
                let is_done = matches!(pending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
                if is_done {
                    order.push(*stripe);
                }
                !is_done
            });
        }
        assert!(!order.is_sorted(), "{order:?}");
    }
}
