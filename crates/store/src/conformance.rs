//! The contract of a store and of an engine, one test function for each promise. A function panics
//! if the promise is broken.
//!
//! Each function takes a fresh store; those about space take one with capacity for exactly
//! [`CAPACITY_STRIPES`] whole stripes. The tests of an engine run them all with
//! [`crate::conformance_tests!`].

mod completions;
mod extents;
mod in_flight;
mod random;
mod sharing;
mod space;

use bytes::Bytes;
use placement::{FileId, PartitionId, StripeNo};

pub use completions::{
    a_scan_finds_what_stays_while_others_come_and_go, a_scan_gives_every_stripe_with_its_generation_and_length,
    a_scan_of_a_partition_gives_its_stripes_alone, a_snapshot_is_of_one_moment,
    an_operation_is_done_though_nobody_waits_for_it, operations_on_one_stripe_take_effect_in_their_order,
    what_is_synced_is_as_it_was,
};
pub use extents::{
    a_cut_extent_never_shows_what_was_cut, a_freed_slot_is_empty_and_its_space_is_free,
    a_hole_reads_as_zeros_and_holds_nothing, a_lease_is_held_until_the_last_copy_of_its_open_is_closed,
    a_placeholder_is_open_until_its_last_copy_is_closed_and_shows_nothing, a_punched_range_is_zeros_and_free,
    a_read_of_an_extent_is_short_at_its_end, a_seek_finds_data_and_holes, a_set_time_stays_until_the_next_change,
    an_allocated_range_has_space_and_zeros, an_append_goes_to_the_end, an_open_has_an_offset_and_an_access_of_its_own,
    extents_and_stripes_share_the_capacity, random_calls_agree_with_a_plain_file, slots_are_allocated_once,
    what_was_written_to_an_extent_is_read,
};
pub use in_flight::{random_calls_in_flight_agree_with_the_model, run_in_flight};
pub use random::{RandomCall, random_calls, random_calls_agree_with_the_model, run};
pub use sharing::{
    a_dropped_view_frees_its_space_and_calls_the_hook, a_view_stays_the_same_bytes,
    a_write_is_seen_whole_or_not_at_all, appends_by_many_threads_to_their_own_stripes_all_stand,
};
pub use space::{
    a_fitted_stripe_keeps_its_bytes_and_may_grow_again, a_full_engine_leaves_the_stripe_as_it_was,
    an_extended_stripe_takes_writes_in_a_full_engine, every_way_of_freeing_calls_the_hook, exactly_the_capacity_fits,
    reservations_share_the_capacity, what_is_removed_is_free_at_once,
    zeros_at_the_end_are_free_and_those_before_it_are_zeros,
};

use crate::{EngineError, Generation, StripeKey, StripeStore};

/// The number of whole stripes that fit in the engine under test.
pub const CAPACITY_STRIPES: u64 = 8;

/// Makes a test of each promise, in a module `conformance`. The argument makes an engine with
/// capacity for that many whole stripes.
///
/// ```text
/// store::conformance_tests!(|stripes: u64| ModelEngine::new(stripes * 4096, 4096));
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests!($make;
            what_was_written_is_read
            an_overwrite_changes_only_its_range
            a_gap_reads_as_zeros
            a_read_is_short_at_the_end_and_empty_when_absent
            writing_nothing_changes_nothing
            a_write_past_the_longest_stripe_is_refused
            what_was_truncated_never_comes_back
            a_truncation_never_makes_a_stripe_longer
            a_late_write_is_refused
            a_removed_stripe_forgets_its_generation
            a_view_stays_the_same_bytes
            a_dropped_view_frees_its_space_and_calls_the_hook
            a_write_is_seen_whole_or_not_at_all
            appends_by_many_threads_to_their_own_stripes_all_stand
            exactly_the_capacity_fits
            a_full_engine_leaves_the_stripe_as_it_was
            what_is_removed_is_free_at_once
            zeros_at_the_end_are_free_and_those_before_it_are_zeros
            an_extended_stripe_takes_writes_in_a_full_engine
            reservations_share_the_capacity
            a_fitted_stripe_keeps_its_bytes_and_may_grow_again
            every_way_of_freeing_calls_the_hook
            operations_on_one_stripe_take_effect_in_their_order
            an_operation_is_done_though_nobody_waits_for_it
            a_snapshot_is_of_one_moment
            a_scan_gives_every_stripe_with_its_generation_and_length
            a_scan_of_a_partition_gives_its_stripes_alone
            a_scan_finds_what_stays_while_others_come_and_go
            what_is_synced_is_as_it_was
            random_calls_agree_with_the_model
            random_calls_in_flight_agree_with_the_model
        );
    };
    ($make:expr; $($promise:ident)+) => {
        mod conformance {
            #[allow(unused_imports, reason = "the engine's maker may name anything around it")]
            use super::*;
            $(
                #[test]
                fn $promise() {
                    let make = $make;
                    let engine = make($crate::conformance::CAPACITY_STRIPES);
                    $crate::conformance::$promise(&engine);
                }
            )+
        }
    };
}

