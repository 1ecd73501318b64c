//! Tests of a tier over a store that answers late, out of order, and with faults.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;

use placement::{FileId, PartitionId, StripeNo};
use test_support::Random;

use super::*;
use crate::completion::block_on;
use crate::conformance::run_in_flight;
use crate::{EngineCall, EngineOp, FaultyStore, LateStore, ModelEngine, StripeEntry};

const STRIPE: u32 = 4096;
const FIRST: Generation = Generation(0);

type WorkInProgress = Pin<Box<dyn Future<Output = Result<u64, EngineError>>>>;
type FaultyLateStore = LateStore<FaultyStore<ModelEngine>>;

/// A tier with the store below it.
struct TestTier {
    tier: Arc<Tier>,
    upper: Arc<ModelEngine>,
    lower: Arc<FaultyLateStore>,
}

impl TestTier {
    /// Stores of `upper` and `lower` stripes; calls below for which `fails` is true fail.
    fn new(
        (upper, lower): (u64, u64),
        marks: TierMarks,
        seed: u64,
        fails: impl Fn(&EngineCall) -> bool + Send + Sync + 'static,
    ) -> Self {
        let store = |stripes| ModelEngine::new(stripes * u64::from(STRIPE), STRIPE);
        let (upper, lower) = (Arc::new(store(upper)), FaultyStore::when(store(lower), fails));
        let lower = Arc::new(LateStore::new(lower, seed));
        let tier = Arc::new(block_on(Tier::open(upper.clone(), lower.clone(), marks)).unwrap());
        Self { tier, upper, lower }
    }

    /// A tier that lets everything sink, with one stripe below.
    fn with_stripe_below() -> Self {
        let test = Self::new((4, 4), marks(0, 0), 1, |_| false);
        test.tier.write(key(0), FIRST, 0, &"below".into()).now().unwrap();
        assert_eq!(block_on(test.tier.work()).unwrap(), 1);
        assert_eq!((test.upper.usage().stripes, test.lower.usage().stripes), (0, 1));
        test
    }

    fn read(&self, key: StripeKey) -> Bytes {
        self.tier.read(key, 0, STRIPE).wait().unwrap()
    }
}

/// Marks at numbers of stripes.
fn marks(high: u64, low: u64) -> TierMarks {
    TierMarks { high: high * u64::from(STRIPE), low: low * u64::from(STRIPE) }
}

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(5), stripe: StripeNo(stripe) }
}

/// Polls once; true if the future has ended.
fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The most retries of an operation that finds no space. Views can make all moves useless.
const RETRIES_MAX: u32 = 20;

/// A tier whose moves are made whenever an operation is, and before it is refused for lack of
/// space, as a node waits for space.
#[derive(Debug)]
struct DrivenTier(Arc<Tier>);

impl DrivenTier {
    fn new(stripes: u64, upper: u64, marks: TierMarks) -> Self {
        Self(TestTier::new((upper, stripes - upper), marks, stripes, |_| false).tier)
    }

    fn work(&self) -> u64 {
        block_on(self.0.work()).unwrap()
    }

    fn drive<T>(&self, op: impl Fn(&Tier) -> StoreCompletion<T>) -> StoreCompletion<T> {
        let mut retries_left = RETRIES_MAX;
        loop {
            let (mut done, mut moved) = (pin!(op(&self.0).done()), 0);
            let result = loop {
                if let Some(result) = poll(done.as_mut()) {
                    break result;
                }
                moved += self.work();
            };
            moved += self.work();
            retries_left -= 1;
            if !matches!(result, Err(EngineError::Full { .. })) || moved == 0 || retries_left == 0 {
                return result.into();
            }
        }
    }
}

impl StripeStore for DrivenTier {
    fn stripe_bytes(&self) -> u32 {
        STRIPE
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        self.drive(|tier| tier.write(key, generation, offset, data))
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.drive(|tier| tier.read(key, offset, len))
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.drive(|tier| tier.truncate(key, generation, len))
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        self.drive(|tier| tier.zero(key, generation, offset, len))
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.drive(|tier| tier.extend(key, generation, len))
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.drive(|tier| tier.remove(key))
    }

    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.drive(|tier| tier.shrink_to_fit(key))
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.drive(|tier| tier.snapshot(key))
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        self.0.scan()
    }

    fn sync(&self) -> StoreCompletion<()> {
        self.drive(Tier::sync)
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.drive(|tier| tier.reserve(bytes).into()).now()
    }

    fn release(&self, bytes: u64) {
        self.0.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        self.0.usage()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.0.on_freed(hook);
    }
}

mod one_that_lets_some_sink {
    use super::*;
    crate::conformance_tests!(|stripes| DrivenTier::new(stripes, 3, marks(2, 1)));
}

mod one_that_lets_all_sink {
    use super::*;
    crate::conformance_tests!(|stripes| DrivenTier::new(stripes, 3, marks(0, 0)));
}

