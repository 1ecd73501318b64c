//! Promises about space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{CAPACITY_STRIPES, FIRST, content, key, pattern, try_write, write};
use crate::{EngineError, StripeStore};

/// Exactly as many whole stripes fit as the capacity says, and `used` counts them.
pub fn exactly_the_capacity_fits(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    assert_eq!(engine.usage().capacity, CAPACITY_STRIPES * u64::from(len), "wanted an engine of that many stripes");
    for stripe in 0..CAPACITY_STRIPES {
        write(engine, key(stripe), 0, &vec![1; len as usize]);
        assert_eq!(engine.usage().used, (stripe + 1) * u64::from(len));
        assert_eq!(engine.usage().stripes, stripe + 1);
    }
    assert_full(engine, try_write(engine, key(CAPACITY_STRIPES), FIRST, 0, b"x"));
    assert_eq!((engine.usage().stripes, engine.usage().free()), (CAPACITY_STRIPES, 0));
}

/// A call that returns `Full` leaves every stripe unchanged: the one written to, the others, and
/// one that was absent.
pub fn a_full_engine_leaves_the_stripe_as_it_was(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    for stripe in 1..CAPACITY_STRIPES {
        write(engine, key(stripe), 0, &pattern(9, len));
    }
    write(engine, key(0), 0, b"short");
    engine.shrink_to_fit(key(0)).wait().expect("fits");
    fill_up(engine);
    let before = engine.usage();
    assert_full(engine, try_write(engine, key(0), FIRST, 3, &pattern(2, len - 3)));
    assert_full(engine, try_write(engine, key(99), FIRST, 0, b"x"));
    assert_eq!(engine.usage(), before);
    assert_eq!(content(engine, key(0)), b"short");
    assert!(content(engine, key(99)).is_empty());
    assert!((1..CAPACITY_STRIPES).all(|stripe| content(engine, key(stripe)) == pattern(9, len)));
    write(engine, key(1), 7, b"an overwrite needs no room");
    engine.remove(key(1)).wait().expect("removable");
    write(engine, key(0), 3, &pattern(2, len - 3));
}

/// Zeros at the end of a stripe are cut off and free at once. Zeros before its end leave the bytes
/// behind them, and views keep theirs.
pub fn zeros_at_the_end_are_free_and_those_before_it_are_zeros(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    write(engine, key(0), 0, &pattern(3, len));
    let view = engine.read(key(0), 0, len).wait().expect("readable");
    engine.zero(key(0), FIRST, 10, 90).wait().expect("there is room");
    let mut expected = pattern(3, len);
    expected[10..100].fill(0);
    assert_eq!(content(engine, key(0)), expected);
    assert_eq!(view, pattern(3, len), "a view stays the same bytes");
    drop(view);
    engine.zero(key(0), FIRST, 100, len).wait().expect("it only gives back");
    assert_eq!(content(engine, key(0)), expected[..100]);
    engine.zero(key(0), FIRST, 0, len).wait().expect("it only gives back");
    assert_eq!((engine.usage().used, content(engine, key(0)).len()), (0, 0));
    engine.zero(key(1), crate::Generation(7), 0, 5).wait().expect("an absent one is fine");
    assert!(matches!(try_write(engine, key(1), FIRST, 0, b"late"), Err(EngineError::Stale { .. })));
}

/// The bytes that a stripe was extended by are zeros, and take writes in a full engine.
pub fn an_extended_stripe_takes_writes_in_a_full_engine(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    write(engine, key(0), 0, b"head");
    engine.extend(key(0), FIRST, len).wait().expect("there is room");
    engine.extend(key(0), FIRST, 2).wait().expect("it is longer already");
    engine.extend(key(1), FIRST, len / 2).wait().expect("there is room");
    fill_up(engine);
    assert_full(engine, engine.extend(key(2), FIRST, len).wait());
    assert!(matches!(engine.extend(key(0), FIRST, len + 1).wait(), Err(EngineError::TooLong { .. })));
    assert_eq!((content(engine, key(0)).len(), content(engine, key(1))), (len as usize, vec![0; len as usize / 2]));
    write(engine, key(0), 4, &pattern(5, len - 4));
    assert_eq!(content(engine, key(0))[..4], *b"head");
    assert_eq!(content(engine, key(0))[4..], pattern(5, len - 4));
}

