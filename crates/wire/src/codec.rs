//! Requests, answers and what goes with them, to frames and back.
//!
//! An encoder appends a whole frame, up to its payload, and gives the payload that is to be written behind it: from where it
//! lies, nothing is copied. A short payload is appended too, and nothing is given. A decoder takes meta and payload of a
//! [`Frame`](crate::frame::Frame) whose header was checked, and believes nothing: whatever it gives keeps what the types promise.
//!
//! The meta is encoded by serde with [postcard](https://postcard.jamesmunns.com/wire-format); the bulk bytes of a message are
//! empty there and travel as the payload. The page for those who write another client is `docs/formats/wire.md`.

mod bulk;
mod check;
mod message;
mod meta;

use crate::{
    Answer, Body, Extent, Failure, Lent, Mark, Object, OpenFlags, Recall, Refusal, Request, Session,
    frame::{Garbled, Kind, TooLong},
};
use bytes::Bytes;
use meta::{append, parse};
use placement::{Epoch, FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

pub use bulk::begins_stripe;
pub use check::NOT_FOR_CLIENTS;
pub use message::{ToClient, ToNode};

/// A payload up to this is appended to the frame instead of being given, bytes: copying it costs less than one more piece to write.
pub const COPIED_BYTES_MAX: usize = 1024;
/// The most that one recall may tell to forget: within the bound of its meta, however long the numbers.
pub const RECALLS_MAX: usize = 4096;
/// The most places that one answer names: an object of as many stripes as may be looked at, wherever each is.
pub const RUNS_MAX: usize = 1024;
/// The most loans that one frame gives back, and the most marks that it says are closed: within the bound of its meta, however long the numbers.
pub const RETURNED_MAX: usize = 4096;
/// Longer reasons are cut in goodbyes, bytes.
const REASON_BYTES_MAX: usize = 900;

/// A request, its body borrowed. Encodes as [`Request`] does.
#[derive(Serialize)]
#[serde(rename = "Request")]
struct RequestToSend<'a> {
    epoch: Epoch,
    session: Session,
    hurried: bool,
    partition: PartitionId,
    body: &'a Body,
}

/// What a watching session must forget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalls<'a> {
    /// The session.
    pub session: Session,
    /// What; at most [`RECALLS_MAX`].
    pub recalls: Cow<'a, [Recall]>,
}

/// Whose descriptor is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrow {
    /// The extent.
    pub extent: Extent,
    /// It is to be used so.
    pub flags: OpenFlags,
}

/// What a program wants a descriptor of, that is its own: which has a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtain {
    /// Whose open it becomes.
    pub session: Session,
    /// What the session has open.
    pub file: FileId,
    /// As it was opened.
    pub flags: OpenFlags,
    /// What the descriptor is to be of.
    pub lent: Lent,
}

/// A part of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its length, bytes.
    pub length: u64,
}

/// Bytes in a part of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Which part.
    pub segment: u32,
    /// Where in it, bytes.
    pub offset: u64,
    /// How many.
    pub length: u32,
}

/// Memory for a client to write into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// The length of all its blocks, bytes; behind them stands the table of what is offered.
    pub length: u64,
    /// The length of a block, bytes.
    pub block_bytes: u32,
    /// Fewer bytes are better sent.
    pub least_bytes: u32,
}

/// A block of a bay, filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// In which slot of the table it was begun.
    pub slot: u32,
    /// How many bytes of it, from its beginning.
    pub length: u32,
}

/// A request whose bulk bytes are in a bay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Publish {
    /// Where they are.
    pub filled: Filled,
    /// What is asked, without them.
    request: Request,
}

/// The same, its body borrowed.
#[derive(Serialize)]
#[serde(rename = "Publish")]
struct PublishToSend<'a> {
    filled: Filled,
    request: RequestToSend<'a>,
}

impl Publish {
    /// A request and where its bulk bytes are, which it does not have.
    pub fn new(filled: Filled, request: Request) -> Self {
        Self { filled, request }
    }

    /// The request with its bytes, if a client may say it.
    pub fn into_request(self, bytes: Bytes) -> Result<Request, Garbled> {
        filled(Kind::Publish, self.request, bytes)
    }
}

