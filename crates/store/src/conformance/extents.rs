//! Promises about extent files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use test_support::Random;

use super::{CAPACITY_BYTES, key, pattern, try_write};
use crate::{
    Access, Engine, EngineError, Extents, FallocateMode, Generation, LeaseNumber, PlaceholderKind, SeekTarget, Slot,
    StripeStore,
};

const PAGE: u64 = 4096;

fn stripes(engine: &Arc<dyn Engine>) -> Arc<dyn StripeStore> {
    Arc::clone(engine).stripes()
}

fn extents(engine: &Arc<dyn Engine>) -> Arc<dyn Extents> {
    engine.extents().expect("an engine with extent files")
}

fn allocated_slot(engine: &Arc<dyn Engine>) -> (Arc<dyn Extents>, Slot) {
    let extents = extents(engine);
    let slot = extents.allocate_slot().expect("an empty engine is not crowded");
    (extents, slot)
}

fn put(extents: &dyn Extents, slot: Slot, offset: u64, data: &[u8]) {
    let put = extents.write_at(slot, offset, data).expect("there is room");
    assert_eq!((put.offset, put.length as usize), (offset, data.len()));
}

fn content(extents: &dyn Extents, slot: Slot) -> Vec<u8> {
    extents.read_at(slot, 0, 8 << 20).expect("readable").to_vec()
}

fn allocated(extents: &dyn Extents, slot: Slot) -> u64 {
    extents.state(slot).expect("it is there").allocated
}

/// A read returns the bytes that were written, at any offset, and they count as used.
pub fn what_was_written_to_an_extent_is_read(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let data = pattern(1, 300_000);
    put(&*extents, slot, 0, &data);
    put(&*extents, slot, 777, b"tide");
    let mut expected = data;
    expected[777..781].copy_from_slice(b"tide");
    assert_eq!(content(&*extents, slot), expected);
    assert_eq!(extents.read_at(slot, 299_990, 5).expect("readable"), &expected[299_990..299_995]);
    assert_eq!(extents.state(slot).expect("it is there").length, 300_000);
    assert!((300_000..=CAPACITY_BYTES).contains(&stripes(engine).usage().used), "{:?}", stripes(engine).usage());
    put(&*extents, slot, 5, b"");
}

/// A hole reads as zeros and takes no space.
pub fn a_hole_reads_as_zeros_and_holds_nothing(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    put(&*extents, slot, 1 << 40, b"far");
    assert_eq!(extents.read_at(slot, (1 << 40) - 2, 9).expect("readable"), &b"\0\0far"[..]);
    assert!(extents.read_at(slot, 10, 100_000).expect("readable").iter().all(|byte| *byte == 0));
    assert!(allocated(&*extents, slot) <= PAGE);
}

/// A read is short at the end of the file, and empty behind it.
pub fn a_read_of_an_extent_is_short_at_its_end(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let read = |offset, len| extents.read_at(slot, offset, len).expect("readable").to_vec();
    assert!(read(0, 10).is_empty());
    put(&*extents, slot, 0, b"0123456789");
    assert_eq!(read(7, 100), b"789");
    for (offset, len) in [(10, 1), (1 << 50, 5), (3, 0)] {
        assert!(read(offset, len).is_empty());
    }
}

/// Truncated bytes never come back.
pub fn a_cut_extent_never_shows_what_was_cut(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    for kept in [0, 1, 5000, 8192, 20_000] {
        let data = pattern(2, 20_000);
        put(&*extents, slot, 0, &data);
        extents.truncate(slot, kept).expect("a truncation needs no room");
        extents.truncate(slot, 20_000).expect("nor does a hole");
        let mut expected = data[..usize::try_from(kept).expect("small")].to_vec();
        expected.resize(20_000, 0);
        assert_eq!(content(&*extents, slot), expected, "cut to {kept}");
    }
}

/// Appends go to the end, in the order in which they come.
pub fn an_append_goes_to_the_end(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    put(&*extents, slot, 0, b"ab");
    assert_eq!(extents.append(slot, b"cd").expect("room").offset, 2);
    extents.truncate(slot, 10).expect("a hole");
    let put = extents.append(slot, b"ef").expect("room");
    assert_eq!((put.offset, put.length), (10, 2));
    assert_eq!(content(&*extents, slot), b"abcd\0\0\0\0\0\0ef");
}

