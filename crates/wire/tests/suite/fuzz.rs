//! Fuzzing with seeded random damage: both sides decode each stream or report why not, and nothing
//! panics.
//!
//! `FUZZ_SECONDS=600 cargo test -p wire --test suite --release fuzz` (`make fuzz`) runs for that
//! long, from a seed of its own. A failure prints its seed, and `FUZZ_SEED=n` starts with that one.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use crate::samples::{SESSION, never_from_clients, recalls, replies, requests};
use bytes::Bytes;
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use test_support::Random;
use wire::{
    codec::{self, ShmPayload, ToClient, ToNode},
    frame::{DecodeError, FrameKind, Frames, HEADER_BYTES, Header, Side},
    handshake::{ClientHandshake, NodeHandshake, Step, Token, VERSIONS},
};
use xxhash_rust::xxh3::xxh3_64;

/// Number of streams in a normal test run; each has up to four frames.
const STREAMS: u64 = 100_000;
/// Maximum payload of a sample, bytes: damage in a payload does not affect the decoder.
const PAYLOAD_MAX: usize = 2000;

/// Valid frames, by the side that receives them.
struct Samples {
    node: Vec<Vec<u8>>,
    client: Vec<Vec<u8>>,
    challenge: Vec<u8>,
    hello: Vec<u8>,
    welcome: Vec<u8>,
}

fn token() -> Token {
    Token::new(b"the token of this pool").unwrap()
}

fn node() -> NodeHandshake {
    NodeHandshake::new(token(), VERSIONS, [1; 32])
}

fn client() -> ClientHandshake {
    ClientHandshake::new(token(), VERSIONS, [2; 32], "fuzz")
}

/// Parses the first frame in `bytes` and passes it to `on`; returns its result.
fn step<T>(side: Side, bytes: &[u8], on: impl FnOnce(Result<wire::frame::Frame<'_>, DecodeError>) -> T) -> Option<T> {
    let (mut frames, mut left) = (Frames::new(side), bytes);
    frames.feed(&mut left);
    match frames.next() {
        Ok(frame) => frame.map(|frame| on(Ok(frame))),
        Err(error) => Some(on(Err(error))),
    }
}

impl Samples {
    fn new() -> Self {
        let challenge = node().challenge("fuzz");
        let Some(Step::Send(hello)) = step(Side::Client, &challenge, |received| client().on_frame(&received.unwrap()))
        else {
            panic!("a hello")
        };
        let Some(Step::Done { send: welcome, .. }) =
            step(Side::Node, &hello, |received| node().on_frame(&received.unwrap()))
        else {
            panic!("a welcome")
        };
        let mut samples = Self { node: others(), client: Vec::new(), challenge, hello, welcome };
        let from_nodes = never_from_clients().into_iter().map(|command| wire::Request {
            body: wire::Body::Meta { request_id: None, command },
            ..requests().swap_remove(0)
        });
        for request in requests().into_iter().chain(from_nodes) {
            samples.node.extend(encoded_frame(|out| codec::encode_request(&request, 1, out)));
            if matches!(request.body, wire::Body::Stripe { .. }) && codec::begins_stripe(&request.body).is_some() {
                let filled = ShmPayload { slot: 1, length: 64 };
                let published = |out: &mut Vec<u8>| codec::encode_request_in_shm(&request, filled, 1, out);
                samples.node.extend(encoded_frame(|out| published(out).map(|()| Bytes::new())));
            }
        }
        for reply in replies() {
            samples.client.extend(encoded_frame(|out| codec::encode_reply(&reply, 1, out)));
        }
        let mut recall = Vec::new();
        codec::encode_recalls(SESSION, &recalls(), 9, &mut recall);
        samples.client.push(recall);
        samples
    }
}

fn encoded_frame<E: std::fmt::Debug>(encode: impl FnOnce(&mut Vec<u8>) -> Result<Bytes, E>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let payload = encode(&mut out).unwrap();
    out.extend_from_slice(&payload);
    (payload.len() <= PAYLOAD_MAX).then_some(out)
}

fn others() -> Vec<Vec<u8>> {
    let encoders: [fn(&mut Vec<u8>); 8] = [
        |out| codec::encode_cancel(1, out),
        |out| codec::encode_subscribe(SESSION, 2, out),
        |out| codec::encode_unsubscribe(SESSION, out),
        |out| codec::encode_supports_prune(SESSION, out),
        |out| codec::encode_ack(3, out),
        |out| codec::encode_ping(4, out),
        |out| codec::encode_pong(5, out),
        |out| codec::encode_goodbye("over", out),
    ];
    encoders
        .iter()
        .map(|encode| {
            let mut out = Vec::new();
            encode(&mut out);
            out
        })
        .collect()
}

/// Damages some bytes. Half of the time fixes the checksums, so that the checks behind them are
/// tested too.
fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        if frame.is_empty() {
            return;
        }
        let at = random.below(frame.len());
        match random.below(8) {
            0 | 1 => frame[at] ^= 1 << random.below(8),
            2 => frame[at] = random.byte(),
            3 => frame[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            4 => frame.truncate(at),
            5 => frame.insert(at, random.byte()),
            6 => drop(frame.remove(at)),
            _ => {
                let from = random.below(frame.len());
                let part = frame[from..(from + random.below(16)).min(frame.len())].to_vec();
                frame.splice(at..at, part);
            }
        }
    }
    if random.below(2) == 0 {
        make_right(frame, random.below(4) > 0);
    }
}