#[test]
fn random_calls_in_flight_beside_moves_that_fail_or_are_given_up_lose_nothing() {
    let moved = AtomicU64::new(0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let faults = AtomicU64::new(random.below(20));
        let number = random.below(50) + 3;
        let fails = move |call: &EngineCall| {
            call.number.is_multiple_of(number)
                && faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        let high = random.below(4);
        let test = TestTier::new((4, random.below(6) + 2), marks(high, random.below(high + 1)), seed, fails);
        let mut work: Option<WorkInProgress> = None;
        let mut scan: Option<Box<dyn StripeScan>> = None;
        let mut between = || match random.below(20) {
            0 => work = None,
            1 if scan.is_none() => scan = Some(test.tier.scan()),
            1 => scan = None,
            2 => test.lower.step(),
            3..8 => {}
            _ => {
                let tier = test.tier.clone();
                let current = work.get_or_insert_with(|| Box::pin(async move { tier.work().await }));
                if let Some(ended) = poll(current.as_mut()) {
                    moved.fetch_add(ended.unwrap_or(0), Ordering::SeqCst);
                    work = None;
                }
            }
        };
        run_in_flight(&*test.tier, seed, 120, &mut between);
    }
    assert!(moved.into_inner() > SEEDS, "stripes were meant to move");
}

#[test]
fn a_scan_beside_moves_finds_every_stripe_and_no_old_copy() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let test = TestTier::new((6, 6), TierMarks { high: 500, low: 400 }, seed, |_| false);
        let mut written = [0_u32; 8];
        let mut use_some = |written: &mut [u32; 8]| {
            for _ in 0..random.below(6) {
                let stripe = random.below(8_u64);
                let generation = &mut written[usize::try_from(stripe).unwrap()];
                if random.one_in(2) {
                    *generation += 1;
                    let data = vec![1; 100].into();
                    wait_beside_work(&test.tier, test.tier.write(key(stripe), Generation(*generation), 0, &data));
                } else {
                    wait_beside_work(&test.tier, test.tier.read(key(stripe), 0, 1));
                }
                if random.one_in(2) {
                    block_on(test.tier.work()).unwrap();
                }
            }
        };
        for stripe in 0..8 {
            wait_beside_work(&test.tier, test.tier.write(key(stripe), FIRST, 0, &"x".into()));
        }
        use_some(&mut written);
        let (mut scan, mut found) = (test.tier.scan(), [false; 8]);
        loop {
            use_some(&mut written);
            let Some(page) = wait_beside_work(&test.tier, scan.next_page(1)) else { break };
            for StripeEntry { key, generation, .. } in page {
                let stripe = usize::try_from(key.stripe.0).unwrap();
                assert!(generation.0 >= written[stripe], "seed {seed}: {key} is an old copy");
                found[stripe] = true;
            }
        }
        assert_eq!(found, [true; 8], "seed {seed}");
    }
}

/// Waits for an operation while moves are made, the last of which is given up.
fn wait_beside_work<T>(tier: &Tier, operation: StoreCompletion<T>) -> T {
    let (mut done, mut work) = (pin!(operation.done()), Box::pin(tier.work()));
    loop {
        if poll(work.as_mut()).is_some() {
            work = Box::pin(tier.work());
        }
        if let Some(result) = poll(done.as_mut()) {
            return result.unwrap();
        }
    }
}

/// The seeds of the test: about ten seconds in a debug build.
const SEEDS: u64 = 3_000;

#[test]
fn a_read_of_a_stripe_above_is_done_at_once() {
    let test = TestTier::new((4, 4), marks(3, 3), 1, |_| false);
    test.tier.write(key(0), FIRST, 0, &"above".into()).now().unwrap();
    assert_eq!(test.tier.read(key(0), 0, 9).now().unwrap(), "above");
}

#[test]
fn a_stripe_that_is_used_again_rises_and_operations_on_it_wait_in_their_order() {
    let test = TestTier::with_stripe_below();
    assert_eq!(test.read(key(0)), "below");
    let mut work = Box::pin(test.tier.work());
    assert!(poll(work.as_mut()).is_none(), "the stripe is rising");
    let write = test.tier.write(key(0), FIRST, 0, &"B".into());
    let read = test.tier.read(key(0), 0, 9);
    let cut = test.tier.truncate(key(0), FIRST, 2);
    assert_eq!(block_on(work).unwrap(), 1);
    assert_eq!(read.wait().unwrap(), "Below");
    write.wait().unwrap();
    cut.wait().unwrap();
    assert_eq!((test.read(key(0)), test.lower.usage().stripes), ("Be".into(), 0));
}

#[test]
fn a_stripe_that_is_changed_while_it_sinks_stays_above_without_a_copy_below() {
    let test = TestTier::new((4, 4), marks(0, 0), 1, |_| false);
    test.tier.write(key(0), FIRST, 0, &"long and old".into()).now().unwrap();
    let mut work = Box::pin(test.tier.work());
    assert!(poll(work.as_mut()).is_none(), "the stripe sinks");
    test.tier.truncate(key(0), Generation(1), 0).now().unwrap();
    test.tier.write(key(0), Generation(1), 0, &"new".into()).now().unwrap();
    assert_eq!(block_on(work).unwrap(), 0);
    assert_eq!((test.read(key(0)), test.lower.usage().stripes), ("new".into(), 0));
    assert_eq!(block_on(test.tier.work()).unwrap(), 1);
    assert_eq!(test.read(key(0)), "new");
}

