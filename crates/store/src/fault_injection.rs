//! A store that injects faults: it passes calls on to another store, except those that a rule makes
//! fail.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::{
    EngineError, EngineUsage, FreedHook, Generation, StoreCompletion, StripeKey, StripeScan, StripeSnapshot,
    StripeStore,
};

/// A kind of [`StripeStore`] call. `scan`, `usage`, `release` and the hook never fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineOp {
    /// [`StripeStore::write`] and [`StripeStore::extend`].
    Write,
    /// [`StripeStore::read`] and [`StripeStore::snapshot`].
    Read,
    /// [`StripeStore::truncate`] and [`StripeStore::zero`].
    Truncate,
    /// [`StripeStore::remove`].
    Remove,
    /// [`StripeStore::shrink_to_fit`].
    ShrinkToFit,
    /// [`StripeStore::reserve`].
    Reserve,
    /// [`StripeStore::sync`].
    Sync,
}

/// A call that a rule may make fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineCall {
    /// The kind of call.
    pub op: EngineOp,
    /// The stripe; `None` for a reservation and a sync.
    pub key: Option<StripeKey>,
    /// The number of bytes: data of a write, length of a read or truncation, amount of a
    /// reservation; 0 otherwise.
    pub bytes: u64,
    /// The number of this call at this store, from 1.
    pub number: u64,
    /// The store's usage just before the call.
    pub usage: EngineUsage,
}

/// A rule that decides about each call: `None` passes it on to the store; an error becomes its
/// result, without calling the store.
pub type FaultRule = Box<dyn Fn(&EngineCall) -> Option<EngineError> + Send + Sync>;

/// A store that fails by a rule.
pub struct FaultyStore<S> {
    store: S,
    rule: FaultRule,
    calls: AtomicU64,
}

impl<S: StripeStore> FaultyStore<S> {
    /// Passes calls on to `store`, except those for which `rule` returns an error.
    pub fn new(store: S, rule: FaultRule) -> Self {
        Self { store, rule, calls: AtomicU64::new(0) }
    }

    /// Fails only call `number` (from 1), with an I/O error.
    pub fn on_call(store: S, number: u64) -> Self {
        Self::when(store, move |call| call.number == number)
    }

    /// Fails every call that `matches` with an I/O error; a call without a stripe fails with
    /// [`EngineError::Full`].
    pub fn when(store: S, matches: impl Fn(&EngineCall) -> bool + Send + Sync + 'static) -> Self {
        Self::new(store, Box::new(move |call| matches(call).then(|| broken(call))))
    }

    /// Fails with [`EngineError::Full`] every call that would bring more than `bytes` into use. All
    /// data of a write count as new.
    pub fn full_above(store: S, bytes: u64) -> Self {
        let rule = move |call: &EngineCall| {
            let adds = matches!(call.op, EngineOp::Write | EngineOp::Reserve) && call.usage.used + call.bytes > bytes;
            adds.then(|| full(call, bytes))
        };
        Self::new(store, Box::new(rule))
    }

    /// The number of calls so far that could have failed.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The store inside, to check what it really holds.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Applies the rule to a call.
    fn check(&self, op: EngineOp, key: Option<StripeKey>, bytes: u64) -> Result<(), EngineError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let call = EngineCall { op, key, bytes, number, usage: self.store.usage() };
        (self.rule)(&call).map_or(Ok(()), Err)
    }

    /// Makes a call about a stripe, unless it is to fail.
    fn pass<T>(
        &self,
        (op, key, bytes): (EngineOp, StripeKey, u64),
        call: impl FnOnce(&S) -> StoreCompletion<T>,
    ) -> StoreCompletion<T> {
        self.check(op, Some(key), bytes).map_or_else(|error| Err(error).into(), |()| call(&self.store))
    }
}

