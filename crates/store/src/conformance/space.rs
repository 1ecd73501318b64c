//! Promises about space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{CAPACITY_STRIPES, FIRST, content, key, pattern, write};
use crate::{Engine, EngineError};

/// Exactly as many whole stripes fit as the capacity says, and `used` counts them.
pub fn exactly_the_capacity_fits(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    assert_eq!(engine.usage().capacity, CAPACITY_STRIPES * u64::from(len), "wanted an engine of that many stripes");
    for stripe in 0..CAPACITY_STRIPES {
        write(engine, key(stripe), 0, &vec![1; len as usize]);
        assert_eq!(engine.usage().used, (stripe + 1) * u64::from(len));
        assert_eq!(engine.usage().stripes, stripe + 1);
    }
    assert_full(engine, engine.write(key(CAPACITY_STRIPES), FIRST, 0, b"x"));
    assert_eq!((engine.usage().stripes, engine.usage().free()), (CAPACITY_STRIPES, 0));
}

/// A call that returns `Full` leaves every stripe unchanged: the one written to, the others, and
/// one that was absent.
pub fn a_full_engine_leaves_the_stripe_as_it_was(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    write(engine, key(0), 0, b"short");
    engine.shrink_to_fit(key(0)).expect("fits");
    for stripe in 1..CAPACITY_STRIPES {
        write(engine, key(stripe), 0, &pattern(9, len));
    }
    let rest = engine.usage().free();
    engine.reserve(rest).expect("what is free can be reserved");
    let before = engine.usage();
    assert_full(engine, engine.write(key(0), FIRST, 3, &pattern(2, len - 3)));
    assert_full(engine, engine.write(key(99), FIRST, 0, b"x"));
    assert_eq!(engine.usage(), before);
    assert_eq!(content(engine, key(0)), b"short");
    assert!(content(engine, key(99)).is_empty());
    assert!((1..CAPACITY_STRIPES).all(|stripe| content(engine, key(stripe)) == pattern(9, len)));
    write(engine, key(1), 7, b"an overwrite needs no room");
    engine.release(rest);
    engine.remove(key(1)).expect("removable");
    write(engine, key(0), 3, &pattern(2, len - 3));
}

/// Zeros at the end of a stripe are cut off and free at once. Zeros before its end leave the bytes
/// behind them, and views keep theirs.
pub fn zeros_at_the_end_are_free_and_those_before_it_are_zeros(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    write(engine, key(0), 0, &pattern(3, len));
    let view = engine.read(key(0), 0, len).expect("readable");
    engine.zero(key(0), FIRST, 10, 90).expect("there is room");
    let mut expected = pattern(3, len);
    expected[10..100].fill(0);
    assert_eq!(content(engine, key(0)), expected);
    assert_eq!(view, pattern(3, len), "a view stays the same bytes");
    drop(view);
    engine.zero(key(0), FIRST, 100, len).expect("it only gives back");
    assert_eq!(content(engine, key(0)), expected[..100]);
    engine.zero(key(0), FIRST, 0, len).expect("it only gives back");
    assert_eq!((engine.usage().used, content(engine, key(0)).len()), (0, 0));
    engine.zero(key(1), crate::Generation(7), 0, 5).expect("an absent one is fine");
    assert!(matches!(engine.write(key(1), FIRST, 0, b"late"), Err(EngineError::Stale { .. })));
}

/// The bytes that a stripe was extended by are zeros, and take writes in a full engine.
pub fn an_extended_stripe_takes_writes_in_a_full_engine(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    write(engine, key(0), 0, b"head");
    engine.extend(key(0), FIRST, len).expect("there is room");
    engine.extend(key(0), FIRST, 2).expect("it is longer already");
    engine.extend(key(1), FIRST, len / 2).expect("there is room");
    let rest = engine.usage().free();
    engine.reserve(rest).expect("what is free can be reserved");
    assert_full(engine, engine.extend(key(2), FIRST, len));
    assert!(matches!(engine.extend(key(0), FIRST, len + 1), Err(EngineError::TooLong { .. })));
    assert_eq!((content(engine, key(0)).len(), content(engine, key(1))), (len as usize, vec![0; len as usize / 2]));
    write(engine, key(0), 4, &pattern(5, len - 4));
    assert_eq!(content(engine, key(0))[..4], *b"head");
    assert_eq!(content(engine, key(0))[4..], pattern(5, len - 4));
    engine.release(rest);
}

