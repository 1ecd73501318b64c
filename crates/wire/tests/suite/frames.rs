//! Parsing frames from bytes that are split, damaged, too long or out of place; and writing frames
//! in portions of any size.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use crate::samples::{replies, requests};
use bytes::{Buf, Bytes};
use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use store::{RecvBuffer, SegmentPosition, SharedMemory, WriteSegment};
use test_support::Random;
use wire::{
    Answer, Request,
    codec::{self, ToClient, ToNode},
    frame::{
        DecodeError, FrameKind, Frames, HANDSHAKE_META_BYTES_MAX, HEADER_BYTES, Header, KINDS, LARGE_META_BYTES_MAX,
        META_BYTES_MAX, PAYLOAD_BYTES_MAX, Phase, Side, WriteQueue,
    },
};

/// Encodes all sample requests, one after the other.
fn sent() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, request) in (1..).zip(requests()) {
        let payload = codec::encode_request(&request, id, &mut bytes).unwrap();
        bytes.extend_from_slice(&payload);
    }
    bytes
}

fn opened(side: Side) -> Frames {
    let mut frames = Frames::new(side);
    frames.open();
    frames
}

/// Decodes the requests of `bytes`, fed in portions.
fn received(bytes: &[u8], portion: impl FnMut() -> usize) -> Vec<ToNode> {
    receive(&mut opened(Side::Node), bytes, portion)
}

fn receive(frames: &mut Frames, bytes: &[u8], mut portion: impl FnMut() -> usize) -> Vec<ToNode> {
    let (mut left, mut received) = (bytes, Vec::new());
    while !left.is_empty() {
        let (mut now, later) = left.split_at(portion().min(left.len()));
        while !now.is_empty() {
            frames.feed(&mut now);
            while let Some(frame) = frames.next().unwrap() {
                received.push(ToNode::decode(frame).unwrap());
            }
        }
        left = later;
    }
    assert!(frames.is_between());
    received
}

#[test]
fn frames_are_the_same_however_the_stream_was_cut() {
    let sent = sent();
    let expected: Vec<_> = (1..).zip(requests()).map(|(id, request)| ToNode::Request { id, request }).collect();
    for portion in [1, 7, HEADER_BYTES, 1000, 65_536, usize::MAX] {
        assert_eq!(received(&sent, || portion), expected, "in portions of {portion}");
    }
    let mut random = Random::new(1);
    assert_eq!(received(&sent, || 1 + random.below(5000)), expected);
}

#[test]
fn a_long_payload_is_read_to_where_it_stays() {
    let data = vec![0x77; 1 << 20];
    let mut bytes = Vec::new();
    let given = codec::encode_reply(&Ok(Answer::Bytes(data.into())), 1, &mut bytes).unwrap();
    let (mut frames, mut short, mut bulk) = (opened(Side::Client), &bytes[..], &given[..]);
    frames.feed(&mut short);
    assert!(short.is_empty() && frames.next().unwrap().is_none());
    assert_eq!(frames.space().limit(), 1 << 20, "room for the payload, and for nothing behind it");
    let place = frames.space().get_ref().as_ptr();
    frames.feed(&mut bulk);
    let frame = frames.next().unwrap().unwrap();
    assert_eq!((frame.payload.as_ptr(), &frame.payload), (place, &given));
}

/// An engine's memory in which long payloads may stay.
#[derive(Debug, Default)]
struct Memory(Arc<AtomicUsize>);

#[derive(Debug)]
struct TestRecvBuffer(Vec<u8>, Arc<AtomicUsize>);

impl SharedMemory for Memory {
    fn lengths(&self) -> Vec<u64> {
        Vec::new()
    }

    fn length(&self, _: u32) -> Option<u64> {
        None
    }

    fn open(&self, _: u32) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn locate(&self, _: &[u8]) -> Option<SegmentPosition> {
        None
    }

    fn closed_segments(&self) -> u64 {
        0
    }

    fn create_write_segment(&self) -> io::Result<Box<dyn WriteSegment>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn recv_buffer(&self, length: u32) -> Option<Box<dyn RecvBuffer>> {
        (length >= 4096).then(|| Box::new(TestRecvBuffer(vec![0xee; length as usize], self.0.clone())) as _)
    }
}

impl RecvBuffer for TestRecvBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self: Box<Self>) -> Bytes {
        self.1.fetch_add(1, Relaxed);
        self.0.into()
    }
}