#[test]
fn a_move_that_is_given_up_leaves_the_stripe_where_it_was() {
    let test = TestTier::with_stripe_below();
    let read = test.tier.read(key(0), 0, 9);
    assert!(poll(Box::pin(test.tier.work()).as_mut()).is_none(), "the stripe is rising");
    let held = test.tier.read(key(0), 0, 2);
    assert_eq!((read.wait().unwrap(), held.wait().unwrap()), ("below".into(), "be".into()));
    assert_eq!(test.lower.usage().stripes, 1);
}

#[test]
fn stripes_behind_one_that_cannot_rise_do_so_with_the_next_work() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let fails = is_broken.clone();
    let test = TestTier::new((4, 4), marks(0, 0), 1, move |call| {
        call.op == EngineOp::Read && call.key == Some(key(0)) && fails.load(Ordering::Relaxed)
    });
    for stripe in [0, 1] {
        test.tier.write(key(stripe), FIRST, 0, &"below".into()).now().unwrap();
    }
    assert_eq!(block_on(test.tier.work()).unwrap(), 2);
    for stripe in [0, 1] {
        assert_eq!(test.read(key(stripe)), "below");
    }
    block_on(test.tier.wait_for_work());
    is_broken.store(true, Ordering::Relaxed);
    block_on(test.tier.work()).unwrap_err();
    assert!(poll(pin!(test.tier.wait_for_work())).is_some(), "there is work left");
    assert_eq!(block_on(test.tier.work()).unwrap(), 1);
    assert_eq!((test.upper.usage().stripes, test.lower.usage().stripes), (1, 1));
}

#[test]
fn a_stripe_that_cannot_be_written_below_stays_above() {
    let test = TestTier::new((4, 4), marks(0, 0), 1, |call| call.op == EngineOp::Write);
    test.tier.write(key(0), FIRST, 0, &"above".into()).now().unwrap();
    block_on(test.tier.work()).unwrap_err();
    assert_eq!(test.tier.read(key(0), 0, 9).now().unwrap(), "above");
}

#[test]
fn a_full_upper_store_has_space_again_after_work_and_the_hook_tells() {
    let test = TestTier::new((2, 4), marks(2, 2), 1, |_| false);
    let freed = Arc::new(AtomicU64::new(0));
    let counted = freed.clone();
    test.tier.on_freed(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let whole = Bytes::from(vec![1; STRIPE as usize]);
    (0..2).for_each(|stripe| test.tier.write(key(stripe), FIRST, 0, &whole).now().unwrap());
    let full = test.tier.write(key(2), FIRST, 0, &whole).now();
    assert!(matches!(full, Err(EngineError::Full { .. })), "{full:?}");
    block_on(test.tier.wait_for_work());
    let before = freed.load(Ordering::SeqCst);
    assert_eq!(block_on(test.tier.work()).unwrap(), 1);
    assert!(freed.load(Ordering::SeqCst) > before);
    test.tier.write(key(2), FIRST, 0, &whole).now().unwrap();
}

#[test]
fn what_was_not_used_for_longest_sinks_first() {
    let test = TestTier::new((8, 8), marks(3, 3), 1, |_| false);
    let whole = Bytes::from(vec![1; STRIPE as usize]);
    (0..3).for_each(|stripe| test.tier.write(key(stripe), FIRST, 0, &whole).now().unwrap());
    test.tier.write(key(3), FIRST, 0, &whole).now().unwrap();
    block_on(test.tier.work()).unwrap();
    test.tier.write(key(4), FIRST, 0, &whole).now().unwrap();
    for stripe in [1, 3, 4] {
        let is_above = matches!(test.tier.read(key(stripe), 0, 1), StoreCompletion::Ready(_));
        assert!(is_above, "stripe {stripe}");
    }
    block_on(test.tier.work()).unwrap();
    for (stripe, expected) in [(0, false), (1, true), (2, false), (3, true), (4, true)] {
        let is_above = matches!(test.tier.read(key(stripe), 0, 1), StoreCompletion::Ready(_));
        assert_eq!(is_above, expected, "stripe {stripe}");
    }
}

#[test]
fn a_tier_finds_what_was_below_before_it_was_opened() {
    let TestTier { tier, lower, upper } = TestTier::with_stripe_below();
    drop(tier);
    let tier = block_on(Tier::open(upper, lower, marks(1, 1))).unwrap();
    assert_eq!(tier.read(key(0), 0, 9).wait().unwrap(), "below");
    let late = tier.write(key(0), Generation(1), 1, &"ETTER".into());
    late.wait().unwrap();
    assert!(matches!(tier.truncate(key(0), FIRST, 0).wait(), Err(EngineError::Stale { .. })));
}
