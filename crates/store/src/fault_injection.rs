//! An engine that injects faults: it passes calls on to another engine, except those that a rule
//! makes fail.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::faulty_extents::FaultyExtents;
use crate::{
    Engine, EngineError, EngineUsage, Extents, FreedHook, Generation, LeaseNumber, PlaceholderHandle, PlaceholderKind,
    StripeKey,
};

/// A kind of [`Engine`] call. `usage`, `release` and the hook never fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineOp {
    /// [`Engine::write`] and [`Engine::extend`].
    Write,
    /// [`Engine::read`].
    Read,
    /// [`Engine::truncate`] and [`Engine::zero`].
    Truncate,
    /// [`Engine::remove`].
    Remove,
    /// [`Engine::shrink_to_fit`].
    ShrinkToFit,
    /// [`Engine::reserve`].
    Reserve,
    /// [`Extents::open`] and [`Engine::create_placeholder`]; the other calls about extents never
    /// fail.
    Open,
}

/// A call that a rule may make fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineCall {
    /// The kind of call.
    pub op: EngineOp,
    /// The stripe; `None` for a reservation.
    pub key: Option<StripeKey>,
    /// The number of bytes: data of a write, length of a read or truncation, amount of a
    /// reservation; 0 otherwise.
    pub bytes: u64,
    /// The number of this call at this engine, from 1.
    pub number: u64,
    /// The engine's usage just before the call.
    pub usage: EngineUsage,
}

/// A rule that decides about each call: `None` passes it on to the engine; an error becomes its
/// result, without calling the engine.
pub type FaultRule = Box<dyn Fn(&EngineCall) -> Option<EngineError> + Send + Sync>;

/// An engine that fails by a rule.
pub struct FaultyEngine<E> {
    inner: Arc<FaultState<E>>,
}

/// The state that [`FaultyEngine`] and its extents share.
pub struct FaultState<E> {
    engine: E,
    rule: FaultRule,
    calls: AtomicU64,
}

impl<E: Engine> FaultyEngine<E> {
    /// Passes calls on to `engine`, except those for which `rule` returns an error.
    pub fn new(engine: E, rule: FaultRule) -> Self {
        Self { inner: Arc::new(FaultState { engine, rule, calls: AtomicU64::new(0) }) }
    }

    /// Fails only call `number` (from 1), with an I/O error.
    pub fn on_call(engine: E, number: u64) -> Self {
        Self::when(engine, move |call| call.number == number)
    }

    /// Fails every call that `matches` with an I/O error; a reservation fails with
    /// [`EngineError::Full`].
    pub fn when(engine: E, matches: impl Fn(&EngineCall) -> bool + Send + Sync + 'static) -> Self {
        Self::new(engine, Box::new(move |call| matches(call).then(|| broken(call))))
    }

    /// Fails with [`EngineError::Full`] every call that would bring more than `bytes` into use. All
    /// data of a write count as new.
    pub fn full_above(engine: E, bytes: u64) -> Self {
        let rule = move |call: &EngineCall| {
            let adds = matches!(call.op, EngineOp::Write | EngineOp::Reserve) && call.usage.used + call.bytes > bytes;
            adds.then(|| full(call, bytes))
        };
        Self::new(engine, Box::new(rule))
    }

    /// The number of calls so far that could have failed.
    pub fn calls(&self) -> u64 {
        self.inner.calls.load(Ordering::SeqCst)
    }

    /// The engine inside, to check what it really holds.
    pub fn inner(&self) -> &E {
        &self.inner.engine
    }

    fn check(&self, op: EngineOp, key: Option<StripeKey>, bytes: u64) -> Result<(), EngineError> {
        self.inner.check(op, key, bytes)
    }
}

impl<E: Engine> FaultState<E> {
    /// Applies the rule to a call.
    pub fn check(&self, op: EngineOp, key: Option<StripeKey>, bytes: u64) -> Result<(), EngineError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let call = EngineCall { op, key, bytes, number, usage: self.engine.usage() };
        (self.rule)(&call).map_or(Ok(()), Err)
    }
}