#[test]
fn long_payloads_of_requests_land_where_they_may_stay_however_the_stream_was_cut() {
    let (bytes, memory) = (sent(), Arc::new(Memory::default()));
    let longs = requests().iter().filter(|request| encoded_payload(request) >= 4096).count();
    let expected = received(&bytes, || usize::MAX);
    assert!(longs > 0);
    for portion in [1, 7, HEADER_BYTES, 1000, 65_536, usize::MAX] {
        let (before, mut frames) = (memory.0.load(Relaxed), opened(Side::Node));
        frames.receive_into(memory.clone());
        assert_eq!(receive(&mut frames, &bytes, || portion), expected, "in portions of {portion}");
        assert_eq!(memory.0.load(Relaxed) - before, longs);
    }
    let mut bytes = Vec::new();
    let given = codec::encode_reply(&Ok(Answer::Bytes(vec![7; 9000].into())), 1, &mut bytes).unwrap();
    let (mut frames, landed) = (opened(Side::Client), memory.0.load(Relaxed));
    frames.receive_into(memory.clone());
    for mut some in [&bytes[..], &given[..]] {
        frames.feed(&mut some);
        let frame = frames.next().unwrap();
        assert!(frame.is_none_or(|frame| frame.payload == given), "what is answered lands nowhere");
    }
    assert_eq!(memory.0.load(Relaxed), landed);
}

fn encoded_payload(request: &Request) -> usize {
    codec::encode_request(request, 1, &mut Vec::new()).unwrap().len()
}

#[test]
fn a_payload_does_not_hold_on_to_what_was_read_with_it() {
    let mut bytes = Vec::new();
    let given = codec::encode_reply(&Ok(Answer::Bytes(Bytes::from_static(b"small"))), 1, &mut bytes).unwrap();
    assert!(given.is_empty());
    codec::encode_ping(2, &mut bytes);
    let mut frames = opened(Side::Client);
    frames.feed(&mut &bytes[..]);
    let payload = frames.next().unwrap().unwrap().payload;
    let payload = payload.try_into_mut().expect("nobody else has this memory");
    assert_eq!((&payload[..], payload.capacity()), (&b"small"[..], 5));
    assert_eq!(frames.next().unwrap().unwrap().header.kind, FrameKind::Ping);
}

#[test]
fn a_frame_that_is_cut_is_no_frame() {
    for request in requests() {
        let mut bytes = Vec::new();
        let payload = codec::encode_request(&request, 1, &mut bytes).unwrap();
        bytes.extend_from_slice(&payload[..payload.len().min(3)]);
        let whole = bytes.len() - usize::from(!payload.is_empty());
        for end in 0..whole {
            let mut frames = opened(Side::Node);
            frames.feed(&mut &bytes[..end]);
            assert_eq!(frames.next(), Ok(None), "{request:?}");
            assert_eq!(frames.is_between(), end == 0);
        }
    }
}

/// Returns header and meta of every sample, with the side that receives it.
fn frames_without_payload() -> Vec<(Side, Vec<u8>)> {
    let mut all = Vec::new();
    for request in requests() {
        let mut bytes = Vec::new();
        codec::encode_request(&request, 1, &mut bytes).unwrap();
        all.push((Side::Node, bytes));
    }
    for reply in replies() {
        let mut bytes = Vec::new();
        codec::encode_reply(&reply, 1, &mut bytes).unwrap();
        all.push((Side::Client, bytes));
    }
    for (_, bytes) in &mut all {
        let header = Header::decode(bytes.first_chunk().unwrap()).unwrap();
        bytes.truncate(HEADER_BYTES + header.meta as usize);
    }
    all
}

#[test]
fn every_flipped_bit_of_header_and_meta_is_noticed() {
    for (side, bytes) in frames_without_payload() {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut frames = opened(side);
            frames.feed(&mut &damaged[..]);
            assert!(frames.next().is_err(), "bit {bit} of {bytes:02x?}");
        }
    }
}

#[test]
fn a_meta_that_is_cut_or_changed_and_checked_again_is_refused_or_means_something() {
    for (side, bytes) in frames_without_payload() {
        let header = Header::decode(bytes.first_chunk().unwrap()).unwrap();
        let meta = &bytes[HEADER_BYTES..];
        for end in 0..meta.len() {
            assert!(!is_understood(side, header.kind, &meta[..end]), "{end} bytes of {meta:02x?}");
        }
        for bit in 0..meta.len() * 8 {
            let mut changed = meta.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            is_understood(side, header.kind, &changed);
        }
    }
}

