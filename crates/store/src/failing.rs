//! An engine that injects faults: it passes calls on to another engine, except those that a rule
//! makes fail.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::failing_extents::FailingExtents;
use crate::{Engine, EngineError, Extents, FreedHook, Generation, Held, Mark, StandIn, StripeKey, Usage};

/// A kind of [`Engine`] call. `usage`, `release` and the hook never fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// [`Engine::write`] and [`Engine::extend`].
    Write,
    /// [`Engine::read`].
    Read,
    /// [`Engine::truncate`] and [`Engine::zero`].
    Truncate,
    /// [`Engine::remove`].
    Remove,
    /// [`Engine::fit`].
    Fit,
    /// [`Engine::reserve`].
    Reserve,
    /// [`Extents::open`] and [`Engine::stand_in`]; the other calls about extents never fail.
    Open,
}

/// A call that a rule may make fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The kind of call.
    pub verb: Verb,
    /// The stripe; `None` for a reservation.
    pub key: Option<StripeKey>,
    /// The number of bytes: data of a write, length of a read or truncation, amount of a
    /// reservation; 0 otherwise.
    pub bytes: u64,
    /// The number of this call at this engine, from 1.
    pub number: u64,
    /// The engine's usage just before the call.
    pub usage: Usage,
}

/// A rule that decides about each call: `None` passes it on to the engine; an error becomes its
/// result, without calling the engine.
pub type Rule = Box<dyn Fn(&Call) -> Option<EngineError> + Send + Sync>;

/// An engine that fails by a rule.
pub struct Failing<E> {
    inner: Arc<Inner<E>>,
}

/// The state that [`Failing`] and its extents share.
pub struct Inner<E> {
    engine: E,
    rule: Rule,
    calls: AtomicU64,
}

impl<E: Engine> Failing<E> {
    /// Passes calls on to `engine`, except those for which `rule` returns an error.
    pub fn new(engine: E, rule: Rule) -> Self {
        Self { inner: Arc::new(Inner { engine, rule, calls: AtomicU64::new(0) }) }
    }

    /// Fails only call `number` (from 1), with an I/O error.
    pub fn on_call(engine: E, number: u64) -> Self {
        Self::when(engine, move |call| call.number == number)
    }

    /// Fails every call that `matches` with an I/O error; a reservation fails with
    /// [`EngineError::Full`].
    pub fn when(engine: E, matches: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self::new(engine, Box::new(move |call| matches(call).then(|| broken(call))))
    }