/// Makes the header match the bytes after it; keeps the announced payload length if possible.
fn make_right(frame: &mut [u8], lengths: bool) {
    if frame.len() < HEADER_BYTES {
        return;
    }
    let low = |bytes: &[u8]| u32::try_from(xxh3_64(bytes) & 0xffff_ffff).unwrap().to_le_bytes();
    let behind = frame.len() - HEADER_BYTES;
    let payload = u32::from_le_bytes(frame[12..16].try_into().unwrap()) as usize;
    if lengths {
        let payload = payload.min(behind);
        frame[..4].copy_from_slice(b"tide");
        frame[5..8].fill(0);
        frame[8..12].copy_from_slice(&u32::try_from(behind - payload).unwrap().to_le_bytes());
        frame[12..16].copy_from_slice(&u32::try_from(payload).unwrap().to_le_bytes());
    }
    let meta = u32::from_le_bytes(frame[8..12].try_into().unwrap()) as usize;
    let check = low(&frame[HEADER_BYTES..HEADER_BYTES + meta.min(behind)]);
    frame[24..28].copy_from_slice(&check);
    let own = low(&frame[..28]);
    frame[28..32].copy_from_slice(&own);
}

/// Parses a stream in random portions until it ends or is garbled; returns the number of decoded
/// frames.
fn read(side: Side, stream: &[u8], random: &mut Random) -> Result<u32, DecodeError> {
    let (mut frames, mut left, mut understood) = (Frames::new(side), stream, 0);
    frames.open();
    while !left.is_empty() {
        let (mut now, later) = left.split_at(1 + random.below(left.len()));
        while !now.is_empty() {
            frames.feed(&mut now);
            while let Some(frame) = frames.next()? {
                understand(side, frame)?;
                understood += 1;
            }
        }
        left = later;
    }
    Ok(understood)
}

/// Decodes a frame, then checks that encoding and decoding give the same value again.
fn understand(side: Side, frame: wire::frame::Frame<'_>) -> Result<(), DecodeError> {
    let mut again = Vec::new();
    match side {
        Side::Node => {
            let (id, request) = match ToNode::decode(frame)? {
                ToNode::Request { id, request } => (id, request),
                ToNode::RequestInShm { id, request: in_shm } => {
                    (id, in_shm.into_request(Bytes::from_static(&[7; 64]))?)
                }
                _ => return Ok(()),
            };
            let payload = codec::encode_request(&request, id, &mut again).unwrap();
            let (meta, payload) = parts(&again, payload);
            assert_eq!(codec::decode_request(meta, payload), Ok(request));
        }
        Side::Client => {
            if let ToClient::Reply { id, reply } = ToClient::decode(frame)? {
                let payload = codec::encode_reply(&reply, id, &mut again).unwrap();
                let (meta, payload) = parts(&again, payload);
                match reply {
                    Ok(answer) => assert_eq!(codec::decode_answer(meta, payload), Ok(answer)),
                    Err(failure) => assert_eq!(codec::decode_failure(meta), Ok(failure)),
                }
            }
        }
    }
    Ok(())
}