/// An allocated slot is not allocated again.
pub fn slots_are_allocated_once(engine: &Arc<dyn Engine>) {
    let extents = extents(engine);
    let mut slots: Vec<Slot> = (0..50).map(|_| extents.allocate_slot().expect("not crowded")).collect();
    extents.free_slot(slots.swap_remove(20));
    slots.push(extents.allocate_slot().expect("not crowded"));
    for slot in &slots {
        put(&*extents, *slot, 0, slot.to_string().as_bytes());
    }
    for slot in &slots {
        assert_eq!(content(&*extents, *slot), slot.to_string().as_bytes());
    }
}

/// A slot that was freed is empty when it is allocated again. Its space is free at once, and the
/// freed hook runs.
pub fn a_freed_slot_is_empty_and_its_space_is_free(engine: &Arc<dyn Engine>) {
    let extents = extents(engine);
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    stripes(engine).on_freed(Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    for _ in 0..20 {
        let slot = extents.allocate_slot().expect("not crowded");
        assert_eq!((extents.state(slot).expect("there").length, content(&*extents, slot)), (0, Vec::new()));
        put(&*extents, slot, 0, &pattern(3, 1 << 20));
        let before = calls.load(Ordering::SeqCst);
        extents.free_slot(slot);
        assert!(calls.load(Ordering::SeqCst) > before);
        assert_eq!(stripes(engine).usage().used, 0);
    }
    assert_eq!(extents.slot_counts().0, extents.slot_counts().1, "all are in the stock");
}

/// Extents, stripes and reservations share the capacity: none gets space that another has, and all
/// can get the free space.
pub fn extents_and_stripes_share_the_capacity(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let store = stripes(engine);
    store.reserve(CAPACITY_BYTES / 2).expect("room");
    let put = extents.write_at(slot, 0, &pattern(4, 4 << 20)).expect("some of it has room");
    assert!(
        u64::from(put.length) <= CAPACITY_BYTES / 2 && u64::from(put.length) >= CAPACITY_BYTES / 2 - 8 * PAGE,
        "{put:?}"
    );
    assert!(store.usage().used <= CAPACITY_BYTES);
    let refused = extents
        .write_at(slot, CAPACITY_BYTES, &pattern(5, 100_000))
        .and_then(|_| extents.write_at(slot, 2 * CAPACITY_BYTES, &pattern(5, 100_000)));
    assert!(matches!(refused, Err(EngineError::Full { .. })), "{refused:?}");
    assert!(try_write(&*store, key(0), Generation(0), 0, &pattern(6, store.stripe_bytes())).is_err());
    assert!(!extents.reserve_headroom() && extents.allocate_slot().is_none());
    store.release(CAPACITY_BYTES / 2);
    try_write(&*store, key(0), Generation(0), 0, &pattern(6, store.stripe_bytes())).expect("room for a stripe now");
    extents.write_at(slot, 2 * CAPACITY_BYTES, &pattern(5, 1000)).expect("and for the extent");
    extents.free_slot(slot);
    store.remove(key(0)).wait().expect("removable");
    assert_eq!(store.usage().used, 0);
    store.reserve(CAPACITY_BYTES - PAGE).expect("all that an extent had is free for others, but a page");
    store.release(CAPACITY_BYTES - PAGE);
}

/// A punched range reads as zeros, and its whole pages are free.
pub fn a_punched_range_is_zeros_and_free(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let mut expected = pattern(7, 100_000);
    put(&*extents, slot, 0, &expected);
    let before = allocated(&*extents, slot);
    extents.fallocate(slot, 10_000..60_000, FallocateMode::PunchHole).expect("it needs no room");
    extents.fallocate(slot, 99_000..300_000, FallocateMode::PunchHole).expect("nor behind the end");
    expected[10_000..60_000].fill(0);
    expected[99_000..].fill(0);
    assert_eq!(content(&*extents, slot), expected);
    assert!(allocated(&*extents, slot) <= before - 11 * PAGE);
}

/// An allocated range has space. Bytes that were there stay, unless zeros were asked for.
pub fn an_allocated_range_has_space_and_zeros(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    put(&*extents, slot, 0, &[7; 5000]);
    let length = || extents.state(slot).expect("it is there").length;
    extents.fallocate(slot, 0..100_000, FallocateMode::KeepSize).expect("room");
    assert_eq!((length(), content(&*extents, slot)), (5000, vec![7; 5000]));
    assert!(allocated(&*extents, slot) >= 100_000);
    extents.fallocate(slot, 0..50_000, FallocateMode::Extend).expect("room");
    assert_eq!(length(), 50_000);
    extents.fallocate(slot, 1000..2000, FallocateMode::ZeroRangeKeepSize).expect("room");
    extents.fallocate(slot, 2000..60_000, FallocateMode::ZeroRange).expect("room");
    let mut expected = vec![0; 60_000];
    expected[..1000].fill(7);
    assert_eq!(content(&*extents, slot), expected);
    assert!(allocated(&*extents, slot) >= 60_000);
    let refused = extents.fallocate(slot, 0..10 * CAPACITY_BYTES, FallocateMode::Extend);
    assert!(matches!(refused, Err(EngineError::Full { .. })), "{refused:?}");
    assert_eq!(length(), 60_000, "a refused one changes no length");
}

/// Seeks find data and holes, with the precision of a page.
pub fn a_seek_finds_data_and_holes(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    put(&*extents, slot, 0, &[1; 4096]);
    put(&*extents, slot, 1 << 30, &[1; 4096]);
    extents.truncate(slot, 1 << 31).expect("a hole");
    let seek = |offset, target| extents.seek(slot, offset, target).expect("it can");
    assert_eq!(seek(0, SeekTarget::Data), Some(0));
    assert_eq!(seek(5, SeekTarget::Hole), Some(4096));
    assert_eq!(seek(4096, SeekTarget::Data), Some(1 << 30));
    assert_eq!(seek(1 << 30, SeekTarget::Hole), Some((1 << 30) + 4096));
    assert_eq!(seek((1 << 30) + 4096, SeekTarget::Data), None, "only a hole follows");
    assert_eq!(seek((1 << 30) + 5000, SeekTarget::Hole), Some((1 << 30) + 5000));
    assert_eq!((seek(1 << 31, SeekTarget::Data), seek(1 << 31, SeekTarget::Hole)), (None, None));
    extents.truncate(slot, 4096).expect("cut");
    assert_eq!(seek(0, SeekTarget::Hole), Some(4096), "there is one at the end");
}

/// A time that was set stays until the next change. A slot that is allocated again has none of
/// its earlier times.
pub fn a_set_time_stays_until_the_next_change(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let state = || extents.state(slot).expect("it is there");
    let past = UNIX_EPOCH + Duration::new(1000, 5);
    let future = UNIX_EPOCH + Duration::from_secs(1 << 33);
    extents.set_times(slot, Some(past), Some(past)).expect("it can");
    assert_eq!((state().accessed, state().modified), (past, past));
    extents.set_times(slot, Some(future), None).expect("it can");
    assert_eq!((state().accessed, state().modified), (future, past));
    assert!(state().changed > past);
    put(&*extents, slot, 0, b"x");
    assert!(state().modified > past);
    extents.set_times(slot, Some(future), Some(future)).expect("it can");
    extents.free_slot(slot);
    let again =
        std::iter::from_fn(|| extents.allocate_slot()).take(1000).find(|taken| *taken == slot).expect("it comes again");
    let state = extents.state(again).expect("it is there");
    assert!(state.accessed < future && state.modified < future, "{state:?}");
}

const READ: Access = Access { read: true, write: false, append: false };
const WRITE: Access = Access { read: false, write: true, append: false };
const BOTH: Access = Access { read: true, write: true, append: false };

/// An open descriptor and the extent itself see each other's bytes. Offset, access mode and append
/// mode belong to each open. Skipped if the engine keeps the bytes in no file.
pub fn an_open_has_an_offset_and_an_access_of_its_own(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    if extents.fd(slot).is_none() {
        return;
    }
    put(&*extents, slot, 0, b"0123456789");
    let open = |access, lease| File::from(extents.open(slot, access, LeaseNumber(lease)).expect("it can be opened"));
    let (mut reads, mut writes, mut both) = (open(READ, 1), open(WRITE, 2), open(BOTH, 3));
    let mut appends = open(Access { append: true, ..BOTH }, 4);
    let mut four = [0; 4];
    reads.read_exact(&mut four).expect("readable");
    assert_eq!((&four, reads.stream_position().expect("a file")), (b"0123", 4));
    assert!(reads.write(b"x").is_err() && writes.read(&mut four).is_err(), "each as it was opened");
    writes.write_all(b"ab").expect("writable");
    appends.write_all(b"end").expect("writable");
    both.seek(SeekFrom::Start(1)).expect("a file");
    both.write_all(b"B").expect("writable");
    assert_eq!(content(&*extents, slot), b"aB23456789end");
    assert_eq!(both.stream_position().expect("a file"), 2, "nobody else moved it");
    let mut copy = reads.try_clone().expect("a copy");
    copy.read_exact(&mut four).expect("readable");
    assert_eq!((&four, reads.stream_position().expect("a file")), (b"4567", 8), "copies share theirs");
}

/// An open lease is alive as long as there is a copy of the descriptor that was opened under it.
/// Until then the extent is busy.
pub fn a_lease_is_held_until_the_last_copy_of_its_open_is_closed(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let other = extents.allocate_slot().expect("not crowded");
    for (access, lease) in [(READ, 1), (WRITE, 2), (BOTH, 3), (Access { append: true, ..WRITE }, (1 << 62) - 1)] {
        assert!(!extents.is_open(slot, LeaseNumber(lease)) && extents.is_idle(slot), "before {access:?}");
        let open = extents.open(slot, access, LeaseNumber(lease)).expect("it can be opened");
        let again = extents.open(slot, access, LeaseNumber(10 + lease / 2)).expect("it can be opened");
        let copy = open.try_clone().expect("a copy");
        drop(open);
        assert!(extents.is_open(slot, LeaseNumber(lease)) && !extents.is_idle(slot), "a copy lives of {access:?}");
        drop(copy);
        assert!(!extents.is_open(slot, LeaseNumber(lease)), "nobody has it any more");
        assert!(extents.is_open(slot, LeaseNumber(10 + lease / 2)) && !extents.is_idle(slot), "the other is open");
        assert!(!extents.is_open(other, LeaseNumber(10 + lease / 2)) && extents.is_idle(other), "of this extent alone");
        drop(again);
    }
    assert!(extents.is_idle(slot));
}

/// A placeholder is alive as long as there is a copy of it. It cannot be read or written; that of a
/// file has an offset.
pub fn a_placeholder_is_open_until_its_last_copy_is_closed_and_shows_nothing(engine: &Arc<dyn Engine>) {
    let placeholders = Arc::clone(engine).placeholders().expect("an engine with placeholders");
    for (kind, lease) in [(PlaceholderKind::File, 1), (PlaceholderKind::Directory, 2), (PlaceholderKind::File, 3)] {
        let (descriptor, held) =
            placeholders.create_placeholder(kind, LeaseNumber(lease)).expect("there are descriptors");
        let (_other, other_held) =
            placeholders.create_placeholder(kind, LeaseNumber(10 + lease)).expect("there are descriptors");
        let mut copy = File::from(descriptor.try_clone().expect("a copy"));
        drop(descriptor);
        assert!(held.is_open(), "{kind:?}");
        let is_file = copy.metadata().expect("it is open").is_file();
        if kind == PlaceholderKind::File && is_file {
            assert!(copy.read(&mut [0]).is_err() && copy.write(b"x").is_err() && copy.set_len(1).is_err());
            assert_eq!(copy.seek(SeekFrom::Start(1 << 40)).expect("an offset"), 1 << 40);
            assert_eq!(copy.seek(SeekFrom::Current(-1)).expect("an offset"), (1 << 40) - 1);
        }
        drop(copy);
        assert!(!held.is_open() && other_held.is_open(), "{kind:?}");
    }
}

/// Random calls leave the same bytes as in a plain vector.
pub fn random_calls_agree_with_a_plain_file(engine: &Arc<dyn Engine>) {
    let (extents, slot) = allocated_slot(engine);
    let mut random = Random::new(11);
    let mut plain: Vec<u8> = Vec::new();
    for seed in 0..400 {
        let (offset, len) = (random.below(50_000), random.below(20_000));
        let (at, end) = (usize::try_from(offset).expect("small"), usize::try_from(offset + len).expect("small"));
        let data = pattern(seed, u32::try_from(len).expect("small"));
        match random.below(5) {
            0 => {
                extents.truncate(slot, offset).expect("it can");
                plain.resize(at, 0);
            }
            1 if len > 0 => {
                extents.fallocate(slot, offset..offset + len, FallocateMode::PunchHole).expect("it can");
                let (at, end) = (at.min(plain.len()), end.min(plain.len()));
                plain[at..end].fill(0);
            }
            2 => {
                extents.append(slot, &data).expect("room");
                plain.extend_from_slice(&data);
            }
            _ if len > 0 => {
                put(&*extents, slot, offset, &data);
                plain.resize(plain.len().max(end), 0);
                plain[at..end].copy_from_slice(&data);
            }
            _ => {}
        }
        if plain.len() > 200_000 {
            extents.truncate(slot, 0).expect("it can");
            plain.clear();
        }
        assert_eq!(extents.state(slot).expect("it is there").length, plain.len() as u64);
        assert!(content(&*extents, slot) == plain, "after step {seed}");
    }
}