    /// Fails with [`EngineError::Full`] every call that would bring more than `bytes` into use. All
    /// data of a write count as new.
    pub fn full_above(engine: E, bytes: u64) -> Self {
        let rule = move |call: &Call| {
            let adds = matches!(call.verb, Verb::Write | Verb::Reserve) && call.usage.used + call.bytes > bytes;
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

    fn check(&self, verb: Verb, key: Option<StripeKey>, bytes: u64) -> Result<(), EngineError> {
        self.inner.check(verb, key, bytes)
    }
}

impl<E: Engine> Inner<E> {
    /// Applies the rule to a call.
    pub fn check(&self, verb: Verb, key: Option<StripeKey>, bytes: u64) -> Result<(), EngineError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let call = Call { verb, key, bytes, number, usage: self.engine.usage() };
        (self.rule)(&call).map_or(Ok(()), Err)
    }
}

impl<E: Engine + 'static> Engine for Failing<E> {
    fn stripe_bytes(&self) -> u32 {
        self.inner.engine.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError> {
        self.check(Verb::Write, Some(key), data.len() as u64)?;
        self.inner.engine.write(key, generation, offset, data)
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError> {
        self.check(Verb::Read, Some(key), len.into())?;
        self.inner.engine.read(key, offset, len)
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        self.check(Verb::Truncate, Some(key), len.into())?;
        self.inner.engine.truncate(key, generation, len)
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError> {
        self.check(Verb::Truncate, Some(key), len.into())?;
        self.inner.engine.zero(key, generation, offset, len)
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        self.check(Verb::Write, Some(key), len.into())?;
        self.inner.engine.extend(key, generation, len)
    }

    fn remove(&self, key: StripeKey) -> Result<(), EngineError> {
        self.check(Verb::Remove, Some(key), 0)?;
        self.inner.engine.remove(key)
    }

    fn fit(&self, key: StripeKey) -> Result<(), EngineError> {
        self.check(Verb::Fit, Some(key), 0)?;
        self.inner.engine.fit(key)
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.check(Verb::Reserve, None, bytes)?;
        self.inner.engine.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.inner.engine.release(bytes);
    }

    fn usage(&self) -> Usage {
        self.inner.engine.usage()
    }

    fn peak(&self) -> u64 {
        self.inner.engine.peak()
    }

    fn extents(&self) -> Option<Arc<dyn Extents>> {
        self.inner
            .engine
            .extents()
            .map(|extents| Arc::new(FailingExtents::new(self.inner.clone(), extents)) as Arc<dyn Extents>)
    }

    fn stand_in(&self, kind: StandIn, mark: Mark) -> io::Result<(OwnedFd, Box<dyn Held>)> {
        self.check(Verb::Open, None, 0).map_err(io::Error::other)?;
        self.inner.engine.stand_in(kind, mark)
    }

    fn on_freed(&self, hook: FreedHook) {
        self.inner.engine.on_freed(hook);
    }
}

impl<E: fmt::Debug> fmt::Debug for Failing<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Failing")
            .field("engine", &self.inner.engine)
            .field("calls", &self.inner.calls)
            .finish_non_exhaustive()
    }
}

fn broken(call: &Call) -> EngineError {
    let action = match call.verb {
        Verb::Write => "write",
        Verb::Read => "read",
        Verb::Truncate => "truncate",
        Verb::Remove => "remove",
        Verb::Fit => "fit",
        Verb::Reserve => "reserve",
        Verb::Open => "open",
    };
    let source = io::Error::other(format!("call {} was made to fail", call.number));
    call.key.map_or_else(|| full(call, call.usage.capacity), |key| EngineError::Io { key, action, source })
}

fn full(call: &Call, capacity: u64) -> EngineError {
    EngineError::Full { capacity, used: call.usage.used, wanted: call.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Model, conformance};
    use placement::{FileId, StripeNo};

    const KEY: StripeKey = StripeKey { file: FileId(2), stripe: StripeNo(0) };

    fn model() -> Model {
        Model::new(1 << 20, 1 << 14)
    }

    #[test]
    fn the_nth_call_fails_and_leaves_the_stripe_as_it_was() {
        let engine = Failing::on_call(model(), 2);
        engine.write(KEY, Generation(0), 0, b"one").unwrap();
        let error = engine.write(KEY, Generation(0), 0, b"two").unwrap_err();
        assert!(error.to_string().contains("stripe 0 of file 2: write failed"), "{error}");
        assert_eq!(engine.read(KEY, 0, 9).unwrap(), "one");
        assert_eq!(engine.calls(), 3);
    }

    #[test]
    fn every_call_that_matches_fails() {
        let engine = Failing::when(model(), |call| call.verb == Verb::Read);
        engine.write(KEY, Generation(0), 0, b"one").unwrap();
        assert!((0..3).all(|_| engine.read(KEY, 0, 9).is_err()));
        assert_eq!(engine.inner().read(KEY, 0, 9).unwrap(), "one");
    }

    #[test]
    fn it_is_full_above_the_set_amount_until_space_is_given_back() {
        let engine = Failing::full_above(model(), 10);
        engine.write(KEY, Generation(0), 0, b"12345678").unwrap();
        assert!(matches!(engine.reserve(3), Err(EngineError::Full { capacity: 10, used: 8, wanted: 3 })));
        engine.remove(KEY).unwrap();
        engine.reserve(10).unwrap();
    }

    #[test]
    fn an_extent_that_cannot_be_opened_is_what_it_was() {
        let engine = Failing::when(Model::with_extents(1 << 20, 1 << 14), |call| call.verb == Verb::Open);
        let extents = engine.extents().unwrap();
        let slot = extents.take().unwrap();
        let access = Access { read: true, write: true, append: false };
        let error = extents.open(slot, access, Mark(1)).unwrap_err();
        assert!(error.to_string().contains("extent 0: open"), "{error}");
        assert!(!extents.holds(slot, Mark(1)) && extents.is_quiet(slot));
        extents.write_at(slot, 0, b"tide").unwrap();
        assert_eq!(extents.read_at(slot, 0, 9).unwrap(), "tide");
    }

    #[test]
    fn without_a_failure_it_is_the_engine_inside() {
        conformance::random_calls_agree_with_the_model(&Failing::when(model(), |_| false));
    }
}