/// The meta of a goodbye.
#[derive(Serialize, Deserialize)]
struct Goodbye<'a> {
    why: Cow<'a, str>,
}

/// Appends a request; gives what is to be written behind it.
pub fn encode_request(request: &Request, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    let Request { epoch, session, hurried, partition, ref body } = *request;
    let send = |body| RequestToSend { epoch, session, hurried, partition, body };
    match bulk::hollow_body(body) {
        None => append(Kind::Request, id, &send(body), &Bytes::new(), out),
        Some((hollow, payload)) => append(Kind::Request, id, &send(&hollow), payload, out),
    }
}

/// Reads what [`encode_request`] writes, if a client may say it.
pub fn decode_request(meta: &[u8], payload: Bytes) -> Result<Request, Garbled> {
    filled(Kind::Request, parse(Kind::Request, meta)?, payload)
}

fn filled(kind: Kind, mut request: Request, payload: Bytes) -> Result<Request, Garbled> {
    bulk::fill(kind, bulk::body_slot(&mut request.body), payload)?;
    check::request(&request).map_err(|why| Garbled::Meta { kind, why: why.into() })?;
    Ok(request)
}

/// Appends a request whose bulk bytes are in a bay.
pub fn encode_publish(request: &Request, filled: Filled, id: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let Request { epoch, session, hurried, partition, ref body } = *request;
    let hollow = bulk::hollow_body(body);
    let body = hollow.as_ref().map_or(body, |(hollow, _)| hollow);
    let publish = PublishToSend { filled, request: RequestToSend { epoch, session, hurried, partition, body } };
    append(Kind::Publish, id, &publish, &Bytes::new(), out).map(drop)
}

/// Appends what a request brought; gives what is to be written behind it. What is too long to be sent is to be sent as
/// `Failure::from(too_long)`.
pub fn encode_reply(reply: &Result<Answer, Failure>, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    match reply {
        Err(failure) => append(Kind::Failure, id, failure, &Bytes::new(), out),
        Ok(answer) => match bulk::hollow_answer(answer) {
            None => append(Kind::Answer, id, answer, &Bytes::new(), out),
            Some((hollow, payload)) => append(Kind::Answer, id, &hollow, payload, out),
        },
    }
}

/// Reads an answer.
pub fn decode_answer(meta: &[u8], payload: Bytes) -> Result<Answer, Garbled> {
    let mut answer: Answer = parse(Kind::Answer, meta)?;
    bulk::fill(Kind::Answer, bulk::answer_slot(&mut answer), payload)?;
    check::answer(&answer).map_err(|why| Garbled::Meta { kind: Kind::Answer, why: why.into() })?;
    Ok(answer)
}

/// Reads a failure.
pub fn decode_failure(meta: &[u8]) -> Result<Failure, Garbled> {
    parse(Kind::Failure, meta)
}

/// Appends that nobody waits for a request any more.
pub fn encode_cancel(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Cancel, id, out);
}

/// Appends that a batch of recalls is forgotten.
pub fn encode_heard(batch: u64, out: &mut Vec<u8>) {
    bare(Kind::Heard, batch, out);
}

/// Appends a ping.
pub fn encode_ping(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Ping, id, out);
}

/// Appends the answer to a ping.
pub fn encode_pong(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Pong, id, out);
}

/// Appends that a session keeps what it is answered, to be answered under `id`.
pub fn encode_watch(session: Session, id: u64, out: &mut Vec<u8>) {
    short(Kind::Watch, id, &session, out);
}

/// Appends that a session is told nothing any more.
pub fn encode_unwatch(session: Session, out: &mut Vec<u8>) {
    short(Kind::Unwatch, 0, &session, out);
}

/// Appends that a session which watches is told of what others remove.
pub fn encode_prunes(session: Session, out: &mut Vec<u8>) {
    short(Kind::Prunes, 0, &session, out);
}

