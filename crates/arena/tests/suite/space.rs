//! Tests of space use beyond the conformance suite: growth, reuse, and the limit of the capacity.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Arena, ArenaOptions};
use placement::{FileId, PartitionId, StripeNo};
use store::{EngineError, Generation, StripeKey, StripeStore};

const FIRST: Generation = Generation(0);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn arena(capacity: u64) -> Arena {
    Arena::new(ArenaOptions::with_capacity(capacity)).expect("a few MiB of address space")
}

fn key(file: u64, stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(file), stripe: StripeNo(stripe) }
}

fn fill(arena: &Arena, key: StripeKey, len: u64, byte: u8) {
    let data = vec![byte; usize::try_from(len).unwrap()];
    arena.write(key, FIRST, 0, &data).unwrap();
    arena.shrink_to_fit(key).unwrap();
}

#[test]
fn nothing_is_touched_before_it_is_used() {
    let arena = arena(1 << 40);
    assert_eq!((arena.touched(), arena.usage().capacity), (0, 1 << 40));
    arena.write(key(1, 0), FIRST, 0, b"x").unwrap();
    assert_eq!((arena.usage().used, arena.touched()), (PAGE, PAGE));
}

#[test]
fn a_hundred_thousand_created_and_removed_stripes_take_no_new_memory() {
    let arena = arena(1 << 30);
    let lens = [1, 5_000, 70_000, 300_000];
    let round = |number: u64| {
        let keys: Vec<_> = (0..4).map(|stripe| key(number, stripe)).collect();
        for (key, len) in keys.iter().zip(lens) {
            arena.write(*key, FIRST, len, &number.to_le_bytes()).unwrap();
        }
        for key in keys {
            arena.remove(key).unwrap();
        }
    };
    round(0);
    let touched = arena.touched();
    (1..25_000).for_each(round);
    let usage = arena.usage();
    assert_eq!((usage.used, usage.stripes, arena.touched()), (0, 0, touched));
}

#[test]
fn a_small_stripe_takes_one_page_and_a_first_stripe_grows_by_powers_of_two() {
    let arena = arena(8 * MIB);
    let mut len = 0;
    let mut used_after = |bytes: u32| {
        arena.write(key(1, 0), FIRST, len, &vec![1; bytes as usize]).unwrap();
        len += bytes;
        arena.usage().used
    };
    assert_eq!([1, 4095, 1, 60_000, 60_000].map(&mut used_after), [1, 1, 2, 16, 32].map(|pages| pages * PAGE));
    assert_eq!(used_after(10_000), MIB, "appended past 128 KiB: the whole stripe is likely to come");
}

#[test]
fn a_later_stripe_takes_a_whole_block_at_once_and_gives_back_its_slack_when_fitted() {
    let arena = arena(8 * MIB);
    arena.write(key(1, 1), FIRST, 0, &[7; 5000]).unwrap();
    assert_eq!(arena.usage().used, MIB);
    arena.shrink_to_fit(key(1, 1)).unwrap();
    assert_eq!(arena.usage().used, 2 * PAGE);
    assert_eq!(arena.read(key(1, 1), 0, u32::MAX).unwrap(), [7; 5000][..]);
}

#[test]
fn a_nearly_full_arena_grows_by_what_is_needed_rather_than_early() {
    let arena = arena(2 * MIB);
    arena.reserve(2 * MIB - 256 * 1024).unwrap();
    arena.write(key(1, 1), FIRST, 0, &vec![1; 100_000]).unwrap();
    assert_eq!(arena.usage().used, 2 * MIB - 128 * 1024);
    arena.write(key(1, 1), FIRST, 100_000, &vec![1; 100_000]).unwrap();
    assert_eq!(arena.usage().free(), 0, "grown where it stands: a copy would not have fitted beside it");
}

#[test]
fn a_truncation_gives_back_its_pages_at_once() {
    let arena = arena(2 * MIB);
    fill(&arena, key(1, 0), MIB, 3);
    arena.truncate(key(1, 0), Generation(1), 10_000).unwrap();
    assert_eq!(arena.usage().used, 3 * PAGE);
    assert_eq!(arena.read(key(1, 0), 0, u32::MAX).unwrap(), [3; 10_000][..]);
}

#[test]
fn a_fitted_stripe_keeps_at_most_a_sixteenth_of_its_block_that_it_does_not_need() {
    let arena = arena(64 * MIB);
    for pages in 1..=MIB / PAGE {
        let before = arena.usage().used;
        fill(&arena, key(pages, 0), pages * PAGE, 5);
        let slack = arena.usage().used - before - pages * PAGE;
        assert!(slack <= (pages * PAGE).next_power_of_two() / 16, "{pages} pages: {slack} bytes more");
        (pages % 4 == 0).then(|| (pages - 3..=pages).for_each(|number| arena.remove(key(number, 0)).unwrap()));
    }
    assert_eq!(arena.usage().used, 0);
}

#[test]
fn a_stripe_that_grows_after_each_fit_keeps_its_bytes_whoever_took_what_it_gave_back() {
    let arena = arena(8 * MIB);
    let mut data = Vec::new();
    for step in 0..1000_u32 {
        let some = [step.to_le_bytes()[0]; 1000];
        arena.write(key(1, 0), FIRST, u32::try_from(data.len()).unwrap(), &some).unwrap();
        arena.shrink_to_fit(key(1, 0)).unwrap();
        // A neighbour takes the freed space, if it can.
        arena.write(key(2 + u64::from(step), 0), FIRST, 0, b"x").unwrap();
        data.extend_from_slice(&some);
    }
    assert!(arena.read(key(1, 0), 0, u32::MAX).unwrap() == data);
}

