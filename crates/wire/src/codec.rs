//! Encoding of messages to frames, and decoding.
//!
//! An encoder appends a whole frame up to its payload, and returns the payload to write after it,
//! without a copy. It appends a short payload too, and then returns nothing. A decoder takes meta
//! and payload of a [`Frame`](crate::frame::Frame) whose header was checked. It trusts nothing: the
//! values that it returns keep all invariants of their types.
//!
//! The meta is encoded by serde with [postcard](https://postcard.jamesmunns.com/wire-format). The
//! bulk bytes of a message are empty in the meta and travel as the payload. `docs/formats/wire.md`
//! describes the format for authors of other clients.

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

/// Maximum length of a payload that is appended to its frame, bytes. Copying it costs less than one
/// more piece in a vectored write.
pub const COPIED_BYTES_MAX: usize = 1024;
/// Maximum number of cache invalidations in one frame: they fit into its meta, whatever the ids.
pub const RECALLS_MAX: usize = 4096;
/// Maximum number of ranges in one answer: an object of that many stripes, each in a place of its
/// own.
pub const RUNS_MAX: usize = 1024;
/// Maximum number of returned leases, or of closed open leases, in one frame: they fit into its
/// meta, whatever the ids.
pub const RETURNED_MAX: usize = 4096;
/// Maximum length of the reason in a goodbye, bytes. Longer ones are truncated.
const REASON_BYTES_MAX: usize = 900;

/// A request with a borrowed body. Encodes as [`Request`] does.
#[derive(Serialize)]
#[serde(rename = "Request")]
struct RequestToSend<'a> {
    epoch: Epoch,
    session: Session,
    hurried: bool,
    partition: PartitionId,
    body: &'a Body,
}

/// Cache invalidations for a subscribed session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalls<'a> {
    /// The session.
    pub session: Session,
    /// The invalidations; at most [`RECALLS_MAX`].
    pub recalls: Cow<'a, [Recall]>,
}

/// Request for a leased descriptor of an extent, for a client that returns it (a mount).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrow {
    /// The extent.
    pub extent: Extent,
    /// Flags of the intended use.
    pub flags: OpenFlags,
}

/// Request for a descriptor with an open lease, for a program that may copy it and pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtain {
    /// The session that has the file open.
    pub session: Session,
    /// The open file.
    pub file: FileId,
    /// Flags of the open.
    pub flags: OpenFlags,
    /// The wanted file behind the descriptor.
    pub lent: Lent,
}

/// A segment of a node's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its length, bytes.
    pub length: u64,
}

/// A range in a segment of a node's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Number of the segment.
    pub segment: u32,
    /// Offset in the segment, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub length: u32,
}

/// A write segment: shared memory of the node that one client writes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// Total length of its blocks, bytes. The offer table follows them.
    pub length: u64,
    /// Length of a block, bytes.
    pub block_bytes: u32,
    /// Minimum number of bytes to write this way. Shorter ones are better sent.
    pub least_bytes: u32,
}

/// A block of a write segment that the client has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Its slot in the offer table.
    pub slot: u32,
    /// Number of bytes, from the start of the block.
    pub length: u32,
}

/// A request whose bulk bytes are in a write segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Publish {
    /// Location of the bulk bytes.
    pub filled: Filled,
    /// The request, without the bulk bytes.
    request: Request,
}

/// A [`Publish`] with a borrowed body.
#[derive(Serialize)]
#[serde(rename = "Publish")]
struct PublishToSend<'a> {
    filled: Filled,
    request: RequestToSend<'a>,
}

impl Publish {
    /// Creates one of a request without bulk bytes, and their location.
    pub fn new(filled: Filled, request: Request) -> Self {
        Self { filled, request }
    }

    /// Puts the bytes into the request and validates it as a client's request.
    pub fn into_request(self, bytes: Bytes) -> Result<Request, Garbled> {
        filled(Kind::Publish, self.request, bytes)
    }
}

/// Meta of a goodbye.
#[derive(Serialize, Deserialize)]
struct Goodbye<'a> {
    why: Cow<'a, str>,
}

