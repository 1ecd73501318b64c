//! Benchmark of encoding and decoding: nanoseconds for each of a few messages, as the median of
//! rounds.
//!
//! `cargo run --release -p wire --example codec`
#![allow(clippy::print_stdout, reason = "an example that shows numbers")]

use bytes::{Buf, Bytes};
use placement::{Epoch, FileId, PartitionId, StripeNo};
use std::{hint::black_box, time::Instant};
use wire::{
    Answer, Attributes, Body, Command, ExtentRequest, Failure, FoundEntry, Kind, Name, NewInode, NewKind, OpenedFile,
    Owner, Request, RequestId, Session, StripeAction, Timestamp, WritePlace,
    codec::{self, ToClient, ToNode},
    frame::{Frames, HEADER_BYTES, Side, WriteQueue},
};

const ROUNDS: usize = 31;
const FILE: FileId = FileId::new(PartitionId(77), 4711);

type Reply = Result<Answer, Failure>;

fn main() {
    println!("{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}   ns", "", "encode", "decode", "answer", "its", "all");
    println!("{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "request", "", "encode", "decode", "");
    for (name, request, reply) in messages() {
        let encoded = encode_request(&request);
        let answered = encode_reply(&reply);
        let parts = [
            nanoseconds(|| drop(black_box(encode_request(black_box(&request))))),
            nanoseconds(|| drop(black_box(decode_request(black_box(&encoded))))),
            nanoseconds(|| drop(black_box(encode_reply(black_box(&reply))))),
            nanoseconds(|| drop(black_box(decode_reply(black_box(&answered))))),
        ];
        let [ask, asked, answer, answered] = parts;
        let all: f64 = parts.iter().sum();
        println!("{name:<14}{ask:>9.0}{asked:>9.0}{answer:>9.0}{answered:>9.0}{all:>9.0}");
    }
    println!("\nthrough Outgoing and Frames, 64 at once: {:.0} ns a Stat", streamed());
}

/// Header and meta, and the payload after them.
type Encoded = (Vec<u8>, Bytes);

fn encode_request(request: &Request) -> Encoded {
    let mut out = Vec::with_capacity(2048);
    let payload = codec::encode_request(request, 1, &mut out).expect("it is short");
    (out, payload)
}

fn decode_request((bytes, payload): &Encoded) -> Request {
    let (meta, payload) = parts(bytes, payload);
    codec::decode_request(meta, payload).expect("it was encoded")
}

fn encode_reply(reply: &Reply) -> Encoded {
    let mut out = Vec::with_capacity(2048);
    let payload = codec::encode_reply(reply, 1, &mut out).expect("it is short");
    (out, payload)
}

fn decode_reply((bytes, payload): &Encoded) -> Answer {
    let (meta, payload) = parts(bytes, payload);
    codec::decode_answer(meta, payload).expect("it was encoded")
}

/// Splits an encoded frame as a transport would: verified header, meta, payload.
fn parts<'a>(bytes: &'a [u8], payload: &Bytes) -> (&'a [u8], Bytes) {
    let header = wire::frame::Header::decode(bytes.first_chunk().expect("a header")).expect("it was encoded");
    let (meta, short) = bytes[HEADER_BYTES..].split_at(header.meta as usize);
    header.check_meta(meta).expect("it was encoded");
    (meta, if short.is_empty() { payload.clone() } else { Bytes::copy_from_slice(short) })
}

/// Measures the nanoseconds of one call: the median of rounds of a thousand calls.
fn nanoseconds(mut act: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..1000).for_each(|_| act());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Measures a request and its answer through the buffers of a transport, without system calls.
fn streamed() -> f64 {
    let (_, request, reply) = messages().swap_remove(0);
    let (mut to_node, mut to_client) = (Frames::new(Side::Node), Frames::new(Side::Client));
    to_node.open();
    to_client.open();
    let (mut asked, mut answered) = (WriteQueue::new(), WriteQueue::new());
    let rounds = nanoseconds(|| {
        for id in 0..64 {
            asked.push(|out| codec::encode_request(&request, id, out)).expect("it is short");
        }
        carry(&mut asked, &mut to_node);
        while let Some(frame) = to_node.next().expect("frames") {
            let Ok(ToNode::Request { id, .. }) = ToNode::decode(frame) else { panic!("a request") };
            answered.push(|out| codec::encode_reply(&reply, id, out)).expect("it is short");
        }
        carry(&mut answered, &mut to_client);
        while let Some(frame) = to_client.next().expect("frames") {
            black_box(ToClient::decode(frame).expect("a reply"));
        }
    });
    rounds / 64.0
}

fn carry(from: &mut WriteQueue, to: &mut Frames) {
    let mut bytes = from.chunk();
    let all = bytes.len();
    to.feed(&mut bytes);
    assert!(bytes.is_empty() && all == from.remaining(), "64 short frames fit");
    from.advance(all);
}

fn messages() -> Vec<(&'static str, Request, Reply)> {
    let (file, parent, offset) = (FILE, FileId::ROOT, 1 << 30);
    let name = || Name::new(b"part-00017.parquet").expect("a name");
    let opened = Answer::Opened(OpenedFile { attributes: attributes(), host: None, truncation: None, shared: false });
    let found = Answer::Found(FoundEntry { file, kind: Kind::File, attributes: Some(attributes()) });
    let inode = NewInode::new(NewKind::File, 0o644, Owner { uid: 1000, gid: 1000 });
    let create = Command::Create { parent, name: name(), inode, open: true, extent: ExtentRequest::Any };
    let data = Bytes::from(vec![1; 64]);
    let write = Command::Write { file, place: WritePlace::At(offset), length: 64, data, kill_set_id: false };
    let stripe = StripeAction::Write { generation: 1, offset: 0, ends: false, data: Bytes::from(vec![2; 1 << 20]) };
    let stripe = Body::Stripe { file, stripe: StripeNo(9), action: stripe };
    let read = Body::Stripe { file, stripe: StripeNo(9), action: StripeAction::Read { offset: 0, length: 1 << 20 } };
    vec![
        ("Stat", request(meta(Command::Stat { file })), Ok(Answer::Attributes(attributes()))),
        ("Lookup", request(meta(Command::Lookup { parent, name: name() })), Ok(found)),
        ("Create", request(meta(create)), Ok(opened)),
        ("Write 64 B", request(meta(write)), Ok(Answer::Written(offset))),
        ("Write 1 MiB", request(stripe), Ok(Answer::Done)),
        ("Read 1 MiB", request(read), Ok(Answer::Bytes(Bytes::from(vec![3; 1 << 20])))),
    ]
}

fn request(body: Body) -> Request {
    Request { epoch: Epoch(12), session: Session(3), skip_ack: false, partition: PartitionId(77), body }
}

fn meta(command: Command) -> Body {
    let request_id = RequestId { session: Session(3), number: 100_000, settled: 99_990 };
    Body::Meta { request_id: command.is_mutation().then_some(request_id), command }
}

fn attributes() -> Attributes {
    let time = Timestamp { secs: 1_795_000_000, nanos: 123_456_789 };
    Attributes {
        file: FILE,
        kind: Kind::File,
        size: 5 << 20,
        allocated: 5 << 20,
        mode: 0o644,
        links: 1,
        owner: Owner { uid: 1000, gid: 1000 },
        accessed: time,
        modified: time,
        changed: time,
        version: 1,
        created: time,
        extent: None,
        cacheable: true,
    }
}