/// Returns true if a meta decodes; then checks that encoding and decoding give the same value
/// again.
fn is_understood(side: Side, kind: FrameKind, meta: &[u8]) -> bool {
    let mut again = Vec::new();
    if side == Side::Node {
        let Ok(request) = codec::decode_request(meta, Bytes::new()) else { return false };
        codec::encode_request(&request, 1, &mut again).unwrap();
        assert_eq!(codec::decode_request(&again[HEADER_BYTES..], Bytes::new()), Ok(request));
        return true;
    }
    let decode = |meta: &[u8]| match kind {
        FrameKind::Failure => codec::decode_failure(meta).map(Err),
        _ => codec::decode_answer(meta, Bytes::new()).map(Ok),
    };
    let Ok(reply) = decode(meta) else { return false };
    codec::encode_reply(&reply, 1, &mut again).unwrap();
    assert_eq!(decode(&again[HEADER_BYTES..]), Ok(reply));
    true
}

/// Encodes a valid header that announces these lengths.
fn announcing(kind: FrameKind, meta: u32, payload: u32) -> [u8; HEADER_BYTES] {
    Header { kind, id: 1, meta, payload, meta_check: 0 }.encode()
}

#[test]
fn more_than_a_kind_may_hold_is_refused_at_the_header() {
    for kind in KINDS {
        let most = (kind.meta_bytes_max(), kind.payload_bytes_max());
        assert!(Header::decode(&announcing(kind, most.0, most.1)).is_ok());
        for (meta, payload, what) in [(most.0 + 1, 0, "meta"), (0, most.1 + 1, "payload"), (u32::MAX, u32::MAX, "meta")]
        {
            let refused = Header::decode(&announcing(kind, meta, payload)).unwrap_err();
            assert!(matches!(refused, DecodeError::TooLong { part: named, .. } if named == what), "{refused}");
        }
    }
}

#[test]
fn each_kind_has_its_number_and_bounds_that_are_among_those_documented() {
    for (number, kind) in (1..).zip(KINDS) {
        assert_eq!((kind.number(), FrameKind::from_number(number)), (number, Some(kind)));
        let bounds = [0, HANDSHAKE_META_BYTES_MAX, META_BYTES_MAX, LARGE_META_BYTES_MAX];
        assert!(bounds.contains(&kind.meta_bytes_max()), "{kind}");
        assert!([0, PAYLOAD_BYTES_MAX].contains(&kind.payload_bytes_max()), "{kind}");
    }
    assert_eq!(
        (FrameKind::from_number(0), FrameKind::from_number(31), FrameKind::from_number(255)),
        (None, None, None)
    );
}

#[test]
fn a_kind_comes_only_where_and_when_it_belongs() {
    for kind in KINDS {
        let mut places = 0;
        for (side, phase) in [
            (Side::Client, Phase::Handshake),
            (Side::Client, Phase::Open),
            (Side::Node, Phase::Handshake),
            (Side::Node, Phase::Open),
        ] {
            let mut frames = Frames::new(side);
            if phase == Phase::Open {
                frames.open();
            }
            let header = Header::new(kind, 1, &[], 0).unwrap();
            frames.feed(&mut &header.encode()[..]);
            let expected = kind.may_arrive(side, phase);
            places += u32::from(expected);
            match frames.next() {
                Ok(Some(frame)) => assert!(expected && frame.header == header),
                refused => assert!(!expected && refused == Err(DecodeError::Unexpected { kind, side, phase })),
            }
        }
        assert!((1..=2).contains(&places), "{kind} comes in {places} places");
    }
}

#[test]
fn unknown_kinds_and_flags_are_named() {
    let damaged = |at: usize, byte| {
        let mut bytes = announcing(FrameKind::Ping, 0, 0);
        bytes[at] = byte;
        let check = xxhash_rust::xxh3::xxh3_64(&bytes[..28]).to_le_bytes();
        bytes[28..].copy_from_slice(&check[..4]);
        Header::decode(&bytes).unwrap_err()
    };
    assert_eq!(damaged(4, 77), DecodeError::Kind(77));
    assert_eq!(damaged(4, 0), DecodeError::Kind(0));
    for at in 5..8 {
        assert_eq!(damaged(at, 1), DecodeError::Flags(FrameKind::Ping.number()));
    }
}

#[test]
fn there_are_no_frames_after_an_error() {
    let mut bytes = Vec::new();
    codec::encode_ping(1, &mut bytes);
    bytes.extend_from_slice(&[0; HEADER_BYTES]);
    codec::encode_ping(2, &mut bytes);
    let mut frames = opened(Side::Node);
    frames.feed(&mut &bytes[..]);
    assert!(frames.next().unwrap().is_some());
    let error = frames.next().unwrap_err();
    frames.feed(&mut &bytes[..]);
    assert_eq!(frames.next().unwrap_err(), error);
}