/// Appends a request; returns the payload to write after it.
pub fn encode_request(request: &Request, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    let Request { epoch, session, hurried, partition, ref body } = *request;
    let send = |body| RequestToSend { epoch, session, hurried, partition, body };
    match bulk::hollow_body(body) {
        None => append(Kind::Request, id, &send(body), &Bytes::new(), out),
        Some((hollow, payload)) => append(Kind::Request, id, &send(&hollow), payload, out),
    }
}

/// Decodes the output of [`encode_request`], and validates it as a client's request.
pub fn decode_request(meta: &[u8], payload: Bytes) -> Result<Request, Garbled> {
    filled(Kind::Request, parse(Kind::Request, meta)?, payload)
}

fn filled(kind: Kind, mut request: Request, payload: Bytes) -> Result<Request, Garbled> {
    bulk::fill(kind, bulk::body_slot(&mut request.body), payload)?;
    check::request(&request).map_err(|why| Garbled::Meta { kind, why: why.into() })?;
    Ok(request)
}

/// Appends a request whose bulk bytes are in a write segment.
pub fn encode_publish(request: &Request, filled: Filled, id: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let Request { epoch, session, hurried, partition, ref body } = *request;
    let hollow = bulk::hollow_body(body);
    let body = hollow.as_ref().map_or(body, |(hollow, _)| hollow);
    let publish = PublishToSend { filled, request: RequestToSend { epoch, session, hurried, partition, body } };
    append(Kind::Publish, id, &publish, &Bytes::new(), out).map(drop)
}

/// Appends an answer or failure; returns the payload to write after it. If it is too long, send
/// `Failure::from(too_long)` instead.
pub fn encode_reply(reply: &Result<Answer, Failure>, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    match reply {
        Err(failure) => append(Kind::Failure, id, failure, &Bytes::new(), out),
        Ok(answer) => match bulk::hollow_answer(answer) {
            None => append(Kind::Answer, id, answer, &Bytes::new(), out),
            Some((hollow, payload)) => append(Kind::Answer, id, &hollow, payload, out),
        },
    }
}

/// Decodes an answer.
pub fn decode_answer(meta: &[u8], payload: Bytes) -> Result<Answer, Garbled> {
    let mut answer: Answer = parse(Kind::Answer, meta)?;
    bulk::fill(Kind::Answer, bulk::answer_slot(&mut answer), payload)?;
    check::answer(&answer).map_err(|why| Garbled::Meta { kind: Kind::Answer, why: why.into() })?;
    Ok(answer)
}

/// Decodes a failure.
pub fn decode_failure(meta: &[u8]) -> Result<Failure, Garbled> {
    parse(Kind::Failure, meta)
}

/// Appends a cancellation: the client waits for this request no more.
pub fn encode_cancel(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Cancel, id, out);
}

/// Appends the ack of a batch of cache invalidations.
pub fn encode_heard(batch: u64, out: &mut Vec<u8>) {
    bare(Kind::Heard, batch, out);
}

/// Appends a ping.
pub fn encode_ping(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Ping, id, out);
}

/// Appends the reply to a ping.
pub fn encode_pong(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Pong, id, out);
}

/// Appends the subscription of a session to cache invalidations; the node replies under `id`.
pub fn encode_watch(session: Session, id: u64, out: &mut Vec<u8>) {
    short(Kind::Watch, id, &session, out);
}

/// Appends the end of a session's subscription.
pub fn encode_unwatch(session: Session, out: &mut Vec<u8>) {
    short(Kind::Unwatch, 0, &session, out);
}

/// Appends that a subscribed session supports prune notices for inodes that others delete.
pub fn encode_prunes(session: Session, out: &mut Vec<u8>) {
    short(Kind::Prunes, 0, &session, out);
}

/// Appends cache invalidations for a session, at most [`RECALLS_MAX`]. The client acks them under
/// `batch`.
pub fn encode_recalls(session: Session, recalls: &[Recall], batch: u64, out: &mut Vec<u8>) {
    assert!(recalls.len() <= RECALLS_MAX, "{} recalls in one frame", recalls.len());
    short(Kind::Recall, batch, &Recalls { session, recalls: recalls.into() }, out);
}