/// Appends what a session must forget, at most [`RECALLS_MAX`] of it; its `heard` comes under `batch`.
pub fn encode_recalls(session: Session, recalls: &[Recall], batch: u64, out: &mut Vec<u8>) {
    assert!(recalls.len() <= RECALLS_MAX, "{} recalls in one frame", recalls.len());
    short(Kind::Recall, batch, &Recalls { session, recalls: recalls.into() }, out);
}

/// Appends that descriptors can be lent over this connection; one is to go with it.
pub fn encode_near(out: &mut Vec<u8>) {
    bare(Kind::Near, 0, out);
}

/// Appends that a descriptor is wanted, to be answered under `id`.
pub fn encode_borrow(borrow: Borrow, id: u64, out: &mut Vec<u8>) {
    short(Kind::Borrow, id, &borrow, out);
}

/// Appends that a program wants a descriptor, to be answered under `id`.
pub fn encode_obtain(obtain: Obtain, id: u64, out: &mut Vec<u8>) {
    short(Kind::Obtain, id, &obtain, out);
}

/// Appends that a program wants a descriptor of what the request right behind this opens, in this way; to be answered under `id`.
pub fn encode_attach(flags: OpenFlags, id: u64, out: &mut Vec<u8>) {
    short(Kind::Attach, id, &flags, out);
}

/// Appends under which mark a descriptor is given, which is to go with it.
pub fn encode_given(mark: Mark, id: u64, out: &mut Vec<u8>) {
    short(Kind::Given, id, &mark, out);
}

/// Appends that a descriptor is lent, which is to go with it.
pub fn encode_lent(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Lent, id, out);
}

/// Appends that loans are used no more, however many.
pub fn encode_returned(loans: &[u64], out: &mut Vec<u8>) {
    for loans in loans.chunks(RETURNED_MAX) {
        short(Kind::Returned, 0, &loans, out);
    }
}

/// Appends that descriptors with these marks were closed, however many.
pub fn encode_closed(marks: &[Mark], out: &mut Vec<u8>) {
    for marks in marks.chunks(RETURNED_MAX) {
        short(Kind::Closed, 0, &marks, out);
    }
}

/// Appends that a part of the node's memory can be mapped; its descriptor is to go with it.
pub fn encode_segment(segment: Segment, number: u32, out: &mut Vec<u8>) {
    short(Kind::Segment, number.into(), &segment, out);
}

/// Appends that a part is mapped.
pub fn encode_mapped(number: u32, out: &mut Vec<u8>) {
    bare(Kind::Mapped, number.into(), out);
}

/// Appends that a part is no more.
pub fn encode_hidden(number: u32, out: &mut Vec<u8>) {
    bare(Kind::Hidden, number.into(), out);
}

/// Appends that there is a bay; its descriptor is to go with it.
pub fn encode_bay(bay: Bay, out: &mut Vec<u8>) {
    short(Kind::Bay, 0, &bay, out);
}

/// Appends where the bytes are that a request brought.
pub fn encode_placed(placed: Placed, id: u64, out: &mut Vec<u8>) {
    short(Kind::Placed, id, &placed, out);
}

/// Appends why the connection ends; a long reason is cut.
pub fn encode_goodbye(why: &str, out: &mut Vec<u8>) {
    let why = cut(why, REASON_BYTES_MAX);
    short(Kind::Goodbye, 0, &Goodbye { why: why.into() }, out);
}

/// The text up to a limit in bytes, and whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn bare(kind: Kind, id: u64, out: &mut Vec<u8>) {
    meta::append_bare(kind, id, out);
}

/// Appends what always fits.
pub(crate) fn short<T: Serialize>(kind: Kind, id: u64, meta: &T, out: &mut Vec<u8>) {
    append(kind, id, meta, &Bytes::new(), out).expect("its parts are bounded to less");
}

/// Reads the meta of a frame of the handshake.
pub(crate) fn parse_short<'a, T: Deserialize<'a>>(kind: Kind, meta: &'a [u8]) -> Result<T, Garbled> {
    parse(kind, meta)
}

impl From<TooLong> for Failure {
    /// What is asked for at once is bounded: less of it can be had.
    fn from(TooLong { max, .. }: TooLong) -> Self {
        Self::Refused(Refusal::TooLarge { object: Object::Pool, limit: max.into() })
    }
}
