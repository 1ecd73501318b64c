//! Random calls against the model: the engine and [`ModelEngine`] must give the same results, views
//! included.
//!
//! A failure names its seed; `random_calls(seed, ..)` makes the same calls again.

use bytes::Bytes;
use placement::{FileId, PartitionId, StripeNo};
use test_support::Random;

use super::pattern;
use crate::{EngineError, Generation, ModelEngine, StoreCompletion, StripeKey, StripeStore};

/// The number of stripes that random calls choose from: few, so that calls affect the same stripe
/// often.
pub const KEYS: u64 = 6;
/// The most views held at a time. Each further view makes the oldest be checked and dropped.
const VIEWS_MAX: usize = 8;
/// The seeds, and the calls of each, of the test: about a second for an engine in a debug build.
const SEEDS: u64 = 20;
const STEPS: u32 = 300;

/// One random call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RandomCall {
    /// Writes a pattern.
    Write {
        /// The stripe.
        key: StripeKey,
        /// The generation.
        generation: Generation,
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        len: u32,
    },
    /// Reads, and keeps the view for a while.
    Read {
        /// The stripe.
        key: StripeKey,
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        len: u32,
    },
    /// Truncates.
    Truncate {
        /// The stripe.
        key: StripeKey,
        /// The generation.
        generation: Generation,
        /// The new length in bytes.
        len: u32,
    },
    /// Fills a range with zeros.
    Zero {
        /// The stripe.
        key: StripeKey,
        /// The generation.
        generation: Generation,
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        len: u32,
    },
    /// Extends the stripe with zeros.
    Extend {
        /// The stripe.
        key: StripeKey,
        /// The generation.
        generation: Generation,
        /// The new length in bytes.
        len: u32,
    },
    /// Removes the stripe.
    Remove(StripeKey),
    /// Calls [`StripeStore::shrink_to_fit`] on the stripe.
    ShrinkToFit(StripeKey),
    /// Reserves bytes, after releasing the previous reservation.
    Reserve(u64),
    /// Drops one of the views.
    DropView(usize),
}

impl RandomCall {
    /// Submits the call, if it changes a stripe; returns its key too. `number` chooses the bytes.
    pub fn submit(self, store: &dyn StripeStore, number: u32) -> Option<(StripeKey, StoreCompletion<()>)> {
        Some(match self {
            Self::Write { key, generation, offset, len } => {
                (key, store.write(key, generation, offset, &pattern(number, len).into()))
            }
            Self::Truncate { key, generation, len } => (key, store.truncate(key, generation, len)),
            Self::Zero { key, generation, offset, len } => (key, store.zero(key, generation, offset, len)),
            Self::Extend { key, generation, len } => (key, store.extend(key, generation, len)),
            Self::Remove(key) => (key, store.remove(key)),
            Self::ShrinkToFit(key) => (key, store.shrink_to_fit(key)),
            Self::Read { .. } | Self::Reserve(_) | Self::DropView(_) => return None,
        })
    }
}

/// Thousands of random calls give the results that the model gives; calls that return `Full` change
/// nothing.
pub fn random_calls_agree_with_the_model(engine: &dyn StripeStore) {
    for seed in 0..SEEDS {
        run(engine, seed, STEPS);
    }
}

/// Makes `count` calls from `seed`, for stripes of at most `stripe_bytes` bytes.
pub fn random_calls(seed: u64, count: u32, stripe_bytes: u32) -> Vec<RandomCall> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random_call(&mut random, stripe_bytes)).collect()
}

/// Makes the `count` calls of `seed` on an empty engine, checks each against the model, and leaves
/// the engine empty.
pub fn run(engine: &dyn StripeStore, seed: u64, count: u32) {
    let model = ModelEngine::new(u64::MAX, engine.stripe_bytes());
    let mut trial = Trial { engine, model, views: Vec::new(), reserved: 0, context: String::new() };
    for (number, step) in (0..).zip(random_calls(seed, count, engine.stripe_bytes())) {
        trial.context = format!("seed {seed}, step {number}: {step:?}");
        trial.call(step, number);
        trial.check_usage();
    }
    trial.finish();
}

struct Trial<'a> {
    engine: &'a dyn StripeStore,
    model: ModelEngine,
    /// Views of the engine, each with a copy of its bytes at the time of the read.
    views: Vec<(Bytes, Vec<u8>)>,
    reserved: u64,
    context: String,
}