/// Appends that descriptors can be leased over this connection. A descriptor must be sent with it:
/// the client's end of the liveness pipe.
pub fn encode_near(out: &mut Vec<u8>) {
    bare(Kind::Near, 0, out);
}

/// Appends a request for a leased descriptor; the node replies under `id`.
pub fn encode_borrow(borrow: Borrow, id: u64, out: &mut Vec<u8>) {
    short(Kind::Borrow, id, &borrow, out);
}

/// Appends a request for a program's own descriptor; the node replies under `id`.
pub fn encode_obtain(obtain: Obtain, id: u64, out: &mut Vec<u8>) {
    short(Kind::Obtain, id, &obtain, out);
}

/// Appends a request for a program's own descriptor of the file that the next request opens with
/// these flags; the node replies under `id`.
pub fn encode_attach(flags: OpenFlags, id: u64, out: &mut Vec<u8>) {
    short(Kind::Attach, id, &flags, out);
}

/// Appends the id of an open lease. Its descriptor must be sent with it.
pub fn encode_given(mark: Mark, id: u64, out: &mut Vec<u8>) {
    short(Kind::Given, id, &mark, out);
}

/// Appends the reply with a leased descriptor. The descriptor must be sent with it.
pub fn encode_lent(id: u64, out: &mut Vec<u8>) {
    bare(Kind::Lent, id, out);
}

/// Appends the return of any number of leases.
pub fn encode_returned(loans: &[u64], out: &mut Vec<u8>) {
    for loans in loans.chunks(RETURNED_MAX) {
        short(Kind::Returned, 0, &loans, out);
    }
}

/// Appends that the descriptors of any number of open leases were closed.
pub fn encode_closed(marks: &[Mark], out: &mut Vec<u8>) {
    for marks in marks.chunks(RETURNED_MAX) {
        short(Kind::Closed, 0, &marks, out);
    }
}

/// Appends a segment of the node's memory that the client can map. Its descriptor must be sent with
/// it.
pub fn encode_segment(segment: Segment, number: u32, out: &mut Vec<u8>) {
    short(Kind::Segment, number.into(), &segment, out);
}

/// Appends that the client has mapped a segment.
pub fn encode_mapped(number: u32, out: &mut Vec<u8>) {
    bare(Kind::Mapped, number.into(), out);
}

/// Appends that a segment no longer exists.
pub fn encode_hidden(number: u32, out: &mut Vec<u8>) {
    bare(Kind::Hidden, number.into(), out);
}

/// Appends a write segment. Its descriptor must be sent with it.
pub fn encode_bay(bay: Bay, out: &mut Vec<u8>) {
    short(Kind::Bay, 0, &bay, out);
}

/// Appends a reply by reference: the range with the requested bytes.
pub fn encode_placed(placed: Placed, id: u64, out: &mut Vec<u8>) {
    short(Kind::Placed, id, &placed, out);
}

/// Appends the reason why the connection ends; truncates a long one.
pub fn encode_goodbye(why: &str, out: &mut Vec<u8>) {
    let why = cut(why, REASON_BYTES_MAX);
    short(Kind::Goodbye, 0, &Goodbye { why: why.into() }, out);
}

/// Truncates a text to at most `bytes_max` bytes, between characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn bare(kind: Kind, id: u64, out: &mut Vec<u8>) {
    meta::append_bare(kind, id, out);
}

/// Appends a frame that never exceeds its bounds.
pub(crate) fn short<T: Serialize>(kind: Kind, id: u64, meta: &T, out: &mut Vec<u8>) {
    append(kind, id, meta, &Bytes::new(), out).expect("its parts are bounded to less");
}

/// Decodes the meta of a handshake frame.
pub(crate) fn parse_short<'a, T: Deserialize<'a>>(kind: Kind, meta: &'a [u8]) -> Result<T, Garbled> {
    parse(kind, meta)
}

impl From<TooLong> for Failure {
    /// Becomes a `TooLarge` refusal: the caller can request less at once.
    fn from(TooLong { max, .. }: TooLong) -> Self {
        Self::Refused(Refusal::TooLarge { object: Object::Pool, limit: max.into() })
    }
}