/// Writes out the queue by vectored writes that each take `portion` bytes.
fn written(mut outgoing: WriteQueue, slots: usize, portion: usize) -> Vec<u8> {
    let mut written = Vec::new();
    while outgoing.has_remaining() {
        let mut pieces = vec![IoSlice::new(&[]); slots];
        let filled = outgoing.chunks_vectored(&mut pieces);
        assert!(filled > 0, "there is something left");
        let offered: Vec<u8> = pieces[..filled].iter().flat_map(|piece| piece.iter().copied()).collect();
        assert!(offered.starts_with(outgoing.chunk()));
        let taken = portion.min(offered.len());
        written.extend_from_slice(&offered[..taken]);
        outgoing.advance(taken);
    }
    written
}

#[test]
fn what_is_written_in_any_portions_is_what_was_pushed() {
    let sent = sent();
    for (slots, portion) in [(1, 1000), (2, 33), (3, 70_000), (64, 100_000), (1000, usize::MAX)] {
        let mut outgoing = WriteQueue::new();
        for (id, request) in (1..).zip(requests()) {
            outgoing.push(|out| codec::encode_request(&request, id, out)).unwrap();
        }
        assert_eq!(outgoing.remaining(), sent.len());
        assert!(written(outgoing, slots, portion) == sent, "{slots} slots, portions of {portion}");
    }
}

#[test]
fn frames_may_be_pushed_while_others_are_half_written() {
    let (mut outgoing, mut written) = (WriteQueue::new(), Vec::new());
    let reply = Ok(Answer::Bytes(Bytes::from(vec![5; 5000])));
    for id in 0..2000 {
        outgoing.push(|out| codec::encode_reply(&reply, id, out)).unwrap();
        codec::encode_goodbye(&"x".repeat(300), outgoing.short());
        let part = 4000.min(outgoing.remaining());
        written.extend_from_slice(&outgoing.copy_to_bytes(part));
    }
    written.extend_from_slice(&outgoing.copy_to_bytes(outgoing.remaining()));
    let (mut frames, mut left, mut count) = (opened(Side::Client), &written[..], 0);
    while !left.is_empty() {
        frames.feed(&mut left);
        while let Some(frame) = frames.next().unwrap() {
            match ToClient::decode(frame).unwrap() {
                ToClient::Reply { id, reply: received } => assert_eq!((id, &received), (count / 2, &reply)),
                other => assert_eq!(other, ToClient::Goodbye("x".repeat(300))),
            }
            count += 1;
        }
    }
    assert_eq!(count, 4000);
}

#[test]
fn a_marked_frame_begins_a_write_and_no_write_reaches_over_its_start() {
    let reply = Ok(Answer::Bytes(Bytes::from(vec![5; 5000])));
    for portion in [1, 33, 100, 6000, usize::MAX] {
        let (mut outgoing, mut starts) = (WriteQueue::new(), Vec::new());
        for id in 0..9 {
            codec::encode_ping(id, outgoing.short());
            if id % 3 > 0 {
                outgoing.push(|out| codec::encode_reply(&reply, id, out)).unwrap();
            }
            starts.push(outgoing.remaining());
            outgoing.mark();
            codec::encode_leased_fd(id, outgoing.short());
        }
        let (all, mut starts_of_writes) = (outgoing.remaining(), Vec::new());
        while outgoing.has_remaining() {
            let at = all - outgoing.remaining();
            if outgoing.is_at_mark() {
                starts_of_writes.push(at);
            }
            let mut pieces = [IoSlice::new(&[]); 8];
            let filled = outgoing.chunks_vectored(&mut pieces);
            let offered: usize = pieces[..filled].iter().map(|piece| piece.len()).sum();
            assert!(!starts.iter().any(|start| (at + 1..at + offered).contains(start)), "a write over a mark");
            outgoing.advance(offered.min(portion));
        }
        assert_eq!(starts_of_writes, starts, "portions of {portion}");
    }
}

#[test]
fn a_push_that_is_refused_leaves_the_rest_as_it_was() {
    let mut outgoing = WriteQueue::new();
    codec::encode_ping(1, outgoing.short());
    let too_long = Ok(Answer::Bytes(Bytes::from(vec![0; PAYLOAD_BYTES_MAX as usize + 1])));
    assert!(outgoing.push(|out| codec::encode_reply(&too_long, 2, out)).is_err());
    assert_eq!(outgoing.remaining(), HEADER_BYTES);
}
