//! Many threads on the same and on different stripes: every read returns bytes of whole, valid
//! writes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use arena::{Arena, ArenaOptions};
use placement::{FileId, PartitionId, StripeNo};
use store::{EngineError, Generation, StripeKey, StripeStore, conformance};
use test_support::Random;

const STRIPE_BYTES: u32 = 1 << 16;
const FIRST: Generation = Generation(0);

fn arena(stripes: u64) -> Arena {
    let capacity = stripes * u64::from(STRIPE_BYTES);
    Arena::new(ArenaOptions { stripe_bytes: STRIPE_BYTES, ..ArenaOptions::with_capacity(capacity) })
        .expect("a few MiB of address space")
}

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(3), stripe: StripeNo(stripe) }
}

/// `count` records, each of eight equal numbers, so that a torn or misplaced byte shows.
fn records(value: u64, count: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(8 * count)
}

fn check_records(bytes: &[u8]) {
    for record in bytes.chunks(64) {
        assert!(record.chunks(8).all(|value| value == &record[..8]), "a torn record: {record:?}");
    }
}

/// Writes, reads, truncates and removes a few shared stripes in an arena that is too small for all
/// of them. Returns how many writes found it full.
fn hammer(arena: &Arena, thread: u64, rounds: u64) -> u64 {
    let mut random = Random::new(thread);
    let mut views = Vec::new();
    let mut full = 0;
    for round in 0..rounds {
        let (stripe, offset) = (key(random.below(4)), random.below(500) * 64);
        match random.below(8) {
            0..=3 => match arena.write(stripe, FIRST, offset, &records(thread << 32 | round, 500)) {
                Err(EngineError::Full { .. }) => full += 1,
                answer => answer.unwrap(),
            },
            4..=5 => views.push(arena.read(stripe, 0, u32::MAX).unwrap()),
            6 => arena.truncate(stripe, FIRST, offset).unwrap(),
            _ => arena.remove(stripe).unwrap(),
        }
        if views.len() > 3 {
            views.drain(..).for_each(|view| check_records(&view));
        }
        assert!(arena.usage().used <= arena.usage().capacity);
    }
    for view in views {
        check_records(&view);
    }
    full
}

#[test]
fn threads_on_the_same_stripes_see_whole_records_only_also_when_it_is_full() {
    let arena = arena(8);
    let full = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (arena, full) = (&arena, &full);
            scope.spawn(move || full.fetch_add(hammer(arena, thread, 5_000), Ordering::Relaxed));
        }
    });
    assert!(full.into_inner() > 0, "the arena was meant to be too small");
    (0..4).for_each(|stripe| arena.remove(key(stripe)).unwrap());
    assert_eq!((arena.usage().used, arena.usage().stripes), (0, 0));
}

#[test]
fn a_stripe_that_one_thread_removes_while_others_create_it_is_whole_or_absent() {
    let arena = arena(64);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers = [1_u64, 2].map(|thread| {
            let arena = &arena;
            scope.spawn(move || (0..20_000).for_each(|_| arena.write(key(0), FIRST, 0, &records(thread, 10)).unwrap()))
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                arena.remove(key(0)).unwrap();
                let seen = arena.read(key(0), 0, u32::MAX).unwrap();
                assert!(seen.is_empty() || seen.len() == 640);
                check_records(&seen);
            }
        });
        let ends = writers.map(thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    arena.remove(key(0)).unwrap();
    assert_eq!((arena.usage().used, arena.usage().stripes), (0, 0));
}

#[test]
fn a_truncation_by_one_thread_keeps_late_writes_of_others_out() {
    let arena = arena(64);
    thread::scope(|scope| {
        scope.spawn(|| (1..=2_000).for_each(|number| arena.truncate(key(0), Generation(number), 0).unwrap()));
        scope.spawn(|| {
            let mut known = Generation(0);
            while known < Generation(2_000) {
                match arena.write(key(0), known, 0, &known.0.to_le_bytes()) {
                    Err(EngineError::Stale { seen, given, .. }) => {
                        assert!(seen > given);
                        known = seen;
                    }
                    answer => answer.unwrap(),
                }
            }
        });
    });
    let last = arena.read(key(0), 0, 9).unwrap();
    assert!(last.is_empty() || last == 2_000_u32.to_le_bytes()[..], "{last:?}");
}

#[test]
fn thousands_of_random_calls_with_views_held_agree_with_the_model_also_when_it_is_nearly_full() {
    for stripes in [2, 5, 40] {
        let arena = arena(stripes);
        (100..115).for_each(|seed| conformance::run(&arena, seed, 300));
    }
    let whole = Arena::new(ArenaOptions::with_capacity(16 << 20)).unwrap();
    (200..202).for_each(|seed| conformance::run(&whole, seed, 300));
}
