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
pub(crate) mod check;
mod message;
mod meta;

use crate::{
    Answer, Body, Extent, Failure, LeaseKind, Object, OpenFlags, OpenLeaseId, Recall, Refusal, Request, Session,
    frame::{DecodeError, FrameKind, TooLong},
};
use bytes::Bytes;
use meta::{append, parse};
use placement::{Epoch, FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

pub use bulk::{answer_bulk_bytes, begins_stripe, body_bulk};
pub(crate) use check::CheckResult;
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
pub const LEASES_MAX: usize = 4096;
/// Maximum length of the reason in a goodbye, bytes. Longer ones are truncated.
const REASON_BYTES_MAX: usize = 900;

/// A request with a borrowed body. Encodes as [`Request`] does.
#[derive(Serialize)]
#[serde(rename = "Request")]
struct RequestToSend<'a> {
    epoch: Epoch,
    session: Session,
    skip_ack: bool,
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
pub struct LeaseFd {
    /// The extent.
    pub extent: Extent,
    /// Flags of the intended use.
    pub flags: OpenFlags,
}

/// Request for a descriptor with an open lease, for a program that may copy it and pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFd {
    /// The session that has the file open.
    pub session: Session,
    /// The open file.
    pub file: FileId,
    /// Flags of the open.
    pub flags: OpenFlags,
    /// The wanted file behind the descriptor.
    pub kind: LeaseKind,
}

/// A segment of a node's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its length, bytes.
    pub length: u64,
}

/// A range in a segment of a node's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmRange {
    /// Number of the segment.
    pub segment: u32,
    /// Offset in the segment, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub length: u32,
}

/// A write segment: shared memory of the node that one client writes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSegmentInfo {
    /// Total length of its blocks, bytes. The offer table follows them.
    pub length: u64,
    /// Length of a block, bytes.
    pub block_bytes: u32,
    /// Minimum number of bytes to write this way. Shorter ones are better sent.
    pub least_bytes: u32,
}

/// A block of a write segment that the client has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmPayload {
    /// Its slot in the offer table.
    pub slot: u32,
    /// Number of bytes, from the start of the block.
    pub length: u32,
}

/// A request whose bulk bytes are in a write segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestInShm {
    /// Location of the bulk bytes.
    pub filled: ShmPayload,
    /// The request, without the bulk bytes.
    request: Request,
}

/// A [`RequestInShm`] with a borrowed body.
#[derive(Serialize)]
#[serde(rename = "RequestInShm")]
struct RequestInShmToSend<'a> {
    filled: ShmPayload,
    request: RequestToSend<'a>,
}

impl RequestInShm {
    /// Creates one of a request without bulk bytes, and their location.
    pub fn new(filled: ShmPayload, request: Request) -> Self {
        Self { filled, request }
    }

    /// Puts the bytes into the request and validates it as a client's request.
    pub fn into_request(self, bytes: Bytes) -> Result<Request, DecodeError> {
        filled(FrameKind::RequestInShm, self.request, bytes)
    }
}

/// Meta of a goodbye.
#[derive(Serialize, Deserialize)]
struct Goodbye<'a> {
    why: Cow<'a, str>,
}

/// Appends a request; returns the payload to write after it.
pub fn encode_request(request: &Request, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    let Request { epoch, session, skip_ack, partition, ref body } = *request;
    let send = |body| RequestToSend { epoch, session, skip_ack, partition, body };
    match bulk::split_body(body) {
        None => append(FrameKind::Request, id, &send(body), &Bytes::new(), out),
        Some((split, payload)) => append(FrameKind::Request, id, &send(&split), payload, out),
    }
}

/// Decodes the output of [`encode_request`], and validates it as a client's request.
pub fn decode_request(meta: &[u8], payload: Bytes) -> Result<Request, DecodeError> {
    filled(FrameKind::Request, parse(FrameKind::Request, meta)?, payload)
}

