//! Tests of write segments: memory of the arena that other processes write.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use placement::{FileId, PartitionId, StripeNo};
use std::{fs::File, os::unix::fs::FileExt};
use store::{
    EngineError, EngineUsage, FreedHook, Generation, OFFER_SLOTS, OfferTable, SharedMemory, StoreCompletion, StripeKey,
    StripeScan, StripeSnapshot, StripeStore, WriteSegment,
};

const FIRST: Generation = Generation(0);
const STRIPE: u32 = 64 << 10;

fn arena(stripes: u64) -> Arena {
    Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(stripes * u64::from(STRIPE)) })
        .unwrap()
}

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(7), stripe: StripeNo(stripe) }
}

/// A write segment and its writer, which is another process in production.
#[derive(Debug)]
struct Writer {
    write_segment: Box<dyn WriteSegment>,
    file: File,
    table: OfferTable,
}

impl Writer {
    fn new(arena: &Arena) -> Self {
        let write_segment = arena.create_write_segment().unwrap();
        let file = File::from(write_segment.open().unwrap());
        let table = OfferTable::map(&file, write_segment.length()).unwrap();
        Self { write_segment, file, table }
    }

    fn fill(&self, block: u32, data: &[u8]) {
        self.file.write_all_at(data, u64::from(block) * u64::from(self.write_segment.block_bytes())).unwrap();
    }

    /// Writes bytes into an offered block; `None` if no block was offered.
    fn put(&self, data: &[u8]) -> Option<Bytes> {
        self.write_segment.offer(4);
        let (slot, block) = self.table.claim(0..OFFER_SLOTS, 0)?;
        self.fill(block, data);
        Some(self.write_segment.take(slot, u32::try_from(data.len()).unwrap()).expect("it was claimed"))
    }
}

/// An arena whose stripes are written through a write segment where possible.
#[derive(Debug)]
struct SegmentEngine {
    arena: Arena,
    writer: Writer,
}

impl SegmentEngine {
    fn new(stripes: u64) -> Self {
        // The table of the write segment uses some of the capacity.
        let capacity = stripes * u64::from(STRIPE) + store::OFFER_TABLE_BYTES;
        let arena = Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(capacity) }).unwrap();
        Self { writer: Writer::new(&arena), arena }
    }
}

/// Adjusts an error to that of an engine without a table.
fn without_table(error: EngineError) -> EngineError {
    let less = |bytes: u64| bytes - store::OFFER_TABLE_BYTES;
    match error {
        EngineError::Full { capacity, used, wanted } => {
            EngineError::Full { capacity: less(capacity), used: less(used), wanted }
        }
        error => error,
    }
}

impl StripeStore for SegmentEngine {
    fn stripe_bytes(&self) -> u32 {
        self.arena.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        let fits = (1..=STRIPE as usize).contains(&data.len());
        let down = fits.then(|| self.writer.put(data)).flatten();
        let done = self.arena.write(key, generation, offset, down.as_ref().unwrap_or(data));
        done.map_err(without_table).into()
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.arena.read(key, offset, len).into()
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.arena.truncate(key, generation, len).into()
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        self.arena.zero(key, generation, offset, len).map_err(without_table).into()
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.arena.extend(key, generation, len).map_err(without_table).into()
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.arena.remove(key).into()
    }

    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.arena.shrink_to_fit(key).into()
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.arena.snapshot(key)
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        self.arena.scan()
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.arena.reserve(bytes).map_err(without_table)
    }

    fn release(&self, bytes: u64) {
        self.arena.release(bytes);
    }

    /// Usage without the table.
    fn usage(&self) -> EngineUsage {
        let usage = self.arena.usage();
        let less = |bytes: u64| bytes - store::OFFER_TABLE_BYTES;
        EngineUsage {
            capacity: less(usage.capacity),
            used: less(usage.used),
            reserved: less(usage.reserved),
            extent_free: None,
            ..usage
        }
    }

    fn on_freed(&self, hook: FreedHook) {
        self.arena.on_freed(hook);
    }
}

store::conformance_tests!(SegmentEngine::new);