/// The capacity in bytes of the engine under test for extent files.
pub const CAPACITY_BYTES: u64 = 4 << 20;

/// Makes a test of each promise about extent files, in a module `extents_conformance`. The argument
/// makes a shared engine with extent files and capacity for that many bytes.
#[macro_export]
macro_rules! extents_conformance_tests {
    ($make:expr) => {
        $crate::extents_conformance_tests!($make;
            what_was_written_to_an_extent_is_read
            a_hole_reads_as_zeros_and_holds_nothing
            a_read_of_an_extent_is_short_at_its_end
            a_cut_extent_never_shows_what_was_cut
            an_append_goes_to_the_end
            slots_are_allocated_once
            a_freed_slot_is_empty_and_its_space_is_free
            extents_and_stripes_share_the_capacity
            a_punched_range_is_zeros_and_free
            an_allocated_range_has_space_and_zeros
            a_seek_finds_data_and_holes
            a_set_time_stays_until_the_next_change
            an_open_has_an_offset_and_an_access_of_its_own
            a_lease_is_held_until_the_last_copy_of_its_open_is_closed
            a_placeholder_is_open_until_its_last_copy_is_closed_and_shows_nothing
            random_calls_agree_with_a_plain_file
        );
    };
    ($make:expr; $($promise:ident)+) => {
        mod extents_conformance {
            #[allow(unused_imports, reason = "the engine's maker may name anything around it")]
            use super::*;
            $(
                #[test]
                fn $promise() {
                    let make = $make;
                    let engine = make($crate::conformance::CAPACITY_BYTES);
                    $crate::conformance::$promise(&engine);
                }
            )+
        }
    };
}

/// The first generation; most tests need no other.
const FIRST: Generation = Generation(0);

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(7), stripe: StripeNo(stripe) }
}

/// Bytes that differ by position and by `seed`, so that a byte in a wrong place shows. They are
/// made in words, since debug builds are slow.
fn pattern(seed: u32, len: u32) -> Vec<u8> {
    let word =
        |at: u64| ((at << 32 | u64::from(seed)) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).to_le_bytes();
    let mut bytes = Vec::with_capacity(len as usize + 8);
    (0..u64::from(len).div_ceil(8)).for_each(|at| bytes.extend_from_slice(&word(at)));
    bytes.truncate(len as usize);
    bytes
}

/// The whole content of the stripe.
fn content(engine: &dyn StripeStore, key: StripeKey) -> Vec<u8> {
    engine.read(key, 0, u32::MAX).wait().expect("a stripe that stands is readable").to_vec()
}

fn write(engine: &dyn StripeStore, key: StripeKey, offset: u32, data: &[u8]) {
    try_write(engine, key, FIRST, offset, data).expect("there is room for it");
}

fn try_write(
    engine: &dyn StripeStore,
    key: StripeKey,
    generation: Generation,
    offset: u32,
    data: &[u8],
) -> Result<(), EngineError> {
    engine.write(key, generation, offset, &Bytes::copy_from_slice(data)).wait()
}

/// A read returns the bytes that were written, at any offset and across any block boundary.
pub fn what_was_written_is_read(engine: &dyn StripeStore) {
    let longest = engine.stripe_bytes();
    for (stripe, len) in [(0, 1), (1, 100), (2, longest / 2 + 1), (3, longest)] {
        let data = pattern(len, len);
        write(engine, key(stripe), 0, &data);
        assert_eq!(content(engine, key(stripe)), data, "{len} bytes");
        let middle = engine.read(key(stripe), len / 3, len / 3).wait().expect("readable");
        assert_eq!(middle, data[(len / 3) as usize..][..(len / 3) as usize], "the middle of {len} bytes");
    }
    let other = StripeKey { partition: PartitionId(0), file: FileId(8), stripe: StripeNo(3) };
    assert!(content(engine, other).is_empty(), "another file's stripe of the same number");
}

/// An overwrite changes only its range.
pub fn an_overwrite_changes_only_its_range(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    let mut expected = pattern(1, len);
    write(engine, key(0), 0, &expected);
    for (offset, size) in [(0, 10), (len / 2 - 3, 7), (len - 5, 5)] {
        let data = pattern(offset + 2, size);
        write(engine, key(0), offset, &data);
        expected[offset as usize..][..size as usize].copy_from_slice(&data);
        assert_eq!(content(engine, key(0)), expected, "after {size} bytes at {offset}");
    }
}

/// A gap reads as zeros, even in memory that held other bytes before.
pub fn a_gap_reads_as_zeros(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    for stripe in 0..4 {
        write(engine, key(stripe), 0, &vec![0xAA; len as usize]);
        engine.remove(key(stripe)).wait().expect("removable");
    }
    write(engine, key(9), len / 2, b"far");
    write(engine, key(9), len - 1, b"!");
    let mut expected = vec![0; len as usize];
    expected[(len / 2) as usize..][..3].copy_from_slice(b"far");
    expected[len as usize - 1] = b'!';
    assert_eq!(content(engine, key(9)), expected);
}

