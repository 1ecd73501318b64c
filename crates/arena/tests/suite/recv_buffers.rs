//! Tests of receive buffers.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use placement::{FileId, PartitionId, StripeNo};
use store::{Generation, RecvBuffer, SharedMemory, StripeKey, StripeStore};

const FIRST: Generation = Generation(0);
const STRIPE: u32 = 64 << 10;
const STRIPES: u64 = 64;

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(7), stripe: StripeNo(stripe) }
}

fn fill(arena: &Arena) {
    (0..STRIPES).for_each(|stripe| arena.write(key(stripe), FIRST, 0, &vec![1; STRIPE as usize]).unwrap());
}

/// An empty arena whose memory was all touched.
fn warm() -> Arena {
    let capacity = STRIPES * u64::from(STRIPE);
    let arena = Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(capacity) }).unwrap();
    fill(&arena);
    (0..STRIPES).for_each(|stripe| arena.remove(key(stripe)).unwrap());
    arena
}

fn recv_buffer(arena: &Arena, length: u32) -> Option<Box<dyn RecvBuffer>> {
    arena.recv_buffer(length)
}

fn received(arena: &Arena, byte: u8, length: u32) -> Bytes {
    let mut buffer = recv_buffer(arena, length).unwrap();
    assert_eq!(buffer.bytes_mut().len(), length as usize);
    buffer.bytes_mut().fill(byte);
    buffer.freeze()
}

#[test]
fn what_was_received_becomes_the_stripe_where_it_is() {
    let arena = warm();
    for (stripe, length) in [(0, STRIPE), (1, STRIPE - 1), (2, 40_000)] {
        let came = received(&arena, 9, length);
        let at = came.as_ptr();
        arena.write(key(stripe), FIRST, 0, &came).unwrap();
        drop(came);
        let view = arena.read(key(stripe), 0, STRIPE).unwrap();
        assert_eq!((view.as_ptr(), &view[..]), (at, &vec![9; length as usize][..]));
    }
    assert_eq!(arena.usage().used, 3 * u64::from(STRIPE));
}

#[test]
fn what_did_not_come_whole_or_is_no_whole_stripe_is_free_with_the_last_of_it() {
    let arena = warm();
    let used = |stripes: u64| assert_eq!(arena.usage().used, stripes * u64::from(STRIPE));
    let mut torn = recv_buffer(&arena, STRIPE).unwrap();
    torn.bytes_mut()[..1000].fill(1);
    used(1);
    drop(torn);
    used(0);
    arena.write(key(0), FIRST, 0, &vec![1; STRIPE as usize]).unwrap();
    let came = received(&arena, 2, 32 << 10);
    arena.write(key(0), FIRST, 1000, &came).unwrap();
    let part = came.slice(5..6);
    drop(came);
    assert_eq!(arena.usage().used, u64::from(STRIPE) + (32 << 10));
    drop(part);
    used(1);
    let content = arena.read(key(0), 0, STRIPE).unwrap();
    assert!(content[..1000].iter().all(|byte| *byte == 1) && content[1000..][..32 << 10].iter().all(|byte| *byte == 2));
}

#[test]
fn only_memory_that_was_touched_and_suits_is_received_into() {
    let fresh = Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(64 << 20) }).unwrap();
    assert!(recv_buffer(&fresh, STRIPE).is_none());
    let arena = warm();
    for length in [0, 1, 4096, STRIPE + 1, u32::MAX] {
        assert!(recv_buffer(&arena, length).is_none(), "{length} bytes");
    }
    assert!(recv_buffer(&arena, STRIPE).is_some());
}

#[test]
fn an_eighth_of_what_is_free_is_received_into_and_all_of_it_can_be_filled_otherwise() {
    let arena = warm();
    let mut buffers: Vec<_> = std::iter::from_fn(|| recv_buffer(&arena, STRIPE)).collect();
    assert_eq!(buffers.len() as u64, STRIPES / 8);
    buffers.pop();
    assert!(recv_buffer(&arena, STRIPE).is_some(), "another, when one has gone");
    let came: Vec<_> = buffers.into_iter().map(RecvBuffer::freeze).collect();
    buffers = std::iter::from_fn(|| recv_buffer(&arena, STRIPE)).collect();
    assert_eq!(buffers.len(), 1, "what has come counts until it is a stripe's");
    drop((buffers, came));
    fill(&arena);
    assert!(recv_buffer(&arena, STRIPE).is_none(), "nothing is free");
}