#[test]
fn a_filled_block_becomes_the_stripe_where_it_is() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    for stripe in 0..20_u8 {
        let down = writer.put(&vec![stripe; STRIPE as usize]).unwrap();
        let at = down.as_ptr();
        arena.write(key(stripe.into()), FIRST, 0, &down).unwrap();
        drop(down);
        let view = arena.read(key(stripe.into()), 0, STRIPE).unwrap();
        assert_eq!((view.as_ptr(), &view[..]), (at, &vec![stripe; STRIPE as usize][..]));
        let segments = &arena;
        let place = segments.locate(&view[5..]).unwrap();
        assert_eq!(place.segment, writer.write_segment.segment());
        let shown = File::from(segments.open(place.segment).unwrap());
        assert!(shown.write_at(b"x", 0).is_err(), "others may only read it");
        let mut there = [0];
        shown.read_exact_at(&mut there, place.offset).unwrap();
        assert_eq!(there, [stripe]);
    }
}

#[test]
fn a_writer_that_cuts_its_memory_short_ends_nobody_and_loses_no_bytes_of_others() {
    let arena = arena(64);
    let (writer, other) = (Writer::new(&arena), Writer::new(&arena));
    let fill = |writer: &Writer, stripe, byte| {
        let down = writer.put(&vec![byte; STRIPE as usize]).unwrap();
        arena.write(key(stripe), FIRST, 0, &down).unwrap();
    };
    fill(&writer, 0, 7);
    fill(&other, 1, 8);
    for length in [0, 4096] {
        writer.file.set_len(length).unwrap();
        // The cut removed the table too.
        writer.write_segment.offer(4);
        assert!(arena.read(key(0), 0, STRIPE).unwrap().iter().all(|byte| *byte == 0));
        assert!(arena.read(key(1), 0, STRIPE).unwrap().iter().all(|byte| *byte == 8));
        fill(&writer, 0, 9);
        assert!(arena.read(key(0), 0, STRIPE).unwrap().iter().all(|byte| *byte == 9));
    }
}

#[test]
fn a_reader_that_reopens_its_descriptor_for_writing_and_cuts_the_memory_short_ends_nobody() {
    let arena = arena(64);
    arena.write(key(0), FIRST, 0, &[7; 9]).unwrap();
    let segments = &arena;
    let place = segments.locate(&arena.read(key(0), 0, 9).unwrap()).unwrap();
    let shown = File::from(segments.open(place.segment).unwrap());
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&shown));
    File::options().write(true).open(again).unwrap().set_len(0).unwrap();
    assert_eq!(arena.read(key(0), 0, 9).unwrap(), [0; 9][..]);
    arena.write(key(0), FIRST, 0, &[8; 9]).unwrap();
    assert_eq!(arena.read(key(0), 0, 9).unwrap(), [8; 9][..]);
}

#[test]
fn a_block_whose_bytes_are_not_the_whole_of_a_stripe_is_free_with_the_last_of_them() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    arena.write(key(0), FIRST, 0, &vec![1; STRIPE as usize]).unwrap();
    let before = arena.usage().used;
    let down = writer.put(&vec![2; 30_000]).unwrap();
    arena.write(key(0), FIRST, 0, &down).unwrap();
    arena.write(key(0), FIRST, 30_000, &down).unwrap();
    assert_eq!(arena.usage().used, before + u64::from(STRIPE));
    let again = down.clone();
    drop(down);
    assert_eq!(arena.usage().used, before + u64::from(STRIPE));
    drop(again);
    assert_eq!(arena.usage().used, before);
    let content = arena.read(key(0), 0, STRIPE).unwrap();
    assert!(content[..60_000].iter().all(|byte| *byte == 2) && content[60_000..].iter().all(|byte| *byte == 1));
    let refused = arena.truncate(key(0), Generation(5), STRIPE).and_then(|()| {
        let down = writer.put(&vec![3; STRIPE as usize]).unwrap();
        arena.write(key(0), Generation(4), 0, &down)
    });
    assert!(matches!(refused, Err(EngineError::Stale { .. })));
    assert_eq!(arena.usage().used, before);
}

#[test]
fn bytes_that_were_written_once_are_copied_the_second_time() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    let down = writer.put(&vec![1; STRIPE as usize]).unwrap();
    arena.write(key(0), FIRST, 0, &down).unwrap();
    arena.write(key(1), FIRST, 0, &down).unwrap();
    arena.write(key(0), FIRST, 0, &[2; 10]).unwrap();
    drop(down);
    assert_eq!(&arena.read(key(0), 0, 11).unwrap()[..], &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert!(arena.read(key(1), 0, STRIPE).unwrap() == vec![1; STRIPE as usize]);
}

