//! Random calls that are not waited for before the next ones, against the model.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::random::{KEYS, RandomCall, numbered_key, random_calls, result_kind};
use crate::{EngineError, ModelEngine, StoreCompletion, StripeKey, StripeStore};

/// The most calls in flight.
const IN_FLIGHT_MAX: usize = 12;
/// The most polls of one completion: far more than any needs.
const POLLS_MAX: u32 = 1_000_000;
/// The seeds, and the calls of each, of the test: less than a second for a store in a debug build.
const SEEDS: u64 = 10;
const STEPS: u32 = 300;

/// A call in flight.
enum Submitted {
    Change(RandomCall, StoreCompletion<()>),
    Read { key: StripeKey, offset: u32, len: u32, read: StoreCompletion<Bytes> },
}

/// Random calls, many in flight at a time, give the results that the model gives; calls that fail
/// for another reason than their arguments change nothing.
pub fn random_calls_in_flight_agree_with_the_model(store: &dyn StripeStore) {
    for seed in 0..SEEDS {
        run_in_flight(store, seed, STEPS, || {});
    }
}

/// Makes the `count` calls of `seed` on an empty store, checks each against the model, and leaves
/// the store empty. Between any two steps, and while it waits, it calls `between`.
pub fn run_in_flight(store: &dyn StripeStore, seed: u64, count: u32, mut between: impl FnMut()) {
    let model = ModelEngine::new(u64::MAX, store.stripe_bytes());
    let mut in_flight = VecDeque::new();
    for (number, call) in (0..).zip(random_calls(seed, count, store.stripe_bytes())) {
        let submitted = match call {
            RandomCall::Read { key, offset, len } => {
                Some(Submitted::Read { key, offset, len, read: store.read(key, offset, len) })
            }
            change => change.submit(store, number).map(|(_, done)| Submitted::Change(change, done)),
        };
        in_flight.extend(submitted.map(|submitted| (number, submitted)));
        between();
        if in_flight.len() > IN_FLIGHT_MAX {
            finish_first(&model, seed, &mut in_flight, &mut between);
        }
    }
    while !in_flight.is_empty() {
        finish_first(&model, seed, &mut in_flight, &mut between);
    }
    for key in (0..KEYS).map(numbered_key) {
        let found = retry(|| poll_until(store.read(key, 0, u32::MAX), &mut between));
        assert_eq!(Ok(found), model.read(key, 0, u32::MAX).map_err(|_| "unreadable"), "seed {seed}, {key} at the end");
        retry(|| poll_until(store.remove(key), &mut between));
    }
}

fn finish_first(
    model: &ModelEngine,
    seed: u64,
    in_flight: &mut VecDeque<(u32, Submitted)>,
    between: &mut impl FnMut(),
) {
    let Some((number, submitted)) = in_flight.pop_front() else { return };
    match submitted {
        Submitted::Change(call, done) => {
            let found = poll_until(done, between);
            if !is_fault(&found) {
                let expected = call.submit(model, number).expect("it changes a stripe").1.now();
                let kinds = (result_kind(&found), result_kind(&expected));
                assert_eq!(kinds.0, kinds.1, "seed {seed}, step {number}: {call:?}");
            }
        }
        Submitted::Read { key, offset, len, read } => {
            let (found, expected) = (poll_until(read, between), model.read(key, offset, len).expect("readable"));
            let found =
                found.or_else(|error| if is_fault(&Err(error)) { Ok(expected.clone()) } else { Err("refused") });
            assert_eq!(found, Ok(expected), "seed {seed}, step {number}: {key}, {len} bytes at {offset}");
        }
    }
}

/// True if the call failed for another reason than its arguments, so that it has changed nothing.
fn is_fault(result: &Result<(), EngineError>) -> bool {
    matches!(result, Err(EngineError::Full { .. } | EngineError::Io { .. }))
}

/// Repeats a call that a fault may make fail.
fn retry<T>(mut call: impl FnMut() -> Result<T, EngineError>) -> T {
    (0..100).find_map(|_| call().ok()).expect("faults end")
}

fn poll_until<T>(completion: StoreCompletion<T>, between: &mut impl FnMut()) -> Result<T, EngineError> {
    let (mut done, mut context) = (pin!(completion.done()), Context::from_waker(Waker::noop()));
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(result) = done.as_mut().poll(&mut context) {
            return result;
        }
        between();
    }
    panic!("an operation did not complete");
}