/// Removed bytes are free at once: a full engine takes as many again, any number of times, in
/// pieces of any size.
pub fn what_is_removed_is_free_at_once(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    for round in 0..20_u32 {
        let pieces = if round % 2 == 0 { 1 } else { 4 };
        let stripes = CAPACITY_STRIPES * u64::from(pieces);
        let data = pattern(round, len / pieces);
        for stripe in 0..stripes {
            write(engine, key(stripe), 0, &data);
            engine.shrink_to_fit(key(stripe)).wait().expect("fits");
        }
        assert!((0..stripes).all(|stripe| content(engine, key(stripe)) == data), "round {round}");
        (0..stripes).for_each(|stripe| engine.remove(key(stripe)).wait().expect("removable"));
        assert_eq!((engine.usage().used, engine.usage().stripes), (0, 0));
    }
}

/// Reservations and stripes share one capacity, to the byte.
pub fn reservations_share_the_capacity(engine: &dyn StripeStore) {
    let (len, capacity) = (u64::from(engine.stripe_bytes()), engine.usage().capacity);
    engine.reserve(len + 1).expect("there is room");
    let whole = |stripe| try_write(engine, key(stripe), FIRST, 0, &pattern(1, engine.stripe_bytes()));
    (0..CAPACITY_STRIPES - 2).for_each(|stripe| whole(stripe).expect("there is room"));
    let usage = engine.usage();
    assert_eq!((usage.used, usage.reserved), (capacity - len + 1, len + 1));
    assert_full(engine, whole(CAPACITY_STRIPES));
    assert_full(engine, engine.reserve(len));
    assert_full(engine, engine.reserve(u64::MAX));
    engine.release(1);
    whole(CAPACITY_STRIPES).expect("there is room for one more");
    engine.release(len);
    assert_eq!((engine.usage().used, engine.usage().reserved), (capacity - len, 0));
}

/// A fitted stripe keeps its bytes, holds no more space than before, and may grow again. Fitting an
/// absent stripe is not an error.
pub fn a_fitted_stripe_keeps_its_bytes_and_may_grow_again(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    engine.shrink_to_fit(key(5)).wait().expect("absent is fine");
    let mut expected = Vec::new();
    for (number, part) in (0_u32..).zip(pattern(4, len).chunks((len / 8) as usize)) {
        write(engine, key(0), number * (len / 8), part);
        expected.extend_from_slice(part);
        let before = engine.usage().used;
        engine.shrink_to_fit(key(0)).wait().expect("fits");
        assert!(engine.usage().used <= before);
        assert_eq!(content(engine, key(0)), expected, "after part {number}");
    }
    assert_eq!(engine.usage().stripes, 1);
}

/// Removing, truncating to nothing and releasing call the hook.
pub fn every_way_of_freeing_calls_the_hook(engine: &dyn StripeStore) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    engine.on_freed(Arc::new(|| panic!("a second hook replaces the first")));
    engine.on_freed(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let mut seen = 0;
    let mut expect_call = |what: &str| {
        let now = calls.load(Ordering::SeqCst);
        assert!(now > seen, "{what} did not call the hook");
        seen = now;
    };
    write(engine, key(0), 0, &pattern(1, engine.stripe_bytes()));
    write(engine, key(1), 0, &pattern(1, engine.stripe_bytes()));
    engine.reserve(10).expect("room");
    engine.remove(key(0)).wait().expect("removable");
    expect_call("remove");
    engine.truncate(key(1), FIRST, 0).wait().expect("truncatable");
    expect_call("truncate");
    engine.release(10);
    expect_call("release");
    assert_eq!(engine.usage().used, 0);
}

/// Fills the store with stripes until not even a byte fits.
fn fill_up(engine: &dyn StripeStore) {
    let mut stripes = 1000..;
    let mut piece = engine.stripe_bytes();
    while piece > 0 {
        let stripe = stripes.next().expect("endless");
        if try_write(engine, key(stripe), FIRST, 0, &pattern(1, piece)).is_err() {
            piece /= 2;
        }
    }
}

fn assert_full(engine: &dyn StripeStore, answer: Result<(), EngineError>) {
    let error = answer.expect_err("there is no room");
    let EngineError::Full { capacity, used, .. } = &error else { panic!("expected Full, got: {error}") };
    // A store that is made of several names the one that is full.
    assert!(used <= capacity && *capacity <= engine.usage().capacity, "{error}");
    assert!(engine.usage().used <= engine.usage().capacity);
}