#[test]
fn a_short_stripe_takes_no_more_than_it_needs() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    let before = arena.usage().used;
    arena.write(key(0), FIRST, 0, &writer.put(&[1; 5000]).unwrap()).unwrap();
    assert_eq!(arena.usage().used, before + 8192);
}

#[test]
fn what_is_offered_and_not_claimed_is_free_and_what_is_claimed_is_not() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    let table = arena.usage().used;
    writer.write_segment.offer(OFFER_SLOTS);
    assert_eq!(arena.usage().used, table);
    let claimed = writer.table.claim(0..OFFER_SLOTS, 0).unwrap();
    let mut filled = 0;
    while arena.write(key(filled), FIRST, 0, &vec![1; STRIPE as usize]).is_ok() {
        filled += 1;
    }
    assert_eq!(filled, 62, "all but the table and what was claimed");
    assert_eq!(writer.table.claim(0..OFFER_SLOTS, 0), None, "all others were taken back");
    writer.write_segment.offer(OFFER_SLOTS);
    assert_eq!(writer.table.claim(0..OFFER_SLOTS, 0), None, "and none is offered in a full arena");
    let (slot, block) = claimed;
    writer.fill(block, &vec![9; STRIPE as usize]);
    let down = writer.write_segment.take(slot, STRIPE).unwrap();
    arena.write(key(99), FIRST, 0, &down).unwrap();
    assert!(arena.read(key(99), 0, STRIPE).unwrap() == vec![9; STRIPE as usize]);
}

#[test]
fn only_what_is_claimed_is_taken_and_only_once() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    writer.write_segment.offer(4);
    assert!(writer.write_segment.take(0, 5).is_none(), "offered only");
    let (slot, _) = writer.table.claim(0..OFFER_SLOTS, 0).unwrap();
    for (slot, length) in [(slot, 0), (slot, STRIPE + 1), (slot + 1, 5), (OFFER_SLOTS, 5), (u32::MAX, 5)] {
        assert!(writer.write_segment.take(slot, length).is_none());
    }
    assert!(writer.write_segment.take(slot, 5).is_some());
    assert!(writer.write_segment.take(slot, 5).is_none());
}

#[test]
fn a_freed_block_is_the_next_that_is_offered() {
    let arena = arena(64);
    let writer = Writer::new(&arena);
    let mut used = std::collections::BTreeSet::new();
    for round in 0..100_u8 {
        let down = writer.put(&vec![round; STRIPE as usize]).unwrap();
        used.insert(down.as_ptr().addr());
        arena.write(key(0), FIRST, 0, &down).unwrap();
    }
    assert!(used.len() <= 6, "{} blocks were used", used.len());
}

#[test]
fn stripes_stay_when_their_writer_is_gone_and_with_the_last_of_them_the_segment_is_gone_too() {
    let arena = arena(64);
    let before = arena.usage().used;
    let writer = Writer::new(&arena);
    let segments = &arena;
    let write_segment = writer.write_segment.segment();
    for stripe in 0..10 {
        arena.write(key(stripe), FIRST, 0, &writer.put(&vec![1; STRIPE as usize]).unwrap()).unwrap();
    }
    arena.remove(key(9)).unwrap();
    let _claimed = writer.table.claim(0..OFFER_SLOTS, 0).unwrap();
    drop(writer);
    assert_eq!(arena.touched(), 9 * u64::from(STRIPE), "what is free of it is given back");
    let view = arena.read(key(0), 0, STRIPE).unwrap();
    (0..9).for_each(|stripe| arena.remove(key(stripe)).unwrap());
    assert!(
        view == vec![1; STRIPE as usize] && segments.length(write_segment).is_some() && segments.closed_segments() == 0
    );
    drop(view);
    assert_eq!((segments.length(write_segment), segments.closed_segments()), (None, 1));
    assert_eq!((arena.usage().used, arena.touched(), arena.resident().unwrap()), (before, 0, 0));
    assert_ne!(Writer::new(&arena).write_segment.segment(), write_segment, "a number is never given again");
}

#[test]
fn the_number_of_write_segments_is_bounded_and_another_is_made_when_one_has_gone() {
    let arena = arena(64);
    let segments = &arena;
    let mut write_segments: Vec<_> = (0..256).map(|_| segments.create_write_segment().unwrap()).collect();
    assert_eq!(segments.create_write_segment().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    write_segments.pop();
    assert!(segments.create_write_segment().is_ok());
}