impl<E: Engine + 'static> Engine for FaultyEngine<E> {
    fn stripe_bytes(&self) -> u32 {
        self.inner.engine.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError> {
        self.check(EngineOp::Write, Some(key), data.len() as u64)?;
        self.inner.engine.write(key, generation, offset, data)
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError> {
        self.check(EngineOp::Read, Some(key), len.into())?;
        self.inner.engine.read(key, offset, len)
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        self.check(EngineOp::Truncate, Some(key), len.into())?;
        self.inner.engine.truncate(key, generation, len)
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError> {
        self.check(EngineOp::Truncate, Some(key), len.into())?;
        self.inner.engine.zero(key, generation, offset, len)
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        self.check(EngineOp::Write, Some(key), len.into())?;
        self.inner.engine.extend(key, generation, len)
    }

    fn remove(&self, key: StripeKey) -> Result<(), EngineError> {
        self.check(EngineOp::Remove, Some(key), 0)?;
        self.inner.engine.remove(key)
    }

    fn shrink_to_fit(&self, key: StripeKey) -> Result<(), EngineError> {
        self.check(EngineOp::ShrinkToFit, Some(key), 0)?;
        self.inner.engine.shrink_to_fit(key)
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.check(EngineOp::Reserve, None, bytes)?;
        self.inner.engine.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.inner.engine.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        self.inner.engine.usage()
    }

    fn peak(&self) -> u64 {
        self.inner.engine.peak()
    }

    fn extents(&self) -> Option<Arc<dyn Extents>> {
        self.inner
            .engine
            .extents()
            .map(|extents| Arc::new(FaultyExtents::new(self.inner.clone(), extents)) as Arc<dyn Extents>)
    }

    fn create_placeholder(
        &self,
        kind: PlaceholderKind,
        lease: LeaseNumber,
    ) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
        self.check(EngineOp::Open, None, 0).map_err(io::Error::other)?;
        self.inner.engine.create_placeholder(kind, lease)
    }

    fn on_freed(&self, hook: FreedHook) {
        self.inner.engine.on_freed(hook);
    }
}

impl<E: fmt::Debug> fmt::Debug for FaultyEngine<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FaultyEngine")
            .field("engine", &self.inner.engine)
            .field("calls", &self.inner.calls)
            .finish_non_exhaustive()
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
        EngineOp::Open => "open",
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
    use crate::{Access, ModelEngine, conformance};
    use placement::{FileId, StripeNo};

    const KEY: StripeKey = StripeKey { file: FileId(2), stripe: StripeNo(0) };

    fn model() -> ModelEngine {
        ModelEngine::new(1 << 20, 1 << 14)
    }

    #[test]
    fn the_nth_call_fails_and_leaves_the_stripe_as_it_was() {
        let engine = FaultyEngine::on_call(model(), 2);
        engine.write(KEY, Generation(0), 0, b"one").unwrap();
        let error = engine.write(KEY, Generation(0), 0, b"two").unwrap_err();
        assert!(error.to_string().contains("stripe 0 of file 2: write failed"), "{error}");
        assert_eq!(engine.read(KEY, 0, 9).unwrap(), "one");
        assert_eq!(engine.calls(), 3);
    }

    #[test]
    fn every_call_that_matches_fails() {
        let engine = FaultyEngine::when(model(), |call| call.op == EngineOp::Read);
        engine.write(KEY, Generation(0), 0, b"one").unwrap();
        assert!((0..3).all(|_| engine.read(KEY, 0, 9).is_err()));
        assert_eq!(engine.inner().read(KEY, 0, 9).unwrap(), "one");
    }

    #[test]
    fn it_is_full_above_the_set_amount_until_space_is_freed() {
        let engine = FaultyEngine::full_above(model(), 10);
        engine.write(KEY, Generation(0), 0, b"12345678").unwrap();
        assert!(matches!(engine.reserve(3), Err(EngineError::Full { capacity: 10, used: 8, wanted: 3 })));
        engine.remove(KEY).unwrap();
        engine.reserve(10).unwrap();
    }

    #[test]
    fn an_extent_that_cannot_be_opened_is_what_it_was() {
        let engine = FaultyEngine::when(ModelEngine::with_extents(1 << 20, 1 << 14), |call| call.op == EngineOp::Open);
        let extents = engine.extents().unwrap();
        let slot = extents.allocate_slot().unwrap();
        let access = Access { read: true, write: true, append: false };
        let error = extents.open(slot, access, LeaseNumber(1)).unwrap_err();
        assert!(error.to_string().contains("extent 0: open"), "{error}");
        assert!(!extents.is_open(slot, LeaseNumber(1)) && extents.is_idle(slot));
        extents.write_at(slot, 0, b"tide").unwrap();
        assert_eq!(extents.read_at(slot, 0, 9).unwrap(), "tide");
    }

    #[test]
    fn without_a_failure_it_is_the_engine_inside() {
        conformance::random_calls_agree_with_the_model(&FaultyEngine::when(model(), |_| false));
    }
}