/// Removed bytes are free at once: a full engine takes as many again, any number of times, in
/// pieces of any size.
pub fn what_is_removed_is_free_at_once(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    for round in 0..20_u32 {
        let pieces = if round % 2 == 0 { 1 } else { 4 };
        let stripes = CAPACITY_STRIPES * u64::from(pieces);
        let data = pattern(round, len / pieces);
        for stripe in 0..stripes {
            write(engine, key(stripe), 0, &data);
            engine.shrink_to_fit(key(stripe)).expect("fits");
        }
        assert!((0..stripes).all(|stripe| content(engine, key(stripe)) == data), "round {round}");
        (0..stripes).for_each(|stripe| engine.remove(key(stripe)).expect("removable"));
        assert_eq!((engine.usage().used, engine.usage().stripes), (0, 0));
    }
}

/// Reservations and stripes share one capacity, to the byte.
pub fn reservations_share_the_capacity(engine: &dyn Engine) {
    let (len, capacity) = (u64::from(engine.stripe_bytes()), engine.usage().capacity);
    engine.reserve(capacity - len + 1).expect("all but a byte less than a stripe");
    assert_full(engine, engine.write(key(0), FIRST, 0, &pattern(1, engine.stripe_bytes())));
    assert_full(engine, engine.reserve(len));
    assert_full(engine, engine.reserve(u64::MAX));
    engine.release(1);
    write(engine, key(0), 0, &pattern(1, engine.stripe_bytes()));
    let usage = engine.usage();
    assert_eq!((usage.used, usage.reserved), (capacity, capacity - len));
    engine.release(capacity - len);
    assert_eq!((engine.usage().used, engine.usage().reserved), (len, 0));
}

/// A fitted stripe keeps its bytes, holds no more space than before, and may grow again. Fitting an
/// absent stripe is not an error.
pub fn a_fitted_stripe_keeps_its_bytes_and_may_grow_again(engine: &dyn Engine) {
    let len = engine.stripe_bytes();
    engine.shrink_to_fit(key(5)).expect("absent is fine");
    let mut expected = Vec::new();
    for (number, part) in (0_u32..).zip(pattern(4, len).chunks((len / 8) as usize)) {
        write(engine, key(0), number * (len / 8), part);
        expected.extend_from_slice(part);
        let before = engine.usage().used;
        engine.shrink_to_fit(key(0)).expect("fits");
        assert!(engine.usage().used <= before);
        assert_eq!(content(engine, key(0)), expected, "after part {number}");
    }
    assert_eq!(engine.usage().stripes, 1);
}

/// Removing, truncating to nothing and releasing call the hook.
pub fn every_way_of_freeing_calls_the_hook(engine: &dyn Engine) {
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
    engine.remove(key(0)).expect("removable");
    expect_call("remove");
    engine.truncate(key(1), FIRST, 0).expect("truncatable");
    expect_call("truncate");
    engine.release(10);
    expect_call("release");
    assert_eq!(engine.usage().used, 0);
}

fn assert_full(engine: &dyn Engine, answer: Result<(), EngineError>) {
    let error = answer.expect_err("there is no room");
    let EngineError::Full { capacity, used, .. } = &error else { panic!("expected Full, got: {error}") };
    assert_eq!((*capacity, *used), (engine.usage().capacity, engine.usage().used), "{error}");
    assert!(engine.usage().used <= engine.usage().capacity);
}