impl Trial<'_> {
    fn call(&mut self, step: RandomCall, number: u32) {
        match step {
            RandomCall::Read { key, offset, len } => self.read(key, offset, len),
            RandomCall::Reserve(bytes) => self.reserve(bytes),
            RandomCall::DropView(index) if index < self.views.len() => self.drop_view(index),
            RandomCall::DropView(_) => {}
            change => self.mutate(change, number),
        }
    }

    /// Makes the change on both, unless the engine is full; then compares the whole stripe.
    fn mutate(&self, change: RandomCall, number: u32) {
        let (key, submitted) = change.submit(self.engine, number).expect("it changes a stripe");
        let answer = submitted.wait();
        if !matches!(answer, Err(EngineError::Full { .. })) {
            let expected = change.submit(&self.model, number).expect("as above").1.now();
            assert_eq!(result_kind(&answer), result_kind(&expected), "{}", self.context);
        }
        let (found, expected) = (self.engine.read(key, 0, u32::MAX).wait(), self.model.read(key, 0, u32::MAX));
        let (found, expected) = (found.expect("readable"), expected.expect("readable"));
        assert_eq!(found.len(), expected.len(), "length after {}", self.context);
        if found != expected {
            let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            panic!("byte {differs:?} is wrong after {}", self.context);
        }
    }

    fn read(&mut self, key: StripeKey, offset: u32, len: u32) {
        let found = self.engine.read(key, offset, len).wait().expect("readable");
        let expected = self.model.read(key, offset, len).expect("readable");
        assert!(found == expected, "{}", self.context);
        if self.views.len() == VIEWS_MAX {
            self.drop_view(0);
        }
        self.views.push((found, expected.to_vec()));
    }

    fn drop_view(&mut self, index: usize) {
        let (view, was) = self.views.remove(index);
        assert!(view == was, "a view changed; seen at {}", self.context);
    }

    fn reserve(&mut self, bytes: u64) {
        self.engine.release(std::mem::take(&mut self.reserved));
        if self.engine.reserve(bytes).is_ok() {
            self.reserved = bytes;
        }
    }

    fn check_usage(&self) {
        let (usage, model) = (self.engine.usage(), self.model.usage());
        assert_eq!((usage.stripes, usage.reserved), (model.stripes, self.reserved), "{}", self.context);
        assert!(usage.used <= usage.capacity, "{usage:?} at {}", self.context);
        let least = if self.views.is_empty() { model.used + self.reserved } else { 0 };
        assert!(usage.used >= least, "{usage:?} holds less than its bytes at {}", self.context);
    }

    fn finish(mut self) {
        while !self.views.is_empty() {
            self.drop_view(0);
        }
        self.engine.release(self.reserved);
        (0..KEYS).for_each(|number| self.engine.remove(numbered_key(number)).wait().expect("removable"));
        let usage = self.engine.usage();
        assert_eq!((usage.used, usage.reserved, usage.stripes), (0, 0, 0), "after all was removed; {}", self.context);
    }
}

/// The kind of a result, without its numbers.
pub fn result_kind(answer: &Result<(), EngineError>) -> &'static str {
    match answer {
        Ok(()) => "done",
        Err(EngineError::Full { .. }) => "full",
        Err(EngineError::Stale { .. }) => "stale",
        Err(EngineError::TooLong { .. }) => "too long",
        Err(EngineError::Moved { .. }) => "moved",
        Err(EngineError::Io { .. } | EngineError::Extent { .. } | EngineError::Closed) => "io",
    }
}

pub fn numbered_key(number: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(40 + number / 3), stripe: StripeNo(number % 3) }
}

/// A length up to `max`: a third each are short, close to whole blocks, and any length.
fn random_length(random: &mut Random, max: u32) -> u32 {
    let length = match random.below(3) {
        0 => random.below(200),
        1 => (max >> random.below(8)).saturating_add(random.below(3)).saturating_sub(1),
        _ => random.below(max + 1),
    };
    length.min(max)
}

/// Mostly the same generation; one in twenty times a random one. After a newer one the others are
/// stale.
fn random_generation(random: &mut Random) -> Generation {
    Generation(if random.one_in(20) { random.below(4) } else { 2 })
}

fn random_call(random: &mut Random, stripe_bytes: u32) -> RandomCall {
    let key = numbered_key(random.below(KEYS));
    match random.below(23) {
        20 => {
            let (generation, len) = (random_generation(random), random_length(random, stripe_bytes));
            RandomCall::Extend { key, generation, len }
        }
        21..=22 => {
            let (generation, offset) = (random_generation(random), random_length(random, stripe_bytes));
            RandomCall::Zero { key, generation, offset, len: random_length(random, stripe_bytes - offset) }
        }
        0..=8 => random_write(random, key, stripe_bytes),
        9..=12 => {
            let offset = random_length(random, stripe_bytes) / 2;
            RandomCall::Read { key, offset, len: random_length(random, stripe_bytes) }
        }
        13..=14 => {
            let (generation, len) = (random_generation(random), random_length(random, stripe_bytes));
            RandomCall::Truncate { key, generation, len }
        }
        15..=16 => RandomCall::Remove(key),
        17 => RandomCall::ShrinkToFit(key),
        18 => RandomCall::Reserve(u64::from(random.below(stripe_bytes) * 2)),
        _ => RandomCall::DropView(random.below(8)),
    }
}

/// A write within the stripe; one in thirty may be too long.
fn random_write(random: &mut Random, key: StripeKey, stripe_bytes: u32) -> RandomCall {
    let offset = random_length(random, stripe_bytes);
    let room = if random.one_in(30) { stripe_bytes } else { stripe_bytes - offset };
    RandomCall::Write { key, generation: random_generation(random), offset, len: random_length(random, room) }
}
