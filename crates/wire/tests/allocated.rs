//! Bounds on the memory that clients and unauthenticated peers can make a node allocate: no more
//! than was announced, allowed and sent.
//!
//! A counting allocator tracks the allocations of the test's thread. In a binary of its own,
//! because the allocator is that of the whole process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

#[path = "suite/samples/mod.rs"]
mod samples;

use bytes::Bytes;
use samples::{replies, requests};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};
use wire::{
    UnsettledAnswer, codec,
    frame::{FrameKind, Frames, HEADER_BYTES, Header, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX, Side},
};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // The counters are gone while a thread exits; nothing reads them then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).expect("no allocation is longer")
}

// SAFETY: every call goes to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Returns the peak of allocated bytes while `act` runs, beyond those before.
fn most<T>(act: impl FnOnce() -> T) -> usize {
    let before = HELD.get();
    MOST.set(before);
    drop(act());
    usize::try_from(MOST.get() - before).unwrap()
}

/// The buffer for short frames, and some small allocations: bytes.
const BUFFER: usize = (64 << 10) + 1024;
/// Maximum ratio of a value's size in memory to its encoded length. The worst case is a list of
/// bytes that each become a value of 24 bytes, in a vector that has grown to twice its length and
/// is moved.
const TIMES_LARGER_MAX: usize = 96;

fn opened(side: Side) -> Frames {
    let mut frames = Frames::new(side);
    frames.open();
    frames
}

fn announcing(kind: FrameKind, meta: u32, payload: u32) -> Vec<u8> {
    Header { kind, id: 1, meta, payload, meta_check: 0 }.encode().into()
}

#[test]
fn what_is_announced_and_not_allowed_costs_nothing() {
    let long = [
        announcing(FrameKind::Request, LARGE_META_BYTES_MAX + 1, 0),
        announcing(FrameKind::Request, 0, PAYLOAD_BYTES_MAX + 1),
        announcing(FrameKind::Request, u32::MAX, u32::MAX),
        announcing(FrameKind::Answer, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX),
        vec![0xff; HEADER_BYTES],
    ];
    for header in long {
        let held = most(|| {
            let mut frames = opened(Side::Node);
            frames.feed(&mut &header[..]);
            assert!(frames.next().is_err());
            frames.space();
        });
        assert!(held <= 2 * BUFFER, "{held} bytes for {header:02x?}");
    }
}

#[test]
fn a_stranger_gets_a_few_kib() {
    let held = most(|| {
        let mut frames = Frames::new(Side::Node);
        frames.feed(&mut &announcing(FrameKind::Hello, 1024, 0)[..]);
        assert_eq!(frames.next(), Ok(None));
        frames.feed(&mut &[0; 512][..]);
    });
    assert!(held <= 10 << 10, "{held} bytes");
}

#[test]
fn what_is_announced_and_allowed_costs_just_that() {
    let empty = Header::new(FrameKind::Request, 1, &[], PAYLOAD_BYTES_MAX as usize).unwrap();
    for (header, announced) in [
        (announcing(FrameKind::Request, LARGE_META_BYTES_MAX, 0), LARGE_META_BYTES_MAX),
        (announcing(FrameKind::Request, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX), LARGE_META_BYTES_MAX),
        (empty.encode().into(), PAYLOAD_BYTES_MAX),
    ] {
        let held = most(|| {
            let mut frames = opened(Side::Node);
            frames.feed(&mut &header[..]);
            assert_eq!(frames.next(), Ok(None));
            frames.feed(&mut &[1][..]);
        });
        assert!(held <= announced as usize + 3 * BUFFER, "{held} bytes where {announced} were announced");
    }
}

#[test]
fn a_connection_gives_back_what_a_long_frame_took() {
    let meta = vec![0; LARGE_META_BYTES_MAX as usize];
    let header = Header::new(FrameKind::Request, 1, &meta, 0).unwrap();
    let mut frames = opened(Side::Node);
    for mut bytes in [&header.encode()[..], &meta] {
        while !bytes.is_empty() {
            frames.feed(&mut bytes);
            if !bytes.is_empty() {
                assert_eq!(frames.next(), Ok(None));
            }
        }
    }
    assert!(frames.next().unwrap().is_some());
    let before = HELD.get();
    assert_eq!(frames.next(), Ok(None));
    frames.space();
    assert!(before - HELD.get() > 3 << 20, "{} bytes were given back", before - HELD.get());
}

/// Returns the peak of allocated bytes while this meta is decoded.
fn decoding(kind: FrameKind, meta: &[u8]) -> usize {
    most(|| match kind {
        FrameKind::Request => drop(codec::decode_request(meta, Bytes::new())),
        FrameKind::Answer => drop(codec::decode_answer(meta, Bytes::new())),
        _ => drop(codec::decode_failure(meta)),
    })
}

#[test]
fn lengths_that_are_not_true_cost_nothing() {
    let mut metas = Vec::new();
    for request in requests() {
        let mut bytes = Vec::new();
        codec::encode_request(&request, 1, &mut bytes).unwrap();
        metas.push((FrameKind::Request, bytes.split_off(HEADER_BYTES)));
    }
    for reply in replies() {
        let mut bytes = Vec::new();
        codec::encode_reply(&reply, 1, &mut bytes).unwrap();
        let kind = if reply.is_ok() { FrameKind::Answer } else { FrameKind::Failure };
        metas.push((kind, bytes.split_off(HEADER_BYTES)));
    }
    // Replace each byte by the longest number: every length in the message is replaced once.
    for (kind, meta) in metas {
        for at in 0..meta.len() {
            let longest = [0xff, 0xff, 0xff, 0xff, 0x0f];
            let lying = [&meta[..at], &longest[..], &meta[at + 1..]].concat();
            let held = decoding(kind, &lying);
            assert!(held <= lying.len() * TIMES_LARGER_MAX + 1024, "{held} bytes for {lying:02x?}");
        }
    }
}

#[test]
fn no_meta_is_many_times_larger_in_memory() {
    let length = 1 << 20;
    for filler in [0_u8, 1, 2, 7] {
        for variant in 0..48 {
            let mut meta = vec![filler; length];
            // An answer: its variant, then a length that fills the rest.
            meta[..5].copy_from_slice(&[variant, 0xe0, 0xff, 0x3f, filler]);
            let held = decoding(FrameKind::Answer, &meta);
            assert!(held <= length * TIMES_LARGER_MAX, "{held} bytes for answer {variant} of {filler}");
        }
    }
}

#[test]
fn answers_within_answers_end_at_the_third() {
    let nested = |count: usize| {
        // Encode `Unsettled` with no intents and a nested answer, then repeat its prefix.
        let mut meta = Vec::new();
        let unsettled =
            wire::Answer::Unsettled(UnsettledAnswer { intents: Vec::new(), answer: Box::new(wire::Answer::NoEntry) });
        codec::encode_reply(&Ok(unsettled), 1, &mut meta).unwrap();
        let (outer, inner) = (&meta[HEADER_BYTES..HEADER_BYTES + 2], &meta[HEADER_BYTES + 2..]);
        [&outer.repeat(count)[..], inner].concat()
    };
    assert!(codec::decode_answer(&nested(2), Bytes::new()).is_ok());
    for count in [3, 4, 1_000_000] {
        let refused = codec::decode_answer(&nested(count), Bytes::new()).unwrap_err();
        assert!(refused.to_string().starts_with("the meta of a frame `answer` makes no sense"), "{refused}");
        assert!(codec::decode_answer(&nested(2), Bytes::new()).is_ok(), "and the next is read as ever");
    }
}
