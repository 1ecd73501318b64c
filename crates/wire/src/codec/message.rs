//! Received messages, decoded for one side.

use super::{
    Goodbye, LEASES_MAX, LeaseFd, ProgramFd, RECALLS_MAX, Recalls, RequestInShm, Segment, ShmRange, WriteSegmentInfo,
    decode_answer, decode_failure, decode_request, meta::parse,
};
use crate::{
    Answer, Failure, OpenFlags, OpenLeaseId, Recall, Request, Session,
    frame::{DecodeError, Frame, FrameKind, Phase, Side},
};

/// A message to a node after the handshake.
#[derive(Debug, PartialEq)]
pub enum ToNode {
    /// A request. Ids must increase: a node treats one that does not as garbled.
    Request {
        /// Id of the answer's frame.
        id: u64,
        /// The request.
        request: Request,
    },
    /// The client waits for this request no more. A request that still waits for something may end.
    Cancel {
        /// Id of the request, which may have been answered already.
        id: u64,
    },
    /// Subscribes a session to cache invalidations. The node replies as to a request.
    Subscribe {
        /// Id of the reply.
        id: u64,
        /// The session.
        session: Session,
    },
    /// Ends a session's subscription.
    Unsubscribe {
        /// The session.
        session: Session,
    },
    /// The subscribed session supports prune notices for inodes that others delete.
    SupportsPrune {
        /// The session.
        session: Session,
    },
    /// Acks a batch of cache invalidations.
    Ack {
        /// Number of the batch.
        batch: u64,
    },
    /// A ping; the node replies with a pong of this id.
    Ping(u64),
    /// Reply to a ping of the node.
    Pong(u64),
    /// The client ends the connection.
    Goodbye(String),
    /// Requests a leased descriptor. The node replies as to a request, or with `leased_fd`.
    LeaseFd {
        /// Id of the reply, and of the lease.
        id: u64,
        /// The extent and the intended use.
        request: LeaseFd,
    },
    /// Requests a program's own descriptor. The node replies as to a request, or with `granted_fd`.
    ProgramFd {
        /// Id of the reply.
        id: u64,
        /// The open file.
        request: ProgramFd,
    },
    /// Requests a program's own descriptor of the file that the next request opens.
    OpenWithFd {
        /// Id of the reply.
        id: u64,
        /// Flags of that open.
        flags: OpenFlags,
    },
    /// Returns these leases.
    LeasesReturned(Vec<u64>),
    /// The client closed its descriptors of these open leases.
    LeasesClosed(Vec<OpenLeaseId>),
    /// The client has mapped this segment: the node may reply by reference to it.
    SegmentMapped {
        /// Number of the segment.
        number: u64,
    },
    /// A request whose bytes are in the client's write segment. Its id is counted with those of
    /// requests.
    RequestInShm {
        /// Id of the answer's frame.
        id: u64,
        /// The request and the location of its bytes.
        request: Box<RequestInShm>,
    },
}

/// A message to a client after the handshake.
#[derive(Debug, PartialEq)]
pub enum ToClient {
    /// Answer to a request or subscription. Dropped if nobody waits for this id.
    Reply {
        /// Id of the request.
        id: u64,
        /// The answer or failure.
        reply: Result<Answer, Failure>,
    },
    /// Cache invalidations. The client applies them, then acks them.
    Recall {
        /// Number of the batch, for the ack.
        batch: u64,
        /// The subscribed session.
        session: Session,
        /// The invalidations.
        recalls: Vec<Recall>,
    },
    /// A ping; the client replies with a pong of this id.
    Ping(u64),
    /// Reply to a ping of the client.
    Pong(u64),
    /// The node ends the connection.
    Goodbye(String),
    /// Descriptors can be leased over this connection. The client's end of the liveness pipe came
    /// with it.
    FdPassing,
    /// A leased descriptor came with this.
    LeasedFd {
        /// Id of its `lease_fd`, and of the lease.
        id: u64,
    },
    /// A program's own descriptor came with this.
    GrantedFd {
        /// Id of its `program_fd` or `open_with_fd`.
        id: u64,
        /// The open lease.
        lease: OpenLeaseId,
    },
    /// A segment of the node's memory; its descriptor came with this.
    Segment {
        /// Number of the segment.
        number: u64,
        /// Its length.
        segment: Segment,
    },
    /// Reply by reference: the range with the requested bytes. They stay unchanged until the client
    /// returns the lease of this id.
    ReplyInShm {
        /// Id of the request, and of the lease.
        id: u64,
        /// The range.
        range: ShmRange,
    },
    /// A segment of the node's memory no longer exists.
    SegmentRemoved {
        /// Number of the segment.
        number: u64,
    },
    /// A write segment; its descriptor came with this.
    WriteSegment(WriteSegmentInfo),
}

fn misplaced(kind: FrameKind, side: Side) -> DecodeError {
    DecodeError::Unexpected { kind, side, phase: Phase::Open }
}