fn filled(kind: FrameKind, mut request: Request, payload: Bytes) -> Result<Request, DecodeError> {
    bulk::fill(kind, bulk::body_slot(&mut request.body), payload)?;
    check::request(&request).map_err(|why| DecodeError::Meta { kind, why: why.into() })?;
    Ok(request)
}

/// Appends a request whose bulk bytes are in a write segment.
pub fn encode_request_in_shm(request: &Request, filled: ShmPayload, id: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let Request { epoch, session, skip_ack, partition, ref body } = *request;
    let split = bulk::split_body(body);
    let body = split.as_ref().map_or(body, |(split, _)| split);
    let in_shm = RequestInShmToSend { filled, request: RequestToSend { epoch, session, skip_ack, partition, body } };
    append(FrameKind::RequestInShm, id, &in_shm, &Bytes::new(), out).map(drop)
}

/// Appends an answer or failure; returns the payload to write after it. If it is too long, send
/// `Failure::from(too_long)` instead.
pub fn encode_reply(reply: &Result<Answer, Failure>, id: u64, out: &mut Vec<u8>) -> Result<Bytes, TooLong> {
    match reply {
        Err(failure) => append(FrameKind::Failure, id, failure, &Bytes::new(), out),
        Ok(answer) => match bulk::split_answer(answer) {
            None => append(FrameKind::Answer, id, answer, &Bytes::new(), out),
            Some((split, payload)) => append(FrameKind::Answer, id, &split, payload, out),
        },
    }
}

/// Decodes an answer.
pub fn decode_answer(meta: &[u8], payload: Bytes) -> Result<Answer, DecodeError> {
    let mut answer: Answer = parse(FrameKind::Answer, meta)?;
    bulk::fill(FrameKind::Answer, bulk::answer_slot(&mut answer), payload)?;
    check::answer(&answer).map_err(|why| DecodeError::Meta { kind: FrameKind::Answer, why: why.into() })?;
    Ok(answer)
}

/// Decodes a failure.
pub fn decode_failure(meta: &[u8]) -> Result<Failure, DecodeError> {
    parse(FrameKind::Failure, meta)
}

/// Appends a cancellation: the client waits for this request no more.
pub fn encode_cancel(id: u64, out: &mut Vec<u8>) {
    append_bare(FrameKind::Cancel, id, out);
}

/// Appends the ack of a batch of cache invalidations.
pub fn encode_ack(batch: u64, out: &mut Vec<u8>) {
    append_bare(FrameKind::Ack, batch, out);
}

/// Appends a ping.
pub fn encode_ping(id: u64, out: &mut Vec<u8>) {
    append_bare(FrameKind::Ping, id, out);
}

/// Appends the reply to a ping.
pub fn encode_pong(id: u64, out: &mut Vec<u8>) {
    append_bare(FrameKind::Pong, id, out);
}

/// Appends the subscription of a session to cache invalidations; the node replies under `id`.
pub fn encode_subscribe(session: Session, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::Subscribe, id, &session, out);
}

/// Appends the end of a session's subscription.
pub fn encode_unsubscribe(session: Session, out: &mut Vec<u8>) {
    short(FrameKind::Unsubscribe, 0, &session, out);
}

/// Appends that a subscribed session supports prune notices for inodes that others delete.
pub fn encode_supports_prune(session: Session, out: &mut Vec<u8>) {
    short(FrameKind::SupportsPrune, 0, &session, out);
}

/// Appends cache invalidations for a session, at most [`RECALLS_MAX`]. The client acks them under
/// `batch`.
pub fn encode_recalls(session: Session, recalls: &[Recall], batch: u64, out: &mut Vec<u8>) {
    assert!(recalls.len() <= RECALLS_MAX, "{} recalls in one frame", recalls.len());
    short(FrameKind::Recall, batch, &Recalls { session, recalls: recalls.into() }, out);
}

/// Appends that descriptors can be leased over this connection. A descriptor must be sent with it:
/// the client's end of the liveness pipe.
pub fn encode_fd_passing(out: &mut Vec<u8>) {
    append_bare(FrameKind::FdPassing, 0, out);
}