/// A read is short at the end of the stripe, empty behind it, and empty if the stripe is absent.
pub fn a_read_is_short_at_the_end_and_empty_when_absent(engine: &dyn StripeStore) {
    let read = |offset, len| engine.read(key(0), offset, len).wait().expect("readable").to_vec();
    assert!(read(0, 10).is_empty(), "absent");
    write(engine, key(0), 0, b"0123456789");
    assert_eq!(read(7, 100), b"789");
    assert_eq!(read(7, u32::MAX), b"789");
    for (offset, len) in [(10, 1), (11, 5), (u32::MAX, u32::MAX), (3, 0)] {
        assert!(read(offset, len).is_empty(), "{len} bytes at {offset}");
    }
}

/// Writing no bytes changes nothing: it neither makes a stripe nor makes one longer.
pub fn writing_nothing_changes_nothing(engine: &dyn StripeStore) {
    write(engine, key(0), 100, b"");
    assert_eq!((engine.usage().stripes, engine.usage().used), (0, 0));
    write(engine, key(0), 0, b"abc");
    write(engine, key(0), 100, b"");
    assert_eq!(content(engine, key(0)), b"abc");
}

/// A write that would end behind the longest stripe is refused, with the stripe named, and changes
/// nothing.
pub fn a_write_past_the_longest_stripe_is_refused(engine: &dyn StripeStore) {
    write(engine, key(0), 0, b"abc");
    for offset in [engine.stripe_bytes() - 1, engine.stripe_bytes(), u32::MAX] {
        let error = try_write(engine, key(0), FIRST, offset, b"xy").expect_err("longer than a stripe can be");
        assert!(matches!(error, EngineError::TooLong { .. }), "{error}");
        assert!(error.to_string().contains("stripe 0 of file 7"), "{error}");
    }
    assert_eq!(content(engine, key(0)), b"abc");
}

/// Truncated bytes never come back: a later gap over them reads as zeros.
pub fn what_was_truncated_never_comes_back(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    for kept in [0, 1, len / 2 + 1, len - 1] {
        let data = pattern(3, len);
        write(engine, key(0), 0, &data);
        engine.truncate(key(0), FIRST, kept).wait().expect("a truncation needs no room");
        assert_eq!(content(engine, key(0)), data[..kept as usize], "cut to {kept}");
        write(engine, key(0), len - 1, b"!");
        let mut expected = data[..kept as usize].to_vec();
        expected.resize(len as usize - 1, 0);
        expected.push(b'!');
        assert_eq!(content(engine, key(0)), expected, "grown again after {kept}");
    }
}

/// A truncation never makes a stripe longer.
pub fn a_truncation_never_makes_a_stripe_longer(engine: &dyn StripeStore) {
    engine.truncate(key(0), FIRST, 100).wait().expect("an absent stripe");
    assert!(content(engine, key(0)).is_empty());
    write(engine, key(0), 0, b"abc");
    engine.truncate(key(0), FIRST, u32::MAX).wait().expect("a longer length");
    assert_eq!(content(engine, key(0)), b"abc");
}

/// A write or truncation with an older generation is refused, even if the truncated stripe was
/// absent or is empty.
pub fn a_late_write_is_refused(engine: &dyn StripeStore) {
    engine.truncate(key(0), Generation(2), 0).wait().expect("an absent stripe");
    write_in(engine, Generation(3), b"newer").expect("a newer generation");
    engine.truncate(key(0), Generation(4), 2).wait().expect("newer still");
    for generation in [Generation(0), Generation(3)] {
        let error = write_in(engine, generation, b"late").expect_err("it knew an older truncation");
        assert!(matches!(error, EngineError::Stale { seen: Generation(4), .. }), "{error}");
        let error = engine.truncate(key(0), generation, 0).wait().expect_err("an older truncation");
        assert!(matches!(error, EngineError::Stale { given, .. } if given == generation), "{error}");
    }
    assert_eq!(content(engine, key(0)), b"ne");
    write_in(engine, Generation(4), b"on").expect("the present generation");
}

/// Removing a stripe forgets its generation as well as its bytes.
pub fn a_removed_stripe_forgets_its_generation(engine: &dyn StripeStore) {
    write_in(engine, Generation(9), b"old").expect("room");
    engine.remove(key(0)).wait().expect("removable");
    engine.remove(key(0)).wait().expect("absent is fine");
    assert!(content(engine, key(0)).is_empty());
    write_in(engine, Generation(1), b"n").expect("a new stripe");
    assert_eq!(content(engine, key(0)), b"n");
}

fn write_in(engine: &dyn StripeStore, generation: Generation, data: &[u8]) -> Result<(), EngineError> {
    try_write(engine, key(0), generation, 0, data)
}