#[test]
fn a_viewed_block_is_not_cut_below_its_view() {
    let arena = arena(4 * MIB);
    fill(&arena, key(1, 0), MIB, 3);
    let view = arena.read(key(1, 0), 500_000, 100_000).unwrap();
    arena.truncate(key(1, 0), Generation(1), 10).unwrap();
    fill(&arena, key(2, 0), MIB, 4);
    fill(&arena, key(3, 0), MIB, 4);
    assert!(view.iter().all(|byte| *byte == 3) && view.len() == 100_000);
    drop(view);
    arena.shrink_to_fit(key(1, 0)).unwrap();
    assert_eq!(arena.usage().used, 2 * MIB + PAGE);
}

#[test]
fn appending_behind_a_view_needs_no_copy() {
    let arena = arena(MIB);
    arena.write(key(1, 1), FIRST, 0, b"seen").unwrap();
    let view = arena.read(key(1, 1), 0, 4).unwrap();
    arena.write(key(1, 1), FIRST, 4, b" and more").unwrap();
    assert_eq!(arena.usage().used, MIB, "a copy would not have fitted");
    assert!(matches!(arena.write(key(1, 1), FIRST, 3, b"N"), Err(EngineError::Full { .. })), "the last byte is viewed");
    assert_eq!((&view[..], &arena.read(key(1, 1), 0, 99).unwrap()[..]), (&b"seen"[..], &b"seen and more"[..]));
}

#[test]
fn scattered_free_pages_are_room_for_whole_stripes() {
    let arena = arena(16 * MIB);
    let pages = 16 * MIB / PAGE;
    for number in 0..pages {
        fill(&arena, key(number, 0), 1, 9);
    }
    assert_eq!(arena.usage().free(), 0);
    // Keep one page in 16, so that no 64 KiB are free contiguously.
    (0..pages).filter(|number| number % 16 != 0).for_each(|number| arena.remove(key(number, 0)).unwrap());
    (0..15).for_each(|number| fill(&arena, key(pages + number, 0), MIB, 8));
    assert_eq!((arena.usage().free(), arena.touched()), (0, 16 * MIB));
    assert!((0..pages / 16).all(|number| arena.read(key(number * 16, 0), 0, 9).unwrap() == [9][..]));
    assert!(
        (0..15).all(|number| arena.read(key(pages + number, 0), 0, u32::MAX).unwrap().iter().all(|byte| *byte == 8))
    );
}

#[test]
fn reservations_push_kept_memory_back_to_the_system() {
    let arena = arena(8 * MIB);
    (0..8).for_each(|number| fill(&arena, key(number, 0), MIB, 1));
    (0..8).for_each(|number| arena.remove(key(number, 0)).unwrap());
    assert_eq!(arena.touched(), 8 * MIB, "kept for reuse");
    arena.reserve(3 * MIB - 5).unwrap();
    assert_eq!(arena.touched(), 5 * MIB);
    arena.release(3 * MIB - 5);
    (0..8).for_each(|number| fill(&arena, key(number, 0), MIB, 2));
    assert!((0..8).all(|number| arena.read(key(number, 0), 0, u32::MAX).unwrap().iter().all(|byte| *byte == 2)));
}

#[test]
fn a_capacity_of_odd_bytes_is_kept_to_the_byte() {
    let arena = arena(3 * PAGE + 100);
    (0..3).for_each(|number| fill(&arena, key(number, 0), 1, 1));
    let full = arena.write(key(9, 0), FIRST, 0, b"x").unwrap_err();
    assert!(matches!(full, EngineError::Full { used, wanted, .. } if (used, wanted) == (3 * PAGE, PAGE)), "{full}");
    assert!(arena.reserve(101).is_err());
    arena.reserve(100).unwrap();
    assert_eq!(arena.usage().free(), 0);
}

#[test]
fn the_hook_may_use_the_arena_and_finds_the_space_free() {
    let arena = Arc::new(arena(4 * MIB));
    let least = Arc::new(AtomicU64::new(u64::MAX));
    let (hooked, seen) = (Arc::downgrade(&arena), Arc::clone(&least));
    arena.on_freed(Arc::new(move || {
        let used = hooked.upgrade().map_or(0, |arena| arena.usage().used);
        seen.fetch_min(used, Ordering::SeqCst);
    }));
    fill(&arena, key(1, 0), MIB, 1);
    let view = arena.read(key(1, 0), 0, 9).unwrap();
    arena.write(key(1, 0), FIRST, 0, b"moves").unwrap();
    assert_eq!(least.load(Ordering::SeqCst), u64::MAX, "nothing was given back yet");
    drop(view);
    assert_eq!(least.load(Ordering::SeqCst), MIB);
    arena.truncate(key(1, 0), FIRST, 1).unwrap();
    assert_eq!(least.load(Ordering::SeqCst), PAGE);
}

#[test]
fn a_view_outlives_the_arena() {
    let arena = arena(MIB);
    fill(&arena, key(1, 0), 1000, 5);
    let view = arena.read(key(1, 0), 0, 1000).unwrap();
    drop(arena);
    assert_eq!(view, [5; 1000][..]);
}