/// Appends a request for a leased descriptor; the node replies under `id`.
pub fn encode_lease_fd(request: LeaseFd, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::LeaseFd, id, &request, out);
}

/// Appends a request for a program's own descriptor; the node replies under `id`.
pub fn encode_program_fd(request: ProgramFd, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::ProgramFd, id, &request, out);
}

/// Appends a request for a program's own descriptor of the file that the next request opens with
/// these flags; the node replies under `id`.
pub fn encode_open_with_fd(flags: OpenFlags, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::OpenWithFd, id, &flags, out);
}

/// Appends the id of an open lease. Its descriptor must be sent with it.
pub fn encode_granted_fd(lease: OpenLeaseId, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::GrantedFd, id, &lease, out);
}

/// Appends the reply with a leased descriptor. The descriptor must be sent with it.
pub fn encode_leased_fd(id: u64, out: &mut Vec<u8>) {
    append_bare(FrameKind::LeasedFd, id, out);
}

/// Appends the return of any number of leases.
pub fn encode_leases_returned(leases: &[u64], out: &mut Vec<u8>) {
    for leases in leases.chunks(LEASES_MAX) {
        short(FrameKind::LeasesReturned, 0, &leases, out);
    }
}

/// Appends that the descriptors of any number of open leases were closed.
pub fn encode_leases_closed(leases: &[OpenLeaseId], out: &mut Vec<u8>) {
    for leases in leases.chunks(LEASES_MAX) {
        short(FrameKind::LeasesClosed, 0, &leases, out);
    }
}

/// Appends a segment of the node's memory that the client can map. Its descriptor must be sent with
/// it.
pub fn encode_segment(segment: Segment, number: u32, out: &mut Vec<u8>) {
    short(FrameKind::Segment, number.into(), &segment, out);
}

/// Appends that the client has mapped a segment.
pub fn encode_segment_mapped(number: u32, out: &mut Vec<u8>) {
    append_bare(FrameKind::SegmentMapped, number.into(), out);
}

/// Appends that a segment no longer exists.
pub fn encode_segment_removed(number: u32, out: &mut Vec<u8>) {
    append_bare(FrameKind::SegmentRemoved, number.into(), out);
}

/// Appends a write segment. Its descriptor must be sent with it.
pub fn encode_write_segment(segment: WriteSegmentInfo, out: &mut Vec<u8>) {
    short(FrameKind::WriteSegment, 0, &segment, out);
}

/// Appends a reply by reference: the range with the requested bytes.
pub fn encode_reply_in_shm(range: ShmRange, id: u64, out: &mut Vec<u8>) {
    short(FrameKind::ReplyInShm, id, &range, out);
}

/// Appends the reason why the connection ends; truncates a long one.
pub fn encode_goodbye(why: &str, out: &mut Vec<u8>) {
    let why = cut(why, REASON_BYTES_MAX);
    short(FrameKind::Goodbye, 0, &Goodbye { why: why.into() }, out);
}

/// Truncates a text to at most `bytes_max` bytes, between characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn append_bare(kind: FrameKind, id: u64, out: &mut Vec<u8>) {
    meta::append_bare(kind, id, out);
}

/// Appends a frame that never exceeds its bounds.
pub(crate) fn short<T: Serialize>(kind: FrameKind, id: u64, meta: &T, out: &mut Vec<u8>) {
    append(kind, id, meta, &Bytes::new(), out).expect("its parts are bounded to less");
}

/// Decodes the meta of a handshake frame.
pub(crate) fn parse_short<'a, T: Deserialize<'a>>(kind: FrameKind, meta: &'a [u8]) -> Result<T, DecodeError> {
    parse(kind, meta)
}

impl From<TooLong> for Failure {
    /// Becomes a `TooLarge` refusal: the caller can request less at once.
    fn from(TooLong { max, .. }: TooLong) -> Self {
        Self::Refused(Refusal::TooLarge { object: Object::Pool, limit: max.into() })
    }
}