impl<S: StripeStore> StripeStore for FaultyStore<S> {
    fn stripe_bytes(&self) -> u32 {
        self.store.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        self.pass((EngineOp::Write, key, data.len() as u64), |store| store.write(key, generation, offset, data))
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.pass((EngineOp::Read, key, len.into()), |store| store.read(key, offset, len))
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.pass((EngineOp::Truncate, key, len.into()), |store| store.truncate(key, generation, len))
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        self.pass((EngineOp::Truncate, key, len.into()), |store| store.zero(key, generation, offset, len))
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.pass((EngineOp::Write, key, len.into()), |store| store.extend(key, generation, len))
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.pass((EngineOp::Remove, key, 0), |store| store.remove(key))
    }

    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.pass((EngineOp::ShrinkToFit, key, 0), |store| store.shrink_to_fit(key))
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.pass((EngineOp::Read, key, u64::from(self.stripe_bytes())), |store| store.snapshot(key))
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        self.store.scan()
    }

    fn sync(&self) -> StoreCompletion<()> {
        self.check(EngineOp::Sync, None, 0).map_or_else(|error| Err(error).into(), |()| self.store.sync())
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.check(EngineOp::Reserve, None, bytes)?;
        self.store.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.store.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        self.store.usage()
    }

    fn peak(&self) -> u64 {
        self.store.peak()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.store.on_freed(hook);
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FaultyStore").field("store", &self.store).field("calls", &self.calls).finish_non_exhaustive()
    }
}

fn broken(call: &EngineCall) -> EngineError {
    let action = match call.op {
        EngineOp::Write => "write",
        EngineOp::Read => "read",
        EngineOp::Truncate => "truncate",
        EngineOp::Remove => "remove",
        EngineOp::ShrinkToFit => "fit",
        EngineOp::Reserve => "reserve",
        EngineOp::Sync => "sync",
    };
    let source = io::Error::other(format!("call {} was made to fail", call.number));
    call.key.map_or_else(|| full(call, call.usage.capacity), |key| EngineError::Io { key, action, source })
}

fn full(call: &EngineCall, capacity: u64) -> EngineError {
    EngineError::Full { capacity, used: call.usage.used, wanted: call.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelEngine, conformance};
    use placement::{FileId, PartitionId, StripeNo};

    const KEY: StripeKey = StripeKey { partition: PartitionId(0), file: FileId(2), stripe: StripeNo(0) };

    fn model() -> ModelEngine {
        ModelEngine::new(1 << 20, 1 << 14)
    }

    #[test]
    fn the_nth_call_fails_and_leaves_the_stripe_as_it_was() {
        let store = FaultyStore::on_call(model(), 2);
        store.write(KEY, Generation(0), 0, &"one".into()).now().unwrap();
        let error = store.write(KEY, Generation(0), 0, &"two".into()).now().unwrap_err();
        assert!(error.to_string().contains("stripe 0 of file 2: write failed"), "{error}");
        assert_eq!(store.read(KEY, 0, 9).now().unwrap(), "one");
        assert_eq!(store.calls(), 3);
    }

    #[test]
    fn every_call_that_matches_fails() {
        let store = FaultyStore::when(model(), |call| call.op == EngineOp::Read);
        store.write(KEY, Generation(0), 0, &"one".into()).now().unwrap();
        assert!((0..3).all(|_| store.read(KEY, 0, 9).now().is_err()));
        assert_eq!(store.inner().read(KEY, 0, 9).unwrap(), "one");
    }

    #[test]
    fn it_is_full_above_the_set_amount_until_space_is_freed() {
        let store = FaultyStore::full_above(model(), 10);
        store.write(KEY, Generation(0), 0, &"12345678".into()).now().unwrap();
        assert!(matches!(store.reserve(3), Err(EngineError::Full { capacity: 10, used: 8, wanted: 3 })));
        store.remove(KEY).now().unwrap();
        store.reserve(10).unwrap();
    }

    #[test]
    fn without_a_failure_it_is_the_store_inside() {
        conformance::random_calls_agree_with_the_model(&FaultyStore::when(model(), |_| false));
    }
}