fn goodbye(meta: &[u8]) -> Result<String, DecodeError> {
    Ok(parse::<Goodbye<'_>>(FrameKind::Goodbye, meta)?.why.into_owned())
}

impl ToNode {
    /// Decodes a frame that a node received.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let Frame { header, meta, payload } = frame;
        let (kind, id) = (header.kind, header.id);
        Ok(match kind {
            FrameKind::Request => Self::Request { id, request: decode_request(meta, payload)? },
            FrameKind::Cancel => Self::Cancel { id },
            FrameKind::Subscribe => Self::Subscribe { id, session: parse(kind, meta)? },
            FrameKind::Unsubscribe => Self::Unsubscribe { session: parse(kind, meta)? },
            FrameKind::SupportsPrune => Self::SupportsPrune { session: parse(kind, meta)? },
            FrameKind::Ack => Self::Ack { batch: id },
            FrameKind::Ping => Self::Ping(id),
            FrameKind::Pong => Self::Pong(id),
            FrameKind::Goodbye => Self::Goodbye(goodbye(meta)?),
            FrameKind::LeaseFd => Self::LeaseFd { id, request: parse(kind, meta)? },
            FrameKind::ProgramFd => Self::ProgramFd { id, request: parse(kind, meta)? },
            FrameKind::OpenWithFd => Self::OpenWithFd { id, flags: parse(kind, meta)? },
            FrameKind::LeasesReturned => {
                let leases: Vec<u64> = parse(kind, meta)?;
                if leases.len() > LEASES_MAX {
                    return Err(DecodeError::Meta { kind, why: format!("more than {LEASES_MAX} loans") });
                }
                Self::LeasesReturned(leases)
            }
            FrameKind::LeasesClosed => {
                let leases: Vec<OpenLeaseId> = parse(kind, meta)?;
                if leases.len() > LEASES_MAX {
                    return Err(DecodeError::Meta { kind, why: format!("more than {LEASES_MAX} open leases") });
                }
                Self::LeasesClosed(leases)
            }
            FrameKind::SegmentMapped => Self::SegmentMapped { number: id },
            FrameKind::RequestInShm => Self::RequestInShm { id, request: Box::new(parse(kind, meta)?) },
            FrameKind::Answer
            | FrameKind::Failure
            | FrameKind::Recall
            | FrameKind::FdPassing
            | FrameKind::LeasedFd
            | FrameKind::GrantedFd
            | FrameKind::Segment
            | FrameKind::ReplyInShm
            | FrameKind::SegmentRemoved
            | FrameKind::WriteSegment
            | FrameKind::Challenge
            | FrameKind::Hello
            | FrameKind::Welcome
            | FrameKind::Refused => return Err(misplaced(kind, Side::Node)),
        })
    }
}

impl ToClient {
    /// Decodes a frame that a client received.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let Frame { header, meta, payload } = frame;
        let (kind, id) = (header.kind, header.id);
        Ok(match kind {
            FrameKind::Answer => Self::Reply { id, reply: Ok(decode_answer(meta, payload)?) },
            FrameKind::Failure => Self::Reply { id, reply: Err(decode_failure(meta)?) },
            FrameKind::Recall => {
                let Recalls { session, recalls } = parse(kind, meta)?;
                if recalls.len() > RECALLS_MAX {
                    return Err(DecodeError::Meta { kind, why: format!("more than {RECALLS_MAX} recalls") });
                }
                Self::Recall { batch: id, session, recalls: recalls.into_owned() }
            }
            FrameKind::Ping => Self::Ping(id),
            FrameKind::Pong => Self::Pong(id),
            FrameKind::Goodbye => Self::Goodbye(goodbye(meta)?),
            FrameKind::FdPassing => Self::FdPassing,
            FrameKind::LeasedFd => Self::LeasedFd { id },
            FrameKind::GrantedFd => Self::GrantedFd { id, lease: parse(kind, meta)? },
            FrameKind::Segment => Self::Segment { number: id, segment: parse(kind, meta)? },
            FrameKind::ReplyInShm => Self::ReplyInShm { id, range: parse(kind, meta)? },
            FrameKind::SegmentRemoved => Self::SegmentRemoved { number: id },
            FrameKind::WriteSegment => Self::WriteSegment(parse(kind, meta)?),
            FrameKind::Request
            | FrameKind::RequestInShm
            | FrameKind::Cancel
            | FrameKind::SegmentMapped
            | FrameKind::LeaseFd
            | FrameKind::ProgramFd
            | FrameKind::OpenWithFd
            | FrameKind::LeasesClosed
            | FrameKind::LeasesReturned
            | FrameKind::Subscribe
            | FrameKind::Unsubscribe
            | FrameKind::SupportsPrune
            | FrameKind::Ack
            | FrameKind::Challenge
            | FrameKind::Hello
            | FrameKind::Welcome
            | FrameKind::Refused => {
                return Err(misplaced(kind, Side::Client));
            }
        })
    }
}