/// Splits an encoded frame into meta and payload.
fn parts(encoded: &[u8], given: Bytes) -> (&[u8], Bytes) {
    let header = Header::decode(encoded.first_chunk().unwrap()).unwrap();
    let (meta, short) = encoded[HEADER_BYTES..].split_at(header.meta as usize);
    (meta, if given.is_empty() { Bytes::copy_from_slice(short) } else { given })
}

/// Damages a handshake: it may succeed only if the damage is in bytes that prove nothing.
fn handshake(samples: &Samples, random: &mut Random) {
    let mut received = random.pick(&[&samples.hello, &samples.challenge, &samples.welcome]).clone();
    damage(&mut received, random);
    let on_node = |received: Result<wire::frame::Frame<'_>, DecodeError>| match received {
        Ok(frame) => node().on_frame(&frame),
        Err(error) => node().on_decode_error(error),
    };
    if let Some(Step::Done { .. }) = step(Side::Node, &received, on_node) {
        // Two bytes of versions, nonce and proof. The bytes after them only describe the client.
        assert_eq!(received[HEADER_BYTES..HEADER_BYTES + 66], samples.hello[HEADER_BYTES..HEADER_BYTES + 66]);
    }
    let mut client = client();
    if random.below(2) == 0 {
        step(Side::Client, &samples.challenge, |received| client.on_frame(&received.unwrap()));
    }
    let step = step(Side::Client, &received, |received| received.map(|frame| client.on_frame(&frame)));
    if let Some(Ok(Step::Done { .. })) = step {
        // Bytes after the frame do not matter.
        assert!(received[HEADER_BYTES..].starts_with(&samples.welcome[HEADER_BYTES..]));
    }
}

/// Runs one stream; returns true if all of it was decoded.
fn one(samples: &Samples, seed: u64) -> bool {
    let random = &mut Random::new(seed);
    if random.below(16) == 0 {
        handshake(samples, random);
    }
    let (side, frames) = match random.below(2) {
        0 => (Side::Node, &samples.node),
        _ => (Side::Client, &samples.client),
    };
    let mut stream = Vec::new();
    for _ in 0..=random.below(4) {
        let mut frame = frames[random.below(frames.len())].clone();
        damage(&mut frame, random);
        stream.extend_from_slice(&frame);
    }
    read(side, &stream, random).is_ok()
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

#[test]
fn damaged_streams_are_decoded_or_refused() {
    let samples = Samples::new();
    let end = number("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let own = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() << 32);
    let first = number("FUZZ_SEED").unwrap_or_else(|| if end.is_some() { own() } else { 0 });
    let (mut understood, mut count) = (0, 0);
    while end.map_or(count < STREAMS, |end| Instant::now() < end) {
        let seed = first + count;
        match catch_unwind(AssertUnwindSafe(|| one(&samples, seed))) {
            Ok(encoded_frame) => understood += u64::from(encoded_frame),
            Err(panic) => {
                eprintln!("the stream of seed {seed} is not handled: FUZZ_SEED={seed} makes it again");
                resume_unwind(panic);
            }
        }
        count += 1;
    }
    eprintln!("{count} streams from seed {first}, {understood} understood");
    assert!(
        count < 1000 || (count / 10..count * 9 / 10).contains(&understood),
        "damage is neither rare nor everywhere"
    );
}

#[test]
fn samples_without_damage_are_understood() {
    let samples = Samples::new();
    let random = &mut Random::new(1);
    for frame in &samples.client {
        assert_eq!(read(Side::Client, frame, random), Ok(1));
    }
    let refused = samples.node.iter().filter(|frame| read(Side::Node, frame, random).is_err()).count();
    assert_eq!(refused, never_from_clients().len());
}

#[test]
fn headers_that_were_made_right_are_right() {
    let mut ping = Vec::new();
    codec::encode_ping(4, &mut ping);
    let mut changed = ping.clone();
    changed[16] = 5;
    make_right(&mut changed, false);
    assert_eq!(
        Header::decode(changed.first_chunk().unwrap()),
        Header::new(FrameKind::Ping, 5, &[], 0).map_err(|_| unreachable!())
    );
}
